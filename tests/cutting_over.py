"""A cutover and its rollback, as tests ask for them: what is wanted, and what it is done with, in one call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from airflow_mirror.cutover.fence import Fence
from airflow_mirror.cutover.intent import ACL
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.request import ALONE, Additions, Clusters, CutoverRequest, Offsets, Verify
from airflow_mirror.cutover.rollback.run import WayBack, roll_back
from airflow_mirror.cutover.run import run_cutover
from airflow_mirror.cutover.schema_ids import SchemaProof
from airflow_mirror.cutover.signing import Signer
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.group_translation import Translate


def cut_over(
    on: Platform, plan: Plan, store: ReportStore, *, fence: Fence, verify: Verify, compared_to: Offsets | None = None,
    tail_positions: Callable[[], Offsets] | None = None, translate_offset: Translate | None = None,
    additions: Additions = ALONE, signer: Signer | None = None, stop: threading.Event | None = None,
    schemas: Callable[[], SchemaProof] | None = None, named: str = ACL, **wanted: Any,
) -> CutoverReport:  # fmt: skip
    """Cut over. :param named: the fence, to its guard. :param wanted: fields of :class:`CutoverRequest`."""
    clusters = Clusters(
        on=on, fence=fence, verify=verify, compared_to=compared_to, tail_positions=tail_positions,
        translate_offset=translate_offset, schemas=schemas,
    )  # fmt: skip
    request = CutoverRequest(plan=plan, fence=named, **wanted)
    return run_cutover(request, clusters, store, additions=additions, signer=signer, stop=stop)


def go_back(
    way: WayBack, on: Platform, store: ReportStore, *, fence: Fence, verify: Verify,
    stop: threading.Event | None = None, **wanted: Any,
) -> CutoverReport:  # fmt: skip
    """Roll back. :param on: the mirror's source and target. :param wanted: fields of :class:`CutoverRequest`."""
    clusters = Clusters(on=on.turned(), fence=fence, verify=verify)
    return roll_back(way, CutoverRequest(plan=way.plan, **wanted), clusters, store, stop=stop)
