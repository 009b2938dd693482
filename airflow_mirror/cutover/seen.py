"""What is seen of both clusters before a fence is raised. Everything here only reads.

It takes as long as the source is watched anyway (``quiet_at_most_s``), because rates are what happens between two looks:
how fast the tail copies, whether a group goes on committing, whether a partition stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import DECISIONS, STATE
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.drain import compare_watched, lags, positions
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.forecast import ENOUGH_S, Times
from airflow_mirror.cutover.groups import translate
from airflow_mirror.cutover.groups_at_rest import lag, moving, not_there, positions_of, unread_in
from airflow_mirror.cutover.open_transactions import unseen_because
from airflow_mirror.cutover.quiet import longest_pause, quiet_s
from airflow_mirror.cutover.request import Offsets
from airflow_mirror.cutover.schema_ids import SchemaProof
from airflow_mirror.errors import CutoverCancelled, MirrorError, MissingRight
from airflow_mirror.jobs.runner.active import ActiveTail, Sign, active_tail
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.kafka.model import Replicas
from airflow_mirror.kafka.transactions import OpenTransaction
from airflow_mirror.plan.findings import Questions
from airflow_mirror.plan.inventory import hidden_groups
from airflow_mirror.plan.missing_acls import Lacking
from airflow_mirror.plan.missing_acls import lacking as lacking_rights
from airflow_mirror.plan.rights import CUTOVER
from airflow_mirror.verify.partition import data_batches
from airflow_mirror.verify.result import differences
from airflow_mirror.wire.batch import BatchHeader
from airflow_mirror.wire.served import unproven, without
from airflow_mirror.wording import some

_COMPARED_AT_MOST = 200_000  # offsets, to know how fast a comparison is
_ASKED_AT_MOST = 50  # partitions that an open transaction holds


@dataclass(frozen=True, kw_only=True)
class Holder:
    """An open transaction that holds selected partitions.

    :param name: its transactional id; "": nobody has told. :param since_ms: its first registration, or record.
    :param hangs: its coordinator knows of no such transaction, so nothing will ever end it.
    """

    name: str
    producer_id: int
    epoch: int
    since_ms: int
    partitions: Sequence[TopicPartition]
    hangs: bool = False

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="seconds")
        named = f"transactional id {self.name!r}, " if self.name else ""
        return f"{named}producer {self.producer_id}, epoch {self.epoch}, since {since}: {some(map(str, self.partitions))}"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A comparison of some of what is still to be compared: how long it took, and what differs."""

    offsets: int
    seconds: float
    differences: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class CutoverFacts:
    """What was seen, as values.

    :param tail: that is decided to copy; None: none is known. :param tail_status: see :class:`.Watch`.
    :param leased: a job holds the writer lease. :param written: the source got records while it was watched.
    :param behind: offsets that the target lacks, by partition. :param stands: those that did not move while watched.
    :param offsets_per_s: that the tail has copied. :param bytes_an_offset: as the tail counts them; None: unknown.
    :param rest: offsets that are still to be compared; None: nobody knows what was compared before.
    :param unseen: why there may be more transactions than ``holders``.
    :param untranslated: positions that have no counterpart on the target, whatever the tail still copies.
    :param left_behind: groups that don't move. :param left_out: those that don't by name, and what that means.
    :param gone: groups of the plan that have no positions any more. :param hidden: the rights on those that the source
        may have all the same.
    :param applications: groups of Kafka Streams and Connect that have members. :param stops: the fence may stop them.
    :param still: groups with members that have read nothing of their lag while watched, and are not accepted.
    :param replicas: of both sides' partitions, by side. :param least: ``min.insync.replicas`` of target topics.
    :param lacking: rights that are missing. :param rights: how many topics and groups were asked about.
    :param old: what the source's brokers are too old for.
    :param schemas: what the ids in the topics mean on both sides; None: the mirror names no registries.
    :param unknown: checks whose question got no answer.
    """

    times: Times
    watched_s: float = 0.0
    tail: ActiveTail | None = None
    tail_status: str = ""
    leased: bool = True
    written: bool = False
    behind: Mapping[TopicPartition, int] = field(default_factory=dict)
    stands: Collection[TopicPartition] = ()
    offsets_per_s: float = 0.0
    bytes_an_offset: float | None = None
    rest: int | None = None
    compared: Compared | None = None
    holders: Sequence[Holder] = ()
    unseen: str = ""
    untranslated: Sequence[str] = ()
    groups: int = 0
    left_behind: Sequence[str] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    gone: Sequence[str] = ()
    hidden: Sequence[MissingRight] = ()
    applications: Mapping[str, str] = field(default_factory=dict)
    stops: bool = False
    still: Sequence[str] = ()
    replicas: Mapping[str, Mapping[TopicPartition, Replicas]] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)
    lacking: Sequence[Lacking] = ()
    rights: int = 0
    old: Sequence[str] = ()
    free_bytes: Mapping[int, int | None] = field(default_factory=dict)
    schemas: SchemaProof | None = None
    unknown: Mapping[str, MirrorError] = field(default_factory=dict)


def look(attempt: Attempt) -> CutoverFacts:
    """Watch both sides for ``quiet_at_most_s``, and ask what else a cutover depends on. Sets ``run.longest_pause_s``.

    :raises CutoverCancelled: it was asked to stop. :raises TryAgain: a cluster does not answer.
    """
    # What has no answer is a finding of its own, which blocks: silence must not pass for "all is well".
    to = Questions(CutoverCancelled)
    granted = partial(
        lacking_rights,
        CUTOVER,
        attempt.plan,
        source=attempt.source,
        target=attempt.target,
        left_out=attempt.request.leave_out_groups,
    )
    # First: it may take minutes, and what is seen of lags and groups must not be as old when the fence is raised.
    schemas = None if attempt.clusters.schemas is None else to.ask("schemas", partial(attempt.clusters.schemas, None))
    groups = _Groups(attempt)
    # The target first, both times: read second it would seem ahead of a source that is written to.
    before, ends_before, started = positions(attempt), attempt.source_log.last_stable(attempt.routes), attempt.now()
    attempt.report.saw_lag(lags(ends_before, before), before)
    attempt.longest_pause_s = longest_pause(attempt)
    watched_s, asked = attempt.now() - started, attempt.now()
    reached, ends = positions(attempt), attempt.source_log.last_stable(attempt.routes)
    attempt.report.saw_lag(lags(ends, reached), reached)
    looked_s = attempt.now() - asked
    behind = {tp: ends[tp] - reached[tp] for tp in ends if reached[tp] < ends[tp]}
    per_s = sum(max(0, reached[tp] - before[tp]) for tp in reached) / watched_s if watched_s else 0.0
    tail, status, sign = to.ask("tail", lambda: _tail(attempt)) or (None, "", None)
    # Held also by a job that was killed: that nobody holds it is certain, that somebody writes is not.
    leased = to.ask("tail", lambda: attempt.on.target.is_anybody_writing(attempt.mirror.name)) is not False
    rest, compared = to.ask("compared", lambda: _compare(attempt, reached, ends)) or (None, None)
    holders, unseen = to.ask("transactions", lambda: _holders(attempt)) or ([], "")
    quiet, commits, still = groups.move(attempt, ends_before, ends, watched_s)
    lacking, rights = to.ask("rights", lambda: granted(groups.positions)) or ([], 0)
    verify_s = None if rest is None or (compared is None and rest) else 0.0
    if rest and compared is not None:
        verify_s = compared.seconds * max(1.0, rest / max(1, compared.offsets))
    times = Times(
        look=looked_s, intent=_timed(attempt, lambda: attempt.fence.intent(attempt.topics)),
        settle=attempt.limits.settle_s, still=quiet_s(attempt), verify=verify_s, groups=groups.seconds, quiet=quiet,
        positions=sum(map(len, groups.positions.values())), commits=commits,
        drain=sum(behind.values()) / per_s if per_s else None if behind else 0.0,
        # A tail that lives makes its lease short once the cutover gives signs of life.
        handover=lease.SHORT_HANDOVER_S if attempt.short_lease.is_seen or status == RUNNING else lease.HANDOVER_S,
    )  # fmt: skip
    return CutoverFacts(
        times=times, watched_s=watched_s, tail=tail, tail_status=status, leased=leased, written=ends != ends_before,
        behind=behind, stands=[tp for tp in behind if reached[tp] == before[tp] < ends_before[tp]], offsets_per_s=per_s,
        bytes_an_offset=_bytes_an_offset(sign), rest=rest, compared=compared, holders=holders, unseen=unseen,
        untranslated=to.ask("groups", lambda: groups.untranslated(attempt, reached)) or [], groups=len(groups.positions),
        left_behind=attempt.report.left_behind, left_out=attempt.report.left_out, gone=groups.gone,
        hidden=to.ask("groups", lambda: hidden_groups(attempt.source, groups.gone)) or [],
        applications=groups.applications, still=still,
        stops=not isinstance(attempt.fence, AclFence),
        replicas=to.ask("replicas", lambda: _replicas(attempt)) or {},
        least=to.ask("replicas", lambda: _least(attempt)) or {},
        lacking=lacking, rights=rights,
        old=to.ask("versions", lambda: _old(attempt)) or [], free_bytes=to.ask("disk", attempt.target.usable_bytes) or {},
        schemas=schemas,
        unknown=to.unknown,
    )  # fmt: skip


class _Groups:
    """The selected groups on the source, looked at twice."""

    def __init__(self, attempt: Attempt) -> None:
        started = attempt.now()
        self.positions = moving(attempt)
        self.gone = not_there(attempt, self.positions)
        # That they are there, should the source hide one behind the fence; `read_ahead` begins their time anew.
        attempt.seen_groups.update((group, (its, attempt.now())) for group, its in self.positions.items())
        found = attempt.source.describe_groups(sorted(self.positions))
        self.applications = {group: one.application for group, one in found.items() if one.application}
        self._alive = [group for group, one in found.items() if one.has_members and not one.application]
        self._empty = [group for group, one in found.items() if not one.has_members]
        self._read_at = attempt.now()
        self.seconds = self._read_at - started

    def move(
        self, attempt: Attempt, ends_before: Offsets, ends: Offsets, watched_s: float
    ) -> tuple[float, bool, list[str]]:  # fmt: skip
        """Return for how long groups must stand still that may, whether others go on committing, and who must not."""
        # The same groups as before, so that a group that is created meanwhile is not one that has moved.
        both = [*self._alive, *self._empty]
        now, unread = positions_of(attempt, both) if both else {}, unread_in(attempt)
        quiet, commits, still = 0.0, False, list[str]()
        for group in self._empty:
            if not lag(now[group], ends):
                continue  # nothing is left for it to read
            if now[group] == self.positions[group]:
                attempt.seen_empty[group] = now[group], self._read_at
                quiet = max(quiet, attempt.limits.group_quiet_s - watched_s)
            else:
                quiet = attempt.limits.group_quiet_s
        for group in self._alive:
            before, after = self.positions[group], now[group]
            if after != before or (behind := lag(after, ends)) and watched_s < ENOUGH_S:
                commits = True
            elif behind and group in attempt.request.accept_still_groups:
                quiet = attempt.limits.group_quiet_s
            elif any(p.offset < ends_before[tp] and unread(tp, p.offset, ends_before[tp]) for tp, p in after.items()):
                still.append(f"{group} (lag {behind})")
        return quiet, commits, still

    def untranslated(self, attempt: Attempt, reached: Offsets) -> list[str]:
        """Return the positions without a counterpart that get none by what the tail copies until the fence is up."""
        # Behind the positions: who reads on is never beyond it. What is beyond it, a log that was cut has left.
        ends = attempt.source_log.log_ends(attempt.routes)
        due = {
            group: {tp: p for tp, p in its.items() if not reached.get(tp, 0) < p.offset <= ends[tp]}
            for group, its in self.positions.items()
        }
        return [str(one) for one in translate(attempt, due, strict=False).problems]


def _timed(attempt: Attempt, do: Callable[[], object]) -> float:
    started = attempt.now()
    do()
    return attempt.now() - started


def _tail(attempt: Attempt) -> tuple[ActiveTail | None, str, Sign | None]:
    """Return the tail that is decided, what became of it, and what it says. Takes five seconds, 30 if it is lost."""
    tail = active_tail(attempt.ledger.values(), attempt.mirror.name)
    if tail is None:
        return None, "", None
    # Silence of a tail counts as such only while we could have heard it; a target that is away is an error, and blocks.
    watch = attempt.on.target.watch(attempt.mirror.name, attempt.pause)
    return tail, watch.settled(tail), watch.sign(tail)


def _bytes_an_offset(sign: Sign | None) -> float | None:
    summary = sign.summary if sign is not None else {}
    return summary["bytes"] / summary["records"] if summary.get("records") else None


def _compare(attempt: Attempt, reached: Offsets, ends: Offsets) -> tuple[int | None, Compared | None]:
    """Return how much is still to be compared, and a comparison of some of it, as it is made behind the fence."""
    if attempt.clusters.compared_to is None:
        return None, None
    starts = {
        TopicPartition(t.source_topic, p): t.starts.get(p, 0) for t in attempt.plan.topics for p in range(t.partitions)
    }
    starts = {tp: max(start, attempt.clusters.compared_to.get(tp, 0)) for tp, start in starts.items()}
    rest = sum(max(0, ends[tp] - start) for tp, start in starts.items())
    most = max(1, _COMPARED_AT_MOST // max(1, len(starts)))
    until = {tp: max(start, min(reached[tp], start + most)) for tp, start in starts.items()}
    if until == starts:
        return rest, None
    started = attempt.now()
    # Only up to what the target has. It changes nothing, whoever ends it half way.
    found = compare_watched(attempt, until)
    offsets = sum(until[tp] - start for tp, start in starts.items())
    return rest, Compared(offsets=offsets, seconds=attempt.now() - started, differences=differences(found))


def _holders(attempt: Attempt) -> tuple[list[Holder], str]:
    """Return the open transactions that hold a partition, and why there may be more."""
    unseen = unseen_because(attempt.fence, attempt.source)
    # Log, coordinators, log: one look at either says only what was open at some moment, not what nobody will ever end.
    first = _held(attempt)
    listed: list[OpenTransaction] = [] if unseen else attempt.source.open_transactions()
    named = [
        Holder(name=one.transactional_id, producer_id=one.producer_id, epoch=one.epoch, since_ms=one.started_ms,
               partitions=sorted(held))
        for one in listed
        if (held := one.partitions & attempt.routes.keys())
    ]  # fmt: skip
    known = {one.producer_id for one in listed}
    unknown = {place: header for place, header in first.items() if header.producer_id not in known}
    # Still at the same offset after the coordinators were asked: it was open when they said that they know of none.
    after = _held(attempt) if unknown else {}
    hanging: dict[tuple[int, int], Holder] = {}
    for (tp, offset), header in sorted(unknown.items()):
        if (tp, offset) in after:
            producer = header.producer_id, header.producer_epoch
            one = hanging.get(producer) or Holder(
                name="", producer_id=producer[0], epoch=producer[1], since_ms=header.base_timestamp, partitions=[],
                hangs=not unseen,
            )  # fmt: skip
            since_ms = min(one.since_ms, header.base_timestamp)
            hanging[producer] = replace(one, since_ms=since_ms, partitions=[*one.partitions, tp])
    return [*named, *hanging.values()], unseen


def _held(attempt: Attempt) -> dict[tuple[TopicPartition, int], BatchHeader]:
    """Return what holds back last stable offsets: the first batch there, by partition and offset.

    The high watermarks are read first: what producers write meanwhile lies behind them, and is nothing that is held.
    """
    high = attempt.source_log.high_watermarks(attempt.routes)
    stable = attempt.source_log.last_stable(attempt.routes)
    held = {}
    for tp in sorted(tp for tp in stable if stable[tp] < high[tp])[:_ASKED_AT_MOST]:
        raw = next(iter(data_batches(attempt.source_log, tp, stable[tp], high[tp], committed=False)), None)
        if raw is not None and raw.header is not None and raw.header.is_transactional:
            held[tp, stable[tp]] = raw.header
    return held


def _replicas(attempt: Attempt) -> dict[str, Mapping[TopicPartition, Replicas]]:
    theirs = sorted({t.target_topic for t in attempt.plan.topics})
    return {
        "source": attempt.source.replicas(attempt.topics),
        "target": attempt.target.replicas([*theirs, DECISIONS, STATE]),
    }


def _least(attempt: Attempt) -> dict[str, int]:
    """Return how many replicas in sync a write to a target topic takes."""
    configs = attempt.target.topic_configs([t.target_topic for t in attempt.plan.topics])
    return {
        name: int(entries["min.insync.replicas"].value or 1)
        for name, entries in configs.items()
        if "min.insync.replicas" in entries
    }


def _old(attempt: Attempt) -> list[str]:
    lines = [f"{one.what} (since Kafka {one.since}): {one.effect}" for one in without(attempt.source_log)]
    if isinstance(attempt.fence, AclFence) and (unknown := unproven(attempt.source_log)):
        lines.append(f"proof of the fence by their own answers: releases on which that was not tried ({some(unknown)})")
    return lines
