"""SCRAM users of one cluster (KIP-554, brokers from 2.7 on): list them, create them.

A cluster never tells a password, nor anything made of one. What is sent is not the password either: RFC 5802's salted
one, with a salt of our own.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.kafka.permit import Permit
from airflow_mirror.kafka.session import AdminSession, Reply

# By Kafka's number (ScramMechanism), with the hash of each.
_MECHANISMS = ("UNKNOWN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NOT_FOUND = 91  # RESOURCE_NOT_FOUND: the user was deleted meanwhile


@dataclass(frozen=True, kw_only=True)
class ScramCredential:
    """A new credential of one mechanism.

    :param iterations: brokers take 4,096 to 16,384.
    """

    mechanism: str
    iterations: int
    password: str = field(repr=False)


def describe_users(session: AdminSession) -> dict[str, dict[str, int]]:
    """Return the iterations of each user's credentials by mechanism. Needs DESCRIBE on the cluster."""
    from kafka.protocol.admin import DescribeUserScramCredentialsRequest as Request

    def ask() -> Reply[str, dict[str, dict[str, int]]]:
        answer = session.newest(session.anywhere(), Request, (0, 0), users=None)
        found: dict[str, dict[str, int]] = {}
        for result in answer.results:
            if result.error_code == _NOT_FOUND:
                continue
            if result.error_code:
                return Reply("", result.error_code, result.error_message, {})
            found[result.user] = {_name(one.mechanism): one.iterations for one in result.credential_infos}
        return Reply("", answer.error_code, answer.error_message, found)

    return session.one("describe SCRAM users", ask, "Describe")


def create_users(session: AdminSession, users: Mapping[str, Sequence[ScramCredential]], permit: Permit) -> None:
    """Set credentials of users; other mechanisms of theirs stay as they are. Repeating it sets a new salt.

    Needs ALTER on the cluster.
    """
    from kafka.protocol.admin import AlterUserScramCredentialsRequest as Request

    def ask(some: list[str]) -> Iterator[Reply[str, bool]]:
        new: Any = Request.ScramCredentialUpsertion
        upsertions = [new(name=user, **_salted(one)) for user in some for one in users[user]]
        answer = session.newest(session.controller(), Request, (0, 0), permit, deletions=[], upsertions=upsertions)
        for result in answer.results:
            yield Reply(result.user, result.error_code, result.error_message, True)

    session.each(lambda user: f"create SCRAM user {user!r}", sorted(users), ask, "Alter")


def _salted(one: ScramCredential) -> dict[str, Any]:
    salt = os.urandom(32)
    salted = hashlib.pbkdf2_hmac(_HASHES[one.mechanism], one.password.encode(), salt, one.iterations)
    return {
        "mechanism": _MECHANISMS.index(one.mechanism), "iterations": one.iterations, "salt": salt,
        "salted_password": salted,
    }  # fmt: skip


def _name(number: int) -> str:
    return _MECHANISMS[number] if 0 <= number < len(_MECHANISMS) else _MECHANISMS[0]
