"""One look at the source's topics: what the mirror's rule selects by now is created on the target and added to the plan.

In this order, so that a look that dies anywhere is continued by the next one, in whatever process:

1. the topic is created on the target, or gets its new partitions; it is held open;
2. it becomes the mirror's (:func:`airflow_mirror.plan.ownership.claim`);
3. the plan's amendment is decided;
4. the copy takes it in.

Before 3. the topic is an empty one that the next look finds, and takes as it is. What an amendment names is there, so
that whoever carries out the plan later need not create anything, and may still find that it can't.

On a source that is the target of other mirrors a topic joins at a second look, :data:`_CLAIMED_MS` later at the least:
the mirror that has created it says only then that it is its own, and where its records come from.

A mirror's tail may carry out an older plan than the last one, if both have the same topics. Then both are amended:
otherwise the tasks of the last one would not know what is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from airflow_mirror.copy.offsets.topic import make_ready
from airflow_mirror.errors import BrokerError, InputError, LeaseLost, LeaseUnconfirmed, MirrorError, TryAgain
from airflow_mirror.kafka.model import TopicInfo, same_topic
from airflow_mirror.ledger.decisions import Values
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.amend import Draft, changes, draft
from airflow_mirror.plan.amendment import amended, next_amendment
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.plan.owned import active_topics, not_active
from airflow_mirror.plan.ownership import claim
from airflow_mirror.plan.requirements import not_ours
from airflow_mirror.plan.store import differing_fields
from airflow_mirror.plan.upstream import Upstream
from airflow_mirror.sync.configs import sync_configs
from airflow_mirror.sync.maps import mapped_topics
from airflow_mirror.sync.passes import SAID, Pass, PassReport, Sides, listed
from airflow_mirror.sync.topics import create_target_topics
from airflow_mirror.sync.write_permit import Stopped

_CLAIMED_MS = 5_000  # between creating a topic and claiming it lie a few requests, on a busy host seconds
_AT_ONCE = 50  # topics in an amendment, so that the first of many are copied soon
_STOPPED = "its partitions stop where they are"
_OFF = "sync_topics is off: a new plan takes it in"
_NEXT = "seen for the first time: if no other mirror has just created it, it joins at one of the next looks"


@dataclass(kw_only=True)
class AmendingReport(PassReport):
    """What one look found and did.

    :param topics: of the plan, with its amendments. :param revision: see :attr:`.Plan.revision`.
    :param amendments: how many the plan has. :param added: source topics that they have added, or grown.
    :param left_out: source topics that the rule selects and nothing copies, or not all partitions of; and why.
    :param gone: source topics that are not there any more, and up to where they were copied.
    :param again: source topics that were created again, likewise.
    """

    head = "{topics:topic} in the plan{joined_since}"
    topics: int = 0
    revision: str = ""
    amendments: int = 0
    added: list[str] = listed()
    left_out: list[str] = listed("left out", SAID)
    gone: list[str] = listed("gone from the source", SAID)
    again: list[str] = listed("created again on the source", SAID)

    @property
    def joined_since(self) -> str:
        """What its line says of topics that were added."""
        return f", {len(self.added):,} of them added or grown since" if self.added else ""


class TopicFollower(Pass[AmendingReport]):
    """Looks at the topics of a mirror's source. Its state holds the plan's amendments.

    Without ``sync_topics`` of the Mirror topics are not taken in, only reported.
    """

    report = AmendingReport
    asks_first = False  # what is gone from the source is told, whoever writes

    def __init__(self, sides: Sides) -> None:
        super().__init__(sides)
        self._joins, self._take_in = sides.mirror.sync_topics, sides.take_in
        self._last: Plan | None = None
        self._seen: Mapping[str, int] = {}  # new topics of the last look, and since when they are seen, in ms

    def make(self, plan: Plan, now_ms: int, report: AmendingReport) -> None:
        """Look once. ``now_ms`` is for the amendments' dates alone."""
        plan, now = self._newest(), datetime.fromtimestamp(now_ms / 1000, UTC)
        there = self._source.topics()
        found = changes(plan, there)
        known = self._sides.gone()
        report.gone = [f"{name}: {known.get(name, _STOPPED)}" for name in found.gone]
        report.again = [f"{name}: {known.get(name, _STOPPED)}" for name in found.again]
        names = sorted((*found.new, *found.grown))
        self._seen = {name: self._seen.get(name, now_ms) for name in names}
        for at in range(0, len(names) if self._joins else 0, _AT_ONCE):
            plan = self._add(plan, names[at : at + _AT_ONCE], report, now)
        if not self._joins:
            report.left_out = [f"{name}: {_OFF}" for name in names]
        if plan.amendments:
            self._amend_last(plan, there, now)
        report.topics, report.revision, report.amendments = len(plan.topics), plan.revision, len(plan.amendments)
        report.added = sorted({t.source_topic for one in plan.amendments for t in one.topics})

    def _newest(self) -> Plan:
        """Return the plan as it is decided. An earlier job, or a look that was cut off, may have amended it."""
        plan = self._sides.plan()  # with the Mirror that it was made for: that makes its hash
        newest = ledger_store.with_amendments(plan, self._target, self._ledger)
        if newest.revision != plan.revision:
            self._take_in(newest)
        return newest

    def _add(self, plan: Plan, names: Sequence[str], report: AmendingReport, now: datetime) -> Plan:
        """Add topics to the plan, as far as that is possible; return the plan."""
        drafted, known = self._draft(plan, names, now, self._ledger.values()), {t.source_topic for t in plan.topics}
        if drafted.upstream.is_target:
            until_ms = now.timestamp() * 1000 - _CLAIMED_MS
            young = {name for name, since_ms in self._seen.items() if since_ms > until_ms} - known
            early = {t.source_topic: _NEXT for t in drafted.topics if t.source_topic in young}
            drafted.left_out |= early
            drafted.topics = [t for t in drafted.topics if t.source_topic not in early]
        report.left_out += [f"{name}: {why}" for name, why in drafted.left_out.items()]
        if not drafted.topics:
            return plan
        taken = self._not_ours(plan, drafted.topics)
        made = []
        for topic in drafted.topics:
            try:
                if topic.target_topic in taken:
                    report.left_out.append(f"{topic.source_topic}: {taken[topic.target_topic]}")
                    continue
                self._make(replace(plan, topics=(topic,)), topic, topic.source_topic not in known)
                made.append(topic)
            except (Stopped, LeaseLost, LeaseUnconfirmed):
                raise
            except MirrorError as e:  # the others need not wait for it; the next look tries again
                report.left_out.append(f"{topic.source_topic}: {e}")
        if not made:
            return plan
        findings = [f for t in made for f in drafted.findings.get(t.source_topic, [])]
        more = self._decide(plan, made, findings, now, drafted.upstream.of)
        self._take_in(more)
        return more

    def _not_ours(self, plan: Plan, drafted: Sequence[TopicPlan]) -> dict[str, str]:
        """Return the target topics that are not to be touched, each with the reason. A plan knows them by name alone."""
        known = {t.source_topic for t in plan.topics}
        grown = [t for t in drafted if t.source_topic in known]
        ours = active_topics(self._ledger, replace(plan, topics=tuple(grown)), self._target) if grown else set()
        others = {t.target_topic: not_active(t) for t in grown if t.target_topic not in ours}
        return others | not_ours(self._ledger, replace(plan, topics=tuple(drafted)), self._target)

    def _draft(self, plan: Plan, names: Sequence[str], now: datetime, decisions: Values) -> Draft:
        """Draft all at once, or each alone if one of them spoils it for the others."""
        try:
            return draft(plan, self._source, self._target, names, now, decisions)
        except (InputError, BrokerError) as e:  # no right to read one, or a partition of it has no leader
            if len(names) == 1:
                return Draft(left_out={names[0]: str(e)})
        found = Draft()
        for name in names:
            one = self._draft(plan, (name,), now, decisions)
            found.topics += one.topics
            found.findings |= one.findings
            found.left_out |= one.left_out
            if one.upstream.cluster_id:  # else it could not be drafted, and says nothing of where records come from
                found.upstream = _both(found.upstream, one.upstream)
        return found

    def _make(self, one: Plan, topic: TopicPlan, new: bool) -> None:
        """Have the target hold a topic as planned, without a record.

        :param one: the plan with this topic alone. :param new: it is not in the plan yet.
        :raises TryAgain: somebody else has created it since it was drafted. :raises Stopped: the job ends meanwhile.
        """
        # A broker may take a minute to show a new topic, and who ends the right waits for this block.
        going = self._right.require_going
        with self._granted() as permit:
            made = create_target_topics(one, self._target, permit, going)
            if new and not topic.target_exists and topic.target_topic in made.existing:
                # By somebody else, as they please; or by a request of ours whose answer was lost.
                raise TryAgain(
                    f"topic {topic.target_topic!r} was created on the target meanwhile",
                    "its records, settings and replicas were not looked at", "The next look does that.",
                )  # fmt: skip
            if topic.target_exists:
                sync_configs(one, self._source, self._target, permit, hold=True, going=going)
            if mapped_topics(one):
                make_ready(self._target)

    def _decide(
        self, plan: Plan, topics: list[TopicPlan], findings: list[Finding], now: datetime,
        feeds: Callable[[str], Collection[str]] | None = None,
    ) -> Plan:  # fmt: skip
        """Make topics the mirror's, and amend a plan by them.

        :param feeds: see :func:`.ownership.claim`. It knows the new topics alone; the others are the mirror's already.
        """
        amendment = next_amendment(plan, topics, findings, now.isoformat(timespec="seconds"))
        more = amended(plan, [amendment])
        with self._granted():
            known = {t.source_topic for t in plan.topics}
            new = tuple(t for t in amendment.topics if t.source_topic not in known)
            claim(self._ledger, replace(more, topics=new), self._target, feeds)
            ledger_store.amend(amendment, plan.mirror.name, self._state, self._ledger)
        return more

    def _amend_last(self, plan: Plan, there: Mapping[str, TopicInfo], now: datetime) -> None:
        """Amend the mirror's last plan by what this one has more, if it is another one of the same rule."""
        name = plan.mirror.name
        values = self._ledger.values()
        last = ledger_store.last_hash(values, name)
        if last is None or last == plan.hash:
            return
        if self._last is None or self._last.revision != ledger_store.revision(values, name, last):
            self._last = ledger_store.fetch(last, name, self._target, self._ledger)
        same = [(one.source_cluster_id, one.target_cluster_id) for one in (self._last, plan)]
        if same[0] != same[1] or differing_fields(self._last.mirror, plan.mirror):
            return  # whoever starts a tail of that plan is told how it differs
        known = {t.source_topic: t.partitions for t in self._last.topics}
        added = {t.source_topic: t for one in plan.amendments for t in one.topics}
        more = [
            t
            for name, t in added.items()
            if name in there and same_topic(t.source_topic_id, there[name].topic_id) and t.partitions > known.get(name, 0)
        ]
        if more:
            self._last = self._decide(self._last, more, [], now)


def _both(first: Upstream, then: Upstream) -> Upstream:
    """Return what two looks at one source say, each of other topics."""
    return replace(then, owners={**first.owners, **then.owners}, is_target=first.is_target or then.is_target)
