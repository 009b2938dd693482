"""What a job asks once more when it holds the lease: who had it before may have decided otherwise."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.errors import LedgerLost, MirrorCutOver
from airflow_mirror.jobs.driver import prepare
from airflow_mirror.plan.ownership import claim, mark_cut_over
from tests.unit.ledger.memory import MemoryLedger
from tests.unit.plan.test_model import a_plan
from tests.unit.plan.test_ownership import NOON, ids, there


def test_topics_opened_while_a_job_waited_for_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have asked minutes ago, and a lost ledger keeps nobody from copying."""
    plan, ledger = a_plan(), MemoryLedger()
    monkeypatch.setattr(prepare, "ClusterAdmin", lambda _: nullcontext(there(plan)))
    monkeypatch.setattr(prepare, "load", lambda *_: None)
    monkeypatch.setattr(prepare, "Ledger", lambda _: ledger)
    job: Any = SimpleNamespace(plan=plan, target="dst")
    claim(ledger, plan, there(plan))
    prepare.require_still_ours(job)
    mark_cut_over(ledger, plan, ids(plan), NOON)
    with pytest.raises(MirrorCutOver):
        prepare.require_still_ours(job)

    def lost() -> Any:
        raise LedgerLost("deleted")

    monkeypatch.setattr(ledger, "values", lost)
    prepare.require_still_ours(job)
