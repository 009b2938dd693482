"""Who else may write to the topics of a ledger: mirrors go by what stands there. ``docs/security.md`` says how far."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from typing import NamedTuple

from airflow_mirror.common.policy import DECISIONS, MAPS, STATE
from airflow_mirror.errors import MissingRight, RequestRefused
from airflow_mirror.kafka.acls import EVERYBODY, OPEN_BY_DEFAULT, covers, letting_write, open_by_default
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import Acl
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.resources import ANY
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ApiNotServed

_ACLS = "kafka-acls --bootstrap-server ..."
_LEDGER = "airflow-mirror."  # its topics, and no others, begin so


class Writer(NamedTuple):
    """Somebody who may write there.

    :ivar principal: ``User:*`` for everybody, also where nobody can tell who. :ivar why: the rule that says so, or why
        nobody can tell. :ivar command: takes the right away.
    """

    principal: str
    why: str
    command: str

    def __str__(self) -> str:
        return f"{self.principal} ({self.why})"


def ledger_writers(target: ClusterAdmin, mirror: Mirror, accepted: Collection[str] = ()) -> tuple[Writer, ...]:
    """Return who may write to a ledger's topics beside the mirror itself. Super users, whom brokers don't name, may.

    :param mirror: if nobody knows its principal there, that may be among them.
    :param accepted: principals to leave out; ``User:*``: all, and nobody is asked.
    """
    if EVERYBODY in accepted:
        return ()
    own = mirror.own_principals.get("target") or target.principal
    topics = [DECISIONS, STATE, *([] if mirror.offsets == "identical" else [MAPS])]  # wishes are for others
    grant = f"{_ACLS} --add --allow-principal {shlex.quote(own or 'User:MIRROR')} --topic {_LEDGER} "
    grant += "--resource-pattern-type prefixed --operation All"
    try:
        rules = target.describe_acls(resource_type="TOPIC")
    except RequestRefused as e:
        if e.code != ErrorCode.SECURITY_DISABLED:
            raise
        return (Writer(EVERYBODY, "the cluster has no authorizer", "configure an authorizer"),)
    except (MissingRight, ApiNotServed) as e:
        return (Writer(EVERYBODY, f"perhaps: its ACLs can't be read. {e}", "let the mirror read ACLs"),)
    found = {rule: rule.principal for topic in topics for rule in letting_write(rules, topic, own or "")}
    unless = "" if own else "; perhaps the mirror itself: own_principals says who that is"
    writers = [Writer(who, f"{rule}{unless}", _take_away(rule)) for rule, who in found.items() if who not in accepted]
    if bare := [topic for topic in topics if not any(covers(rule, topic) for rule in rules)]:
        open_ = is_open_by_default(target)
        if open_ is not False:
            why = f"{OPEN_BY_DEFAULT} is {'set' if open_ else 'not told'}, and topic {bare[0]} has no ACL"
            writers.append(Writer(EVERYBODY, why, grant))
    return tuple(writers)


def is_open_by_default(target: ClusterAdmin) -> bool | None:
    """Return whether everybody may do what no ACL is about; None: the brokers don't tell."""
    try:
        return open_by_default(target.broker_configs())
    except MissingRight:
        return None


def _take_away(rule: Acl) -> str:
    """Return the command that takes the right to write to the ledger away, and no other one if that can be."""
    if rule.name.startswith(_LEDGER):
        return _remove(rule)
    if rule.principal != EVERYBODY:
        topics = " ".join(f"--topic {topic}" for topic in (DECISIONS, STATE, MAPS))
        return f"{_ACLS} --add --deny-principal {shlex.quote(rule.principal)} {topics} --operation Write"
    # Denied to everybody it would be denied to the mirror.
    which = "every topic" if rule.name == ANY else f"all topics that begin with {rule.name!r}"
    return f"{_remove(rule)} (which takes it away on {which}: first allow by name whoever needs it there)"


def _remove(rule: Acl) -> str:
    pattern = " --resource-pattern-type prefixed" if rule.pattern_type == "PREFIXED" else ""
    host = "" if rule.host == "*" else f" --allow-host {shlex.quote(rule.host)}"
    on = f"--topic {shlex.quote(rule.name)}{pattern} --operation {rule.operation.title()}"
    return f"{_ACLS} --remove --allow-principal {shlex.quote(rule.principal)}{host} {on}"
