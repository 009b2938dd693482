"""What a ledger costs: each kind of record that the package writes to a target, how often, and how many stay.

Sizes are not estimated: each kind is made by the package's own writers, from generated values, and encoded as the batches
that it would send. :data:`KINDS` has every kind; a test compares it with the keys in the package's source.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop.maps import EVERY_S
from airflow_mirror.copy.offsets import encoding, pieces
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MANY
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.cutover.decision import FenceState, begin_lifting, end_lifting, fence_state, go_up
from airflow_mirror.cutover.failover import record as failovers
from airflow_mirror.cutover.report import CutoverReport, GroupRecord
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.extras.drill import store as drills
from airflow_mirror.extras.drill import turn
from airflow_mirror.extras.drill.groups import GroupOutlook, Outlook
from airflow_mirror.jobs.driver import windows
from airflow_mirror.jobs.driver.windows import Span, Window, WindowBook
from airflow_mirror.jobs.plain import shares
from airflow_mirror.jobs.plain.shares import Share
from airflow_mirror.jobs.progress.figures import TIERS
from airflow_mirror.jobs.request import TURN_S
from airflow_mirror.jobs.runner import reports
from airflow_mirror.jobs.runner.active import (
    SIGN_EVERY_S,
    ActiveTail,
    Heartbeat,
    Watch,
    ask_to_stop,
    begin,
)
from airflow_mirror.jobs.runner.wishes import Wish, wish
from airflow_mirror.kafka.model import Acl, TopicInfo
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger import chain
from airflow_mirror.ledger.deciding import catch_up, decide
from airflow_mirror.ledger.decisions import Change, Decisions, Values
from airflow_mirror.ledger.fold import Fold
from airflow_mirror.ledger.records import LAST_PLAN, SIGN
from airflow_mirror.ledger.state import WISHED, State, fitting
from airflow_mirror.ledger.topic import batch_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import ledger_store, mm2_topics, ownership, refused
from airflow_mirror.plan.direction import Direction, direction
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.model import Amendment, Plan, TopicPlan
from airflow_mirror.plan.store import KEEP
from airflow_mirror.sync import seen_acls, seen_configs
from airflow_mirror.sync.ends import follower as ends
from airflow_mirror.sync.ends import notes as notes_of_ends
from airflow_mirror.sync.ends.notes import SourceEnds
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.following.follower import FollowReport
from airflow_mirror.sync.log_starts import deciding, observations
from airflow_mirror.verify.proof import Proofs
from airflow_mirror.wire import codec, records
from airflow_mirror.wire.records import Record

if TYPE_CHECKING:
    from airflow_mirror.kafka.admin import ClusterAdmin

DAY_S = 86_400.0
DAY_MS = 86_400_000
_SAMPLES = 3
_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # a topic id has 22 characters

Batch = Mapping[str, bytes | None]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A target with one mirror.

    :param busy: partitions that get records all the time; the position of their group moves with each pass.
    :param groups: each has as many of the partitions as any other.
    :param gap_s: seconds between two gaps of a busy partition, each of which begins a run of its offset map.
    """

    topics: int = 1000
    partitions: int = 10
    busy: int = 1000
    groups: int = 1000
    gap_s: float = 60.0


class Written:
    """A :class:`.State` without a cluster.

    :ivar bytes: of the batches that the real one would send.
    :ivar last: the last that was written under each key; None: it was removed.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.last: dict[str, bytes | None] = {}
        self._values: dict[str, bytes] = {}

    def read(self) -> Mapping[str, bytes]:
        """Return the newest values."""
        return dict(self._values)

    def write(self, values: Batch, permit: Permit = unfenced) -> None:
        """Set values."""
        permit()
        self.last.update(values)
        left = dict(values)
        while left:
            self.bytes += len(batch_of({key: left.pop(key) for key in list(fitting(left))}))
        for key, value in values.items():
            self._values.pop(key, None)
            if value is not None:
                self._values[key] = value


class Decided:
    """Decisions in a list, as the log of a target would have them; see :class:`.decisions.Decisions`.

    :ivar records: the values of the log's records.
    """

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self._fold = Fold()

    def append(self, value: bytes) -> int:
        """Append a record."""
        self.records.append(value)
        return len(self.records) - 1

    def read(self, start: int) -> Iterator[tuple[int, bytes | None, int]]:
        """Yield offset, value and time of each record from ``start`` on."""
        yield from ((offset, value, offset) for offset, value in enumerate(self.records[start:], start))

    def values(self) -> Values:
        """Return the newest values."""
        catch_up(self, self._fold)
        return self._fold.values

    def decide(self, change: Change, until_ms: int | None = None) -> Values | None:
        """Set what is returned."""
        return decide(self, self._fold, change, lambda: False, until_ms)

    def time_ms(self, key: str) -> int:
        """Return when a key was last set."""
        return self._fold.time_ms(key)

    @property
    def bytes(self) -> int:
        """Bytes of its batches as a broker stores them: one a record."""
        rows = ([Record(0, 0, None, value, [])] for value in self.records)
        return sum(len(records.encode(row, codec.ZSTD, -1, -1, -1)) for row in rows)


class World:
    """Generated values of one mirror, and where its writers write. The same seed gives the same."""

    def __init__(self, shape: Shape, state: State, ledger: Decisions, seed: int = 1) -> None:
        self.shape, self.state, self.ledger, self.random = shape, state, ledger, random.Random(seed)
        self.mirror = Mirror(name="dc1-to-dc2", source="kafka_dc1", target="kafka_dc2")
        self.me = ActiveTail(
            mirror=self.mirror.to_dict(), plan=self.hex(64), inputs=self.hex(64), directory="/opt/airflow/mirror/jobs/1"
        )

    def topic(self, number: int) -> str:
        """Return a topic's name."""
        return f"orders.line-{number:05d}"

    def offset(self) -> int:
        """Return an offset, as irregular as those of busy partitions are."""
        return self.random.randrange(10**9)

    @cached_property
    def tps(self) -> list[TopicPartition]:
        """All partitions."""
        topics, every = range(self.shape.topics), range(self.shape.partitions)
        return [TopicPartition(self.topic(number), p) for number in topics for p in every]

    @cached_property
    def ids(self) -> dict[str, str]:
        """Topic ids."""
        return {self.topic(t): self.hex(22) for t in range(self.shape.topics)}

    def hex(self, length: int) -> str:
        """Return an id."""
        return f"{self.random.getrandbits(4 * length):0{length}x}"

    def topic_plan(self, number: int) -> TopicPlan:
        """Return the plan of one topic."""
        name, every = self.topic(number), range(self.shape.partitions)
        configs = {"retention.ms": "604800000", "segment.bytes": "1073741824", "min.insync.replicas": "2"}
        return TopicPlan(
            source_topic=name, target_topic=name, source_topic_id=self.ids[name], target_exists=True,
            partitions=self.shape.partitions, replication_factor=3, configs=configs,
            held_configs={**configs, "retention.ms": "-1"}, left_out={}, compacted=False, mode="identical",
            reason="no holes", starts={p: self.offset() for p in every}, ends={p: self.offset() for p in every},
        )  # fmt: skip

    def plan(self) -> Plan:
        """Return a plan of all topics and groups."""
        positions: dict[str, dict[str, dict[int, int]]] = {}
        for group, its in self.groups.items():
            for tp in its:
                positions.setdefault(group, {}).setdefault(tp.topic, {})[tp.partition] = self.offset()
        return Plan(
            mirror=self.mirror, created_at="2026-01-01T00:00:00+00:00", source_cluster_id=_ID, target_cluster_id=_ID,
            topics=tuple(self.topic_plan(t) for t in range(self.shape.topics)), positions=positions, findings=(),
            known_topics=dict.fromkeys(self.ids, "identical"),
        )  # fmt: skip

    @cached_property
    def groups(self) -> dict[str, list[TopicPartition]]:
        """The groups, each with the partitions of the topics that it reads."""
        found: dict[str, list[TopicPartition]] = {}
        for number, tp in enumerate(self.tps):
            found.setdefault(f"application-{number // self.shape.partitions % self.shape.groups:05d}", []).append(tp)
        return found

    @cached_property
    def busy(self) -> set[TopicPartition]:
        """The busy partitions, as many of each topic as of any other."""
        return set(sorted(self.tps, key=lambda tp: tp.partition)[: self.shape.busy])


# --- the state --------------------------------------------------------------------------------------------------------


def signs(world: World, n: int) -> None:
    """One sign of life of a tail that has something to say about everything that follows."""
    lines = [f"application-{k:05d} at {world.topic(k)}-3: the target has {world.offset()}" for k in range(10)]
    summary = {
        "partitions": len(world.tps), "states": {"copying": len(world.tps)}, "lag": world.offset(), "bytes": n,
        "records": world.offset(), "tiers": dict.fromkeys(TIERS, world.offset()), "slowest": lines[:3], "stopped": [],
        "lag_s": n, "headroom_s": world.offset(),
    }  # fmt: skip
    one = FollowReport(groups=n, positions=n, written=n, left_alone=lines, held=lines, took_s=1.2).to_dict()
    kinds = ("groups", "configs", "acls", "log_starts", "topics")
    follows = {kind: {"at": world.offset(), "error": None, **one} for kind in kinds}
    giving = Heartbeat(world.state, world.me)
    giving.give("RUNNING", phase="copying", summary=summary, notes=tuple(lines * 2), follows=follows)


def watching(world: World, n: int) -> None:
    """One look of somebody who waits for a sign."""
    world.state.write({f"{SIGN.below(world.mirror.name)}look": str(n * 5.123).encode()})


def asking(world: World, n: int) -> None:
    """A request to stop."""
    ask_to_stop(world.state, world.mirror.name, world.me.job, "somebody@airflow-worker-1")


def wishing(world: World, n: int) -> None:
    """A pause and another rate."""
    for kind in ("pause", "rate"):
        wish(world.state, world.mirror.name, kind, Wish.now(50_000_000))


def refusing(world: World, n: int) -> None:
    """A plan, a preview and a cutover that are refused, each by as much as is kept."""
    long = Finding("block", "fence_rights", "topic of some length", "e" * 300, "r" * 200)
    for kind in refused.KINDS:
        said = refused.Refusal.of([long] * refused.MOST, "kafka_migration.preview, run scheduled__2026", float(n))
        refused.note(world.state, world.mirror.name, kind, said)


def sharing(world: World, n: int) -> None:
    """What a tail deals to one other process for a turn, half of the partitions, and what that reports."""
    name, member, number = world.mirror.name, f"{1:032x}", n + 1
    half = [
        CopyRange(source_topic=tp.topic, target_topic=tp.topic, partition=tp.partition, start_offset=world.offset())
        for tp in world.tps[::2]
    ]
    token = LeaseToken(transactional_id=f"airflow-mirror:{name}:lease", producer_id=n, epoch=n, mark_ms=n, wait_s=0.0)
    one = Share(number=number, lease=token, options=CopyOptions(mirror=name), lists=[half], seconds=TURN_S)
    world.state.write(shares.given(name, world.me.job, member, one, world.state.read()))
    results = [
        PartitionResult(
            topic=r.source_topic, target_topic=r.target_topic, partition=r.partition, position=world.offset(), done=False
        )
        for r in half
    ]  # fmt: skip
    world.state.write(shares.reported(name, member, world.me.job, number, results, world.state.read()))


def reporting(world: World, n: int) -> None:
    """One report of a job whose driver runs elsewhere."""
    reports.write(
        world.state, reports.report_key(world.mirror.name, world.hex(32)), {"state": "RUNNING", "phase": "copying"}
    )


def ending(world: World, n: int) -> None:
    """The last report of such a job."""
    ends = {f"{tp}": world.offset() for tp in world.tps}
    report = {"state": "SUCCEEDED", "summary": {"end_offsets": ends}}
    reports.write(world.state, reports.report_key(world.mirror.name, f"{n:032x}"), report)


def noting(world: World, n: int) -> None:
    """What one pass of the groups notes: of each position that moves where it stood, and where it is to stand."""
    noted = {
        group: notes.Note(n, {tp: tuple((world.offset(), "") for _ in range(2 if tp in world.busy else 1)) for tp in its})
        for group, its in world.groups.items()
        if world.busy.intersection(its)
    }
    world.state.write({notes.key(world.mirror.name, group): notes.dump(note) for group, note in noted.items()})


def seeing_starts(world: World, n: int) -> None:
    """The sights of one hour, and the end of those of a day ago."""
    changed: dict[str, bytes | None] = {}
    for topic, topic_id in world.ids.items():
        seen = {p: observations.Seen(world.offset(), world.offset()) for p in range(world.shape.partitions)}
        sight = observations.Sight(
            number=n, at_ms=n, ids=(topic_id, topic_id), retention=observations.Retention(n, n), seen=seen
        )
        changed[observations.key(world.mirror.name, topic, n - 25)] = None
        changed[observations.key(world.mirror.name, topic, n)] = observations.dump(sight)
    world.state.write(changed)


def seeing_configs(world: World, n: int) -> None:
    """A note about the settings of each topic."""
    configs = world.topic_plan(0).configs
    prefix = seen_configs.prefix(world.mirror.name)
    world.state.write({f"{prefix}{topic}": seen_configs.dump(configs, n) for topic in world.ids})


def seeing_ends(world: World, n: int) -> None:
    """One look at where the source's logs end, after another one: busy partitions have moved."""
    first = {tp: world.offset() for tp in world.tps}
    state = world.state.read()
    before = notes_of_ends.load(world.mirror.name, state) or SourceEnds(at_ms=n).after(_both(first), first, n)
    moved = {tp: before.partitions[tp].end + world.random.randrange(20_000) * (tp in world.busy) for tp in first}
    found = before.after(_both(moved), first, n * 10_000 + 1_700_000_000_000).dump(world.mirror.name)
    world.state.write({key: value for key, value in found.items() if state.get(key) != value})


def _both(ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
    """Return last stable offset and end of each partition, as one offset."""
    return {tp: (end, end) for tp, end in ends.items()}


def seeing_acls(world: World, n: int) -> None:
    """Rules of writers, one for each topic, of which one has changed."""
    rules = [
        Acl(
            resource_type="TOPIC",
            name=topic,
            pattern_type="LITERAL",
            host="*",
            operation="WRITE",
            permission="ALLOW",
            principal=f"User:writer-{n if number == 0 else number}",
        )  # fmt: skip
        for number, topic in enumerate(world.ids)
    ]
    world.state.write(seen_acls.changed(world.mirror.name, world.state.read(), rules))


def failing_over(world: World, n: int) -> None:
    """Where the copy was cut, and what was done afterwards."""
    record = failovers.Record(world.state, world.mirror.name, f"{n:012x}")
    lost = {
        "at_least": 1,
        "at_most": 2,
        "partitions": {"count": 50, "first": [[f"{tp}", n, n, n, True] for tp in world.tps[:50]]},
    }
    record.write_cut(failovers.Cut(at_ms=n, offsets=dict.fromkeys(world.tps, world.offset()), lost=lost))
    lines = [f"application-{k:05d} at {world.tps[0]}: 1 -> 2" for k in range(50)]
    for step in failovers.STEPS:
        record.write_done(step, {"count": 50, "lines": lines if step == "groups" else []})


def planning(world: World, n: int) -> None:
    """A plan."""
    ledger_store.keep(world.plan(), world.state, world.ledger)


def amending(world: World, n: int) -> None:
    """An amendment by one topic."""
    plan_hash = world.hex(64)  # of one plan each: an amendment continues what is decided
    one = Amendment(
        plan=plan_hash, number=1, after=plan_hash, created_at="2026-01-01T00:00:00+00:00",
        topics=(world.topic_plan(n % world.shape.topics),),
    )  # fmt: skip
    ledger_store.amend(one, world.mirror.name, world.state, world.ledger)


def resolving(world: World, n: int) -> None:
    """A window of time."""
    windows = {tp: Window(start=world.offset(), end=world.offset()) for tp in world.tps}
    WindowBook(world.state, world.mirror.name).save(Span(n * 3_600_000, (n + 1) * 3_600_000), windows, world.ids)


def proving(world: World, n: int) -> None:
    """What a comparison of everything proved."""
    plan = world.plan()
    starts = {TopicPartition(t.source_topic, p): start for t in plan.topics for p, start in t.starts.items()}
    ranges = {tp: (start, start + 10**6) for tp, start in starts.items()}
    Proofs(world.state, world.mirror.name).add(plan, world.ids, "records", ranges)


def cutting_over(world: World, n: int) -> None:
    """The writings of one cutover's report."""
    report = CutoverReport(mirror=world.mirror.name, plan_hash="f" * 64)
    keeping = ReportStore(world.state, world.mirror.name, f"manual__{n:05d}", None)
    report.ends = [{"topic": tp.topic, "partition": tp.partition, "end": world.offset()} for tp in world.tps]
    ends = {TopicPartition(row["topic"], row["partition"]): row for row in report.ends}
    for group, its in world.groups.items():
        rows = [{**ends[tp], "source_offset": world.offset()} for tp in its]
        report.groups.append(
            GroupRecord(group=group, settled="empty", source_state="Empty", positions=rows, before=rows)
        )  # fmt: skip
    for _ in range(3):
        keeping.save(report)


def drilling(world: World, n: int) -> None:
    """The writings of one drill, with the groups that it looked at."""
    drill = drills.Drill(run=f"scheduled__{n:05d}", at_ms=1 + n)
    rows = (GroupOutlook(group=group, partitions=len(its), reread=n) for group, its in world.groups.items())
    drill.groups = Outlook(mirror=world.mirror.name, at_ms=n, groups=tuple(rows), left_behind=()).to_dict()
    turn.end(world.ledger, world.mirror.name, f"scheduled__{n - 1:05d}")
    turn.begin(world.ledger, world.mirror.name, drill.run, f"{n:032x}", 0.0)
    for _ in range(4):
        drills.Drills(world.state, world.mirror.name).save(drill)


# --- the decisions ----------------------------------------------------------------------------------------------------


class _Topics(NamedTuple):
    """A target, as far as who claims topics asks it."""

    ids: Mapping[str, str]

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return topics by name."""
        return {name: TopicInfo(name=name, partitions=1, replication_factor=3, topic_id=self.ids[name]) for name in names}


def claiming(world: World, n: int) -> None:
    """All topics become a mirror's, again by another one each time."""
    mirror = replace(world.mirror, name=f"{world.mirror.name}-{n}")
    claimed = replace(world.plan(), mirror=mirror, source_cluster_id=_ID)
    ownership.release(world.ledger, f"{world.mirror.name}-{n - 1}", lambda: None)
    ownership.claim(world.ledger, claimed, cast("ClusterAdmin", _Topics(world.ids)))


def starting(world: World, n: int) -> None:
    """A job becomes the mirror's tail."""
    begin(world.ledger, replace(world.me, job=world.hex(32)), cast("Watch", None), takeover=True)


def turning(world: World, n: int) -> None:
    """Applications write to the other cluster. The topics that open in the same record count as claims do."""
    made = Direction(
        generation=n, primary=_ID, by="failover", attempt=f"{n:012x}", plan="f" * 64, at="2026-01-01T00:00:00+00:00"
    )
    world.ledger.decide(lambda _: {f"direction/{world.mirror.name}": made.value()})


def fencing(world: World, n: int) -> None:
    """A fence goes up, and is lifted. Where it opens a target the topics count as claims do."""
    process = {"host": "airflow-worker-1", "where": "pid:[4026531836]", "pid": n, "started": n, "job": world.hex(32)}
    me, values = world.hex(32), world.ledger.values()
    mine = FenceState(
        run=f"manual__{n:05d}", attempt=n, id=me, plan="f" * 64, revision="f" * 64, owner=me, max_fence_s=60.0,
        name="acl", process=process,
    )  # fmt: skip
    before, turned = fence_state(values, world.mirror.name), direction(values, world.mirror.name)
    if ledger_store.last_hash(values, world.mirror.name) is None:  # no fence goes up without a plan
        world.ledger.decide(lambda _: LAST_PLAN.put({"hash": mine.plan}, world.mirror.name))
    go_up(world.ledger, world.mirror.name, mine, before, turned)
    lifting = begin_lifting(world.ledger, world.mirror.name, mine, me)
    assert lifting is not None
    end_lifting(world.ledger, world.mirror.name, lifting)


def linking(world: World, n: int) -> None:
    """A cutover has ended: the link of its report."""
    chain.add(world.ledger, world.mirror.name, f"manual__{n:05d}", world.hex(64))


def marking(world: World, n: int) -> None:
    """A mirror that writes traces says which topics hold them: two of its own, and the one of heartbeats."""
    mm2_topics.mark(
        world.ledger, [f"source{n}.checkpoints.internal", f"mm2-offset-syncs.source{n}.internal", f"heartbeats{n}"]
    )


def beginning(world: World, n: int) -> None:
    """The first decision of a ledger."""
    world.ledger.decide(lambda _: {"ledger": {"v": 1, "topic_id": _ID}})


# --- the maps ---------------------------------------------------------------------------------------------------------


def mapping(world: World, n: int) -> None:
    """What is stored of one busy partition until its small pieces are joined: these, the joined one, their end."""
    name, token = f"{world.mirror.name}/{world.topic(0)}/3", world.hex(16)
    runs = max(1, round(EVERY_S / world.shape.gap_s))
    joined, small = OffsetMap(n, n), []
    for _ in range(MANY):
        part = OffsetMap(joined.source_end, joined.target_end)
        for _ in range(runs):
            part.add(part.source_end + 2, part.target_end, 1 + world.random.randrange(10_000))
        small.append(part)
        joined.extend(part)
    keys = [pieces.piece_key(name, _ID, token, 3, (one.source_start, one.source_end, runs)) for one in (*small, joined)]
    for key, one in zip(keys, (*small, joined), strict=True):
        world.state.write({key: encoding.encode(one)})
    world.state.write(dict.fromkeys(keys[:-1]))


# --- all of it --------------------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """One kind of record.

    :param keys: what its keys begin with. :param what: for people; ``write`` makes its n-th writing.
    :param a_day: writings a day. :param kept: writings whose values stay; the log of decisions keeps all.
    """

    keys: str
    what: str
    write: Callable[[World, int], None]
    a_day: Callable[[Shape], float]
    kept: int = 1


def _every(seconds: float) -> Callable[[Shape], float]:
    return lambda _: DAY_S / seconds


STATE_KINDS = (
    Kind("job/", "signs of life", signs, _every(SIGN_EVERY_S)),
    Kind("job/", "looks for one", watching, _every(5.0)),
    Kind("job/", "requests to stop", asking, _every(3600)),
    Kind("wish/", "pauses, rates", wishing, _every(3600)),
    Kind("refused/", "refusals of tasks", refusing, _every(DAY_S / 4)),
    Kind("share/", "shares of processes", sharing, _every(TURN_S)),
    Kind("run/", "reports of a driver elsewhere", reporting, _every(5.0)),
    Kind("run/", "last reports of one", ending, _every(DAY_S / 4), reports.KEEP),
    Kind("groups/", "positions of groups", noting, _every(Mirror.group_interval_s)),
    Kind("starts/", "log starts", seeing_starts, _every(deciding.step_ms(DAY_MS) / 1000), 25),
    Kind("configs/", "settings", seeing_configs, _every(DAY_S)),
    Kind(
        "ends/",
        "where the source ends",
        seeing_ends,
        lambda shape: DAY_S / ends.noted_every_s(shape.topics * shape.partitions),
    ),
    Kind("acls/", "rules of writers", seeing_acls, _every(DAY_S)),
    Kind("failover/", "failovers", failing_over, _every(365 * DAY_S)),
    Kind("plan/", "plans", planning, _every(DAY_S), KEEP),
    Kind("plan/", "amendments", amending, _every(DAY_S / 10), 3650),
    Kind("window/", "time windows", resolving, _every(3600), windows.KEEP),
    Kind("proof/", "proofs", proving, _every(DAY_S)),
    Kind("report/", "cutovers and rehearsals", cutting_over, _every(7 * DAY_S), 52),
    Kind("drill/", "drills", drilling, _every(7 * DAY_S), drills.KEEP),
)
DECISION_KINDS = (
    Kind("ledger", "the ledger's beginning", beginning, _every(365 * DAY_S)),
    Kind("topic/", "owners of topics", claiming, _every(30 * DAY_S)),
    Kind("plan/", "last plans", planning, _every(DAY_S)),
    Kind("amended/", "last amendments", amending, _every(DAY_S / 10)),
    Kind("active/", "tails", starting, _every(DAY_S)),
    Kind("fence/", "fences", fencing, _every(7 * DAY_S)),
    Kind("drilling/", "drills", drilling, _every(7 * DAY_S)),
    Kind("evidence/", "links of reports", linking, _every(7 * DAY_S)),
    Kind("direction/", "directions", turning, _every(365 * DAY_S)),
    Kind("trace/", "topics of traces", marking, _every(365 * DAY_S)),
)
MAP_KINDS = (Kind("", "offset maps", mapping, lambda shape: shape.busy * DAY_S / EVERY_S / MANY),)


class Cost(NamedTuple):
    """What a kind costs, in bytes: written a day, and those that stay (of decisions, of a year)."""

    kind: Kind
    a_day: float
    stays: float


def cost(shape: Shape, kind: Kind) -> Cost:
    """Return what a kind costs."""
    state, ledger = Written(), Decided()
    world = World(shape, state, ledger)
    for n in range(_SAMPLES):
        kind.write(world, n)
    is_decision = kind in DECISION_KINDS
    one = (ledger.bytes if is_decision else state.bytes) / _SAMPLES
    a_day = one * kind.a_day(shape)
    return Cost(kind, a_day, 365 * a_day if is_decision else one * kind.kept)


def costs(shape: Shape) -> list[Cost]:
    """Return what each kind costs."""
    return [cost(shape, kind) for kind in (*STATE_KINDS, *DECISION_KINDS, *MAP_KINDS)]


def worst_bytes(stays: float) -> float:
    """Return how large the state is at most: what stays, what may be dirty, and a segment that no cleaner looks at."""
    ratio = float(WISHED["min.cleanable.dirty.ratio"])
    return stays / (1 - ratio) + int(WISHED["segment.bytes"])
