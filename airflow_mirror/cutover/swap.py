"""Swap the kept fence of a finished cutover for one that spares the mirror, so that a mirror can copy back.

At no moment may an application write: what takes the place of the DENY for everybody is in force at every broker before
that is deleted (:meth:`.fence.AclFence.swap`). What will be changed is in the cutover's report before the first change. A
process that dies at any line leaves a fence that is up, and whoever lifts it undoes exactly that; the next call goes on.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_mirror.cutover.fence import AclFence, fence_text
from airflow_mirror.cutover.report import DONE, SWAPPED
from airflow_mirror.cutover.spared import spare
from airflow_mirror.errors import CutoverTakenOver, FenceGone, FenceNotSwapped
from airflow_mirror.kafka.model import Acl

if TYPE_CHECKING:
    from airflow_mirror.cutover.kept import Kept
    from airflow_mirror.cutover.report import CutoverReport
    from airflow_mirror.kafka.admin import ClusterAdmin


def swap_fence(
    kept: Kept, source: ClusterAdmin, own: str, *, copied_by: str = "", check_only: bool = False
) -> list[str]:  # fmt: skip
    """Swap a fence; return it as readable lines. May be repeated.

    :param kept: the report of the cutover. :param own: the mirror's principal on the source.
    :param copied_by: name of the mirror that is to write there: its writing is ended before the fence is lifted.
    :param check_only: change nothing.
    :raises FenceNotSwapped: it is not possible, or the cutover has no such fence. :raises FenceGone: it is not up.
        Nothing was changed.
    :raises FenceUnproven: a broker does not know of it in time; nobody may write. Call it again.
    :raises CutoverTakenOver: somebody has lifted the fence meanwhile.
    """
    report = kept.load()
    record = _kept_fence(kept.run, report)
    assert report is not None
    fence = AclFence(source)
    if not fence.is_up(record):
        raise FenceGone(source.role)
    intent = _swapped(record, source.describe_acls(resource_type="TOPIC"), own)
    if check_only:
        return fence_text(AclFence.kind, intent)
    assert report.fence is not None
    report.fence.intent, report.version = {**intent, "copied_by": copied_by or intent.get("copied_by", "")}, SWAPPED
    kept.save(report)
    fence.swap(intent)
    now = kept.load()
    if now is None or now.fence is None or now.fence.lifted is not None:
        fence.lift(intent)
        raise CutoverTakenOver(kept.run)
    return fence_text(AclFence.kind, intent)


def _kept_fence(run: str, report: CutoverReport | None) -> dict[str, Any]:
    """Return the intent of a fence that a finished cutover has kept."""
    fence = None if report is None else report.fence
    if report is None or fence is None or report.outcome != DONE or not fence.kept or fence.lifted is not None:
        raise FenceNotSwapped([f"cutover {run!r} has not finished with a fence that it kept"])
    if fence.kind != AclFence.kind:
        raise FenceNotSwapped([f"it is a callable ({fence.name}): only ACLs tell the mirror from applications"])
    return fence.intent


def _swapped(record: dict[str, Any], listed: list[Acl], own: str) -> dict[str, Any]:
    """Return the intent of the fence that takes its place; what an earlier call has changed, or meant to, stays in it."""
    if (before := record.get("spared", own)) != own:
        raise FenceNotSwapped([f"it spares {before} already, and not {own}"])
    ours = [Acl(**row) for row in record["deny"]]
    topics = sorted({row["name"] for row in [*record["deny"], *record["held"]]})
    found = spare(listed, topics, own, ours)
    add = {*found.add, *(Acl(**row) for row in record.get("instead", []))}
    remove = {*found.remove, *(Acl(**row) for row in record.get("replaced", []))}
    rows = {"instead": [asdict(acl) for acl in sorted(add)], "replaced": [asdict(acl) for acl in sorted(remove)]}
    return {**record, "spared": own, **rows}
