"""What is wrong with a mirror that replicates: the judgement, and what both clusters are asked for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import BrokerError, ClusterUnreachable, InvalidField, MissingRight
from airflow_mirror.jobs.health import at_position
from airflow_mirror.jobs.health.gathering import gather
from airflow_mirror.jobs.health.judging import CHECKS, Facts, Limits, TailFacts, judge, judge_seen
from airflow_mirror.jobs.runner.active import ActiveTail, Sign
from airflow_mirror.jobs.runner.wishes import Wish
from airflow_mirror.kafka.model import ConfigEntry, TopicInfo
from airflow_mirror.mirror import Mirror
from airflow_mirror.sync.following.follower import FollowReport
from airflow_mirror.sync.lag import PartitionLag
from airflow_mirror.wire.batch import build
from airflow_mirror.wire.errors import ApiNotServed
from airflow_mirror.wire.fetch import FetchedPartition
from tests.builders import plan_of, topic_plan
from tests.memory.admin import MemoryAdmin
from tests.memory.cluster import MemoryCluster

MIRROR = Mirror(name="m", source="src", target="dst", topics=["t"])
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
TAIL = ActiveTail(mirror=MIRROR.to_dict(), plan="p", inputs="i", directory="/jobs/1", host="host-a", where="a")
SIGN = Sign(number=1, state="RUNNING", phase="copying", summary={"states": {"copying": 2}})
WELL = Facts(tail=TailFacts(active=TAIL, status="RUNNING", sign=SIGN), lags=[PartitionLag(ZERO, 9, 9)])


def found(limits: Limits | None = None, **changed: Any) -> list[tuple[str, str, bool]]:
    findings = judge(replace(WELL, **changed), limits or Limits())
    return [(one.check, one.evidence, one.level == "block") for one in findings]


def tail(**changed: Any) -> TailFacts:
    return replace(WELL.tail, **changed)


def sign(**changed: Any) -> TailFacts:
    return tail(sign=replace(SIGN, **changed))


# --- judging ---------------------------------------------------------------------------------------------------------


def test_a_mirror_that_is_well_has_no_finding() -> None:
    assert found() == []


def test_a_tail_that_does_not_copy_says_why() -> None:
    """What its last sign says is of no use then, but for the error."""
    stale = replace(SIGN, follows={"groups": {"error": "x"}}, notes=("n",), error="disk full")
    assert found(tail=TailFacts()) == [("tail", "it was never started", True)]
    ((_, lost, fails),) = found(tail=tail(status="LOST", sign=stale))
    assert lost.startswith("no sign of life from host host-a for 30 s") and fails
    assert found(tail=tail(status="FAILED", sign=stale)) == [
        ("tail", "it ended with an error on host host-a: disk full", True)
    ]
    assert found(tail=tail(status="SUCCEEDED", sign=None)) == [("tail", "it was stopped on host host-a", True)]


@pytest.mark.parametrize(
    ("resting", "lost"),
    [(TailFacts(), False), (tail(status="SUCCEEDED", sign=None), False), (tail(status="LOST"), True)],
    ids=["never started", "stopped", "lost"],
)
def test_who_only_looks_takes_a_tail_that_rests_for_no_fault(resting: TailFacts, lost: bool) -> None:
    """The page told of a bulk copy in red that its tail was never started."""
    findings = judge_seen(replace(WELL, tail=resting), Limits())
    assert [one.check for one in findings] == ["tail"] * lost


def test_a_tail_that_a_cutover_has_ended_did_not_fail() -> None:
    ended = tail(status="FAILED", sign=replace(SIGN, error="find the other job"), ended="ended by cutover")
    assert found(tail=ended) == [("tail", "ended by cutover: nothing is copied any more", True)]
    assert found(tail=tail(ended="ended by cutover")) == [], "it was not handed over to itself"


def test_a_tail_of_another_specification_is_named_by_its_fields() -> None:
    other = TAIL.differing(replace(MIRROR, topics=["u"], principals={"User:a": "User:b"}))
    assert other == ["topics: ['t'] there, ['u'] asked for"]
    assert found(tail=tail(differing=other)) == [
        ("tail", "the one on host host-a copies by other rules: topics: ['t'] there, ['u'] asked for", True)
    ]


def test_a_paused_mirror_warns_and_its_lag_is_no_finding() -> None:
    """The race against the source's retention goes on all the same."""
    paused = tail(pause=Wish(by="ann@desk", at="noon"), sign=replace(SIGN, phase="paused"))
    findings = found(tail=paused, lags=[PartitionLag(ZERO, 5, 9)], late={ZERO}, racing={ZERO: 7200.0}, lease="nobody")
    assert [(check, fails) for check, _, fails in findings] == [("paused", False), ("retention", True)]
    assert findings[0][1] == (
        "paused by ann@desk since noon, 4 offsets behind; nothing is copied until 'airflow-mirror resume'"
    )


@pytest.mark.parametrize("holder", ["nobody", "a cutover"])
def test_a_tail_without_its_lease_writes_nothing(holder: str) -> None:
    ((check, what, fails),) = found(lease=holder)
    assert (check, fails) == ("lease", True) and f"but {holder} holds the writer lease" in what
    assert found(lease=holder, tail=sign(phase="starting Spark")) == [], "it has not taken it yet"


def test_lag_in_seconds_and_in_records_have_a_limit_each() -> None:
    lags = [PartitionLag(ZERO, 0, 2000), PartitionLag(ONE, 0, 10)]
    assert found(lags=lags) == [], "no number of records is too many by default"
    assert found(lags=lags, late={ZERO}) == [("lag", "1 partition is more than 5 min behind: t-0 by 2,000 offsets", True)]
    assert found(Limits(max_lag_records=9), lags=lags) == [
        ("lag", "2 partitions are more than 9 offsets behind: t-0 by 2,000, t-1 by 10", True)
    ]


def test_what_waits_for_an_open_transaction_warns_and_counts_as_lag_once_it_is_old() -> None:
    said = "t-0: 7 offsets behind an open transaction since offset 9 (producer id 4)"
    assert found(held=[said]) == [("transactions", said, False)]
    assert found(tail=sign(summary={"open_transactions": [said]})) == [("transactions", said, False)]
    lags = [PartitionLag(ZERO, 9, 9, 16)]
    assert found(Limits(max_lag_records=0), lags=lags) == []
    assert found(lags=lags, late={ZERO}) == [("lag", "1 partition is more than 5 min behind: t-0 by 7 offsets", True)]


def test_what_the_source_deletes_is_told_before_and_after() -> None:
    lines = [what for _, what, _ in found(racing={ONE: 7200.0}, lost={ZERO: 12})]
    assert lines == [
        "the source has deleted records that were not copied: t-0 12 offsets",
        "the source will delete records that are not copied in less than 60 min: t-1 (keeps 2 h)",
    ]


def test_topics_without_a_lag_are_told(world: World) -> None:
    """One that is gone lacks nothing, and one that was created again seems ahead."""
    gathered = world.gather()
    assert (gathered.gone, gathered.missing) == ({}, ())
    world.plan = plan_of(
        MIRROR,
        topic_plan("t", {0: 0, 1: 0}, source_topic_id="before"),
        topic_plan("u", {0: 0}, source_topic_id="u"),
    )
    gathered = world.gather()
    lines = found(gone=gathered.gone, missing=gathered.missing)
    assert lines == [
        ("topics", "created again on the source, and not copied: t; plan again", True),
        ("topics", "the target has no such topics any more: u", True),
        ("left_out", "deleted on the source, or hidden: u", False),
    ]
    report = {"said": ["gone from the source: u"], "gone": {"count": 1, "first": ["u: stopped"]}}
    said = sign(follows={"topics": report})
    assert [what for _, what, _ in found(gone={"u": "deleted"}, tail=said)] == ["gone from the source: u"]
    assert [what for _, what, _ in found(gone={"u": "deleted", "t": "deleted", "v": "created again"}, tail=said)] == [
        "created again on the source, and not copied: v; plan again",
        "gone from the source: u",
        "deleted on the source, or hidden: t",
    ]


def test_stopped_partitions_are_counted_and_their_errors_shown() -> None:
    stopped = {"states": {"stopped": 2}, "stopped": ["t-0: x", "t-1: y"]}
    assert found(tail=sign(summary=stopped)) == [("stopped", "2 partitions stopped: t-0: x; t-1: y", True)]


def test_what_follows_fails_with_an_error_and_warns_with_a_remark() -> None:
    follows = {"groups": {"error": "no right", "said": ["1 position(s) left alone"]}, "topics": {"said": ["1 left out"]}}
    assert found(tail=sign(follows=follows, notes=("t: retention.ms was changed",))) == [
        ("follow", "groups do not follow: no right", True),
        ("left_out", "1 left out", False),
        ("notes", "t: retention.ms was changed", False),
        ("notes", "groups: 1 position(s) left alone", False),
    ]


def test_a_pass_that_fails_of_some_warns_and_one_of_which_nothing_follows_fails() -> None:
    def told(report: FollowReport) -> list[tuple[str, str, bool]]:
        return found(tail=sign(follows={"groups": {"error": None, **report.to_dict()}}))

    assert told(FollowReport(groups=1, failed=["g: no right"])) == [("notes", "groups: failed: g: no right", False)]
    assert told(FollowReport(failed=["g: no right", "h: no right"])) == [
        ("follow", "groups do not follow: g: no right and 1 more", True),
        ("notes", "groups: 2 failed, as g: no right", False),
    ]
    assert told(FollowReport(left_out=["the source lists no group"], gone=["g"])) == []


def test_what_has_not_followed_for_long_is_told_although_it_reports_no_error() -> None:
    """A pass that hangs reports nothing, and one that takes so long not either. By the tail's own clock."""
    follows = {
        "groups": {"at": 5000.0 - 606.0, "every_s": 5.0}, "acls": {"at": 5000.0 - 604.0, "every_s": 5.0},
        "schemas": {"at": 1.0, "every_s": 86_400.0}, "configs": {"at": 1.0, "every_s": 5.0, "error": "no right"},
    }  # fmt: skip
    assert [what.partition(":")[0] for _, what, fails in found(tail=sign(at=5000.0, follows=follows)) if fails] == [
        "groups have not followed for 10 min, and should every 5 s", "configs do not follow"
    ]  # fmt: skip


def test_settings_disk_and_fence_are_looked_at() -> None:
    limits = Limits(min_free_bytes=2_000_000_000)
    findings = found(
        limits,
        not_held=[("t", "retention.ms", "5")],
        free_bytes={1: 1_500_000_000, 2: None, 3: 2_000_000_000},
        fences=["cutover r1 has put its fence up from host h"],
    )
    assert [(check, fails) for check, _, fails in findings] == [("hold", True), ("disk", True), ("fence", False)]
    assert "'t': retention.ms is 5" in findings[0][1]
    assert findings[1][1] == "less than 2.0 GB free on the target: broker 1 1.5 GB"


def test_rules_that_no_record_explains_warn_and_say_what_removes_them() -> None:
    ((check, what, fails),) = found(unexplained=["DENY WRITE on topic t for User:* from *"])
    assert (check, fails) == ("fence", False) and what.endswith(": DENY WRITE on topic t for User:* from *")
    assert "lift-fence --unexplained" in what


@pytest.mark.parametrize("check", CHECKS.rows)
def test_a_question_without_an_answer_is_a_finding(check: str) -> None:
    """It fails, unless the check only warns: a cluster that is away must not look well."""
    away = ClusterUnreachable("source", "k:1", "refused")
    told, *others = sorted(found(unknown={check: away}), key=lambda one: one[0] != check)
    assert (told[0], told[2]) == (check, check not in (*Limits().warn_only, "retention_bytes")) and "refused" in told[1]
    assert {one[1] for one in others} <= {f"not known: see {check}"}, "the error is told once"


@pytest.mark.parametrize("error", [MissingRight("x", "y", "z"), ApiNotServed("b", "a", 0, None)])
def test_what_few_clusters_tell_only_warns(error: Any) -> None:
    findings = found(Limits(warn_only=()), unknown={"disk": error, "lag": error})
    assert [(check, fails) for check, _, fails in findings] == [
        ("lag", True), ("retention", True), ("retention_bytes", False), ("disk", False)
    ]  # fmt: skip


def test_which_checks_warn_is_a_choice_among_known_ones() -> None:
    assert [one[2] for one in found(Limits(warn_only=["lag"]), late={ZERO}, fences=["x"])] == [False, True]
    with pytest.raises(InvalidField, match=r"warn_only.*Use some of tail, paused"):
        Limits(warn_only=["lagg"])


# --- gathering -------------------------------------------------------------------------------------------------------

NOW_S = 1_000_000.0


class Cluster:
    """Topic ``t`` with two partitions. ``log`` is its start, its end, and the times of its records from its start on."""

    def __init__(self, logs: Mapping[int, tuple[int, int]], **settings: str) -> None:
        self.config = ClientConfig({"bootstrap.servers": "127.0.0.1:1"}, "cluster")
        self.id = "s"
        self.logs, self.settings, self.age_s = dict(logs), settings, {offset: 0.0 for offset in range(100)}
        self.wire: Any = self
        self.away = set[str]()

    def _ask(self, what: str) -> None:
        if what in self.away:
            raise BrokerError(what, 7, "REQUEST_TIMED_OUT")

    def cluster_id(self) -> str:
        return self.id

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        self._ask("topics")
        info = TopicInfo(name="t", topic_id="i", partitions=len(self.logs), replication_factor=1)
        return {name: info for name in names if name == "t"}

    def offsets(self, partitions: Iterable[TopicPartition], spec: str | int) -> dict[TopicPartition, int]:
        self._ask("offsets")
        return {tp: self._offset(*self.logs[tp.partition], spec) for tp in partitions}

    def _offset(self, start: int, end: int, spec: str | int) -> int:
        if isinstance(spec, str):
            return start if spec == "earliest" else end
        return next((o for o in range(start, end) if (NOW_S - self.age_s[o]) * 1000 >= spec), -1)

    def fetched(self, offsets: Mapping[TopicPartition, int], left_out: int = 1) -> dict[TopicPartition, FetchedPartition]:
        """Return the batch of each offset; there is no room for those of partition ``left_out``."""
        return {
            tp: FetchedPartition(
                tp, 0, 0, 0, 0, [], memoryview(b"" if tp.partition == left_out else self._batch(at - at % 4))
            )
            for tp, at in offsets.items()
        }

    def _batch(self, base: int) -> bytes:
        newest = max(int(NOW_S - self.age_s[offset]) * 1000 for offset in range(base, base + 4))
        batch = bytearray(build(b"", 0, 4, newest, newest, 0, 0, 0))
        batch[:8] = base.to_bytes(8, "big")
        return bytes(batch)

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        entries = {key.replace("_", "."): ConfigEntry(value=v, source="D") for key, v in self.settings.items()}
        return {name: entries for name in names}

    def log_sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._ask("sizes")
        return {tp: 100 * (end - start) for tp in partitions for start, end in [self.logs[tp.partition]]}

    def usable_bytes(self) -> dict[int, int | None]:
        self._ask("disk")
        return {1: 5}


class World:
    def __init__(self) -> None:
        self.plan = plan_of(
            MIRROR, topic_plan("t", {0: 0, 1: 0}, source_topic_id="i", held_configs={"retention.ms": "-1"})
        )
        self.source = Cluster({0: (0, 50), 1: (0, 50)}, cleanup_policy="delete", retention_ms="3600000")
        self.target = Cluster({0: (0, 50), 1: (0, 50)}, retention_ms="-1")
        self.target.wire = MemoryAdmin(MemoryCluster("target")).wire
        self.held = lease.take(self.target.wire, "m")
        self.meanwhile: Any = lambda: None
        self.handed_over = set[str]()

    def fences(self) -> list[str]:
        self.target._ask("fence")
        return ["r1"]

    def gather(self, **limits: Any) -> Facts:
        source: Any = self.source
        target: Any = self.target
        clock: Any = SimpleNamespace(time=lambda: NOW_S, sleep=lambda _: self.meanwhile())
        return gather(
            self.plan, source, target, lambda: WELL.tail, self.fences, Limits(**limits),
            handed_over=lambda: self.handed_over, clock=clock,
        )  # fmt: skip


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    # Four records a batch. A batch that is larger than the others is asked for alone.
    monkeypatch.setattr(at_position, "answers_together", lambda _, offsets, **__: made.source.fetched(offsets))
    monkeypatch.setattr(at_position, "fetch_one", lambda _, tp, offset, **__: made.source.fetched({tp: offset}, -1)[tp])
    return made


def test_a_mirror_that_keeps_up_is_found_well(world: World) -> None:
    facts = world.gather()
    assert facts.unknown == {} and not (facts.late or facts.racing or facts.lost or facts.not_held)
    assert (facts.free_bytes, facts.lease, facts.fences) == ({1: 5}, "a job", ["r1"])
    assert [lag.records for lag in facts.lags] == [0, 0]


def test_only_old_records_that_stay_uncopied_are_late(world: World) -> None:
    """Of three partitions that lack something at first: one catches up, one lacks a young record, one an old one."""
    world.plan = plan_of(MIRROR, topic_plan("t", {0: 0, 1: 0, 2: 0}, source_topic_id="i"))
    world.source.logs = dict.fromkeys(range(3), (0, 50))
    world.target.logs = {0: (0, 40), 1: (0, 45), 2: (0, 40)}
    world.source.age_s |= {o: 301.0 for o in range(45)}
    world.meanwhile = lambda: world.target.logs.update({0: (0, 50)})
    assert world.gather().late == {TopicPartition("t", 2)}
    assert not world.gather(max_lag_s=302.0).late
    assert not world.gather(max_lag_s=None).late


def test_a_log_without_a_young_record_is_late(world: World) -> None:
    """The broker finds no offset for the time then."""
    world.source.age_s = {o: 301.0 for o in range(100)}
    world.target.logs[0] = (0, 40)
    assert world.gather().late == {ZERO}


@pytest.mark.parametrize("partition", [0, 1])
def test_record_from_the_future_hides_no_old_one_behind_it(world: World, partition: int) -> None:
    """One wrong clock among producers, and a partition was never late again. The source keeps what stands behind it."""
    world.source.age_s = {o: 1801.0 for o in range(100)} | {3: -9e6}
    world.target.logs[partition] = (0, 40)
    facts = world.gather()
    assert facts.late == {TopicPartition("t", partition)} and not facts.racing and not facts.unknown
    world.source.age_s |= {43: 1.0}
    assert not world.gather().late, "it is in the batch that comes next"


def test_partition_whose_leader_has_not_answered_is_not_asked_for_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota is waited out for as long as the broker says, and a leader until the connection gives up."""
    asked: list[TopicPartition] = []
    monkeypatch.setattr(at_position, "answers_together", lambda *_, **__: {})
    monkeypatch.setattr(at_position, "fetch_one", lambda _, tp, *__, **___: asked.append(tp))
    assert at_position.times_at(world.target.wire, {TopicPartition("t", 0): 7}) == {} and not asked


def test_old_records_that_have_just_come_are_not_late(world: World) -> None:
    """A tail that is in time has some of a topic whose records are always old."""
    world.source.age_s = {o: 9999.0 for o in range(100)}
    world.meanwhile = lambda: world.source.logs.update({0: (0, 60)})
    assert not world.gather().late


def test_headroom_is_measured_by_what_the_topic_keeps(world: World) -> None:
    """A topic that keeps an hour has half an hour of headroom, whatever is asked for."""
    world.target.logs = {0: (0, 40), 1: (0, 50)}
    world.source.age_s |= {o: 1801.0 for o in range(41)}
    assert world.gather().racing == {ZERO: 3600.0}
    assert world.gather(min_headroom_s=1700.0).racing == {}
    world.source.settings["cleanup_policy"] = "compact"
    assert world.gather().racing == {}


def test_headroom_by_size_is_measured_at_the_last_hours_rate(world: World) -> None:
    """The log takes 100 bytes an offset and keeps 30 offsets; ten an hour are written."""
    world.target.logs = {0: (0, 40), 1: (0, 50)}
    world.source.age_s |= {o: 7200.0 for o in range(40)}
    world.source.settings |= {"retention_ms": "-1", "retention_bytes": "3000"}
    assert world.gather(min_headroom_s=2 * 3600.0 - 1).racing_by_size == {}
    assert world.gather().racing_by_size == {}, "of three hours it keeps half is asked for, and two are left"
    world.target.logs[0] = (0, 34)
    assert world.gather().racing_by_size == {ZERO: pytest.approx(1.4 * 3600)}
    world.target.logs[0] = (0, 19)
    assert world.gather().racing_by_size == {ZERO: 0.0}
    lines = found(racing_by_size={ZERO: 0.0, ONE: 1.4 * 3600})
    said = "the source may delete by size (retention.bytes) what is not copied: t-0 at any time, t-1 in 84 min"
    assert lines == [("retention_bytes", said, True)]


def test_rate_of_records_without_young_times_is_that_between_the_looks(world: World) -> None:
    world.target.logs = {0: (0, 40), 1: (0, 50)}
    world.source.age_s = {o: 9e5 for o in range(100)}
    world.source.settings |= {"retention_ms": "-1", "retention_bytes": "3000"}
    world.meanwhile = lambda: world.source.logs.update({0: (0, 60)})
    assert world.gather().racing_by_size == {ZERO: pytest.approx(5.0)}, "30 are kept, 10 are left, two a second come"


@pytest.mark.parametrize("settings", [{}, {"cleanup_policy": "compact"}, {"remote_storage_enable": "true"}])
def test_sizes_are_asked_for_only_where_size_deletes(world: World, settings: dict[str, str]) -> None:
    """They need a right on the cluster that a mirror need not have."""
    world.target.logs, world.source.away = {0: (0, 40), 1: (0, 50)}, {"sizes"}
    world.source.settings |= {"retention_bytes": "3000", **settings} if settings else {"retention_bytes": "-1"}
    assert world.gather().unknown == {}
    world.source.settings |= {"retention_bytes": "3000", "cleanup_policy": "delete", "remote_storage_enable": "false"}
    assert world.gather().unknown.keys() == {"retention_bytes"}


def test_what_is_gone_before_it_was_copied_is_lost(world: World) -> None:
    world.target.logs, world.source.logs[0] = {0: (0, 40), 1: (0, 50)}, (43, 50)
    assert world.gather().lost == {ZERO: 3}


def test_a_changed_setting_is_not_held(world: World) -> None:
    world.target.settings["retention_ms"] = "7"
    assert world.gather().not_held == [("t", "retention.ms", "7")]


def test_what_was_handed_over_is_nobodys_to_hold(world: World) -> None:
    """In production it has the settings that applications want: each of them was an alarm, for ever."""
    world.target.settings["retention_ms"] = "7"
    world.plan = replace(
        world.plan, topics=tuple(replace(t, target_topic=n) for n in ("t", "u") for t in world.plan.topics)
    )
    world.handed_over = {"u"}
    assert world.gather().not_held == [("t", "retention.ms", "7")]
    world.handed_over = {"t", "u"}
    assert not world.gather().not_held


def test_what_gets_no_answer_leaves_the_rest_known(world: World) -> None:
    world.source.away, world.target.away = {"offsets"}, {"disk", "fence"}
    facts = world.gather()
    assert facts.unknown.keys() == {"lag", "fence", "disk"}
    assert facts.tail == WELL.tail and facts.lease == "a job"


def test_another_source_than_the_planned_one_is_told_and_asked_nothing(world: World) -> None:
    """Mirrors of one name, from two sources to one target: the second one saw that of the first, and found it well."""
    world.source.id, world.source.away = "another", {"topics", "offsets"}
    world.target.settings["retention_ms"] = "7"
    facts = world.gather()
    assert facts.unknown == {} and facts.tail == WELL.tail and facts.not_held, "the target is asked all the same"
    (one,) = [one for one in judge(facts, Limits()) if one.check == "topics"]
    assert one.level == "block" and str(one) == (
        "topics: source cluster: it is cluster another, and mirror 'm' copies from s: it was asked nothing else. Give "
        "the mirror of that cluster a name of its own, and plan it; or correct the source's connection."
    )


def test_who_holds_the_lease_is_told_apart(world: World) -> None:
    lease.release(world.target.wire, world.held)
    assert world.gather().lease == "nobody"
    lease.take(world.target.wire, "m", to_end=True)
    assert world.gather().lease == "a cutover"
