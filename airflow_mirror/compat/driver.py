"""``connect-mirror-maker.properties``: clusters and flows, by the rules of MirrorMaker 2's own ``MirrorMakerConfig``.

What a flow gets is written as MirrorMaker writes it for its connectors: ``source.cluster.``, ``source.consumer.``,
``target.producer.`` and so on, made of the cluster's keys, and those of the flow itself without a prefix. So a file of
the driver and the JSON of three connectors are one thing from here on (:mod:`.flows`).

A flow's own key wins over one of the top level. MirrorMaker drops what it does not know, and what stands at a place where
it does not look; here the first is refused, and the second named. No problem quotes a value, whatever its key: where a
line is misspelt or broken, nobody knows whether it is a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations

from airflow_mirror.common.nearest import is_slip, nearest, nearest_key
from airflow_mirror.compat.client_keys import ADMIN, COMMON, CONSUMER, PRODUCER, is_basic, is_secret
from airflow_mirror.compat.declared import Declared, Given
from airflow_mirror.compat.keys import DRIVER, FLOW, WORKER
from airflow_mirror.compat.properties import Entry
from airflow_mirror.compat.rows import Fate, Noticed, Row

_CLIENTS = {"consumer.": CONSUMER, "producer.": PRODUCER, "admin.": ADMIN}
_BEHIND_A_VALUE = re.compile(r"\s+#.*", re.DOTALL)
_FLOW = re.compile(r"(.+?)->([^.]+)\.")
_NOBODY = "nobody knows it."
_TRUE_OR_FALSE = ("true", "false")
_STORAGE = ("offset.storage", "config.storage", "status.storage")  # for workers these win over the cluster's


def read(entries: Iterable[Entry]) -> Declared:
    """Return what the entries of a file say."""
    problems, entries = list[str](), list(entries)
    lines = {entry.key: entry.line for entry in entries}
    given = {entry.key: Given(_without_comment(entry), entry.key) for entry in entries}
    clusters = _clusters(given, problems)
    pairs = list(permutations(clusters, 2))
    enabled = [pair for pair in pairs if _is_enabled(given, pair, problems)]
    sorted_in = _Places(clusters, pairs, enabled)
    problems[:0] = [_behind_a_value(entry, sorted_in) for entry in entries if _without_comment(entry) != entry.value]
    noticed = list[Noticed]()
    for key in given:
        found = sorted_in.row(key)
        if isinstance(found, str):
            shown = key if sorted_in.is_key(key, found) else f"line {lines[key]}: what stands there"
            problems.append(f"{shown}: {found} Correct or remove it.")
            continue
        noticed.append(Noticed.by(found, key, given[key].value))
        if found.key in WORKER.keys and found.refuses(given[key].value):
            problems.append(f"{key}: {found.why}.")
    top = {key: one for key, one in given.items() if not key.startswith(sorted_in.prefixes)}
    flows = {pair: _as_its_connectors_get_it(given, top, *pair) for pair in enabled}
    providers = {key: one.value for key, one in top.items() if key.startswith("config.providers")}
    workers = {pair: _as_its_workers_get_it(given, top, pair[1]) for pair in enabled}
    return Declared(flows=flows, providers=providers, noticed=tuple(noticed), problems=tuple(problems), workers=workers)


def _without_comment(entry: Entry) -> str:
    """Return the value as it was meant. In Java's syntax a comment behind a value is a part of it."""
    return entry.value if is_secret(entry.key) else _BEHIND_A_VALUE.sub("", entry.value)


def _behind_a_value(entry: Entry, places: _Places) -> str:
    named = f"{entry.key}: " if places.is_key(entry.key, places.row(entry.key)) else ""
    return (
        f"line {entry.line}: {named}Java knows no comment behind a value: MirrorMaker reads it as part of the value. "
        "Put the comment into a line of its own."
    )


def _clusters(given: Mapping[str, Given], problems: list[str]) -> tuple[str, ...]:
    names = [name.strip() for name in given["clusters"].value.split(",")] if "clusters" in given else []
    found = tuple(dict.fromkeys(name for name in names if name))
    if not found:
        meant = [key.removesuffix(".bootstrap.servers") for key in given if key.endswith(".bootstrap.servers")]
        meant = meant or list(dict.fromkeys(end for key in given if (flow := _FLOW.match(key)) for end in flow.groups()))
        add = f" Add clusters = {', '.join(meant)}." if meant else " Name the clusters, such as clusters = A, B."
        problems.append(f"clusters: missing or empty.{add}")
        return tuple(meant)  # so that the other findings are about what was meant
    return found


def _is_enabled(given: Mapping[str, Given], pair: tuple[str, str], problems: list[str]) -> bool:
    own = given.get(f"{pair[0]}->{pair[1]}.enabled") or given.get("enabled")
    if own is None:
        return False
    if (value := own.value.strip().lower()) not in _TRUE_OR_FALSE:
        problem = f"{own.key}: neither true nor false, so that MirrorMaker takes it for false. Say which."
        if problem not in problems:
            problems.append(problem)
    return value == "true"


class _Places:
    """Knows which keys belong where."""

    def __init__(self, clusters: tuple[str, ...], pairs: list[tuple[str, str]], enabled: list[tuple[str, str]]) -> None:
        self._clusters = clusters
        self._flows = {f"{a}->{b}.": (a, b) for a, b in pairs}
        self._enabled = set(enabled)
        self._used = {alias for pair in enabled for alias in pair}
        # Of a cluster that is only read nothing but a consumer moves data, and of one that is only written a producer.
        self._idle = {
            "consumer.": self._used - {a for a, _ in enabled},
            "producer.": self._used - {b for _, b in enabled},
        }
        # An alias may begin like another one: the longest that fits is meant.
        self._aliases = sorted((f"{alias}." for alias in clusters), key=len, reverse=True)
        self.prefixes = (*self._flows, *self._aliases)

    def row(self, key: str) -> Row | str:
        """Return the row of a key, or what is wrong with it."""
        for prefix, pair in self._flows.items():
            if key.startswith(prefix):
                row = row_in_flow(key.removeprefix(prefix))
                idle = None if pair in self._enabled else "the flow is not enabled"
                return self._told(key, row, idle) or f"no key of a flow.{nearest(key.removeprefix(prefix), FLOW.keys)}"
        if "->" in key:
            return self._unknown_flow(key)
        for prefix in self._aliases:
            if key.startswith(prefix):
                rest, alias = key.removeprefix(prefix), prefix[:-1]
                idle = None if alias in self._used else "no enabled flow has this cluster"
                if idle is None and any(rest.startswith(p) and alias in idlers for p, idlers in self._idle.items()):
                    idle = _OF_ITS_OWN
                found = self._told(key, _of_cluster(rest), idle)
                return found or f"no key of a cluster.{nearest(rest, _CLUSTER_KEYS)}"
        return _of_top_level(key) or self._unknown_cluster(key) or f"{_NOBODY}{nearest_key(key, _TOP_LEVEL_KEYS)}"

    def is_key(self, key: str, found: Row | str) -> bool:
        """Return whether ``key`` was meant for one; else it may be the rest of a secret whose line was broken.

        :param found: what :meth:`row` says of it.
        """
        return found != _NOBODY or any(_of_cluster(tail) and self._is_alias(head) for head, tail in _halves(key))

    def _is_alias(self, name: str) -> bool:
        """Return whether it may be a slip of an alias. What is longer may be the rest of a secret, with the next line."""
        return is_slip(name, self._clusters)

    def _told(self, key: str, row: Row | None, idle: str | None) -> Row | None:
        if row is None or idle is None or key.endswith("enabled"):
            return row
        return Row(row.key, Fate.WITHOUT_EFFECT, why=idle)

    def _unknown_flow(self, key: str) -> str:
        source, _, rest = key.partition("->")
        target = next((head for head, tail in _halves(rest) if row_in_flow(tail)), None)
        if target is None and not nearest(source, self._clusters):
            return _NOBODY
        target = target or rest.split(".")[0]
        wrong = [name for name in (source, target) if name not in self._clusters]
        if not wrong:
            return "a flow leads from one cluster to another."
        if not all(map(self._is_alias, wrong)):
            return _NOBODY
        return " ".join(f"no cluster {name!r} in clusters.{nearest(name, self._clusters)}" for name in wrong)

    def _unknown_cluster(self, key: str) -> str | None:
        for head, tail in _halves(key):
            if not self._is_alias(head):
                continue
            if _of_cluster(tail) and (meant := nearest(head, self._clusters)):
                return f"no cluster {head!r} in clusters.{meant}"
            if tail == "bootstrap.servers":
                return f"no cluster {head!r} in clusters."
        return None


def _halves(key: str) -> Iterator[tuple[str, str]]:
    """Yield what stands before and behind each dot; aliases may have dots, too."""
    parts = key.split(".")
    for at in range(1, len(parts)):
        yield ".".join(parts[:at]), ".".join(parts[at:])


# Where MirrorMaker looks for a key, and where it does not.

_CLUSTER_KEYS = [*COMMON.keys, *WORKER.keys, *(p + key for p, table in _CLIENTS.items() for key in table.keys)]
_TOP_LEVEL_KEYS = [*DRIVER.keys, *FLOW.keys, *WORKER.keys, *filter(is_basic, COMMON.keys)]
_OF_ITS_OWN = "only topics of MirrorMaker's own were read or written with it"


def row_in_flow(rest: str) -> Row | None:
    """Return the row of a flow's key, without the flow, or of a connector's; None: nobody knows it."""
    found = FLOW.find(rest)
    if found is not None:
        return found
    for prefix, table in (
        ("source.consumer.", CONSUMER), ("consumer.", CONSUMER), ("producer.override.", PRODUCER),
        ("source.admin.", ADMIN), ("target.admin.", ADMIN), ("admin.", ADMIN), ("target.producer.", PRODUCER),
    ):  # fmt: skip
        if rest.startswith(prefix):
            return table.find(rest.removeprefix(prefix))
    for prefix in ("source.cluster.", "target.cluster."):
        if rest.startswith(prefix):
            return _of_flows_cluster(rest.removeprefix(prefix))
    for prefix, table in (("producer.", PRODUCER), ("source.producer.", PRODUCER), ("target.consumer.", CONSUMER)):
        if rest.startswith(prefix) and table.find(rest.removeprefix(prefix)):
            return _dropped(rest, _OF_ITS_OWN)
    if WORKER.find(rest) or COMMON.find(rest):
        return _dropped(rest, f"MirrorMaker does not look for it in a flow. It is a cluster's key: ALIAS.{rest}")
    return _of_some_client(rest)


def _of_flows_cluster(key: str) -> Row | None:
    """Return the row of a key below a flow's ``source.cluster.`` or ``target.cluster.``.

    Rule: MirrorConnectorConfig keeps of these what MirrorClientConfig.CLIENT_CONFIG_DEF has, and drops the rest.
    """
    if is_basic(key):
        return COMMON.find(key)
    if any(table.find(key) for table in _CLIENTS.values()):
        return _dropped(key, "MirrorMaker looks there for addresses, encryption and login alone")
    return None


def _of_cluster(rest: str) -> Row | None:
    """Return the row of a cluster's key, without the alias."""
    for prefix, table in _CLIENTS.items():
        if rest.startswith(prefix):
            if FLOW.find(rest):
                return _dropped(rest, f"MirrorMaker does not look for it in a cluster. It is a flow's key: A->B.{rest}")
            return table.find(rest.removeprefix(prefix))
    # A client's key without the client's name counts only if all clients have it: encryption, login, addresses.
    if is_basic(rest):
        return COMMON.find(rest)
    if (row := WORKER.find(rest)) is not None:
        return row
    if (row := _of_some_client(rest)) is not None:
        return row
    if FLOW.find(rest):
        return _dropped(rest, f"MirrorMaker does not look for it in a cluster. It is a flow's key: A->B.{rest}")
    return None


def _of_top_level(key: str) -> Row | None:
    row = DRIVER.find(key) or FLOW.find(key) or WORKER.find(key)
    if row is not None:
        return row
    if is_basic(key):
        return COMMON.find(key)
    for prefix, table in _CLIENTS.items():
        if key.startswith(prefix) and table.find(key.removeprefix(prefix)):
            return _dropped(key, f"MirrorMaker does not look for it here. It is a cluster's key: ALIAS.{key}")
    return _of_some_client(key)


def _of_some_client(key: str) -> Row | None:
    for prefix, table in _CLIENTS.items():
        if table.find(key):
            return _dropped(key, f"MirrorMaker does not look for it here. It is a client's key: ALIAS.{prefix}{key}")
    return None


def _dropped(key: str, why: str) -> Row:
    return Row(key, Fate.WITHOUT_EFFECT, why=why)


# MirrorMakerConfig.clusterProps, connectorBaseConfig and workerConfig.


def _of_alias(given: Mapping[str, Given], top: Mapping[str, Given], alias: str) -> dict[str, Given]:
    found = _below(given, f"{alias}.")
    clients = tuple(_CLIENTS)
    for key in [key for key in found if is_basic(key)]:
        for prefix in clients:
            found.setdefault(prefix + key, found[key])
    for key in filter(is_basic, top):
        for prefix in (*clients, ""):
            found.setdefault(prefix + key, top[key])
    return found


def _as_its_connectors_get_it(
    given: Mapping[str, Given], top: Mapping[str, Given], source: str, target: str
) -> Mapping[str, Given]:
    found = {key: one for key, one in top.items() if _reaches_connectors(key)}
    for side, alias in (("source", source), ("target", target)):
        for key, one in _of_alias(given, top, alias).items():
            of_client = key.startswith(("consumer", "producer", "admin"))
            found[f"{side}.{key}" if of_client else f"{side}.cluster.{key}"] = one
    return found | _below(given, f"{source}->{target}.")


def _as_its_workers_get_it(given: Mapping[str, Given], top: Mapping[str, Given], target: str) -> Mapping[str, Given]:
    return _of_alias(given, top, target) | {key: one for key, one in top.items() if key.startswith(_STORAGE)}


def _reaches_connectors(key: str) -> bool:
    basic = is_basic(key) and key != "bootstrap.servers"
    return key in FLOW.keys or basic or key.startswith(("config.providers", "replication.policy"))


def _below(given: Mapping[str, Given], prefix: str) -> dict[str, Given]:
    return {key.removeprefix(prefix): one for key, one in given.items() if key.startswith(prefix)}
