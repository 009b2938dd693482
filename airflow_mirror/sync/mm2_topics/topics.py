"""The topics of a mirror's traces, made ready on the target."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_mirror.errors import TracesUnfit
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Decisions
from airflow_mirror.plan.mm2_topics import mark, unfit
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.mm2_topics.log import TraceLog
from airflow_mirror.sync.write_permit import WritePermit

_COPIED = "the mirror copies to it: make a plan with this trace, which leaves the source's topic out"


def make_ready(
    plan: Plan, topics: Iterable[str], target: ClusterAdmin, ledger: Decisions, right: WritePermit
) -> dict[str, TraceLog]:
    """Return logs of topics that are there, fit, and marked as traces; create those that are missing.

    :raises TracesUnfit: names each topic that is not as it must be; nothing was written.
    :raises LedgerMissing: :raises LedgerLost: nobody could see that they are traces.
    """
    names, replicas = list(topics), plan.mirror.trace_replication_factor
    copied = {t.target_topic for t in plan.topics}
    wrong = unfit(target, names, replicas, ledger.values()) | {name: _COPIED for name in names if name in copied}
    if wrong:
        raise TracesUnfit(wrong)
    logs = {name: TraceLog(target, name, replicas) for name in names}
    with right.granted(target.wire):
        mark(ledger, names)  # first: whoever mirrors this cluster must not find them unmarked
        for log in logs.values():
            log.create()
    return logs
