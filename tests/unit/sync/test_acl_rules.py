"""What becomes of a rule on the target. No rule ever lets anybody do there what the source forbids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.common.policy import EVERYBODY
from airflow_mirror.kafka.model import Acl
from airflow_mirror.mirror import Mirror
from airflow_mirror.sync.acl_rules import CUTOVER, EARLY, could_be_ours, looks_like_fence, own_patterns, rewrite
from airflow_mirror.sync.acl_scope import Scope, covers_name, others
from airflow_mirror.sync.acls import diff
from tests.builders import rule

ALICE, BOB = "User:alice", "User:bob"
TOPICS = ("orders", "ordinals", "users")


def scope(
    source: Iterable[Acl] = (), *, there: Iterable[Acl] = (), strangers: Iterable[str] = (),
    strange_groups: Iterable[str] = (), groups: Iterable[str] = ("app", "app-2"), cluster_wide: bool = False,
    unclaimed: Iterable[str] = (), **fields: Any,
) -> Scope:  # fmt: skip
    """A mirror of TOPICS, whose target also has the topics and groups of ``strangers``.

    ``unclaimed``: groups that may be those of topics in production.
    """
    idle = frozenset(unclaimed)
    mirror = Mirror(**{"name": "m", "source": "dc1", "target": "dc2", **fields})
    made = Scope(
        mirror=mirror, topics={t: mirror.naming.target_topic(t) for t in TOPICS},
        groups=frozenset(groups) - idle, beside_production=bool(idle), unclaimed=idle,
        own_source="User:mirror", own_target="User:mirror-2", there=frozenset(there), cluster_wide=cluster_wide,
    )  # fmt: skip
    ours = own_patterns(frozenset(source), made)
    return replace(made, others=others(made, [*made.target_topics, *strangers], [*groups, *strange_groups, *idle], ours))


def becomes(one: Acl, **given: Any) -> list[tuple[str, Acl]]:
    """Return phase and rule of everything that a rule becomes."""
    return [(w.phase, w.rule) for w in rewrite(frozenset({one}), scope([one], **given)).wanted]


def reason(one: Acl, *more: Acl, **given: Any) -> str:
    found = {r.rule: r.reason for r in rewrite(frozenset({one, *more}), scope([one, *more], **given)).left_out}
    return found[one]


PREFIX = {"policy": "prefix"}
UPPER = "tests.unit.test_policy:Upper"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (rule("orders", "READ", "ALLOW", ALICE), rule("dc1.orders", "READ", "ALLOW", ALICE)),
        (rule("ord", "READ", "ALLOW", ALICE, pattern="PREFIXED"),
         rule("dc1.ord", "READ", "ALLOW", ALICE, pattern="PREFIXED")),
        (rule("*", "READ", "ALLOW", ALICE), rule("dc1.", "READ", "ALLOW", ALICE, pattern="PREFIXED")),
        (rule("*", "READ", "DENY", ALICE), rule("dc1.", "READ", "DENY", ALICE, pattern="PREFIXED")),
        (rule("app", "READ", "ALLOW", ALICE, kind="GROUP"), rule("app", "READ", "ALLOW", ALICE, kind="GROUP")),
        (rule("*", "READ", "ALLOW", ALICE, kind="GROUP"), rule("*", "READ", "ALLOW", ALICE, kind="GROUP")),
    ],
)  # fmt: skip
def test_names_of_topics_get_the_prefix_and_groups_keep_theirs(given: Acl, found: Acl) -> None:
    assert becomes(given, **PREFIX) == [(EARLY, found)]


@pytest.mark.parametrize("permission", ["ALLOW", "DENY"])
def test_a_pattern_becomes_a_rule_for_each_name_that_a_class_gives(permission: str) -> None:
    """A DENY of writing for everybody on all topics is no fence."""
    found = becomes(rule("ord", "READ", permission, ALICE, pattern="PREFIXED"), policy=UPPER, strangers=["ORDERLY"])
    assert found == [(EARLY, rule(name, "READ", permission, ALICE)) for name in ("ORDERS", "ORDINALS")]
    shut = becomes(rule("*", "WRITE", "DENY"), policy=UPPER)
    assert [one.name for _, one in shut] == ["ORDERS", "ORDINALS", "USERS"]


@pytest.mark.parametrize("pattern", [("*", "LITERAL"), ("ord", "PREFIXED")])
def test_patterns_stay_under_identity_where_they_cover_nothing_else(pattern: tuple[str, str]) -> None:
    given = rule(pattern[0], "READ", "ALLOW", ALICE, pattern=pattern[1])
    assert becomes(given, strangers=["__consumer_offsets", "airflow-mirror.decisions"]) == [(EARLY, given)]


@pytest.mark.parametrize(
    ("given", "policy", "stranger", "covered"),
    [
        (rule("*", "READ", "ALLOW", ALICE), "identity", "payments", ["orders", "ordinals", "users"]),
        (rule("ord", "READ", "ALLOW", ALICE, pattern="PREFIXED"), "identity", "ordeals", ["orders", "ordinals"]),
        (rule("*", "READ", "ALLOW", ALICE), "prefix", "dc1.local", ["dc1.orders", "dc1.ordinals", "dc1.users"]),
    ],
)
def test_pattern_that_would_cover_others_is_written_out(
    given: Acl, policy: str, stranger: str, covered: list[str]
) -> None:
    literal = [(EARLY, rule(name, "READ", "ALLOW", ALICE)) for name in covered]
    assert becomes(given, strangers=[stranger], policy=policy) == literal
    found = rewrite(frozenset({given}), scope([given], strangers=[stranger], policy=policy)).written_out
    assert [one.rule for one in found] == [given] and stranger in found[0].reason


def test_names_that_only_rules_of_the_target_tell_count_as_well() -> None:
    """The mirror's principal may not see every topic of the target."""
    given = rule("*", "READ", "ALLOW", ALICE)
    hidden = rule("payments", "READ", "ALLOW", "User:bank")
    hidden_prefix = rule("pay", "READ", "ALLOW", "User:bank", pattern="PREFIXED")
    for there in (hidden, hidden_prefix):
        assert len(becomes(given, there=[there])) == len(TOPICS)
    own = rule("payments", "READ", "ALLOW", "User:mirror-2")
    on_ours = rule("orders", "READ", "ALLOW", "User:bank")
    assert becomes(given, there=[own, on_ours]) == [(EARLY, given)]


def test_pattern_that_the_target_has_already_is_not_doubted() -> None:
    given = rule("*", "READ", "ALLOW", ALICE)
    assert becomes(given, there=[given], strangers=["payments"]) == [(EARLY, given)]


def test_patterns_of_one_source_do_not_make_strangers_of_each_other() -> None:
    many = [rule("*", "READ", "ALLOW", ALICE, kind="GROUP"), rule("new", "READ", "ALLOW", BOB, kind="GROUP")]
    found = rewrite(frozenset(many), scope(many, there=[many[1]]))
    assert {w.rule for w in found.wanted} == set(many) and not found.written_out


def test_group_patterns_are_written_out_beside_strange_groups() -> None:
    given = rule("*", "READ", "ALLOW", ALICE, kind="GROUP")
    assert [r.name for _, r in becomes(given, strange_groups=["bank"])] == ["app", "app-2"]
    assert becomes(given, strange_groups=["airflow-mirror:m:starts"]) == [(EARLY, given)]
    assert "one by one" in reason(rule("bank", "READ", "ALLOW", ALICE, kind="GROUP"), strange_groups=["bank"])
    assert "one by one" in reason(rule("ba", "READ", "ALLOW", ALICE, kind="GROUP", pattern="PREFIXED"),
                                  strange_groups=["bank"])  # fmt: skip


@pytest.mark.parametrize("permission", ["ALLOW", "DENY"])
def test_group_that_is_called_like_the_wildcard_is_not_written_out(permission: str) -> None:
    """A rule by its name would be about every group of the target: there it opens, or shuts, those of others."""
    every = rule("*", "READ", permission, ALICE, kind="GROUP")
    given = rewrite(frozenset({every}), scope([every], groups=["app", "*"], strange_groups=["payroll"]))
    assert [w.rule.name for w in given.wanted] == ["app"] and [one.rule for one in given.written_out] == [every]
    ((left, why),) = [(one.rule, one.reason) for one in given.left_out]
    assert left == every and "a group of the mirror is called '*'" in why
    alone = rewrite(frozenset({every}), scope([every], groups=["*"], strange_groups=["payroll"]))
    assert not alone.wanted and [one.reason for one in alone.left_out] == [why]
    assert becomes(every, groups=["app", "*"]) == [(EARLY, every)], "nobody else has a group there"


def test_deny_that_is_written_out_reaches_all_that_the_mirror_allows() -> None:
    """Literal rules for the groups of today would let her into one that she opens tomorrow."""
    deny = rule("*", "READ", "DENY", ALICE, kind="GROUP")
    allow = rule("app", "READ", "ALLOW", ALICE, kind="GROUP", pattern="PREFIXED")
    found = rewrite(frozenset({deny, allow}), scope([deny, allow], strange_groups=["bank"]))
    denied = {(w.rule.pattern_type, w.rule.name) for w in found.wanted if w.rule.permission == "DENY"}
    assert denied == {("LITERAL", "app"), ("LITERAL", "app-2"), ("PREFIXED", "app")}


# --- phases ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "kind", "phase"),
    [
        ("READ", "TOPIC", EARLY), ("DESCRIBE", "TOPIC", EARLY), ("DESCRIBE_CONFIGS", "TOPIC", EARLY),
        ("READ", "GROUP", EARLY), ("DESCRIBE", "GROUP", EARLY),
        ("WRITE", "TOPIC", CUTOVER), ("CREATE", "TOPIC", CUTOVER), ("DELETE", "TOPIC", CUTOVER),
        ("ALTER", "TOPIC", CUTOVER), ("ALTER_CONFIGS", "TOPIC", CUTOVER), ("DELETE", "GROUP", CUTOVER),
    ],
)  # fmt: skip
def test_reading_is_early_and_everything_else_waits(operation: str, kind: str, phase: str) -> None:
    name = "orders" if kind == "TOPIC" else "app"
    allow = rule(name, operation, "ALLOW", ALICE, kind=kind)
    assert becomes(allow) == [(phase, allow)]
    deny = rule(name, operation, "DENY", ALICE, kind=kind)
    assert becomes(deny) == [(EARLY, deny)]


def test_transactional_ids_wait_even_for_describe() -> None:
    write = rule("orders", "WRITE", "ALLOW", ALICE)
    for operation in ("WRITE", "DESCRIBE", "ALL"):
        one = rule("tx", operation, "ALLOW", ALICE, kind="TRANSACTIONAL_ID", pattern="PREFIXED")
        found = rewrite(frozenset({write, one}), scope([write, one])).wanted
        assert [(w.phase, w.rule) for w in found if w.rule.resource_type != "TOPIC"] == [(CUTOVER, one)]


def test_all_is_reading_until_the_cutover() -> None:
    every = rule("orders", "ALL", "ALLOW", ALICE)
    reading = [replace(every, operation=o) for o in ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")]
    assert set(diff(frozenset({every}), scope(), EARLY, False).granted) == set(reading)
    later = diff(frozenset({every}), scope(there=reading), CUTOVER, False)
    assert later.granted == (every,) and set(later.kept) == set(reading) and not later.drift
    assert diff(frozenset({every}), scope(), CUTOVER, False).granted == (every,)
    assert diff(frozenset({every}), scope(there=[every]), EARLY, False).granted == ()


@pytest.mark.parametrize(
    ("operation", "phase"), [("READ", EARLY), ("ALL", EARLY), ("DELETE", CUTOVER), ("ALTER_CONFIGS", CUTOVER)]
)
def test_denying_changes_to_everybody_waits_as_it_would_stop_the_mirror(operation: str, phase: str) -> None:
    deny = rule("orders", operation, "DENY")
    assert becomes(deny) == [(phase, deny)]


# --- what is left out ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (rule("payments", "READ", "ALLOW", ALICE), "no topic of the mirror"),
        (rule("pay", "READ", "ALLOW", ALICE, pattern="PREFIXED"), "no topic of the mirror"),
        (rule("*", "READ", "ALLOW", ALICE, pattern="PREFIXED"), "no topic of the mirror"),  # a prefix, no wildcard
        (rule("connect-x", "READ", "ALLOW", ALICE, kind="GROUP"), "no group of the mirror"),
        (rule("tx", "WRITE", "ALLOW", BOB, kind="TRANSACTIONAL_ID"), "may write to no topic"),
        (rule("airflow-mirror:m:lease", "WRITE", "ALLOW", ALICE, kind="TRANSACTIONAL_ID"), "mirror's own ids"),
        (rule("kafka-cluster", "ALTER", "ALLOW", ALICE, kind="CLUSTER"), "whole cluster"),
        (rule("User:bob", "CREATE_TOKENS", "ALLOW", ALICE, kind="USER"), "whole cluster"),
        (rule("token", "DESCRIBE", "ALLOW", ALICE, kind="DELEGATION_TOKEN"), "whole cluster"),
        (rule("orders", "UNKNOWN", "ALLOW", ALICE), "does not know"),
        (rule("orders", "READ", "ALLOW", "User:mirror"), "own principal"),
        (rule("orders", "WRITE", "DENY", "User:mirror-2"), "own principal"),
        (rule("orders", "READ", "ALLOW", "User:CN=mirror"), "own principal"),
        (rule("orders", "WRITE", "DENY"), "fence"),
    ],
)
def test_rule_that_is_not_the_mirrors_is_listed_with_its_reason(given: Acl, why: str) -> None:
    write = rule("orders", "WRITE", "ALLOW", ALICE)
    assert why in reason(given, write, principals={"User:CN=mirror": "User:mirror-2"})


def test_cluster_wide_rules_are_copied_only_when_asked() -> None:
    cluster = rule("kafka-cluster", "ALTER", "ALLOW", ALICE, kind="CLUSTER")
    assert becomes(cluster, cluster_wide=True) == [(CUTOVER, cluster)]
    token = rule("User:a", "CREATE_TOKENS", "ALLOW", ALICE, kind="USER")
    mapped = becomes(token, cluster_wide=True, principals={"User:a": "User:b"})
    assert mapped == [(CUTOVER, replace(token, name="User:b"))]
    one = rule("token", "DESCRIBE", "ALLOW", ALICE, kind="DELEGATION_TOKEN")
    assert "one cluster only" in reason(one, cluster_wide=True)


def test_fence_is_known_with_the_reading_that_it_allows() -> None:
    read, configs, deny = (
        rule("orders", "READ"), rule("orders", "DESCRIBE_CONFIGS"), rule("orders", "WRITE", "DENY"),
    )  # fmt: skip
    fence = {read, configs, deny}
    assert all(looks_like_fence(one, fence) for one in fence)
    assert not looks_like_fence(read, {read, configs})  # a public topic
    for other in ({"host": "10.0.0.1"}, {"principal": ALICE}, {"operation": "ALL"}, {"name": "*"}):
        assert not looks_like_fence(replace(deny, **other), fence)


def test_rules_of_the_target_that_the_mirror_could_not_write_are_not_its_own() -> None:
    s = scope(policy="prefix", principals={"User:a": "User:app"})
    mine = [
        rule("dc1.orders", "READ", "ALLOW", ALICE), rule("dc1.", "READ", "ALLOW", "User:app", pattern="PREFIXED"),
        rule("app", "READ", "ALLOW", ALICE, kind="GROUP"), rule("tx", "WRITE", "ALLOW", BOB, kind="TRANSACTIONAL_ID"),
    ]  # fmt: skip
    other = [
        rule("orders", "READ", "ALLOW", ALICE), rule("*", "READ", "ALLOW", ALICE, kind="CLUSTER"),
        rule("dc1.orders", "READ", "ALLOW", "User:mirror-2"), rule("dc1.orders", "READ", "ALLOW", "User:a"),
        rule("dc1.orders", "WRITE", "DENY"), rule("tx", "WRITE", "ALLOW", ALICE, kind="TRANSACTIONAL_ID"),
        rule("airflow-mirror:m:lease", "WRITE", "ALLOW", BOB, kind="TRANSACTIONAL_ID"),
        rule("bank", "READ", "ALLOW", ALICE, kind="GROUP"), rule("dc", "READ", "ALLOW", ALICE, pattern="PREFIXED"),
    ]  # fmt: skip
    assert [could_be_ours(one, s, {BOB}, CUTOVER) for one in (*mine, *other)] == [True] * len(mine) + [False] * len(other)


@pytest.mark.parametrize(("policy", "ours"), [("identity", {"d", "dc1.", "*"}), ("prefix", {"dc1."}), (UPPER, set())])
def test_pattern_of_topics_that_names_of_the_policy_never_become_is_somebodys_own(policy: str, ours: set[str]) -> None:
    """Whoever removed what the source lacks took a right away that was given on the target by hand."""
    s = replace(scope(policy=policy), topics={t: f"dc1.{t}" for t in TOPICS})
    patterns = [rule(name, "READ", "ALLOW", ALICE, pattern="PREFIXED") for name in ("d", "dc1.")]
    found = [one.name for one in (*patterns, rule("*", "READ", "ALLOW", ALICE)) if could_be_ours(one, s, {BOB}, CUTOVER)]
    assert set(found) == ours
    assert could_be_ours(rule("a", "READ", "ALLOW", ALICE, kind="GROUP", pattern="PREFIXED"), s, {BOB}, CUTOVER)


# --- nobody may do more on the target than on the source --------------------------------------------------------------

OPERATIONS = ("READ", "WRITE", "DESCRIBE", "DELETE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS")
IMPLIES = {  # StandardAuthorizerData: what an ALLOW of one operation allows as well
    "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"},
}
WHO = (ALICE, BOB, "User:CN=alice", EVERYBODY)
NAMES = {
    "TOPIC": ("orders", "ordinals", "users", "payments", "ordeals", "or", "ord", "us", "*"),
    "GROUP": ("app", "app-2", "bank", "ap", "b", "*"),
    "TRANSACTIONAL_ID": ("tx", "tx-1", "bank", "t", "*"),
}


def allowed(rules: Iterable[Acl], principal: str, operation: str, kind: str, name: str) -> bool:
    """What an authorizer says that allows nothing by default."""
    about = [
        r for r in rules if r.resource_type == kind and covers_name(r, name) and r.principal in (principal, EVERYBODY)
    ]
    if any(r.permission == "DENY" and r.operation in (operation, "ALL") for r in about):
        return False
    enough = {operation, "ALL"} | IMPLIES.get(operation, set())
    return any(r.permission == "ALLOW" and r.operation in enough for r in about)


@st.composite
def rules_of_a_source(draw: st.DrawFn) -> frozenset[Acl]:
    def one() -> Acl:
        kind = draw(st.sampled_from(sorted(NAMES)))
        name = draw(st.sampled_from(NAMES[kind]))
        pattern = "LITERAL" if name == "*" else draw(st.sampled_from(("LITERAL", "PREFIXED")))
        operation = draw(st.sampled_from((*OPERATIONS, "ALL")))
        permission = draw(st.sampled_from(("ALLOW", "ALLOW", "DENY")))
        return rule(name, operation, permission, draw(st.sampled_from(WHO)), kind=kind, pattern=pattern)

    return frozenset(one() for _ in range(draw(st.integers(1, 9))))


def test_denied_id_stays_denied_where_everybody_is_allowed() -> None:
    """Bob writes to no topic of the mirror, and has no right to lose. But everybody's right would be his, too."""
    source = {
        rule("orders", "WRITE", "ALLOW", ALICE),
        rule("tx", "WRITE", "ALLOW", "User:*", kind="TRANSACTIONAL_ID"),
        denied := rule("*", "WRITE", "DENY", BOB, kind="TRANSACTIONAL_ID"),
        idle := rule("own", "WRITE", "ALLOW", BOB, kind="TRANSACTIONAL_ID"),
    }
    found = rewrite(source, scope(source))
    wanted = {one.rule for one in found.wanted}
    assert denied in wanted and idle not in wanted
    alone = rewrite(source - {rule("tx", "WRITE", "ALLOW", "User:*", kind="TRANSACTIONAL_ID")}, scope(source))
    assert denied not in {one.rule for one in alone.wanted}


@given(
    rules_of_a_source(),
    st.sampled_from(("identity", "prefix")),
    st.sets(st.sampled_from(("payments", "ordeals", "dc1.local"))),
    st.sets(st.sampled_from(("bank", "app-3"))),
    st.sets(st.sampled_from(("app", "app-4"))),
)
def test_nobody_may_do_more_on_the_target_than_on_the_source(
    source: frozenset[Acl], policy: str, strangers: set[str], strange_groups: set[str], unclaimed: set[str]
) -> None:
    source = frozenset(one for one in source if not looks_like_fence(one, source))
    map_ = {"User:CN=alice": ALICE}
    bank = rule("bank", "WRITE", "ALLOW", "User:bank", kind="TRANSACTIONAL_ID")
    source -= {one for one in source if (one.resource_type, one.name) == ("TRANSACTIONAL_ID", "bank")}
    given_: dict[str, Any] = {
        "strangers": strangers, "strange_groups": strange_groups, "policy": policy, "principals": map_, "there": [bank],
        "unclaimed": unclaimed,
    }  # fmt: skip
    s = scope(source, **given_)
    back = {target: topic for topic, target in s.topics.items()}
    early, late = (diff(source, s, phase, False).granted for phase in (EARLY, CUTOVER))
    names = [("TOPIC", name) for name in (*back, *strangers)]
    names += [("GROUP", name) for name in (*s.groups, "app-new", *strange_groups, *unclaimed)]
    names += [("TRANSACTIONAL_ID", name) for name in ("tx", "tx-1", "tx-new", "bank")]
    for rules in (early, late):
        for who in (ALICE, BOB, "User:else"):
            before = {p for p in (ALICE, BOB, "User:CN=alice", "User:else") if map_.get(p, p) == who}
            for kind, name in names:
                is_strange = name in strangers | strange_groups | unclaimed | {"bank"}
                for operation in OPERATIONS:
                    if not allowed(rules, who, operation, kind, name):
                        continue
                    assert not is_strange, f"{who} {operation} {kind} {name}: not the mirror's"
                    there = back.get(name, name)
                    assert any(allowed(source, p, operation, kind, there) for p in before), (who, operation, kind, name)
    assert all(one.operation in ("READ", "DESCRIBE", "DESCRIBE_CONFIGS") for one in early if one.permission == "ALLOW")
