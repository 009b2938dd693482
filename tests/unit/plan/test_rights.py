"""Which rights a Mirror asks for: by side, role, mode and release."""

from __future__ import annotations

import pytest

from airflow_mirror.common.policy import DECISIONS
from airflow_mirror.plan.resources import includes
from airflow_mirror.plan.rights import (
    COMMANDS,
    NEWEST,
    RESOURCES,
    RIGHTS,
    ROLES,
    SIDES,
    SOURCE,
    TARGET,
    WHEN,
    rights_of,
)
from airflow_mirror.wire.served import RELEASES
from tests.unit.plan.builders import a_mirror

ONE = {"topics": ["orders"], "groups": ["billing"]}


def asked(side: str, roles: tuple[str, ...] = ROLES, version: tuple[int, ...] = NEWEST, **fields: object) -> set[str]:
    """The rights as short text."""
    found = rights_of(a_mirror(**{**ONE, **fields}), side, "User:mirror", roles=roles, version=version)
    return {f"{acl.operation} {acl.resource_type} {acl.name}" for acl, _ in found.grants}


LIST = "DESCRIBE TOPIC __consumer_offsets"
TRANSACTIONS = {"DESCRIBE TRANSACTIONAL_ID *", "DESCRIBE TOPIC __transaction_state"}


def test_a_plain_mirror_asks_for_this_on_its_source() -> None:
    assert asked(SOURCE) == {
        "READ TOPIC orders", "DESCRIBE_CONFIGS TOPIC orders", "READ TOPIC airflow-mirror.decisions", "DESCRIBE GROUP *",
        "ALTER CLUSTER kafka-cluster", "DESCRIBE_CONFIGS CLUSTER kafka-cluster", *TRANSACTIONS, LIST,
    }  # fmt: skip


def test_a_plain_mirror_asks_for_this_on_its_target() -> None:
    of_topics = {"CREATE", "WRITE", "READ", "ALTER_CONFIGS", "DELETE", "ALTER"}
    assert asked(TARGET) == {
        *(f"{operation} TOPIC orders" for operation in of_topics),
        *(f"{o} TOPIC airflow-mirror.decisions" for o in ("CREATE", "READ", "WRITE", "DESCRIBE_CONFIGS")),
        *(f"{o} TOPIC airflow-mirror.ledger" for o in ("CREATE", "READ", "WRITE")),
        *(f"{o} TOPIC airflow-mirror.wishes" for o in ("CREATE", "READ")),
        *(f"{o} TOPIC airflow-mirror.maps" for o in ("CREATE", "READ", "WRITE", "DESCRIBE_CONFIGS")),
        *(f"{o} TOPIC __airflow-mirror.probe.dc1-to-dc2" for o in ("CREATE", "READ", "WRITE", "DELETE")),
        "WRITE TRANSACTIONAL_ID airflow-mirror:dc1-to-dc2:",
        "ALTER CLUSTER kafka-cluster", "DESCRIBE_CONFIGS CLUSTER kafka-cluster",
        "READ GROUP billing", "DELETE GROUP billing", "DESCRIBE GROUP airflow-mirror:dc1-to-dc2:progress",
    }  # fmt: skip


def test_each_role_asks_for_its_own_part() -> None:
    assert asked(SOURCE, ("verify",)) == {"READ TOPIC orders"}
    assert asked(TARGET, ("verify",), offsets="identical") == {
        "READ TOPIC orders", "DESCRIBE_CONFIGS TOPIC orders", "READ TOPIC airflow-mirror.ledger",
        "WRITE TOPIC airflow-mirror.ledger", "READ TOPIC airflow-mirror.decisions",
        "DESCRIBE_CONFIGS TOPIC airflow-mirror.decisions",
    }  # fmt: skip
    assert asked(SOURCE, ("copy",)) == {
        "READ TOPIC orders",
        "DESCRIBE_CONFIGS TOPIC orders",
        "READ TOPIC airflow-mirror.decisions",
        "DESCRIBE CLUSTER kafka-cluster",
        "DESCRIBE GROUP *",
        LIST,
    }
    planning = asked(TARGET, ("plan",))
    assert {"DESCRIBE TOPIC orders", "DESCRIBE_CONFIGS TOPIC orders"} < planning
    assert not {"WRITE TOPIC orders", "READ GROUP billing"} & planning
    assert "WRITE TOPIC orders" not in asked(TARGET, ("cutover",))


def test_groups_that_follow_take_more_than_the_copy() -> None:
    without = {side: asked(side, ("copy",), sync_groups=False) for side in SIDES}
    assert asked(SOURCE, ("copy",)) - without[SOURCE] == {"DESCRIBE GROUP *", LIST}
    assert asked(TARGET, ("copy",)) - without[TARGET] == {"READ GROUP billing"}
    old = asked(SOURCE, ("copy",), (0, 11)) - asked(SOURCE, ("copy",), (0, 11), sync_groups=False)
    assert old == {"READ GROUP *", "DESCRIBE CLUSTER kafka-cluster", LIST}


def test_who_only_looks_gets_no_right_to_write() -> None:
    assert asked(SOURCE, ("status",)) == asked(SOURCE, ("pause",)) == asked(SOURCE, ("retire",)) == set()
    assert asked(TARGET, ("status",)) == {
        "READ TOPIC airflow-mirror.decisions", "DESCRIBE_CONFIGS TOPIC airflow-mirror.decisions",
        "READ TOPIC airflow-mirror.ledger", "READ TOPIC airflow-mirror.wishes", "DESCRIBE TOPIC orders",
    }  # fmt: skip
    assert asked(TARGET, ("pause",)) - asked(TARGET, ("status",)) == {"WRITE TOPIC airflow-mirror.wishes"}


def test_who_lifts_fences_brings_groups_back_and_writes_no_record() -> None:
    assert asked(SOURCE, ("lift-fence",)) == {"ALTER CLUSTER kafka-cluster"}
    assert asked(TARGET, ("lift-fence",)) - asked(TARGET, ("pause",)) == {
        "WRITE TOPIC airflow-mirror.decisions", "WRITE TRANSACTIONAL_ID airflow-mirror:dc1-to-dc2:",
        "WRITE TOPIC airflow-mirror.ledger",
        "READ TOPIC orders", "READ GROUP billing", "DELETE GROUP billing",
    }  # fmt: skip


def test_who_fails_over_asks_nothing_of_the_source_and_writes_no_record() -> None:
    assert asked(SOURCE, ("failover",), sync_acls=True, own_principals={"target": "User:mirror"}) == set()
    found = asked(TARGET, ("failover",), offsets="identical")
    assert found - asked(TARGET, ("pause",)) == {
        "WRITE TOPIC airflow-mirror.decisions", "WRITE TRANSACTIONAL_ID airflow-mirror:dc1-to-dc2:",
        "WRITE TOPIC airflow-mirror.ledger", "READ TOPIC orders", "ALTER_CONFIGS TOPIC orders", "READ GROUP billing",
    }  # fmt: skip
    assert asked(TARGET, ("failover",), offsets="mapped") - found == {"READ TOPIC airflow-mirror.maps"}
    rules = {"sync_acls": True, "own_principals": {"target": "User:mirror"}}
    assert asked(TARGET, ("failover",), offsets="identical", **rules) - found == {"ALTER CLUSTER kafka-cluster"}


def test_a_shared_mirror_gets_no_rights_for_what_is_refused() -> None:
    """Its cutover is; so nobody raises or lifts a fence for it."""
    shared = {"ownership": "shared", "delivery": "transactional", "sync_groups": False, "sync_configs": False}
    assert "ALTER CLUSTER kafka-cluster" not in asked(SOURCE, **shared)
    assert not {"READ GROUP billing", "DELETE GROUP billing"} & asked(TARGET, **shared)
    for side in SIDES:
        assert asked(side, ("cutover", "lift-fence", "failover"), **shared) == set()


def test_modes_of_offsets_ask_for_what_they_do_and_auto_for_both() -> None:
    either, mapped, identical = asked(TARGET), asked(TARGET, offsets="mapped"), asked(TARGET, offsets="identical")
    assert either - mapped == {"ALTER CLUSTER kafka-cluster"}
    of_maps = {f"{o} TOPIC airflow-mirror.maps" for o in ("CREATE", "READ", "WRITE", "DESCRIBE_CONFIGS")}
    assert either - identical == {"DESCRIBE GROUP airflow-mirror:dc1-to-dc2:progress"} | of_maps
    assert either | {"DESCRIBE CLUSTER kafka-cluster"} == mapped | identical  # ALTER includes it


def test_transactional_delivery_also_commits_its_progress() -> None:
    found, plain = (asked(TARGET, **fields) for fields in ({"delivery": "transactional"}, {"offsets": "mapped"}))
    assert found - plain == {"READ GROUP airflow-mirror:dc1-to-dc2:progress"}
    assert plain - found == {"DELETE TOPIC orders", "DESCRIBE GROUP airflow-mirror:dc1-to-dc2:progress"}, (
        "no log start follows"
    )
    comparing = asked(TARGET, ("verify",), delivery="transactional")
    assert "DESCRIBE TRANSACTIONAL_ID airflow-mirror:dc1-to-dc2:" in comparing


def test_start_at_latest_also_stores_where_it_began() -> None:
    assert asked(TARGET, start="latest") - asked(TARGET) == {"READ GROUP airflow-mirror:dc1-to-dc2:starts"}


def test_partitioning_by_key_moves_no_groups_and_never_cuts_over() -> None:
    found = asked(SOURCE, partitioning="by_key") | asked(TARGET, partitioning="by_key")
    assert not [right for right in found if "GROUP" in right or right.startswith("ALTER ")]
    assert asked(SOURCE, ("verify", "cutover"), partitioning="by_key") == set()


@pytest.mark.parametrize(
    ("side", "version", "more", "less"),
    [
        (
            TARGET,
            (3, 7),
            {f"{o} CLUSTER kafka-cluster" for o in ("CLUSTER_ACTION", "DESCRIBE")},
            {"ALTER CLUSTER kafka-cluster"},
        ),
        (TARGET, (3, 8), set(), set()),
        (SOURCE, (3, 0), set(), set()),
        (SOURCE, (2, 6), set(), TRANSACTIONS),
        (SOURCE, (2, 1), set(), {"DESCRIBE_CONFIGS CLUSTER kafka-cluster", *TRANSACTIONS}),
        (SOURCE, (1, 0), set(), {"DESCRIBE_CONFIGS CLUSTER kafka-cluster", *TRANSACTIONS}),
        (
            SOURCE,
            (0, 11),
            {"READ GROUP *"},
            {"DESCRIBE GROUP *", "DESCRIBE_CONFIGS CLUSTER kafka-cluster", *TRANSACTIONS},
        ),
    ],
)
def test_older_brokers_ask_for_other_rights(side: str, version: tuple[int, ...], more: set[str], less: set[str]) -> None:
    assert asked(side, version=version) - asked(side) == more
    assert asked(side) - asked(side, version=version) == less


def test_listing_groups_of_an_old_source_takes_the_cluster() -> None:
    for version, needed in (((2, 0), True), ((2, 1), False)):
        grants = rights_of(a_mirror(), SOURCE, "User:m", roles=["plan"], version=version).grants
        (why,) = (whys for acl, whys in grants if (acl.operation, acl.resource_type) == ("DESCRIBE", "CLUSTER"))
        assert any("list groups" in one for one in why) is needed


def test_an_old_source_has_no_prefixed_patterns() -> None:
    old, new = (rights_of(a_mirror(topics=["pay.*"]), SOURCE, "User:m", version=v).grants for v in ((1, 1), (2, 0)))
    assert {(acl.name, acl.pattern_type) for acl, _ in old if acl.resource_type == "TOPIC"} == {("*", "LITERAL")}
    assert {(acl.name, acl.pattern_type) for acl, _ in new if acl.resource_type == "TOPIC"} == {
        ("pay", "PREFIXED"), ("airflow-mirror.decisions", "LITERAL"), ("__consumer_offsets", "LITERAL"),
    }  # fmt: skip


def test_names_that_a_class_gives_follow_no_pattern() -> None:
    mirror = a_mirror(policy="tests.unit.test_policy:Upper", topics=["orders"])
    for names, covered in ((None, "*"), (["orders"], "ORDERS")):
        found = rights_of(mirror, TARGET, "User:mirror", roles=["verify"], names=names)
        asked = [acl.name for acl, _ in found.grants if acl.operation == "DESCRIBE_CONFIGS"]
        assert [name for name in asked if name != DECISIONS] == [covered]
        assert any("one by one" in note for note in found.notes) == (names is None)
    assert [acl.name for acl, _ in rights_of(mirror, SOURCE, "User:m", roles=["verify"]).grants] == ["orders"]


def test_names_that_the_source_told_replace_patterns() -> None:
    mirror = a_mirror(policy="prefix", source_alias="dc1")
    found = rights_of(mirror, TARGET, "User:mirror", roles=["verify"], names=["a", "b"])
    topics = {(acl.name, acl.pattern_type) for acl, _ in found.grants if acl.operation == "DESCRIBE_CONFIGS"}
    assert topics == {("dc1.a", "LITERAL"), ("dc1.b", "LITERAL"), (DECISIONS, "LITERAL")}
    assert any("Ask again when it has more" in note for note in found.notes)


@pytest.mark.parametrize("topics", [["orders"], ["pay.*", "a"], [".*"]])
@pytest.mark.parametrize("fields", [{}, {"delivery": "transactional", "start": "latest"}, {"policy": "prefix"}])
def test_no_right_includes_another_and_every_row_is_granted(topics: list[str], fields: dict[str, str]) -> None:
    mirror = a_mirror(topics=topics, **fields)
    for side in SIDES:
        grants = rights_of(mirror, side, "User:mirror", roles=(*ROLES, *COMMANDS)).grants
        acls = [acl for acl, _ in grants]
        assert not [(a, b) for a in acls for b in acls if a is not b and includes(a, b)]
        reasons = {why for _, whys in grants for why in whys}
        assert reasons == {r.why for r in RIGHTS if r.side == side and r.is_for(mirror, NEWEST)}


def test_a_right_stands_for_those_that_it_includes() -> None:
    """Nobody may take it away for the first reason alone."""
    grants = rights_of(a_mirror(), SOURCE, "User:mirror").grants
    (why,) = (whys for acl, whys in grants if acl.operation == "ALTER")
    assert [w.split(";")[0] for w in why] == [
        "the fence by ACL", "sizes of partitions, to split work by bytes",
        "sizes of topics, to see whether they fit on the target",
    ]  # fmt: skip


def test_who_may_change_acls_is_told_so() -> None:
    noted = [
        any("change every ACL" in n for n in rights_of(a_mirror(), TARGET, "User:m", roles=[r]).notes) for r in ROLES
    ]
    assert noted == [True, True, False, False]


def test_the_tables_words_are_known() -> None:
    assert {r.on for r in RIGHTS} == set(RESOURCES)
    assert {r.when for r in RIGHTS} <= set(WHEN)
    assert all(set(r.roles) <= {*ROLES, *COMMANDS} and r.roles for r in RIGHTS)
    assert {v for r in RIGHTS for v in (r.since, r.before) if v} <= set(RELEASES)


def test_who_plans_and_copies_traces_may_write_them_and_read_positions_alone() -> None:
    fields = {"traces": "heartbeats, checkpoints", "source_alias": "dc1"}
    topics = ("heartbeats", "dc1.heartbeats", "dc1.checkpoints.internal")
    needed = {f"{o} TOPIC {topic}" for o in ("CREATE", "WRITE", "DESCRIBE_CONFIGS") for topic in topics}
    for role in ("plan", "copy"):
        more = asked(TARGET, (role,), **fields) - asked(TARGET, (role,), source_alias="dc1")
        assert more == needed | {"READ TOPIC dc1.checkpoints.internal"}
    more = asked(TARGET, ("cutover",), **fields) - asked(TARGET, ("cutover",), source_alias="dc1")
    assert more == {"WRITE TOPIC dc1.checkpoints.internal"}
    more = asked(TARGET, ("retire",), **fields) - asked(TARGET, ("retire",), source_alias="dc1")
    assert more == {f"DESCRIBE TOPIC {topic}" for topic in topics}
