"""Rules follow a mirror: what is missing is added in a safe order and read back, and a second run has nothing to do."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any, cast

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import DECISIONS, MAPS, STATE, WISHES
from airflow_mirror.errors import (
    InvalidField,
    MissingRight,
    NoAuthorizer,
    NotKept,
    RequestRefused,
    RulesOfAnotherFence,
    TopicsShared,
    TryAgain,
)
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import Acl, ConfigEntry, GroupInfo, GroupPosition, TopicInfo
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.mirror import Mirror
from airflow_mirror.sync import acls
from airflow_mirror.sync.acl_rules import CUTOVER, EARLY
from airflow_mirror.sync.acls import AclOptions, AclReport, sync_acls
from tests.builders import granted_freely, plan_of, rule, topic_plan

ALICE, BOB = "User:alice", "User:bob"
KEY = "allow.everyone.if.no.acl.found"


class Killed(Exception):
    """The process ends here."""


class Cluster:
    """A cluster's rules. ``deaf``: takes changes and keeps none."""

    def __init__(
        self, role: str, *rules: Acl, topics: Iterable[str] = (), groups: Iterable[str] = (),
        open_by_default: bool | str | None = False, authorizer: bool = True, deaf: bool = False,
        principal: str | None = "User:mirror",
    ) -> None:  # fmt: skip
        self.role, self.principal, self.acls, self.deaf = role, principal, set(rules), deaf
        self._topics, self._groups = list(topics), list(groups)
        self._open_by_default, self._authorizer = open_by_default, authorizer
        self.read: dict[str, tuple[str, ...]] = {}  # by group, the topics in which it has positions
        self.done: list[tuple[str, Acl]] = []
        self.dies_after = -1

    def topic_names(self) -> list[str]:
        return self._topics

    def topics(self) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, "", 1, 1) for name in self._topics}

    def groups(self) -> list[GroupInfo]:
        return [GroupInfo(group, "Empty", "consumer") for group in self._groups]

    def groups_offsets_apart(self, ids: Iterable[str], *, stable: bool = True) -> Any:
        return {g: {TopicPartition(t, 0): GroupPosition(7) for t in self.read.get(g, ())} for g in ids}, {}

    def describe_acls(self) -> list[Acl]:
        if not self._authorizer:
            raise RequestRefused("describe", 54, "SECURITY_DISABLED")
        return sorted(self.acls)

    def create_acls(self, rules: Iterable[Acl], permit: Permit) -> None:
        permit()
        for one in rules:
            self._change("+", one)

    def delete_acls(self, rules: Iterable[Acl], permit: Permit) -> None:
        permit()
        for one in rules:
            self._change("-", one)

    def _change(self, sign: str, one: Acl) -> None:
        if len(self.done) == self.dies_after:
            raise Killed
        self.done.append((sign, one))
        if not self.deaf:
            (self.acls.add if sign == "+" else self.acls.discard)(one)

    def broker_configs(self) -> dict[int, dict[str, ConfigEntry]]:
        if self._open_by_default == "forbidden":
            raise MissingRight("configs", "X", "me")
        if self._open_by_default == "unset":
            return {1: {}}
        value = None if self._open_by_default is None else str(self._open_by_default).lower()
        return {1: {}, 2: {KEY: ConfigEntry(value=value, is_sensitive=value is None)}}


def synced(source: Cluster, target: Cluster, topics: Iterable[str] = ("orders",), **given: Any) -> AclReport:
    fields = {name: given.pop(name) for name in list(given) if name in Mirror.__dataclass_fields__}
    mirror = Mirror(name="m", source="dc1", target="dc2", **fields)
    names = {name: mirror.naming.target_topic(name) for name in topics}
    plan = plan_of(
        mirror, *(topic_plan(name, {0: 0}, target_topic=there, source_topic_id=name) for name, there in names.items())
    )
    once = given.pop("once", ())
    plan = replace(plan, known_topics=dict.fromkeys((*names.values(), *once), "identical"))
    admins = cast("ClusterAdmin", source), cast("ClusterAdmin", target)
    fence = given.pop("fence", acls.OfFence)
    kept = frozenset(given.pop("kept", ()))
    return sync_acls(plan, *admins, AclOptions(**given), granted=granted_freely, fence=fence, kept=lambda _: kept)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = acls.settle  # type: ignore[attr-defined]
    monkeypatch.setattr(acls, "settle", lambda wrong, what: settle(wrong, what, within_s=0))


READ, WRITE = rule("orders", "READ", "ALLOW", ALICE), rule("orders", "WRITE", "ALLOW", BOB)
DENY = rule("orders", "READ", "DENY", BOB)


def test_rules_that_a_swapped_fence_has_made_are_not_copied_and_those_that_it_took_are() -> None:
    """A DENY by name of the site itself is copied as before."""
    denied, taken = rule("orders", "WRITE", "DENY", BOB), rule("orders", "WRITE", "ALLOW")
    source, target = Cluster("source", READ, WRITE, denied), Cluster("target")
    synced(source, target, phase="cutover", fence=lambda: acls.OfFence(frozenset({denied}), frozenset({taken})))
    assert {READ, WRITE, taken} <= target.acls and denied not in target.acls
    synced(source, target, phase="cutover")
    assert denied in target.acls


@pytest.mark.parametrize(
    ("how", "is_pattern"),
    [({}, False), ({"kept": ["orders-2"]}, True), ({"joining": True}, True)],
    ids=["somebody else's", "the mirror's", "about to be"],
)
def test_pattern_opens_no_topic_that_the_mirror_had_once(how: dict[str, Any], is_pattern: bool) -> None:
    """It was deleted, and another team has made its own of that name. The ledger tells by the id, no plan does."""
    given = rule("ord", "READ", "ALLOW", ALICE, pattern="PREFIXED")
    source, target = Cluster("source", given), Cluster("target", topics=["orders", "orders-2"])
    if is_joining := how.pop("joining", False):
        source._topics = ["orders", "orders-2"]
    once = () if is_joining else ("orders-2",)
    synced(source, target, topics=["orders"], once=once, sync_topics=is_joining, **how)
    assert target.acls == {given if is_pattern else rule("orders", "READ", "ALLOW", ALICE)}


READABLE = frozenset(rule("orders", operation, "ALLOW") for operation in ("READ", "DESCRIBE_CONFIGS"))


@pytest.mark.parametrize(
    ("rules", "may_be"),
    [
        ({rule("orders", "WRITE", "DENY", BOB)}, 1),
        (READABLE, 2),
        ({rule("orders", "READ", "ALLOW")}, 0),
        ({*READABLE, rule("orders", "WRITE", "DENY")}, 0),  # not swapped: told by its form
        ({rule("users", "WRITE", "DENY", BOB)}, 0),  # about another mirror's topic: it may stand for weeks
    ],
)
@pytest.mark.parametrize("phase", [EARLY, CUTOVER])
def test_rules_that_may_be_those_of_another_mirrors_fence_are_not_copied(
    rules: set[Acl], may_be: int, phase: str
) -> None:  # fmt: skip
    """It is decided in another target's ledger. Nobody would ever take its DENY by name from this target again."""
    ours, its = (
        rule(f"airflow-mirror.fence.{one}", "DESCRIBE", "DENY", "User:airflow-mirror-fence", kind="GROUP")
        for one in ("m:r:1", "mig:r:2")
    )
    source, target = Cluster("source", READ, ours, *rules), Cluster("target")
    synced(source, Cluster("target"), phase=phase, fence=lambda: acls.OfFence(name=ours.name))
    source.acls.add(its)
    if may_be:
        with pytest.raises(RulesOfAnotherFence, match=rf"as {may_be} may be[\s\S]* mig:r:2") as refused:
            synced(source, target, phase=phase, fence=lambda: acls.OfFence(name=ours.name))
        assert "m:r:1" not in str(refused.value) and target.done == []
    else:
        synced(source, target, phase=phase, fence=lambda: acls.OfFence(name=ours.name))
        assert READ in target.acls


def test_rules_are_read_again_where_a_fence_was_lifted_meanwhile() -> None:
    """What a swapped fence had made would pass for the site's own, and keep applications out of the target."""
    source, target = Cluster("source", READ, rule("orders", "WRITE", "DENY", BOB)), Cluster("target")
    told = iter([acls.OfFence(decided="1 opened"), acls.OfFence(decided="1 closed"), acls.OfFence(decided="1 closed")])

    def fence() -> acls.OfFence:
        one = next(told)
        if one.decided == "1 closed":
            source.acls.discard(rule("orders", "WRITE", "DENY", BOB))
        return one

    synced(source, target, phase="cutover", fence=fence)
    assert target.acls == {READ}


def test_rules_amid_a_fence_that_never_comes_to_rest_are_not_believed() -> None:
    source, target, decided = Cluster("source", READ), Cluster("target"), map(str, count())
    with pytest.raises(TryAgain, match="source cluster: its fence changed 5 times"):
        synced(source, target, fence=lambda: acls.OfFence(decided=next(decided)))
    assert target.done == []


def test_readers_of_one_source_do_not_get_what_another_shares() -> None:
    source, target = Cluster("source", READ, WRITE, DENY), Cluster("target")
    shared = {"ownership": "shared", "delivery": "transactional", "sync_groups": False, "sync_configs": False}
    with pytest.raises(TopicsShared, match="can't let ACLs follow"):
        synced(source, target, **shared)
    assert target.done == []


def test_readers_come_early_writers_at_the_cutover_and_then_nothing() -> None:
    source, target = Cluster("source", READ, WRITE, DENY), Cluster("target")
    assert synced(source, target).diff.later == (WRITE,) and target.acls == {READ, DENY}
    assert synced(source, target).changes == 0
    report = synced(source, target, phase=CUTOVER)
    assert target.acls == {READ, WRITE, DENY} and report.diff.granted == (WRITE,)
    assert set(report.diff.kept) == {READ, DENY}
    done = list(target.done)
    for phase in (CUTOVER, EARLY):
        report = synced(source, target, phase=phase)
        assert report.changes == 0 and report.applied and not report.diff.drift
    assert target.done == done


def test_what_denies_writing_by_name_is_never_removed() -> None:
    """So a fence on the target keeps writers out once it spares the mirror that copies back."""
    swapped = rule("orders", "WRITE", "DENY", "User:app")
    gone = (
        rule("orders", "READ", "DENY", "User:app"),
        replace(swapped, host="10.0.0.1"),
        rule("ord", "WRITE", "DENY", BOB, pattern="PREFIXED"),
    )
    source, target = Cluster("source", READ), Cluster("target", READ, swapped, *gone)
    report = synced(source, target, phase=CUTOVER, remove=True)
    assert set(report.removed) == set(gone) and target.acls == {READ, swapped}
    assert swapped not in report.diff.drift


def test_what_denies_is_in_force_before_anything_is_allowed() -> None:
    every = rule("orders", "DELETE", "DENY")
    source, target = Cluster("source", WRITE, READ, DENY, every), Cluster("target")
    synced(source, target, phase=CUTOVER)
    assert [one.permission for _, one in target.done] == ["DENY", "DENY", "ALLOW", "ALLOW"]


def test_source_without_authorizer_takes_no_right_back() -> None:
    target = Cluster("target", READ, DENY)
    report = synced(Cluster("source", authorizer=False), target, remove=True)
    assert report.removed == () and target.acls == {READ, DENY} and len(report.diff.drift) == 2
    assert "no authorizer" in report.notes[0]


def test_dry_run_changes_nothing_and_tells_the_same() -> None:
    source, target = Cluster("source", READ), Cluster("target", open_by_default=True)
    dry = synced(source, target, dry_run=True)
    assert not dry.applied and target.done == []
    assert dry.diff == synced(source, target).diff
    assert synced(source, target, dry_run=True).applied  # nothing is left to do


def test_a_run_killed_anywhere_is_completed_by_the_next_one() -> None:
    many = [rule("orders", "READ", "ALLOW", f"User:u{i}") for i in range(3)]
    rules = [*many, DENY, rule("*", "READ", "ALLOW", ALICE, kind="GROUP")]
    given: dict[str, Any] = {"groups": ["app"], "open_by_default": True}
    whole = Cluster("target", **given)
    synced(Cluster("source", *rules, groups=["app"]), whole)
    assert len(whole.done) > 10
    for after in range(len(whole.done)):
        source, target = Cluster("source", *rules, groups=["app"]), Cluster("target", **given)
        target.dies_after = after
        with pytest.raises(Killed):
            synced(source, target)
        target.dies_after = -1
        synced(source, target)
        assert target.acls == whole.acls, f"killed after {after} changes"


def test_what_does_not_read_back_is_an_error_with_the_rule() -> None:
    with pytest.raises(NotKept, match="missing: ALLOW READ for User:alice from [*] on TOPIC 'orders'"):
        synced(Cluster("source", READ), Cluster("target", deaf=True))
    with pytest.raises(NotKept, match="still there: ALLOW READ for User:alice"):
        synced(Cluster("source"), Cluster("target", READ, deaf=True), remove=True)


def test_rules_gone_on_the_source_are_drift_until_removal_is_asked_for() -> None:
    by_hand = rule("dc2-own", "READ", "ALLOW", ALICE)
    mine = rule("orders", "ALL", "ALLOW", "User:mirror")
    source, target = Cluster("source", WRITE), Cluster("target", READ, WRITE, by_hand, mine)
    report = synced(source, target)
    assert report.diff.drift == (READ,) and report.removed == () and READ in target.acls
    assert synced(source, target, remove=True, dry_run=True).removed == (READ,) and READ in target.acls
    assert synced(source, target, remove=True).removed == (READ,)
    assert target.acls == {WRITE, by_hand, mine}  # rights of writers survive an early run


def test_patterns_and_ids_that_are_gone_are_removed_with_their_writer() -> None:
    source = Cluster(
        "source", rule("ord", "ALL", "ALLOW", BOB, pattern="PREFIXED"),
        rule("tx", "WRITE", "ALLOW", BOB, kind="TRANSACTIONAL_ID", pattern="PREFIXED"),
        rule("app", "READ", "ALLOW", BOB, kind="GROUP", pattern="PREFIXED"), groups=["app-1"],
    )  # fmt: skip
    target = Cluster("target")
    synced(source, target, phase=CUTOVER)
    assert len(target.acls) == 3
    source.acls.clear()
    synced(source, target, phase=CUTOVER, remove=True)
    assert not target.acls


def test_ids_that_only_a_cutover_allows_are_nobodys_to_remove_before_it() -> None:
    """An application of the target has its own, whose principal will write to a topic of the mirror as well."""
    native = rule("native", "WRITE", "ALLOW", BOB, kind="TRANSACTIONAL_ID")
    denied = replace(native, permission="DENY")
    source, target = Cluster("source", WRITE), Cluster("target", native, denied)
    report = synced(source, target, remove=True)
    assert report.removed == (denied,) and report.diff.drift == (denied,), "what is denied by name is written early"
    assert target.acls == {native} and report.diff.later == (WRITE,)
    assert synced(source, target, phase=CUTOVER, remove=True).removed == (native,)


@pytest.mark.parametrize("kind", ["TOPIC", "GROUP", "TRANSACTIONAL_ID"])
def test_patterns_that_are_gone_and_cover_names_of_others_by_now_are_named(kind: str) -> None:
    its = rule("o", "WRITE" if kind == "TRANSACTIONAL_ID" else "READ", "ALLOW", BOB, kind=kind, pattern="PREFIXED")
    foreign = rule("o.local", "READ", "ALLOW", ALICE, kind=kind)
    target = Cluster("target", WRITE, its, foreign)
    report = synced(Cluster("source", WRITE, groups=["orders"]), target, phase=CUTOVER, remove=True)
    assert not report.removed and target.acls == {WRITE, its, foreign} and not report.diff.drift
    why = "it also covers 'o.local'; remove it by hand if the source has taken it back"
    assert report.to_dict()["stays"] == [{"rule": str(its), "reason": why}]
    assert report.lines() == [f"! {its} is not on the source, and stays: {why}"]


def test_principals_are_mapped_and_two_may_become_one() -> None:
    both = [rule("orders", "READ", "ALLOW", f"User:CN={name},OU=x") for name in ("app", "old-app")]
    map_ = {r"/User:CN=([^,]+),.*/": r"User:\1", "User:CN=old-app,OU=x": "User:app"}
    target = Cluster("target")
    synced(Cluster("source", *both), target, principals=map_)
    assert target.acls == {rule("orders", "READ", "ALLOW", "User:app")}


# --- who is open to everybody -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [True, None, "forbidden"])
def test_mirror_gets_its_rights_before_the_first_rule_of_an_open_topic(said: Any) -> None:
    source = Cluster("source", READ, rule("users", "READ", "ALLOW", ALICE))
    target = Cluster("target", rule("users", "READ", "ALLOW", BOB), open_by_default=said)
    report = synced(source, target, ["orders", "users"])
    assert {one.principal for one in report.diff.own} == {"User:mirror"}
    assert {one.name for one in report.diff.own} == {"orders"}  # somebody has closed the other one before
    assert {one.operation for one in report.diff.own} >= {"READ", "WRITE", "DELETE", "ALTER_CONFIGS"}
    order = [one.principal for _, one in target.done if one.name == "orders"]
    assert order == ["User:mirror"] * len(report.diff.own) + [ALICE]
    assert report.open_by_default is (True if said is True else None)
    assert bool(report.notes) == (said is not True)
    (line,) = report.diff.lost
    assert (
        "'orders'" in line
        and "User:alice and the mirror alone" in line
        and ("if allow.every" in line) == (said is not True)
    )


@pytest.mark.parametrize("said", [False, "unset"])
def test_closed_target_gives_the_mirror_nothing(said: Any) -> None:
    target = Cluster("target", open_by_default=said)
    report = synced(Cluster("source", READ), target)
    assert target.acls == {READ} and report.diff.lost == () and report.open_by_default is False


def test_what_the_caller_states_wins_over_what_brokers_hide() -> None:
    target = Cluster("target", open_by_default=None)
    report = synced(Cluster("source", READ), target, open_to_all=False)
    assert target.acls == {READ} and report.notes == ()


def test_groups_ids_and_the_ledger_do_not_lock_the_mirror_out() -> None:
    every = [rule("*", "WRITE", "ALLOW", BOB), rule("*", "READ", "ALLOW", BOB, kind="GROUP"),
             rule("*", "WRITE", "ALLOW", BOB, kind="TRANSACTIONAL_ID")]  # fmt: skip
    source, target = Cluster("source", *every, groups=["app"]), Cluster("target", open_by_default=True)
    own = synced(source, target, phase=CUTOVER).diff.own
    assert {(one.resource_type, one.pattern_type, one.name) for one in own} == {
        ("TOPIC", "LITERAL", "orders"), ("TOPIC", "PREFIXED", "__airflow-mirror."),
        *(("TOPIC", "LITERAL", name) for name in (DECISIONS, STATE, MAPS, WISHES)),
        ("GROUP", "LITERAL", "app"), ("GROUP", "PREFIXED", "airflow-mirror:"),
        ("TRANSACTIONAL_ID", "PREFIXED", "airflow-mirror:"),
    }  # fmt: skip


def own_names(report: AclReport) -> set[str]:
    return {one.name for one in report.diff.own}


MONITORING = rule("*", "READ", "ALLOW", ALICE)


def test_traces_do_not_lock_the_mirror_out() -> None:
    target = Cluster("target", open_by_default=True)
    traces = {"traces": ["checkpoints", "offset-syncs"]}
    assert own_names(synced(Cluster("source", MONITORING), target, **traces)) >= {
        "dc1.checkpoints.internal", "mm2-offset-syncs.dc1.internal"
    }  # fmt: skip
    assert synced(Cluster("source", MONITORING), target, **traces).changes == 0


def test_a_topic_behind_a_pattern_is_the_mirrors_before_it_joins() -> None:
    """One that it creates and can't describe would never become the plan's."""
    target = Cluster("target", open_by_default=True)
    synced(Cluster("source", MONITORING, topics=["orders"]), target)
    source = Cluster("source", MONITORING, topics=["orders", "new", "not-ours", "__internal"])
    kept_out = {"exclude_topics": ["not-ours"]}
    assert synced(source, target, sync_topics=False, **kept_out).changes == 0
    report = synced(source, target, **kept_out)
    assert own_names(report) == {"new"} and report.diff.lost == ()  # nobody had access who has none now
    assert synced(source, target, ["orders", "new"], **kept_out).changes == 0
    late = Cluster("target", *(target.acls - set(report.diff.own)), open_by_default=True)
    assert own_names(synced(source, late, ["orders", "new"], **kept_out)) == {"new"}


def test_a_group_whose_rules_were_there_first_is_the_mirrors_too() -> None:
    first, target = rule("app", "READ", "ALLOW", BOB, kind="GROUP"), Cluster("target", open_by_default=True)
    assert own_names(synced(Cluster("source", first), target)) == set() and target.acls == {first}
    assert own_names(synced(Cluster("source", first, groups=["app"]), target)) == {"app"}


def test_what_somebody_else_closed_stays_closed_to_the_mirror() -> None:
    target = Cluster("target", MONITORING, rule("orders", "READ", "ALLOW", BOB), open_by_default=True)
    assert "orders" not in own_names(synced(Cluster("source", MONITORING), target))


# --- what can't be ----------------------------------------------------------------------------------------------------


def test_target_without_authorizer_is_named_and_a_source_noted() -> None:
    with pytest.raises(NoAuthorizer, match="target cluster has no authorizer.*no ACL can be written"):
        synced(Cluster("source", READ), Cluster("target", authorizer=False))
    report = synced(Cluster("source", authorizer=False), Cluster("target"))
    assert report.changes == 0 and "source has no authorizer" in report.notes[0]


def test_principal_that_only_the_brokers_know_has_to_be_named() -> None:
    source, target = Cluster("source", READ, principal=None), Cluster("target")
    with pytest.raises(InvalidField, match='own_principals.*source\'s connection.*{"source": "User:'):
        synced(source, target)
    report = synced(source, target, own={"source": ALICE})
    assert report.changes == 0 and "own principal" in report.diff.left_out[0].reason


def test_a_phase_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidField, match="phase='late'.*early, cutover"):
        synced(Cluster("source"), Cluster("target"), phase="late")


def test_verdict_is_json_and_names_every_rule() -> None:
    other = rule("x", "READ", "ALLOW", ALICE)
    source = Cluster("source", READ, WRITE, other)
    report = synced(source, Cluster("target", open_by_default=True))
    verdict = json.loads(json.dumps(report.to_dict()))
    assert str(READ) in verdict["granted"] and verdict["later"] == [str(WRITE)]
    assert verdict["left_out"] == [{"rule": str(other), "reason": "it is about no topic of the mirror"}]
    assert f"+ {READ}" in report.lines() and any(line.startswith("! TOPIC 'orders'") for line in report.lines())


@pytest.mark.repeats
def test_ten_thousand_rules_are_compared_in_a_blink() -> None:
    topics = [f"t{i}" for i in range(2000)]
    rules = [rule(topic, "READ", "ALLOW", f"User:u{i}") for topic in topics for i in range(5)]
    target = Cluster("target", open_by_default=True)
    assert len(synced(Cluster("source", *rules), target, topics).diff.allow) == 10_000
