"""Values by key on a cluster: appends whose answers are lost, readers that come late, topics that are gone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import STATE, WISHES
from airflow_mirror.errors import MissingRight, RequestRefused, TryAgain
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger.kinds import MOST_BYTES, in_pieces, whole
from airflow_mirror.ledger.records import WINDOW
from airflow_mirror.ledger.state import StateLog, state_of
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster, topic_config
from tests.driven.script import Fault

TP = TopicPartition(STATE, 0)


@pytest.fixture
def cluster() -> Iterator[DrivenCluster]:
    with DrivenCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def wire(cluster: DrivenCluster) -> Iterator[WireCluster]:
    with WireCluster(cluster.config) as wire:
        yield wire


def state_on(cluster: DrivenCluster, wire: WireCluster, *prefixes: str, patience_s: float = 60.0) -> StateLog:
    def create() -> None:
        if STATE not in cluster.topics:
            cluster.create(STATE, config=topic_config({"message.timestamp.type": "LogAppendTime"}))
            wire.refresh([STATE])

    return StateLog(wire, prefixes or ("",), create, patience_s=patience_s)


def keys(cluster: DrivenCluster) -> list[str]:
    return [(row.key or b"").decode() for row in cluster.log(TP).rows()]


def test_each_reader_sees_the_newest_values(cluster: DrivenCluster, wire: WireCluster) -> None:
    ours, theirs = state_on(cluster, wire), state_on(cluster, wire)
    assert theirs.read() == {}, "before there is a topic"
    ours.write({"a": b"1", "b": b"1"})
    assert theirs.read() == {"a": b"1", "b": b"1"}
    ours.write({"b": b"2", "a": None})
    assert theirs.read() == ours.read() == state_on(cluster, wire).read() == {"b": b"2"}


def test_log_that_has_lost_its_newest_records_is_said_and_read_anew(
    cluster: DrivenCluster, wire: WireCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """An unclean election: what comes later has offsets that were read already, and would never be seen."""
    state = state_on(cluster, wire)
    for n in range(3):
        state.write({f"{n}": b"1"})
    assert list(state.read()) == ["0", "1", "2"]
    cluster.log(TP).truncate(1)
    state_on(cluster, wire).write({"new": b"1"})
    assert list(state.read()) == ["0", "new"]
    assert f"topic {STATE} was created again, or has lost its newest records" in caplog.text


def test_only_keys_that_were_asked_for_are_kept(cluster: DrivenCluster, wire: WireCluster) -> None:
    state_on(cluster, wire).write({"job/m/1": b"1", "plan/m/1": b"2", "stop/m/1": b"3"})
    assert list(state_on(cluster, wire, "job/m/", "stop/m/").read()) == ["job/m/1", "stop/m/1"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault.lost_answer(),
        Fault.not_arrived(),
        Fault.refused(ErrorCode.NOT_ENOUGH_REPLICAS),
        Fault.done_but_refused(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        Fault.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Fault.done_but_refused(ErrorCode.REQUEST_TIMED_OUT),
    ],
    ids=["answer lost", "request lost", "too few replicas", "after append", "not leader", "timed out"],
)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_each_doubtful_append_is_there_once(cluster: DrivenCluster, wire: WireCluster, fault: Fault, nth: int) -> None:
    rule = cluster.script.on("Produce", fault, nth=nth)
    state = state_on(cluster, wire)
    for key in "abc":
        state.write({key: b"1"})
    assert len(rule.hits) == 1 and keys(cluster) == ["a", "b", "c"]


@pytest.mark.parametrize("fault", [Fault.lost_answer(), Fault.not_arrived()], ids=["answer lost", "request lost"])
def test_value_that_was_given_up_never_comes_last(cluster: DrivenCluster, wire: WireCluster, fault: Fault) -> None:
    """It may still be on its way: its sequence is the next one, so it is sent again before the newer one."""
    state = state_on(cluster, wire, patience_s=0.0)
    rule = cluster.script.on("Produce", fault, times=None)
    for value in (b"1", b"2"):
        with pytest.raises(TryAgain, match="a could not be written"):
            state.write({"a": value})
    cluster.script.clear()
    state.write({"b": b"3"})
    assert [row.value for row in cluster.log(TP).rows()] == [b"1", b"2", b"3"]
    assert len(rule.hits) > 0 and state.read() == {"a": b"2", "b": b"3"}


@pytest.mark.parametrize("asked", [1, 2, 3, 4])
def test_value_that_is_not_permitted_is_never_written(cluster: DrivenCluster, wire: WireCluster, asked: int) -> None:
    """Not by a later call, either. It is asked before each try, and right before the bytes of each batch."""
    cluster.create(STATE, config=topic_config({"message.timestamp.type": "LogAppendTime"}))
    state, left = state_on(cluster, wire), iter(range(asked - 1))

    def permit() -> None:
        if next(left, None) is None:
            raise TryAgain("something else was decided")

    large = b"x" * (MOST_BYTES - 10)  # a batch of its own
    with pytest.raises(TryAgain, match="something else"):
        state.write({"a": large, "b": large}, permit)
    assert keys(cluster) == ["a"] * (asked > 2)
    state.write({"c": b"1"})
    assert keys(cluster) == ["a"] * (asked > 2) + ["c"]


def test_a_producer_that_was_forgotten_begins_anew(cluster: DrivenCluster, wire: WireCluster) -> None:
    state = state_on(cluster, wire)
    state.write({"a": b"1"})
    cluster.expire_producers()
    state.write({"a": b"2"})
    assert state.read() == {"a": b"2"}


def test_topic_that_was_created_again_is_read_from_its_start(cluster: DrivenCluster, wire: WireCluster) -> None:
    state, reader = state_on(cluster, wire), state_on(cluster, wire)
    state.write({"a": b"1", "b": b"1"})
    assert len(reader.read()) == 2
    cluster.delete(STATE)
    state.write({"c": b"1", "d": b"1", "e": b"1"})  # longer than what was read of the old one
    assert reader.read() == {"c": b"1", "d": b"1", "e": b"1"}


@pytest.mark.parametrize(
    ("code", "error"),
    [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, MissingRight), (ErrorCode.MESSAGE_TOO_LARGE, RequestRefused)],
)
def test_refused_value_does_not_hold_up_later_ones(
    cluster: DrivenCluster, wire: WireCluster, code: ErrorCode, error: type[Exception]
) -> None:
    state = state_on(cluster, wire)
    cluster.script.on("Produce", Fault.refused(code))
    with pytest.raises(error, match=f"{STATE}.*{code.name}"):
        state.write({"a": b"1"})
    state.write({"b": b"1"})
    assert keys(cluster) == ["b"]


def test_value_refused_behind_a_lost_answer_is_not_taken_for_the_next_one(
    cluster: DrivenCluster, wire: WireCluster
) -> None:
    """Under the sequence of what was refused the broker would take it for that, and say that it has it."""
    state = state_on(cluster, wire)
    state.write({"zero": b"1"})
    cluster.script.on("Produce", Fault.lost_answer())
    cluster.script.on("Produce", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(MissingRight):
        state.write({"a": b"1"})
    state.write({"b": b"1"})
    assert keys(cluster) == ["zero", "a", "b"]


def test_large_values_are_written_in_several_batches(cluster: DrivenCluster, wire: WireCluster) -> None:
    text = bytes(range(256)) * (3 * MOST_BYTES // 256)
    state = state_on(cluster, wire)
    state.write(in_pieces("plan", text) | in_pieces("empty", b""))
    assert (whole(state.read(), "plan"), whole(state.read(), "empty"), whole(state.read(), "pla")) == (text, b"", None)
    assert len(cluster.asked("Produce")) == 3
    of = f"3-{sha256(text).hexdigest()[:12]}"
    assert keys(cluster) == [f"plan/0/{of}", f"plan/1/{of}", f"plan/2/{of}", "empty/0/1"]
    state.write({f"plan/1/{of}": None})
    assert whole(state.read(), "plan") is None


def test_two_writings_under_one_key_are_never_mixed(cluster: DrivenCluster, wire: WireCluster) -> None:
    """A writer dies anywhere between writing the new value and removing the old one; both have as many pieces."""
    old, new = (bytes([n]) * (3 * MOST_BYTES) for n in (1, 2))
    state = state_on(cluster, wire)
    state.write(in_pieces("plan", old))
    seen = list[bytes | None]()
    for key, piece in in_pieces("plan", new).items():
        seen.append(whole(state.read(), "plan"))
        state.write({key: piece})
    for key in in_pieces("plan", old):
        seen.append(whole(state.read(), "plan"))
        state.write({key: None})
    assert [found and found[:1] for found in seen] == [old[:1]] * 3 + [new[:1]] * 3
    assert {len(found or b"") for found in seen} == {3 * MOST_BYTES} and whole(state.read(), "plan") == new
    names = [WINDOW.match(key) for value in (old, b"") for key in in_pieces(WINDOW.key("m", "day"), value)]
    assert names == [{"mirror": "m", "window": "day"}] * 4


# --- wishes -------------------------------------------------------------------------------------------------------------


class Admin:
    """The calls of the admin facade that a driven broker does not answer."""

    def __init__(self, cluster: DrivenCluster, wire: WireCluster) -> None:
        self.cluster, self.wire = cluster, wire

    def broker_count(self) -> int:
        return len(self.cluster.brokers)

    def topics(self, names: Collection[str]) -> dict[str, object]:
        return {name: self.cluster.topics[name] for name in names if name in self.cluster.topics}

    def create_topics(self, specs: Iterable[Any], permit: Permit) -> None:
        for spec in specs:
            self.cluster.create(spec.name, config=topic_config({"message.timestamp.type": "LogAppendTime"}))
            self.wire.refresh([spec.name])


def test_wishes_have_a_topic_of_their_own(cluster: DrivenCluster, wire: WireCluster) -> None:
    """Whoever may write to it can wish, and that is all; what is written elsewhere is no wish."""
    admin: Any = Admin(cluster, wire)
    both, asks, plans = (state_of(admin, *keys) for keys in (("job/m/", "wish/m/"), ("wish/m/",), ("",)))
    plans.write({"plan/m/1": b"1"})
    assert {STATE, WISHES} <= cluster.topics.keys(), "who may only wish need not create it"
    asks.write({"wish/m/pause": b"now"})
    both.write({"job/m/1/sign": b"2", "wish/m/rate": b"7"})
    assert both.read() == {"job/m/1/sign": b"2", "wish/m/pause": b"now", "wish/m/rate": b"7"}
    assert {*plans.read()} == {"plan/m/1", "job/m/1/sign", "wish/m/pause", "wish/m/rate"}
    assert [(row.key or b"").decode() for row in cluster.log(TopicPartition(WISHES, 0)).rows()] == [
        "wish/m/pause", "wish/m/rate"
    ]  # fmt: skip
    cluster.delete(WISHES)
    state_of(admin, "plan/m/").write({"plan/m/1": b"1"})
    assert WISHES not in cluster.topics, "who writes to a state that is there need not be allowed to see it"
    asks.write({"wish/m/pause": b"now", "wish/m/rate": b"7"})
    forged = {
        STATE: {"wish/m/rate": b"forged", "wish/n/pause": b"forged"},
        WISHES: {"job/m/1/sign": b"forged", "plan/m/1": b"forged"},
    }
    for topic, values in forged.items():
        StateLog(wire, [""], lambda: None, topic).write(values)
    assert both.read() == {"job/m/1/sign": b"2", "wish/m/pause": b"now", "wish/m/rate": b"7"}
    assert plans.read()["plan/m/1"] == b"1" and "wish/n/pause" not in plans.read()
