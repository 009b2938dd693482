"""Why a target topic grows while a mirror writes, whatever the source deletes. Pure rules; :mod:`.sync.log_starts` acts.

A tail lets log starts and compaction follow (ADR 22), so that the target stays as small as the source; not everywhere.
"""

from __future__ import annotations

from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import TopicPlan

_BY_KEY = "records are partitioned by key: offsets have no counterpart"
_SHARED = "mirrors of other sources write to the topic, too"
_MARKERS = "offsets are mapped, and markers of transactions look like records of others"
_COUNTED = "offsets are mapped, and a map is completed by counting records: not compacted while it is on hold"


def not_followed(mirror: Mirror, t: TopicPlan) -> str:
    """Return why the target's log start does not follow the source's; "" if it does."""
    if mirror.partitioning == "by_key":
        return _BY_KEY
    if mirror.shares:
        return _SHARED
    return _MARKERS if t.mode != "identical" and mirror.delivery == "transactional" else ""


def not_compacted(t: TopicPlan) -> str:
    """Return why a topic that the source compacts is not compacted before the hold ends; "" if it is, or nobody does."""
    return _COUNTED if t.compacted and t.mode != "identical" else ""
