"""What is wrong with a mirror, from what both clusters say of it. No socket, no clock.

Each check yields a line for each thing that is wrong. What could not be asked is wrong as well; only what a cluster never
tells (a right that the mirror need not have, a broker that is too old) does no more than warn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import InvalidField, MirrorError
from airflow_mirror.jobs.runner import state
from airflow_mirror.jobs.runner.active import SILENCE_S, ActiveTail, Sign
from airflow_mirror.jobs.runner.wishes import Wish
from airflow_mirror.plan.findings import BLOCK, WARN, Checks, Finding, Unknown, block
from airflow_mirror.sync.lag import AGAIN, DELETED, PartitionLag
from airflow_mirror.wording import count, duration, size, some

_OVERDUE_S = 600.0  # a pass over everything may take some minutes


@dataclass(frozen=True, kw_only=True)
class Limits:
    """From where on something is wrong.

    :param max_lag_s: how old a record may be that the target still lacks; None: any age.
    :param max_lag_records: how many offsets a partition may be behind; None: any number.
    :param min_headroom_s: how long it must be at least until the source deletes a record that the target lacks. Of
        topics that keep less than twice that: half of what they keep.
    :param min_free_bytes: of each broker of the target.
    :param warn_only: checks whose findings do not fail.
    :raises InvalidField: there is no such check.
    """

    max_lag_s: float | None = 300.0
    max_lag_records: int | None = None
    min_headroom_s: float = 6 * 3600.0
    min_free_bytes: int = 10_000_000_000
    warn_only: Collection[str] = field(default_factory=lambda: WARN_ONLY)

    def __post_init__(self) -> None:
        if unknown := set(self.warn_only) - CHECKS.rows.keys():
            raise InvalidField("warn_only", sorted(unknown), "no such check", f"Use some of {', '.join(CHECKS.rows)}.")

    def headroom_s(self, kept_s: float) -> float:
        """Return the least headroom of a topic that keeps its records so long."""
        return min(self.min_headroom_s, kept_s / 2)


@dataclass(frozen=True, kw_only=True)
class TailFacts:
    """What the target knows of a mirror's tail.

    :param active: the one that is decided; None if none ever was. :param differing: see :meth:`.ActiveTail.differing`.
    :param ended: what has ended it for good, as ``ended by cutover``; empty: nothing has.
    """

    active: ActiveTail | None = None
    status: str = ""
    sign: Sign | None = None
    pause: Wish | None = None
    differing: Sequence[str] = ()
    ended: str = ""

    @property
    def runs(self) -> bool:
        """Whether it lives."""
        return self.active is not None and state.is_active(self.status)

    @property
    def rests(self) -> bool:
        """Whether it was stopped, ended for good, or never started: only who starts it knows whether it should run."""
        return self.active is None or state.is_succeeded(self.status) or bool(self.ended and not self.runs)

    @property
    def said(self) -> Sign:
        """The last sign of a tail that lives; an empty one of any other."""
        return self.sign if self.runs and self.sign is not None else Sign(number=0, state=self.status)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What both clusters say of a mirror at one time.

    :param lease: who holds the writer lease: ``a job``, ``a cutover`` or ``nobody``.
    :param held: what waits for the same open transactions for a while, a line each. It is not in the lags.
    :param gone: source topics that were deleted, or created again: :func:`.sync.lag.gone`. They have no lag.
    :param missing: target topics that are not there.
    :param other_source: which cluster the source is, and which one the plan's, if these are two. Nothing more is known.
    :param late: partitions that lack a record that is older than ``max_lag_s``.
    :param racing: partitions without the headroom, and for how many seconds their topics keep records.
    :param racing_by_size: likewise by ``retention.bytes``, and in how many seconds they may begin to lose records.
    :param lost: how many offsets the source has deleted of a partition before they were copied.
    :param not_held: settings of target topics that are not on hold: the topic, the key and the value there.
    :param free_bytes: see :meth:`.ClusterAdmin.usable_bytes`.
    :param fences: cutovers whose fence is, or may be, up, as is decided. :param fences_gone: those whose fence was kept
        behind an open target, and is not there; as far as was asked.
    :param unexplained: rules that keep everybody out of source topics, and that no record explains; as far as was asked.
    :param unknown: checks whose question got no answer.
    """

    tail: TailFacts = field(default_factory=TailFacts)
    lease: str = "a job"
    lags: Sequence[PartitionLag] = ()
    held: Sequence[str] = ()
    gone: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()
    other_source: str = ""
    late: Collection[TopicPartition] = ()
    racing: Mapping[TopicPartition, float] = field(default_factory=dict)
    racing_by_size: Mapping[TopicPartition, float] = field(default_factory=dict)
    lost: Mapping[TopicPartition, int] = field(default_factory=dict)
    not_held: Sequence[tuple[str, str, str | None]] = ()
    free_bytes: Mapping[int, int | None] = field(default_factory=dict)
    fences: Sequence[str] = ()
    fences_gone: Sequence[str] = ()
    unexplained: Sequence[str] = ()
    unknown: Mapping[str, MirrorError] = field(default_factory=dict)


CHECKS = Checks[Facts, Limits]()


def judge_seen(facts: Facts, limits: Limits, checks: Collection[str] = ()) -> list[Finding]:
    """Return what is wrong for people who look, and are not the DAG that starts the tail: that it rests is no fault."""
    return [one for one in judge(facts, limits, checks) if not (facts.tail.rests and one.check == "tail")]


def judge(facts: Facts, limits: Limits, checks: Collection[str] = ()) -> list[Finding]:
    """Return what is wrong; empty: the mirror is well. What blocks fails; a person should know what warns, no more.

    :param checks: those whose facts are there; empty: all.
    """
    found = [f for f in CHECKS.run(facts.unknown, facts, limits) if not checks or f.check in checks]
    never_told = [f for f in found if isinstance(f, Unknown) and f.level == WARN]
    return [replace(f, level=WARN if f in never_told or f.check in limits.warn_only else BLOCK) for f in found]


@CHECKS.check("tail", of="tail")
def _tail(facts: Facts, _: Limits) -> Iterator[str]:
    tail, active = facts.tail, facts.tail.active
    if active is None:
        yield "it was never started"
    elif tail.ended and not tail.runs:
        yield f"{tail.ended}: nothing is copied any more"
    elif tail.status == state.LOST:
        yield f"no sign of life from host {active.host} for {SILENCE_S:.0f} s: the process or the host is lost"
    elif state.is_succeeded(tail.status):
        yield f"it was stopped on host {active.host}"
    elif not tail.runs:
        why = tail.sign.error if tail.sign is not None else None
        yield f"it ended with an error on host {active.host}: {why or 'it does not say why'}"
    elif tail.differing:
        yield f"the one on host {active.host} copies by other rules: {'; '.join(tail.differing)}"


@CHECKS.check("paused", needs=["tail"], of="tail", level=WARN)
def _paused(facts: Facts, _: Limits) -> Iterator[str]:
    if facts.tail.pause is not None:
        behind = sum(lag.records for lag in facts.lags) if facts.lags else facts.tail.said.summary.get("lag")
        shown = "" if behind is None else f", {behind:,} offsets behind"
        yield f"paused {facts.tail.pause}{shown}; nothing is copied until 'airflow-mirror resume'"


@CHECKS.check("lease", needs=["tail"], hidden=WARN)
def _lease(facts: Facts, _: Limits) -> Iterator[str]:
    if facts.tail.said.phase == "copying" and facts.lease != "a job":
        yield f"the tail says that it copies, but {facts.lease} holds the writer lease: nothing can be written"


@CHECKS.check("lag")
def _lag(facts: Facts, limits: Limits) -> Iterator[str]:
    if facts.tail.pause is not None:
        return  # that is why
    records = {lag.source: lag.records + (lag.held.offsets if lag.held else 0) for lag in facts.lags}
    if facts.late and limits.max_lag_s is not None:
        shown = some(f"{tp} by {count(records.get(tp, 0), 'offset')}" for tp in sorted(facts.late))
        yield f"{_partitions(facts.late)} more than {duration(limits.max_lag_s)} behind: {shown}"
    most = limits.max_lag_records
    far = {} if most is None else {lag.source: lag.records for lag in facts.lags if lag.records > most}
    if far:
        shown = some(f"{tp} by {n:,}" for tp, n in sorted(far.items(), key=lambda one: -one[1]))
        yield f"{_partitions(far)} more than {count(most or 0, 'offset')} behind: {shown}"


@CHECKS.check("topics")
def _topics(facts: Facts, _: Limits) -> Iterator[Finding | str]:
    if facts.other_source:
        yield block(
            f"{facts.other_source}: it was asked nothing else",
            "Give the mirror of that cluster a name of its own, and plan it; or correct the source's connection.",
            "source cluster",
        )
    if again := sorted(name for name, became in facts.gone.items() if became == AGAIN):
        yield f"created again on the source, and not copied: {some(again)}; plan again"
    if facts.missing:
        yield f"the target has no such topics any more: {some(facts.missing)}"


@CHECKS.check("retention", needs=["lag"])
def _retention(facts: Facts, limits: Limits) -> Iterator[str]:
    if facts.lost:
        shown = some(f"{tp} {count(n, 'offset')}" for tp, n in sorted(facts.lost.items()))
        yield f"the source has deleted records that were not copied: {shown}"
    if facts.racing:
        shown = some(f"{tp} (keeps {duration(kept)})" for tp, kept in sorted(facts.racing.items()))
        least = min(limits.headroom_s(kept) for kept in facts.racing.values())
        yield f"the source will delete records that are not copied in less than {duration(least)}: {shown}"


# Brokers need not list their logs, whoever asks: what they keep by size is then not known, and no fault.
@CHECKS.check("retention_bytes", needs=["lag"], hidden=WARN, away=WARN)
def _retention_bytes(facts: Facts, _: Limits) -> Iterator[str]:
    if facts.racing_by_size:
        soonest = sorted(facts.racing_by_size.items(), key=lambda one: (one[1], one[0]))
        shown = some(f"{tp} {f'in {duration(left)}' if left else 'at any time'}" for tp, left in soonest)
        yield f"the source may delete by size (retention.bytes) what is not copied: {shown}"


@CHECKS.check("stopped", needs=["tail"], of="tail")
def _stopped(facts: Facts, _: Limits) -> Iterator[str]:
    summary = facts.tail.said.summary
    if stopped := summary.get("states", {}).get("stopped"):
        yield f"{count(stopped, 'partition')} stopped: {'; '.join(summary.get('stopped', []))}"


@CHECKS.check("transactions", needs=["tail"], of="tail", level=WARN)
def _transactions(facts: Facts, _: Limits) -> Iterator[str]:
    yield from facts.held or facts.tail.said.summary.get("open_transactions", [])


@CHECKS.check("hold")
def _hold(facts: Facts, _: Limits) -> Iterator[str]:
    for topic, key, value in facts.not_held:
        yield f"target topic {topic!r}: {key} is {value}: brokers may delete, change or refuse records"


@CHECKS.check("follow", needs=["tail"], of="tail")
def _follow(facts: Facts, _: Limits) -> Iterator[str]:
    sign = facts.tail.said
    for kind, report in sign.follows.items():
        if (error := report.get("error")) is not None:
            yield f"{kind} do not follow: {error or 'it does not say why'}"
        elif "every_s" in report and (ago_s := sign.at - report["at"]) > report["every_s"] + _OVERDUE_S:
            yield (
                f"{kind} have not followed for {duration(ago_s)}, and should every {duration(report['every_s'])}: a pass "
                "hangs, or takes that long; the tail's log says what it did last"
            )


@CHECKS.check("left_out", needs=["tail", "topics"], of="tail", level=WARN)
def _left_out(facts: Facts, _: Limits) -> Iterator[str]:
    report = facts.tail.said.follows.get("topics", {})
    yield from report.get("said", [])
    told = report.get("gone", {"count": 0, "first": []})  # counts all, and names the first few
    deleted = {name for name, became in facts.gone.items() if became == DELETED}
    if len(deleted) > told["count"]:
        named = {line.partition(": ")[0] for line in told["first"]}
        yield f"deleted on the source, or hidden: {some(sorted(deleted - named))}"


@CHECKS.check("notes", needs=["tail"], of="tail", level=WARN)
def _notes(facts: Facts, _: Limits) -> Iterator[str]:
    sign = facts.tail.said
    yield from sign.notes[-3:]
    for kind, report in sign.follows.items():
        if kind != "topics":
            yield from (f"{kind}: {line}" for line in report.get("said", []))


@CHECKS.check("disk", hidden=WARN)
def _disk(facts: Facts, limits: Limits) -> Iterator[str]:
    full = {broker: free for broker, free in facts.free_bytes.items() if free is not None}
    full = {broker: free for broker, free in full.items() if free < limits.min_free_bytes}
    if full:
        shown = some(f"broker {broker} {size(free)}" for broker, free in sorted(full.items()))
        yield f"less than {size(limits.min_free_bytes)} free on the target: {shown}"


@CHECKS.check("fence", level=WARN)
def _fence(facts: Facts, _: Limits) -> Iterator[str]:
    if facts.fences:
        how = "'airflow-mirror lift-fence' ends what was killed"
        yield f"by the ledger the source refuses producers ({how}): {some(facts.fences)}"
    if facts.unexplained:
        how = "if they are none of yours, 'airflow-mirror lift-fence --unexplained' removes them"
        yield f"rules of the source keep everybody out, and no record explains them ({how}): {some(facts.unexplained)}"


@CHECKS.check("fence_gone")
def _fence_gone(facts: Facts, _: Limits) -> Iterator[Finding]:
    for fence in facts.fences_gone:
        yield block(
            f"{fence} was kept behind an open target, and is gone or incomplete: nobody reads what is written to the old "
            "source",
            "Deny WRITE on its topics to User:* again, and bring over what was written. If applications are to write "
            "there, 'airflow-mirror lift-fence --include-retained' decides that.",
        )


def _partitions(partitions: Collection[object]) -> str:
    return f"{count(len(partitions), 'partition')} {'is' if len(partitions) == 1 else 'are'}"


OF_THE_TAIL = CHECKS.of("tail")  # they judge :class:`TailFacts` alone
WARN_ONLY: tuple[str, ...] = tuple(row.id for row in CHECKS.rows.values() if row.level == WARN)
