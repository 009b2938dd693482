"""Groups: many in a request, states from whoever knows them, and what an outsider may set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import DescribeGroupsResponse, ListGroupsResponse
from kafka.protocol.consumer import ListOffsetsResponse
from kafka.protocol.consumer.group import OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import BrokerError, MissingRight
from airflow_mirror.kafka.admin import GroupInfo, GroupPosition
from airflow_mirror.kafka.model import CONNECT, OF_GROUPS, STREAMS
from tests.unit.kafka.world import (
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    LIST_OFFSETS,
    LOST,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    world,
)

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
OLD = {
    OFFSET_FETCH: (0, 3),
    FIND_COORDINATOR: (0, 1),
    LIST_GROUPS: (0, 1),
    DESCRIBE_GROUPS: (0, 1),
    OFFSET_COMMIT: (0, 3),
}


def listed(*groups: tuple[str, str, str], code: int = 0) -> Callable[[Any], Any]:
    one = ListGroupsResponse.ListedGroup
    return lambda request: ListGroupsResponse(
        error_code=code,
        groups=[one(group_id=g, protocol_type=p, group_state=s, group_type="classic") for g, p, s in groups],
    )


def described(states: dict[str, str], code: int = 0) -> Callable[[Any], Any]:
    one = DescribeGroupsResponse.DescribedGroup
    rest = {"protocol_type": "", "protocol_data": "", "members": []}
    return lambda request: DescribeGroupsResponse(
        groups=[one(error_code=code, group_id=g, group_state=states.get(g, "Dead"), **rest) for g in request.groups]
    )


def may_describe(group: Callable[[str], bool]) -> Callable[[Any], Any]:
    """There is no such group, which is told to who may describe it."""
    one = DescribeGroupsResponse.DescribedGroup
    rest = {"protocol_type": "", "protocol_data": "", "members": [], "group_state": "Dead"}
    allowed = {True: {"error_code": 0, "authorized_operations": {8}}, False: {"error_code": 30}}
    return lambda request: DescribeGroupsResponse(
        groups=[one(group_id=g, **rest, **allowed[group(g)]) for g in request.groups]
    )


def fetched(partition_code: int = 0, group_code: int = 0) -> Callable[[Any], Any]:
    """Each group stands at its own number of T0, and has nothing in T1."""

    def answer(request: Any) -> Any:
        new = request.version >= 8
        kind = OffsetFetchResponse.OffsetFetchResponseGroup if new else OffsetFetchResponse
        topic = kind.OffsetFetchResponseTopics if new else kind.OffsetFetchResponseTopic
        partition = topic.OffsetFetchResponsePartitions if new else topic.OffsetFetchResponsePartition

        def topics(group: str) -> list[Any]:
            offset = int(group.partition("-")[2] or 0)
            partitions = [
                partition(partition_index=0, committed_offset=offset, metadata="note", error_code=partition_code),
                partition(partition_index=1, committed_offset=-1, metadata=None, error_code=0),
            ]
            return [topic(name="orders", partitions=partitions)]

        if not new:
            return OffsetFetchResponse(topics=topics(request.group_id), error_code=group_code)
        return OffsetFetchResponse(groups=[
            kind(group_id=g.group_id, topics=topics(g.group_id), error_code=group_code) for g in request.groups
        ])  # fmt: skip

    return answer


@pytest.mark.parametrize("served, requests, lookups", [({}, 3, 1), (OLD, 250, 250)])
def test_positions_of_many_groups_are_batched_where_possible(
    served: dict[int, tuple[int, int]], requests: int, lookups: int
) -> None:
    groups = [f"g-{n}" for n in range(250)]
    with world(served) as w:
        w.answer(OFFSET_FETCH, fetched())
        found = w.admin.groups_offsets(groups)
        assert found == {g: {T0: GroupPosition(n, "note")} for n, g in enumerate(groups)}
        assert (len(w.asked(OFFSET_FETCH)), len(w.asked(FIND_COORDINATOR))) == (requests, lookups)


@pytest.mark.parametrize("served", [{}, OLD])
def test_only_the_partitions_that_are_wanted_are_asked_for(served: dict[int, tuple[int, int]]) -> None:
    """A group may have positions in many topics of others."""
    with world(served) as w:
        w.answer(OFFSET_FETCH, fetched())
        w.admin.groups_offsets(["g-1", "g-2"], {"g-1": [T0, T1], "g-2": [TopicPartition("audit", 7)]})
        asked = [group for r in w.asked(OFFSET_FETCH) for group in (r.groups if r.version >= 8 else [r])]
        wanted = {g.group_id: {t.name: list(t.partition_indexes) for t in g.topics} for g in asked}
        assert wanted == {"g-1": {"orders": [0, 1]}, "g-2": {"audit": [7]}}


def test_unstable_position_is_asked_again_and_only_its_group() -> None:
    with world() as w:
        w.answer(OFFSET_FETCH, fetched(88), fetched())
        assert w.admin.group_offsets("g-5") == {T0: GroupPosition(5, "note")}
        assert all(request.require_stable for request in w.asked(OFFSET_FETCH)) and len(w.asked(OFFSET_FETCH)) == 2


def test_who_asks_so_is_told_the_last_committed_positions() -> None:
    with world() as w:
        w.answer(OFFSET_FETCH, fetched())
        assert w.admin.groups_offsets_apart(["g-5"], stable=False) == ({"g-5": {T0: GroupPosition(5, "note")}}, {})
        assert not any(request.require_stable for request in w.asked(OFFSET_FETCH))


def test_position_that_stays_unstable_is_an_error_not_a_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    with world() as w:
        w.answer(OFFSET_FETCH, fetched(88))
        monkeypatch.setattr(w.admin, "timeout_s", 0.2)
        with pytest.raises(
            BrokerError, match="read offsets of consumer group 'g-5'.*UNSTABLE_OFFSET_COMMIT.*at orders-0"
        ):
            w.admin.group_offsets("g-5")


@pytest.mark.parametrize("code", [14, 15, 16])
def test_moving_coordinator_is_asked_again_after_a_lookup(code: int) -> None:
    with world() as w:
        w.answer(OFFSET_FETCH, fetched(group_code=code), LOST, fetched())
        assert w.admin.group_offsets("g-1") == {T0: GroupPosition(1, "note")}
        assert len(w.asked(FIND_COORDINATOR)) == 3


def test_group_without_a_coordinator_keeps_no_other_from_being_read() -> None:
    one = FindCoordinatorResponse.Coordinator

    def some(codes: dict[str, int]) -> Callable[[Any], Any]:
        return lambda r: FindCoordinatorResponse(coordinators=[
            one(key=k, node_id=1, host="", port=0, error_code=codes.get(k, 0)) for k in r.coordinator_keys
        ])  # fmt: skip

    with world() as w:
        w.answer(FIND_COORDINATOR, some({"g-2": 15}), some({}))
        w.answer(OFFSET_FETCH, fetched())
        assert set(w.admin.groups_offsets(["g-1", "g-2"])) == {"g-1", "g-2"}
        assert [[g.group_id for g in r.groups] for r in w.asked(OFFSET_FETCH)] == [["g-1"], ["g-2"]]


def test_group_that_may_not_be_seen_is_an_error() -> None:
    """It is never taken for one without positions."""
    with world() as w:
        w.answer(OFFSET_FETCH, fetched(group_code=30))
        with pytest.raises(MissingRight, match="lacks Describe on group 'g'"):
            w.admin.group_offsets("g")
        w.answer(DESCRIBE_GROUPS, described({}, code=30))
        with pytest.raises(MissingRight, match="describe consumer group 'g'.*lacks Describe on group 'g'"):
            w.admin.group_states(["g"])


@pytest.mark.parametrize("version", [0, 5])
def test_whether_groups_are_hidden_is_told_without_their_coordinators(version: int) -> None:
    """To ask for one creates the topic of groups, or fails for a quarter of a minute where it can't be created."""
    with world({DESCRIBE_GROUPS: (0, version)}) as w:
        codes = {"mine": 16, "here": 0}
        one = DescribeGroupsResponse.DescribedGroup
        rest = {"protocol_type": "", "protocol_data": "", "members": [], "group_state": ""}
        w.answer(
            DESCRIBE_GROUPS,
            described({}, code=14),
            lambda request: DescribeGroupsResponse(
                groups=[one(group_id=g, error_code=codes.get(g, 30), **rest) for g in request.groups]
            ),
        )
        groups = ["here", "mine", *(f"hidden-{n:03}" for n in range(300))]
        assert w.admin.unseen_groups(groups) == groups[2:]
        assert (len(w.asked(FIND_COORDINATOR)), len(w.asked(DESCRIBE_GROUPS))) == (0, 2)


def test_what_is_allowed_on_groups_is_asked_of_many_at_once_and_one_that_is_hidden_holds_up_no_other() -> None:
    """Its coordinator is not told either; the cutover asks behind the fence about each group that has expired."""
    with world() as w:

        def coordinator(request: Any) -> Any:
            answer = w._coordinator(request)
            for one in answer.coordinators:
                one.error_code = 30 if one.key < "g-010" else 0
            return answer

        w.answer(FIND_COORDINATOR, coordinator)
        w.answer(DESCRIBE_GROUPS, may_describe(lambda group: group >= "g-020"))
        found = w.admin.allowed_on_groups(groups := [f"g-{n:03}" for n in range(300)])
        assert found == {g: frozenset(["DESCRIBE"] if g >= "g-020" else []) for g in groups}
        assert (len(w.asked(FIND_COORDINATOR)), len(w.asked(DESCRIBE_GROUPS))) == (1, 1)


def test_only_groups_of_consumers_are_listed_sorted_with_their_states() -> None:
    with world() as w:
        w.answer(LIST_GROUPS, listed(
            ("b", "consumer", "Reconciling"), ("a", "", "Empty"), ("c", "connect", "Stable"), ("d", "share", "Stable"),
        ))  # fmt: skip
        consumers = [
            GroupInfo("a", "Empty", "", group_type="classic"),
            GroupInfo("b", "Reconciling", "consumer", group_type="classic"),
        ]
        assert w.admin.groups() == consumers
        others = [
            GroupInfo("c", "Stable", "connect", group_type="classic"),
            GroupInfo("d", "Stable", "share", group_type="classic"),
        ]
        assert w.admin.groups(every=True) == consumers + others
        assert not w.asked(DESCRIBE_GROUPS)


def test_old_broker_tells_states_when_it_describes_its_groups() -> None:
    with world(OLD) as w:
        w.answer(LIST_GROUPS, listed(("a", "", ""), ("b", "consumer", ""), ("c", "connect", "")))
        w.answer(DESCRIBE_GROUPS, described({"a": "Empty", "b": "AwaitingSync"}))
        assert w.admin.groups() == [GroupInfo("a", "Empty", ""), GroupInfo("b", "CompletingRebalance", "consumer")]


def test_list_is_asked_again_while_a_broker_loads_its_groups() -> None:
    with world() as w:
        w.answer(LIST_GROUPS, listed(code=14), LOST, listed(("a", "consumer", "Stable")))
        assert [g.group_id for g in w.admin.groups()] == ["a"]


def test_groups_without_a_coordinator_are_an_error_and_no_gap_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """All replicas of a part of their topic are down: each broker answers, and none has these groups."""
    with world() as w:
        w.topics["__consumer_offsets"], leaders = (2, {}), [1, -1]

        def metadata(request: Any) -> Any:
            answer = w._metadata(request)
            for topic in answer.topics:
                for partition in topic.partitions:
                    partition.leader_id = leaders[partition.partition_index]
            return answer

        w.answer(METADATA, metadata)
        w.answer(LIST_GROUPS, listed(("a", "consumer", "Stable")))
        monkeypatch.setattr(w.admin, "timeout_s", 0.2)
        with pytest.raises(BrokerError, match="list consumer groups.*COORDINATOR_NOT_AVAILABLE.*__consumer_offsets"):
            w.admin.groups()
        leaders[1] = 1
        assert [g.group_id for g in w.admin.groups()] == ["a"]


def test_groups_whose_coordinator_moves_meanwhile_are_asked_for_again() -> None:
    """Its next broker answers before it is one, and its last one behind that: neither lists them."""
    with world() as w:
        w.topics[OF_GROUPS], epochs = (1, {}), [5]

        def metadata(request: Any) -> Any:
            answer = w._metadata(request)
            for partition in answer.topics[0].partitions if answer.topics else []:
                partition.leader_epoch = epochs[-1]
            return answer

        def moving(request: Any) -> Any:
            epochs.append(6)
            return listed()(request)

        w.answer(METADATA, metadata)
        w.answer(LIST_GROUPS, moving, listed(("a", "consumer", "Stable")))
        assert [g.group_id for g in w.admin.groups()] == ["a"] and len(w.asked(LIST_GROUPS)) == 2


def test_list_does_not_need_the_right_to_see_the_coordinators(caplog: pytest.LogCaptureFixture) -> None:
    """But it may lack groups then, which is said once."""
    with world() as w:
        assert w.admin.sees_group_coordinators()
        topic = MetadataResponse.MetadataResponseTopic

        def metadata(request: Any) -> Any:
            answer = w._metadata(request)
            answer.topics = [topic(error_code=29, name=one.name, partitions=[]) for one in answer.topics]
            return answer

        w.answer(METADATA, metadata)
        w.answer(LIST_GROUPS, listed(("a", "consumer", "Stable")))
        for _ in range(2):
            assert [g.group_id for g in w.admin.groups()] == ["a"]
        assert caplog.text.count("the principal lacks Describe on topic __consumer_offsets") == 1
        assert not w.admin.sees_group_coordinators()


@pytest.mark.parametrize(
    ("codes", "sees", "asked"), [([3], True, 1), ([29], False, 1), ([6, 3], True, 2), ([0, 3], True, 2)]
)
def test_brokers_before_2_8_are_not_asked_for_the_topic_that_they_would_create(
    codes: list[int], sees: bool, asked: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever they are told about creation: a look would write to the source, or fail where it has too few brokers."""
    of_topic = ListOffsetsResponse.ListOffsetsTopicResponse
    of_partition = of_topic.ListOffsetsPartitionResponse

    def ends(code: int) -> Callable[[Any], Any]:
        partition = of_partition(partition_index=0, error_code=code, timestamp=-1, offset=0, leader_epoch=-1)
        return lambda _: ListOffsetsResponse(topics=[of_topic(name=OF_GROUPS, partitions=[partition])])

    with world({METADATA: (0, 9)}) as w:
        w.answer(LIST_GROUPS, listed(("a", "consumer", "Stable")))
        w.answer(LIST_OFFSETS, *map(ends, codes))
        assert [g.group_id for g in w.admin.groups()] == ["a"]
        assert len(w.asked(LIST_OFFSETS)) >= asked
        assert ("lacks Describe" in caplog.text) is not sees and w.admin.sees_group_coordinators() is sees
        assert not any(topic.name for request in w.asked(METADATA) for topic in request.topics or [])
        w.topics |= {OF_GROUPS: (1, {}), "orders": (2, {})}
        lists = lambda: sum(request.topics is None for request in w.asked(METADATA))  # noqa: E731
        before = lists()
        assert [g.group_id for g in w.admin.groups()] == ["a"]
        assert lists() == before + 1, (
            "of all topics, however often the coordinators are looked at, and by how many brokers"
        )
        assert w.admin.sees_group_coordinators()
        found = w.admin.topics([OF_GROUPS, "orders"])
        assert {name: one.partitions for name, one in found.items()} == {OF_GROUPS: 1, "orders": 2}


def test_state_of_new_protocol_groups_comes_from_the_list() -> None:
    with world() as w:
        w.answer(DESCRIBE_GROUPS, described({"classic": "Stable"}))
        w.answer(LIST_GROUPS, listed(("new", "consumer", "Assigning")))
        states = w.admin.group_states(["classic", "new", "none"])
        assert states == {"classic": "Stable", "new": "Assigning", "none": "Dead"}


@pytest.mark.parametrize(
    ("group", "told", "clients", "application"),
    [
        ("billing", ("consumer", "range"), ["rdkafka"], ""),
        ("totals", ("consumer", "stream"), ["named-by-hand"], STREAMS),
        ("totals", ("consumer", ""), ["totals-6c1-StreamThread-12-consumer"], STREAMS),  # it rebalances: no assignor
        ("sink", ("consumer", "range"), ["connector-consumer-sink-0"], CONNECT),
        ("connect-sink", ("consumer", "range"), ["named-by-hand"], CONNECT),
    ],
)
def test_application_is_told_by_its_members(
    group: str, told: tuple[str, str], clients: list[str], application: str
) -> None:
    kind = DescribeGroupsResponse.DescribedGroup

    def describe(state: str, *clients: str) -> Callable[[Any], Any]:
        members = [
            kind.DescribedGroupMember(
                member_id=c, client_id=c, client_host="", member_metadata=b"", member_assignment=b""
            )
            for c in clients
        ]  # fmt: skip
        one = kind(
            error_code=0, group_id=group, group_state=state, protocol_type=told[0], protocol_data=told[1], members=members
        )
        return lambda _: DescribeGroupsResponse(groups=[one])

    with world() as w:
        w.answer(DESCRIBE_GROUPS, describe("Stable", *clients), describe("Empty"))
        assert w.admin.describe_groups([group])[group] == GroupInfo(group, "Stable", told[0], application=application)
        assert w.admin.describe_groups([group])[group].application == "", "nobody is in it"


def test_groups_of_the_streams_protocol_are_listed_as_such() -> None:
    """DescribeGroups calls them dead; with another protocol type they would be left out, positions and all."""
    with world() as w:
        w.answer(DESCRIBE_GROUPS, described({}))
        w.answer(LIST_GROUPS, listed(("totals", "streams", "Stable"), ("old", "streams", "Empty")))
        totals = GroupInfo("totals", "Stable", "streams", group_type="classic", application=STREAMS)
        found = {"old": GroupInfo("old", "Empty", "streams", group_type="classic"), "totals": totals}
        assert w.admin.describe_groups(["totals", "old"]) == {g.group_id: g for g in w.admin.groups()} == found


def test_group_that_no_old_broker_knows_is_dead() -> None:
    with world(OLD) as w:
        w.answer(DESCRIBE_GROUPS, described({}))
        assert w.admin.group_states(["none"]) == {"none": "Dead"}


def test_groups_that_can_not_be_read_keep_no_other_from_being_read() -> None:
    kind = OffsetFetchResponse.OffsetFetchResponseGroup

    def some(request: Any) -> Any:
        codes = {"secret": 30, "moving": 16}
        answer = fetched()(request)
        return OffsetFetchResponse(groups=[
            kind(group_id=g.group_id, topics=g.topics, error_code=codes.get(g.group_id, 0)) for g in answer.groups
        ])  # fmt: skip

    with world() as w:
        w.answer(OFFSET_FETCH, some)
        found, errors = w.admin.groups_offsets_apart(["g-1", "moving", "g-2", "secret"], patience_s=1.0)
        assert found == {"g-1": {T0: GroupPosition(1, "note")}, "g-2": {T0: GroupPosition(2, "note")}}
        assert isinstance(errors.pop("secret"), MissingRight) and "NOT_COORDINATOR" in str(errors.pop("moving"))
        assert not errors and len(w.asked(OFFSET_FETCH)) > 1
