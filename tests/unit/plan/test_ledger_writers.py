"""Who else may write to the ledger is named, with the command that takes it away; who is trusted is left out."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.policy import DECISIONS, MAPS, STATE, WISHES
from airflow_mirror.errors import LedgerOpen, MissingRight, RequestRefused
from airflow_mirror.kafka.model import Acl
from airflow_mirror.plan import checks
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.ledger_writers import Writer, ledger_writers
from airflow_mirror.wire.errors import ApiNotServed
from tests.builders import rule
from tests.unit.cutover.builders import Acls, a_run, want
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic
from tests.unit.plan.test_model import NOW

OWN = "User:mirror"
OURS = [rule(topic, "WRITE", "ALLOW", OWN) for topic in (DECISIONS, STATE, MAPS)]


class NoAuthorizer(Acls):
    def describe_acls(self, *_: Any, **__: Any) -> list[Acl]:
        raise RequestRefused("describe ACLs", 54, "SECURITY_DISABLED")


class Unserved(Acls):
    def describe_acls(self, *_: Any, **__: Any) -> list[Acl]:
        raise ApiNotServed("broker:9092", "DescribeAcls", 1, None)


class Hidden(Acls):
    def describe_acls(self, *_: Any, **__: Any) -> list[Acl]:
        raise MissingRight("describe ACLs", "Describe", OWN)


def writers(target: Any, *accepted: str, own: str | None = OWN) -> tuple[Writer, ...]:
    target.principal = own
    return ledger_writers(target, a_mirror(topics=["orders"]), accepted)


def who(target: Acls, *accepted: str, own: str | None = OWN) -> dict[str, str]:
    return {one.principal: one.command for one in writers(target, *accepted, own=own)}


def test_nobody_else_is_nobody() -> None:
    assert who(Acls(*OURS)) == {}
    assert who(Acls(*OURS, rule(WISHES, "WRITE", "ALLOW", "User:oncall"))) == {}, "wishes are for others"
    assert who(Acls(*OURS, rule(STATE, "READ", "ALLOW", "User:auditor"))) == {}


@pytest.mark.parametrize(
    ("others", "remove"),
    [
        (rule(STATE, "WRITE", "ALLOW", "User:b"), f"--topic {STATE} --operation Write"),
        (rule(MAPS, "ALL", "ALLOW", "User:b"), f"--topic {MAPS} --operation All"),
        (
            rule("airflow-mirror.", "WRITE", "ALLOW", "User:b", pattern="PREFIXED"),
            "--topic airflow-mirror. --resource-pattern-type prefixed --operation Write",
        ),
    ],
)
def test_rule_that_lets_somebody_write_is_named_with_what_removes_it(others: Acl, remove: str) -> None:
    command = f"kafka-acls --bootstrap-server ... --remove --allow-principal User:b {remove}"
    assert who(Acls(*OURS, others)) == {"User:b": command}
    denied = [rule(topic, "WRITE", "DENY", "User:b") for topic in (DECISIONS, STATE, MAPS)]
    assert who(Acls(*OURS, others, *denied)) == {}
    assert who(Acls(*OURS, others), "User:b") == {} == who(Acls(*OURS, others), "User:*")


@pytest.mark.parametrize(
    "others",
    [
        rule("*", "ALL", "ALLOW", "User:CN=the platform"),
        rule("airflow-", "WRITE", "ALLOW", "User:CN=the platform", pattern="PREFIXED"),
    ],
)
def test_rule_about_other_topics_too_stays_and_the_ledger_is_denied(others: Acl) -> None:
    ((principal, command),) = who(Acls(*OURS, others)).items()
    options = shlex.split(command)
    assert principal == options[options.index("--deny-principal") + 1] and options[-2:] == ["--operation", "Write"]
    topics = [name for option, name in itertools.pairwise(options) if option == "--topic"]
    assert topics == [DECISIONS, STATE, MAPS], "wishes are for others"
    assert who(Acls(*OURS, others, *(rule(topic, "WRITE", "DENY", principal) for topic in topics))) == {}


@pytest.mark.parametrize(
    ("others", "also"),
    [
        (rule("*", "ALL", "ALLOW", "User:*"), "--topic '*' --operation All (which takes it away on every topic: "),
        (
            rule("airflow-", "WRITE", "ALLOW", "User:*", pattern="PREFIXED"),
            "prefixed --operation Write (which takes it away on all topics that begin with 'airflow-': ",
        ),
    ],
)
def test_what_everybody_may_is_denied_to_nobody_and_what_else_is_lost_is_said(others: Acl, also: str) -> None:
    command = who(Acls(*OURS, others))["User:*"]
    assert "--remove" in command and "deny" not in command and also in command


def test_principal_that_nobody_knows_may_be_the_mirrors() -> None:
    (first, *_) = found = writers(Acls(*OURS), own=None)
    assert {one.principal for one in found} == {OWN} and "perhaps the mirror itself: own_principals" in first.why


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (NoAuthorizer(), "has no authorizer"), (Hidden(), "can't be read"), (Unserved(), "can't be read"),
        (Acls(open_by_default=True), "is set"),
        (Acls(open_by_default="hidden"), "is not told"),
    ],
)  # fmt: skip
def test_where_everybody_may_or_nobody_can_tell_that_is_said(target: Acls, why: str) -> None:
    (one,) = writers(target)
    assert one.principal == "User:*" and why in one.why
    assert writers(target, "User:*") == ()


def test_maps_count_for_mirrors_that_have_some() -> None:
    """Of others nobody has rules there, and whether that is open to everybody a cutover may not be allowed to ask."""
    target: Any = Acls(*OURS[:2], open_by_default="hidden")
    target.principal = OWN
    assert ledger_writers(target, a_mirror(topics=["orders"], offsets="identical")) == ()
    assert [one.principal for one in ledger_writers(target, a_mirror(topics=["orders"], offsets="mapped"))] == ["User:*"]


def test_closed_cluster_whose_mirror_is_a_super_user_is_closed() -> None:
    assert who(Acls(open_by_default=False)) == {}


def test_plan_warns_of_them() -> None:
    others = writers(Acls(*OURS, rule(STATE, "WRITE", "ALLOW", "User:b")))
    target = replace(a_cluster(cluster_id="c2"), ledger_writers=others)
    plan = decide(a_mirror(topics=["orders"]), a_cluster(a_topic("orders")), target, (), NOW)
    (found,) = [one for one in plan.findings if one.check == "ledger_writers"]
    assert found.level == "warn" and "User:b (ALLOW WRITE" in found.evidence
    assert "--remove --allow-principal User:b" in found.remedy and "accept_ledger_writers" in found.remedy
    assert "ledger_writers" in checks.CHECKS.rows


def test_cutover_wants_them_accepted_by_name(tmp_path: Any) -> None:
    from airflow_mirror.cutover.check import CHECKS

    check = CHECKS.rows["ledger_writers"].judge
    run = a_run(tmp_path, None)
    run.on.target.admin = target = Acls(*OURS, rule(STATE, "WRITE", "ALLOW", "User:b"))  # type: ignore[assignment]
    target.principal = OWN  # type: ignore[attr-defined]
    check(run)
    want(run, accept_ledger_writers=["User:other"])
    with pytest.raises(LedgerOpen, match=r"User:b \(ALLOW.*kafka-acls .*--remove.*accept_ledger_writers=\['User:b'\]"):
        check(run)
    want(run, accept_ledger_writers=["User:b"])
    check(run)
