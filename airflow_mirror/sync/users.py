"""SCRAM users of the source on the target: listed, and created where somebody gives a new secret.

They can't be copied, because no cluster tells a password or what it made of it. A user that the target has already is
never changed: its secret is somebody's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from airflow_mirror.common.policy import Principals
from airflow_mirror.errors import InputError
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.kafka.users import ScramCredential
from airflow_mirror.sync.topics import settle

# Target user -> its new secret; None: there is none.
SecretOf = Callable[[str], str | None]

THERE, CREATED, NEEDS_SECRET, LEFT_OUT = "there", "created", "needs a secret", "left out"
_USER = "User:"
_AS_JSON = 'Set it to a JSON object such as {"user": "secret"}.'
_MEANWHILE = "somebody has created it meanwhile, and it keeps that secret"
_ITERATIONS = (4096, 16384)  # ScramMechanism: the fewest and the most that brokers take


@dataclass(frozen=True, kw_only=True)
class UserRow:
    """One credential of the source.

    :param source: the user's name there; ``target``: on the target.
    :param action: ``there`` (the target has such a credential), ``created`` (in a dry run: would be), ``needs a secret``
        or ``left out``.
    """

    source: str
    target: str
    mechanism: str
    iterations: int
    action: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class UsersReport:
    """The users of the source, and what became of them. Holds no secret."""

    rows: tuple[UserRow, ...]
    applied: bool

    @property
    def changes(self) -> int:
        """Number of credentials that are created."""
        return sum(row.action == CREATED for row in self.rows)

    def lines(self) -> list[str]:
        """Return all users that are not there yet as text."""
        signs = {CREATED: "+", NEEDS_SECRET: "!", LEFT_OUT: "!"}
        return [
            f"{signs[row.action]} SCRAM user {row.target!r} ({row.mechanism}): {row.reason or row.action}"
            for row in self.rows
            if row.action in signs
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {"applied": self.applied, "changes": self.changes, "rows": [asdict(row) for row in self.rows]}


def diff(
    source: Mapping[str, Mapping[str, int]],
    target: Mapping[str, Mapping[str, int]],
    principals: Principals,
    own_source: str,
    own_target: str,
) -> list[UserRow]:
    """Return what each credential of the source needs; one that the target lacks ``needs a secret``.

    :param source: user -> mechanism -> iterations; ``target`` likewise.
    :param own_source: the principal of the mirror itself on the source; ``own_target``: on the target.
    :raises InvalidField: the map of principals is ambiguous.
    """
    rows, seen = [], set[tuple[str, str]]()
    for user, credentials in sorted(source.items()):
        principal = principals.target(_USER + user)
        name = principal.removeprefix(_USER)
        for mechanism, iterations in sorted(credentials.items()):
            there = mechanism in target.get(name, {})
            row = UserRow(
                source=user, target=name, mechanism=mechanism, iterations=iterations,
                action=THERE if there else NEEDS_SECRET,
            )  # fmt: skip
            if _USER + user == own_source or principal == own_target:
                row = replace(row, action=LEFT_OUT, reason="it is the mirror's own user")
            elif not principal.startswith(_USER):
                row = replace(row, action=LEFT_OUT, reason=f"it becomes {principal}, which is no user")
            elif mechanism == "UNKNOWN":
                row = replace(row, action=LEFT_OUT, reason="this version does not know its mechanism")
            elif (name, mechanism) in seen:
                row = replace(row, action=LEFT_OUT, reason="another user of the source becomes the same one")
            seen.add((name, mechanism))
            rows.append(row)
    return rows


def sync_users(
    source: ClusterAdmin,
    target: ClusterAdmin,
    principals: Principals,
    own_source: str,
    own_target: str,
    permit: Permit,
    *,
    secret_of: SecretOf = lambda user: None,
    dry_run: bool = False,
) -> UsersReport:
    """Create the source's SCRAM users that the target lacks and for which there is a secret; read them back.

    :param permit: asked before they are; what it raises is raised.
    :param secret_of: called with the target's name of each user that is missing.
    :param dry_run: only report.
    :raises NotKept: a user is not listed afterwards.
    :raises ApiNotServed: brokers before 2.7 do not tell users.
    """
    rows = diff(source.scram_users(), target.scram_users(), principals, own_source, own_target)
    secrets = {row.target: secret_of(row.target) for row in rows if row.action == NEEDS_SECRET}
    if any(secrets.values()) and not dry_run:
        # A store of secrets may take minutes. What is there by now is somebody's, and a request would replace it.
        there = target.scram_users()
        rows = [
            replace(row, action=LEFT_OUT, reason=_MEANWHILE)
            if row.action == NEEDS_SECRET and row.mechanism in there.get(row.target, {})
            else row
            for row in rows
        ]
    rows = [
        replace(row, action=CREATED) if row.action == NEEDS_SECRET and secrets.get(row.target) else row for row in rows
    ]
    new: dict[str, list[ScramCredential]] = {}
    for row in rows:
        secret = secrets.get(row.target)
        if row.action == CREATED and secret:
            iterations = min(max(row.iterations, _ITERATIONS[0]), _ITERATIONS[1])
            one = ScramCredential(mechanism=row.mechanism, iterations=iterations, password=secret)
            new.setdefault(row.target, []).append(one)
    if new and not dry_run:
        target.create_scram_users(new, permit)
        settle(lambda: _missing(target, rows), "SCRAM users")
    return UsersReport(rows=tuple(rows), applied=not dry_run or not new)


def secrets_of_environment(name: str) -> SecretOf:
    """Return the secrets of the environment variable ``name``: a JSON object, user -> secret.

    :raises InputError: it is not set, or is no such object; the error never quotes it.
    """
    try:
        values = json.loads(os.environ[name])
    except KeyError:
        raise InputError("secrets of users", f"environment variable {name} is not set", _AS_JSON) from None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise InputError(
            "secrets of users", f"environment variable {name} holds no JSON object of user and secret", _AS_JSON
        )
    return values.get


def _missing(target: ClusterAdmin, rows: Iterable[UserRow]) -> list[str]:
    there = target.scram_users()
    return [
        f"{row.target}: no {row.mechanism}"
        for row in rows
        if row.action == CREATED and row.mechanism not in there.get(row.target, {})
    ]
