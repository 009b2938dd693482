"""The command that prints the rights of one mirror, with the options that describe it: its file may be out of reach."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from airflow_mirror.common.knobs import knobs_of
from airflow_mirror.mirror import Mirror

# Options of a Mirror that say on what it has rights, and which.
_DECIDE = frozenset({"topics", "exclude_topics", "internal_topics", "groups", "policy", "separator", "offsets"})
_IN_A_FILE_ALONE = ("sync_acls", "traces")  # these ask for rights, too, and have no option
_LONGEST = 1000  # characters of options; a file says the rest better


def rights_command(mirror: Mirror, role: str, side: str, principal: str | None) -> str:
    """Return a line for a shell: ``airflow-mirror rights`` for a mirror, and behind it what it can't say.

    :param role: of :data:`.rights.ROLES` or :data:`.rights.COMMANDS`. :param side: of :data:`.rights.SIDES`.
    :param principal: None: nobody knows it.
    """
    of_it = shlex.join(_options(mirror))
    unsaid = [name for name in _IN_A_FILE_ALONE if getattr(mirror, name)]
    if len(of_it) > _LONGEST or not mirror.groups:  # no option says that there are no groups
        of_it, unsaid = "--mirror FILE", []
    whose = shlex.join(["--principal", principal or "User:NAME", "--role", role, "--side", side])
    beyond = f" (what {' and '.join(unsaid)} need is told by --mirror FILE alone)" if unsaid else ""
    return f"airflow-mirror rights {of_it} {whose}{beyond}"


def _options(mirror: Mirror) -> Iterator[str]:
    yield from ("--name", mirror.name)
    for one, its in knobs_of(mirror):
        value: Any = getattr(mirror, one.name)
        if one.name not in _DECIDE or value == one.default:
            continue
        if value is True:
            yield its.option
        else:
            yield from (word for item in ([value] if isinstance(value, str) else value) for word in (its.option, item))
    if mirror.policy != "identity":  # without a file a connection's id is not known
        yield from ("--source-alias", mirror.source_alias or mirror.source)
