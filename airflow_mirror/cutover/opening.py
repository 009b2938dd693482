"""Whether the record that opens a target fits into its ledger: asked before the fence, while the answer costs nothing.

A cutover opens all its topics in one record, or a death would open a part of them (ADR 27). A broker refuses a record
that is larger than its topic takes: behind the fence, as the last step, and at each try again. So the function that
decides the opening is run before, on a plan's names, and what it would append is encoded and measured.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256

from airflow_mirror.common.policy import DECISIONS
from airflow_mirror.copy.options import DEFAULT_MAX_BATCH_BYTES
from airflow_mirror.errors import MissingRight, OpeningTooLarge
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.ledger.decisions import Change, Values
from airflow_mirror.ledger.fold import Decision, Position
from airflow_mirror.ledger.log import batch_of
from airflow_mirror.ledger.records import TOPIC
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import Owned, copied_as
from airflow_mirror.plan.ownership import mark_cut_over

_ALWAYS = 16 << 10  # what producers send by default; nothing works on a broker that takes less
# What is decided beside the topics: the fence, with who raised it, and of its intent the places of topics (`.intent`).
_BESIDE, _PLACE = 4 << 10, 8


def require_fits(plan: Plan, target: ClusterAdmin) -> None:
    """Return if the record that opens a plan's topics fits into the target's ledger.

    :raises OpeningTooLarge: it does not.
    """
    needs = opening_bytes(plan)
    if needs <= _ALWAYS:
        return
    # As it is now, and more topics may join. A cutover asks again right before its fence; who lowers the setting behind
    # that has a cutover that backs out.
    takes = _largest_record(target)
    if needs > takes:
        raise OpeningTooLarge(DECISIONS, len(plan.topics), needs, takes)


def opening_bytes(plan: Plan) -> int:
    """Return how large the record is that opens a plan's topics: no less than it will be. Pure."""
    source = plan.source_cluster_id
    ids = {t.target_topic: _id_like(t.target_topic) for t in plan.topics}
    owned = {
        t.target_topic: Owned(
            topic_id=ids[t.target_topic], mirror=plan.mirror.name, source_id=source, upstream=(source,),
            source_topic_id=_id_like(f"{t.source_topic} of the source"), **copied_as(plan.mirror, t),
        )
        for t in plan.topics
    }  # fmt: skip
    trial = _Trial({TOPIC.key(topic): one.value() for topic, one in owned.items()})
    mark_cut_over(trial, plan, ids, "2026-01-01T00:00:00+00:00")
    decision = Decision(
        expects=dict.fromkeys(trial.sets, 10), sets=trial.sets, read=Position(1 << 40, sha256().hexdigest()[:32]),
        until_ms=1 << 41,
    )  # fmt: skip
    return len(batch_of(decision.encode())) + _BESIDE + _PLACE * len(plan.topics)


class _Trial:
    """Decisions of which none is made: what would be set is kept."""

    def __init__(self, values: Values) -> None:
        self._values: Values = values
        self.sets: Values = {}

    def values(self) -> Values:
        """See Decisions."""
        return self._values

    def decide(self, change: Change, until_ms: int | None = None) -> Values | None:
        """See Decisions."""
        self.sets = change(self._values) or {}
        return None

    def time_ms(self, key: str) -> int:
        """See Decisions."""
        return 0


def _id_like(name: str) -> str:
    """Return what compresses as badly as the id of a topic."""
    return urlsafe_b64encode(sha256(name.encode()).digest())[:22].decode()


def _largest_record(target: ClusterAdmin) -> int:
    """Return what the topic takes, or will: brokers tell the setting that counts there, whoever made it."""
    if DECISIONS in target.topics([DECISIONS]):
        return _bytes(target.topic_configs([DECISIONS])[DECISIONS].get("max.message.bytes"))
    try:
        return min(
            (_bytes(one.get("message.max.bytes")) for one in target.broker_configs().values()),
            default=DEFAULT_MAX_BATCH_BYTES,
        )
    except MissingRight:
        return DEFAULT_MAX_BATCH_BYTES


def _bytes(entry: ConfigEntry | None) -> int:
    return DEFAULT_MAX_BATCH_BYTES if entry is None or entry.value is None else int(entry.value)
