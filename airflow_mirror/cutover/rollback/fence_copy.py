"""What the old source's ledger has of the fence that stands there, for the day on which the target is lost."""

from __future__ import annotations

from airflow_mirror.cutover.decision import FenceState, fence_state
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.ledger.decisions import Values
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.model import Plan


def copy_fence(on: Platform, store: ReportStore, plan: Plan) -> None:
    """Keep what is decided about a fence, its plan and its report on the old source as well.

    Should the target be lost, the fence is lifted from there: ``lift-fence --target`` the old source.

    :raises InputError: a mirror of the same name, whose target the old source is, has a fence.
    """
    name, report, source_ledger = plan.mirror.name, store.load(), on.source.ledger
    state = fence_state(on.target.ledger.values(), name)
    # Who closes the fence behind this look, or dies before a copy of that, leaves one here that says `opened`: it names
    # rules that are gone, and a person who lifts by it finds none to delete.
    assert report is not None and state is not None
    whole = on.target.plan(name, state.plan, state.revision)
    # Plan, amendments, record, report: the record last but one, since it names what is before it. A death in between
    # leaves plans that nobody names; the next call writes all of it again.
    ledger_store.keep(whole.rule or whole, on.source.state(PLAN.below(name)), source_ledger, as_last=False)
    for amendment in whole.amendments:
        ledger_store.amend(amendment, name, on.source.state(PLAN.below(name)), source_ledger)
    note_copy(source_ledger, name, state, older_copy(on, plan, state, source_ledger.values()))
    # Dies before it: the copy has no report that says it has ended, so it is lifted on a person's word alone
    # (`lifting._closed`), until the next call writes it.
    ReportStore(on.source.reports(name), name, store.run, None).save(report)


def older_copy(on: Platform, plan: Plan, state: FenceState, noted: Values) -> FenceState | None:
    """Return an earlier cutover's copy, which nobody ends there, and which is about a fence of that very cluster."""
    older = fence_state(noted, plan.mirror.name)
    if older is None or older.id == state.id or older.is_over:
        return None
    fenced = on.source.plan(plan.mirror.name, older.plan, older.revision).source_cluster_id
    return older if fenced == plan.source_cluster_id else None
