"""Prepare the way back to a source that returned after a failover: say what became of each topic, export, and make room.

Afterwards the way back is armed (:mod:`.arm`), as after a cutover: topics that are ``delta`` go on where they end, those
that are ``gone`` are copied in full, and those that have ``diverged`` are left out by name.

A topic is deleted only if somebody has named it, and in this order:

1. The fence of the returned source is proven, and up: nobody adds to what is exported.
2. What it has and was not seen to be on the target is exported, and the target's ledger notes where, with the digest of
   the manifest.
3. Each file is read again right before, to the log's end, which has to be where it was when both sides were compared.
   That it will be deleted is noted.
4. It is deleted by its id: a topic of that name that somebody creates meanwhile is another one.

Nothing has to be undone. A process that dies leaves a topic that is there, or is gone; arming creates what is not there.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.attempt import Log
from airflow_mirror.cutover.decision import OPENED, fence_state, permit
from airflow_mirror.cutover.failover.record import Record
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import RETURNED
from airflow_mirror.cutover.platform import Platform, Side, require_source
from airflow_mirror.cutover.raised import Raised
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.rollback.arm import armed, cutover_of
from airflow_mirror.cutover.rollback.export import Exported, export, read_back
from airflow_mirror.cutover.rollback.topic_divergence import DELTA, DIVERGED, GONE, TopicDivergence, classify_divergence
from airflow_mirror.errors import ExportBroken, FenceGone, InputError, NoWayBack
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger.records import CUT
from airflow_mirror.sync.topics import settle

_LISTED = 50
_LOG = logging.getLogger("airflow_mirror.cutover.rollback")


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What there is to say before a way back is armed.

    :param verdicts: of each topic, as it is by now. :param exports: what was noted about exports of them.
    """

    mirror: str
    verdicts: list[TopicDivergence]
    exports: Mapping[str, Mapping[str, Any]]

    def lines(self) -> list[str]:
        """Return it for people."""
        counts = [f"{sum(v.verdict == kind for v in self.verdicts)} {kind}" for kind in (DELTA, DIVERGED, GONE)]
        topics = [line for one in self.verdicts if one.verdict == DIVERGED for line in one.lines()]
        noted = [_noted(topic, found) for topic, found in sorted(self.exports.items())]
        return [f"topics of mirror {self.mirror!r} on the old source: {', '.join(counts)}", *topics, *noted]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        named = {kind: [v.topic for v in self.verdicts if v.verdict == kind] for kind in (DELTA, DIVERGED, GONE)}
        return {"mirror": self.mirror, **named, "exports": dict(self.exports), "text": self.lines()[: 2 * _LISTED]}


def _noted(topic: str, found: Mapping[str, Any]) -> str:
    deleted = f"; it was deleted at {found['deleted']}, id {found['topic_id']}" if "deleted" in found else ""
    return f"exported {topic}: {found['records']:,} records are in {found['directory']} on host {found['host']}{deleted}"


def is_to_prepare(mirror: str, target: Side) -> bool:
    """Return whether that is a failover whose source has returned, and whose way back is not armed yet."""
    report_of, _ = cutover_of(mirror, target)
    report = report_of.load()
    return report is not None and report.is_of_returned and armed(mirror, target.ledger.values()) is None


def failback(
    mirror: str, on: Platform, *, export_to: Path | None = None,
    recreate: Collection[str] = (), log: Log = _LOG,
) -> Prepared:  # fmt: skip
    """Say what became of each topic; export what has diverged, and delete what is named. May be repeated.

    :param on: the source of a mirror that was failed over, which has returned and is fenced; and its target, where
        applications write.
    :param export_to: directory for the exports; None: nothing is exported.
    :param recreate: topics to delete, so that they are created again when the way back is armed, and copied in full.
    :raises NoWayBack: the mirror was not failed over, or the source's fence is not proven.
    :raises FenceGone: it is not up. :raises InputError: a named topic is no diverged one, or another mirror's, or was not
        exported; or the source is another cluster.
    :raises ExportBroken: an export is not what it was. Nothing was deleted then.
    """
    source = on.source.admin
    report_of, plan = cutover_of(mirror, on.target)
    require_source(source, plan)
    report = report_of.load()
    if report is None or not report.is_of_returned:
        raise NoWayBack(mirror, ["it was not failed over, so both ends are as its cutover left them"])
    # Before anything is compared: what is still written to is never the same twice.
    fenced, _ = _require_fenced(mirror, report, on)
    if others := sorted({t.source_topic for t in plan.topics}.difference(fenced).intersection(recreate)):
        raise InputError(
            f"{', '.join(others)}: the fence of mirror {mirror!r} is not about it", "it has passed on to another mirror",
            "Nothing was deleted. Fail back the mirror that has it.",
        )  # fmt: skip
    plan = replace(plan, topics=tuple(t for t in plan.topics if t.source_topic in fenced))
    log.info("comparing %d topics of the old source with the target", len(plan.topics))
    # As they are now, whatever a call before has found: it may have died behind a deletion, and the topic is `gone` by
    # now.
    found = {one.topic: one for one in classify_divergence(report.cut, plan, source, on.target.admin)}
    # A topic that a call before has deleted is `gone`, and named once more by its retry: no error, and nothing to delete.
    if unknown := [topic for topic in recreate if topic not in found or found[topic].verdict == DELTA]:
        raise InputError(
            ", ".join(unknown),
            "only a topic that has diverged is deleted and created again",
            "Leave it out (--recreate).",
        )
    if recreate and export_to is None:
        raise InputError(
            f"topics to create again: {', '.join(sorted(recreate))}",
            "nothing is deleted without an export",
            "Name its directory (--export).",
        )
    record = Record(on.target.state(CUT.below(mirror)), mirror, report_of.run.removeprefix(RETURNED))
    for one in [one for one in found.values() if one.verdict == DIVERGED] if export_to is not None else ():
        assert export_to is not None
        # Comparing took hours, and retention went on behind the fence: what it has taken is not there to be exported.
        one = one.since(source.wire.log_starts({part.source for part in one.surplus}))
        # Dies amid it: files without a manifest, which count as no export, and are written anew.
        exported = _export(source, mirror, one, export_to)
        log.info("exported and read back: %s", exported)
        noted = {**vars(exported), "partitions": len(exported.partitions), "host": socket.gethostname()}
        # Where the export lies, on which host, with its digest: noted before anything is deleted, because a host may be
        # lost, and nobody would know that there was one.
        record.write_exported(one.topic, noted)
        if one.topic in recreate:
            # Right before the deletion: hours may lie between, in which a disk fails, or another call writes there.
            if read_back(one, export_to).digest != exported.digest:
                raise ExportBroken(one.topic, exported.directory, "its manifest was replaced just now")
            # The source's own state once more. The permit that it returns is asked right before the bytes: one that was
            # lifted, or armed, while this process was frozen is not deleted from.
            still = partial(_require_still, one, exported.directory, source, _require_fenced(mirror, report, on)[1])
            still()
            # Before its effect. Dies in between: a note of a deletion that did not happen; the topic is there,
            # `diverged`, and the next call does it. The other way round a topic would be gone, and nobody would have
            # written who did it.
            record.write_exported(one.topic, {**noted, "deleted": datetime.now(UTC).isoformat(timespec="seconds")})
            # By its id: answer lost and tried again, or thawed days later, it can hit no topic that was created in its
            # name since.
            source.delete_topic(one.topic, one.topic_id, still)
            # Each broker hears of it in its time: an arming that asks a slow one would take the old topic for the one
            # to copy into.
            settle(partial(_still_there, source, one), "topics")
            log.info("deleted %s (id %s) from the old source; arming the way back creates it", one.topic, one.topic_id)
            found[one.topic] = TopicDivergence(topic=one.topic, topic_id="", verdict=GONE)
    return Prepared(mirror=mirror, verdicts=list(found.values()), exports=record.exported())


def _require_fenced(mirror: str, report: CutoverReport, on: Platform) -> tuple[Collection[str], Permit]:
    """Return the topics that are fenced, if the source is, and its way back is not armed.

    :return: them, and a permit, which says that this is decided still.
    """

    # Armed, its topics are a mirror's that copies there, or left out to stay: nothing is deleted any more. Asked each
    # time, since the swap that comes before it leaves a fence that is up, of the same attempt, and an export takes hours.
    def not_armed() -> None:
        if armed(mirror, on.target.ledger.values()) is not None:
            raise NoWayBack(mirror, ["its way back is armed already: from now on the old source is the reverse mirror's"])

    not_armed()
    fence = report.fence
    if fence is None or fence.proven is None or fence.kind != AclFence.kind:
        raise NoWayBack(mirror, ["its source is not fenced by ACL, and proven to be: 'airflow-mirror fence-on-return'"])
    there = fence_state(on.target.ledger.values(), mirror)
    # The decision, the report and the rules have to be about one attempt: a report alone may be of a fence that was
    # lifted.
    raised = None if there is None or there.id != report.id else Raised.of(on, mirror, there, None, report)
    if raised is None or raised.state.phase != OPENED or not raised.fence.is_up(raised.intent):
        raise FenceGone(on.source.admin.role)
    held = permit(on.target.ledger, mirror, raised.state)

    def both() -> None:
        not_armed()
        held()

    return raised.intent.topics, both


def _require_still(one: TopicDivergence, directory: str, source: ClusterAdmin, fenced: Permit) -> None:
    """Return if a topic is fenced, and ends where its verdict says.

    :raises ExportBroken: it has taken more since, which is in no export.
    """
    there = source.topics([one.topic]).get(one.topic)
    # Of another topic in its name nothing is deleted: it goes by its id.
    if there is not None and there.topic_id == one.topic_id:
        # Rules alone do not say that it stood still: a super user writes past them, and they may have been away in
        # between.
        ends = source.wire.log_ends(TopicPartition(one.topic, p) for p in range(there.partitions))
        if moved := {tp: end for tp, end in ends.items() if end != one.ends.get(tp, 0)}:
            tp, end = min(moved.items())
            cause = f"{tp} ends at {end} by now, and ended at {one.ends.get(tp, 0)} when both sides were compared"
            raise ExportBroken(one.topic, directory, cause)
    # Last: it takes no answer of the source, which may be waited for.
    fenced()


def _export(source: ClusterAdmin, mirror: str, one: TopicDivergence, directory: Path) -> Exported:
    """Export a topic, unless that was finished before and is what it was."""
    if not one.topic_id:
        raise NoWayBack(
            mirror, [f"the old source's brokers have no topic ids: {one.topic} can't be told from another one"]
        )
    try:
        # Of a call that died behind it, or was repeated: what is whole, and has all that the topic has by now, is not
        # exported again.
        return read_back(one, directory)
    except ExportBroken:
        return export(source.wire, mirror, source.cluster_id(), one, directory)


def _still_there(source: ClusterAdmin, one: TopicDivergence) -> list[str]:
    found = source.topics([one.topic]).get(one.topic)
    return [f"{one.topic}: it is still there"] if found is not None and found.topic_id == one.topic_id else []
