"""What people bring along from the older tools: their files and settings, and what becomes of each key.

Nothing here starts or asks anything: texts go in, fields of a Mirror and settings of a cluster come out, with a line
about every key. A key that nobody knows is refused, with the nearest one that somebody does: Java's tools drop it, and
their flow then runs with a default that nobody wanted.

- :mod:`.properties` reads Java's syntax,
- :mod:`.client_keys` has a row for every key of a Java client,
- :mod:`.clients` makes settings of a cluster, with :mod:`.login` and :mod:`.stores`; :mod:`.providers` fills in
  references to secrets,
- :mod:`.keys` has a row for every key of MirrorMaker 2; :mod:`.driver` and :mod:`.connectors` find out what a file
  declares, :mod:`.flows` makes a Mirror of each flow, :mod:`.files` takes in whole files.
"""
