"""Give groups the positions back that they had on the target before a cutover."""

from __future__ import annotations

from collections.abc import Collection

from airflow_mirror.cutover.decided_fence import pinned_plan
from airflow_mirror.cutover.decision import fence_state
from airflow_mirror.cutover.groups_at_rest import Positions
from airflow_mirror.cutover.platform import Side
from airflow_mirror.cutover.report import TARGET, CutoverReport, GroupRecord, place_of
from airflow_mirror.errors import (
    CutoverTakenOver,
    MirrorCutOver,
    MirrorError,
    MissingRight,
    TryAgain,
    first_of,
)
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger.decisions import Values
from airflow_mirror.ledger.records import TOPIC
from airflow_mirror.plan.direction import FAILOVER, Direction, direction
from airflow_mirror.plan.owned import began_anew, owners
from airflow_mirror.wording import some


def restore_while_shut(target: Side, mirror: str, report: CutoverReport, permit: Permit) -> str:
    """Restore the groups, unless a failover has opened the target meanwhile: they are their readers' by then.

    So are positions in topics that are not the mirror's any more, where a split has passed them on.

    :raises LedgerNewer: a newer version of the package says whose one of the topics is.
    """
    ledger = target.ledger
    topics = {row["target_topic"] for record in report.groups for row in record.positions}
    left = _not_active(topics, report.mirror, ledger.values())

    def shut() -> None:
        permit()
        values = ledger.values()
        # Forced over this cutover: applications read on the target from where the failover has put them. Setting
        # them back would make them read, or skip, records; so they stay, and the rest is undone all the same.
        # Asked with each request: a failover may be forced amid the groups.
        if (now := _failover(target, mirror, values)) is not None:
            raise MirrorCutOver(mirror, [], now.at)
        if _not_active(topics, report.mirror, values) != left:
            raise TryAgain(f"mirror {mirror!r}", "topics passed on while its groups were restored", "Try again.")

    try:
        what = restore_groups(target, report, shut, left)
    except MirrorCutOver as e:
        return f"left where they are: {e}"
    return f"{what}; left where they are in {some(sorted(left))}: not the mirror's any more" if left else what


def _failover(target: Side, mirror: str, values: Values) -> Direction | None:
    """Return the failover that has opened the topics of a mirror's fence; None: there is none, or it opened others."""
    now, fence = direction(values, mirror), fence_state(values, mirror)
    if now is None or now.by != FAILOVER or fence is None:
        return None
    # The direction stands until the next one, also of a mirror that was started over since: its topics are others.
    return None if began_anew(values, pinned_plan(target, mirror, fence)) else now


def restore_groups(target: Side, report: CutoverReport, permit: Permit, leave: Collection[str] = ()) -> str:
    """Restore the positions that the groups had on the target before a cutover, each once.

    A group that can't be restored, because a consumer has joined it, does not stop the others.

    :param leave: target topics in which positions stay as they are.
    :raises CutoverTakenOver: that is somebody else's matter by now.
    :raises MirrorError: the first group's error, with the others in its notes.
    """
    restored, left, failed = 0, list[str](), list[MirrorError]()
    # Not by `committed`, which a process that died behind the commit has left False. One that an earlier try has restored
    # follows again, where a tail was started since: it may stand where this cutover had set it, and be the follower's.
    records = [record for record in report.groups if not record.restored]
    # Read behind the decision to lift, and before the first commit: what a group has there now says whether it is still
    # ours.
    found = target.admin.groups_offsets([record.group for record in records])
    for record in records:
        try:
            # One by one, each under the permit: dies amid them, and the next lifter finds those that are back already
            # as they were, and does only the rest.
            now = {tp: position for tp, position in found[record.group].items() if tp.topic not in leave}
            restored += _restore(target.admin, record, now, left, permit)
            # In memory: dies before the report is saved, and the next lifter goes by what the group has.
            record.committed &= all(row["target_topic"] in leave for row in record.positions)
            record.restored = True
        except CutoverTakenOver:
            raise
        except MirrorError as e:
            failed.append(e)
    if failed:
        # A group that nobody answered for comes first: it keeps `lifted` from being decided (`raised.undo`).
        raise first_of(sorted(failed, key=lambda e: not isinstance(e, TryAgain)))  # it says whether to try again
    note = f"; positions of {', '.join(left)} stay, for lack of DELETE on the group" if left else ""
    return f"{restored} group(s) restored{note}"


def _restore(target: ClusterAdmin, record: GroupRecord, now: Positions, left: list[str], permit: Permit) -> bool:
    """Restore one group; return whether there was anything to do.

    :param left: receives the group if it keeps positions where it had none.
    """
    before = {place_of(row): GroupPosition(row["offset"], row["metadata"]) for row in record.before}
    ours = {place_of(row, TARGET): (row["target_offset"], *row.get("earlier", ())) for row in record.positions}
    # Only positions that are still as this cutover set them; whoever has moved a position since then knows more.
    # Of this round, or of an earlier one: a process that dies between two rounds leaves either in the partitions.
    still_ours = [tp for tp, offsets in ours.items() if tp in now and now[tp].offset in offsets]
    changed = [tp for tp in still_ours if now[tp] != before.get(tp)]
    # Two requests, for what was there before and for what was not. Dies between them: the next lifter finds the first
    # part equal to what it was, and does the second.
    target.commit_group_offsets(record.group, {tp: before[tp] for tp in changed if tp in before}, permit)
    try:
        target.forget_group_offsets(record.group, [tp for tp in changed if tp not in before], permit)
    except MissingRight:
        # Correct positions on a log that nobody reads yet do no harm, and the next attempt sets them again.
        left.append(record.group)
    return bool(changed)


def _not_active(topics: Collection[str], mirror: str, values: Values) -> frozenset[str]:
    """Return those target topics that are not the mirror's by now, or are in production.

    :raises LedgerNewer: a newer version of the package says whose one of them is.
    """
    # What is decided about these alone: it is asked with each request, and a ledger knows thousands.
    owned, newer = owners({key: values[key] for key in map(TOPIC.key, topics) if key in values})
    if newer:
        raise newer[min(newer)]
    # A topic that nobody has was given up, and whoever reads it is not known here.
    return frozenset(
        topic
        for topic in topics
        if (one := owned.get(topic)) is None or one.mirror != mirror or one.opened_by is not None or one.released
    )
