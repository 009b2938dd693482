"""What is on the target, whether MirrorMaker 2 is stopped, and what taking over would do. Only reads."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import MAPS
from airflow_mirror.copy.offsets.reader import MapReader
from airflow_mirror.errors import InputError, InvalidField, NothingMatches
from airflow_mirror.extras.adopt import mirrormaker
from airflow_mirror.extras.adopt.matching import Match, match
from airflow_mirror.extras.adopt.mirrormaker import Flow
from airflow_mirror.extras.adopt.reading import bounds_of, read_log
from airflow_mirror.extras.adopt.stopped import Again, Seen, look, records_of
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build, ledger_store
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.plan.owned import active_topics
from airflow_mirror.plan.recreated_topics import decisions_of
from airflow_mirror.plan.requirements import require_active, require_exclusive_topics

log = logging.getLogger(__name__)

_LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What may be taken over. :param ambiguous: largest share of ambiguous copies of a partition, 0 to 1.

    :param missing: most records of a partition that the target lacks. :param unknown: most that are not the source's.
    """

    ambiguous: float = 0.001
    missing: int = 0
    unknown: int = 0

    def refusals(self, one: Match, replicated: int | None = None) -> Iterator[str]:
        """Yield why a partition can't be taken over.

        :param replicated: the last source offset that MirrorMaker 2 says it has replicated; None: it says nothing.
        """
        if one.is_lost:
            says = f"MirrorMaker 2 says it has replicated offset {replicated}, and may have sent more"
            yield (
                f"{one.target}: none of the copies is left, up to offset {one.target_end}, and nobody can tell which of "
                f"the source's {one.source_records:,} records were copied{'' if replicated is None else f' ({says})'}. "
                "Let MirrorMaker 2 go on until some stay, with a longer retention of the target topic; or delete that, "
                "and all are copied"
            )
        if one.ambiguous_share > self.ambiguous:
            yield (
                f"{one.named('ambiguous')}; they are {one.ambiguous_share:.3%} of its copies, and may be "
                f"{self.ambiguous:.3%} (--max-ambiguous): identical records could be copies of each other"
            )
        # A log cleaner takes records out of the middle of either log, but the last one of a key stays.
        for kind, most in (("missing", self.missing), ("unknown", self.unknown)):
            if one.counts[kind] > most and not (one.compacted and one.copies):
                yield f"{one.named(kind)}; {most} may be (--max-{kind})"
        if one.undecided:
            yield (
                f"{one.source}: {one.undecided:,} copies are of transactions that are still open on the source. Try "
                "again once they have ended, or abort them"
            )
        if one.counts["disordered"]:
            yield f"{one.named('disordered')}: whoever read them would miss or reorder others. No option allows that"


@dataclass(frozen=True, kw_only=True)
class Adoption:
    """What was found.

    :param plan: of the mirror that goes on, in which the topics to be taken over are its own.
    :param topics: those that are to be taken over. :param done: those that were taken over before.
    :param replicated: the last source offset that MirrorMaker 2 says it has replicated, by source partition.
    :param refusals: why it can't be done; empty if it can.
    :param is_kept: the mirror's last plan has what was taken over before; a run that was killed may have left it without.
    :param again: looks at once whether MirrorMaker 2 has come back, see :func:`.stopped.look`: matching takes hours.
    """

    plan: Plan
    topics: tuple[TopicPlan, ...]
    done: tuple[TopicPlan, ...]
    seen: tuple[Seen, ...]
    matches: tuple[Match, ...]
    replicated: Mapping[TopicPartition, int] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    seconds: float = 0.0
    is_kept: bool = True
    again: Again = lambda _: []

    def resent(self, one: Match) -> str:
        """Return what MirrorMaker 2's own offset says of a partition, for people; "" if it says nothing."""
        offset, following = self.replicated.get(one.source), one.next_offset
        if offset is None or following is None:
            return ""
        if offset >= following:
            return (
                f"MirrorMaker 2 says it has replicated offset {offset}, and the last one here is {following - 1}: the "
                "rest is copied again"
            )
        return f"MirrorMaker 2 would have sent {following - 1 - offset:,} offsets again"


def examine(
    mirror: Mirror, flow: Flow, source: ClusterAdmin, target: ClusterAdmin, *, limits: Limits, watch_s: float,
    timed: bool | None = None, ignored_groups: Iterable[str] = (),
) -> Adoption:  # fmt: skip
    """Prove that MirrorMaker 2 is stopped, and match all that it has copied for a mirror.

    :param watch_s: how long logs are watched. :param ignored_groups: see :func:`.stopped.look`.
    :param timed: timestamps count; None: unless the target topic replaces them.
    :raises InputError: it may still copy. :raises InputError: nothing of it is there.
    :raises NothingMatches: no topic of the mirror is on the target with records.
    :raises InputError: the mirror can't go on with these topics.
    :raises TopicsOwned, MirrorCutOver, LedgerMissing, LedgerLost: the ledger does not allow it.
    """
    began = time.monotonic()
    plan, topics, done, is_kept = _planned(mirror, source, target)
    pairs = _pairs(topics, target)
    seen, again = look(flow, source, target, pairs, watch_s, [*ignored_groups])
    require_stopped(seen)
    cleaned = _cleaned(topics, target)
    stamped = {t for t, c in target.topic_configs([t.target_topic for t in topics]).items() if _is_stamped(c)}
    matches = []
    for here, there in sorted(pairs.items()):
        counts = there.topic not in stamped if timed is None else timed
        matches.append(_matched(mirror, source, target, (here, there), timed=counts, compacted=here.topic in cleaned))
        log.info("matched %s: %s of %s records are copies", there, matches[-1].copies, matches[-1].records)
    require_still(target, matches)
    replicated = {}
    if flow.offsets in target.topics([flow.offsets]):
        replicated = mirrormaker.replicated(records_of(target, flow.offsets), flow.source)
    return Adoption(
        plan=plan, topics=topics, done=done, seen=tuple(seen), matches=tuple(matches), replicated=replicated,
        refusals=tuple(reason for one in matches for reason in limits.refusals(one, replicated.get(one.source))),
        seconds=time.monotonic() - began, is_kept=is_kept, again=again,
    )  # fmt: skip


def require_still(target: ClusterAdmin, matches: Iterable[Match]) -> None:
    """Return if nothing was appended to the target since it was matched.

    :raises InputError: something was.
    """
    meant = {one.target: one.target_end for one in matches}
    moved = {tp: end for tp, end in target.wire.log_ends(meant).items() if end != meant[tp]}
    require_stopped([Seen(f"{tp} ended at {meant[tp]} and ends at {end} now", alive=True) for tp, end in moved.items()])


def require_stopped(seen: Iterable[Seen], so_far: str = "Nothing was changed") -> None:
    """Return if nothing that was seen says that MirrorMaker 2 lives. :raises InputError: something does."""
    if signs := [one.what for one in seen if one.alive]:
        what = "MirrorMaker 2 may still copy, and what it copied would be on the target twice"
        raise InputError(f"{what}. {so_far}", signs, "Stop it everywhere, wait for its sessions to end, try again.")


def _planned(
    mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin
) -> tuple[Plan, tuple[TopicPlan, ...], tuple[TopicPlan, ...], bool]:
    """Return the plan, the topics to be taken over, those that were before, and whether the last plan has these."""
    _require_mappable(mirror)
    filled = _filled(mirror, source, target)
    if not filled:
        raise NothingMatches(mirror.topics, mirror.exclude_topics, target.topic_names())
    ledger = Ledger(target)
    last = _last(ledger, mirror, source, target)
    known = {**(last.known_topics if last else {}), **dict.fromkeys(filled, "mapped")}
    plan = build(mirror, source, target, known, probe_target=False, decisions=decisions_of(ledger))
    plan.raise_if_blocked()
    require_exclusive_topics(plan, "take over topics")
    require_active(ledger, plan, target)
    ours = active_topics(ledger, plan, target)
    begun = {name for name, _ in _begun(mirror, target)}
    topics = tuple(t for t in plan.topics if t.target_topic in filled)
    done = tuple(t for t in topics if t.target_topic in ours and t.target_topic in begun)
    planned = {t.target_topic for t in last.topics} if last else set()
    return plan, tuple(t for t in topics if t not in done), done, planned >= {t.target_topic for t in done}


def _require_mappable(mirror: Mirror) -> None:
    for name, value in (("offsets", "identical"), ("partitioning", "by_key"), ("delivery", "transactional")):
        if getattr(mirror, name) == value:
            raise InvalidField(
                name, value, "what another tool has copied has other offsets, and goes on with a map of them",
                "Use offsets='auto' or 'mapped', partitioning='preserve', delivery='idempotent'.",
            )  # fmt: skip


def _filled(mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin) -> set[str]:
    """Return the mirror's target topics that hold records."""
    names = {mirror.naming.target_topic(name) for name in source.topic_names() if mirror.selects_topic(name)}
    found = target.topics(names).values()
    partitions = [TopicPartition(info.name, p) for info in found for p in range(info.partitions)]
    return {tp.topic for tp, end in target.offsets(partitions, "latest").items() if end > 0}


def _last(ledger: Ledger, mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin) -> Plan | None:
    """Return the mirror's last plan, if it is one between these clusters.

    :raises LedgerMissing: there is no ledger: only a person can say that there never was one.
    """
    plan_hash = ledger_store.last_hash(ledger.values(), mirror.name)
    last = ledger_store.fetch(plan_hash, mirror.name, target, ledger) if plan_hash else None
    clusters = source.cluster_id(), target.cluster_id()
    return last if last is not None and (last.source_cluster_id, last.target_cluster_id) == clusters else None


def _begun(mirror: Mirror, target: ClusterAdmin) -> set[tuple[str, str]]:
    return MapReader(mirror.name).begun(target.wire) if MAPS in target.topics([MAPS]) else set()


def _pairs(topics: Iterable[TopicPlan], target: ClusterAdmin) -> dict[TopicPartition, TopicPartition]:
    """Return the source partitions whose target partition holds records."""
    pairs = {
        TopicPartition(t.source_topic, p): TopicPartition(t.target_topic, p) for t in topics for p in range(t.partitions)
    }
    there = target.topics([t.target_topic for t in topics])
    pairs = {here: tp for here, tp in pairs.items() if tp.partition < there[tp.topic].partitions}
    ends = target.offsets(pairs.values(), "latest")
    return {here: tp for here, tp in pairs.items() if ends[tp] > 0}


def _matched(
    mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin, tps: tuple[TopicPartition, TopicPartition], *,
    timed: bool, compacted: bool,
) -> Match:  # fmt: skip
    # The target first: whatever it holds, the source has, or had, when it is read afterwards.
    there = read_log(target.wire, tps[1], bounds_of(target.wire, tps[1]), committed=True, timed=timed)
    here = read_log(source.wire, tps[0], bounds_of(source.wire, tps[0]), committed=False, timed=timed)
    return match(tps, here, there, committed=mirror.isolation == "read_committed", compacted=compacted)


def _cleaned(topics: Iterable[TopicPlan], target: ClusterAdmin) -> set[str]:
    """Return the source topics that a log cleaner works on, on either side."""
    there = target.topic_configs([t.target_topic for t in topics])
    policies = {name: entries["cleanup.policy"].value for name, entries in there.items() if "cleanup.policy" in entries}
    return {t.source_topic for t in topics if t.compacted or "compact" in (policies.get(t.target_topic) or "")}


def _is_stamped(configs: Mapping[str, object]) -> bool:
    entry = configs.get("message.timestamp.type")
    return getattr(entry, "value", None) == _LOG_APPEND_TIME
