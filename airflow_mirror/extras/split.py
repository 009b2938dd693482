"""Topics that pass from one mirror to another, with all that is known of them: a wave gets a mirror of its own.

Nothing is copied again. The first plan of the new mirror is the part of the old one's that concerns these topics; what
was noted about them (positions of groups that are the mirror's own, what was compared, seen log starts and settings,
rules of writers) is known to both afterwards. The old mirror must be at rest meanwhile, and leaves the topics out from
then on.

The steps are in an order in which a crash between any two leaves enough for the next try. The plan comes first, so that
the topics are known whatever becomes of the old mirror's. Then nobody begins to write to them, then who does is stopped,
then the notes are as they will stay, and the owner is decided. Until then neither mirror may write. At last the old
mirror gets a plan without them: should the source be lost before anybody makes one, each mirror is failed over with what
it has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from airflow_mirror.common.patterns import exact
from airflow_mirror.copy.ranges import IDENTICAL
from airflow_mirror.errors import InputError, MirrorCutOver, TopicsOwned, TryAgain
from airflow_mirror.extras.readiness.waves import waves
from airflow_mirror.jobs.decommission import Step
from airflow_mirror.jobs.runner.active import with_plan
from airflow_mirror.ledger.decisions import Decisions, Values
from airflow_mirror.ledger.kinds import Kind
from airflow_mirror.ledger.records import COPIED, GROUP, IN_PART, KINDS, PASSES, kind_of
from airflow_mirror.ledger.state import State
from airflow_mirror.plan import ledger_store, ownership, requirements
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import Owned, decided
from airflow_mirror.sync.following import notes
from airflow_mirror.wording import count, some


def keys_of(mirror: str) -> tuple[str, ...]:
    """Return what the keys of the state begin with that pass on with a topic."""
    return tuple(kind.below(mirror) for kind in KINDS if kind.split in (PASSES, COPIED, IN_PART))


def _part_of_note(value: bytes, topics: Collection[str]) -> bytes | None:
    """Return what a note about a group says of topics; None: nothing, or nothing that this version can read."""
    note = notes.load(value)
    ours = {} if note is None else {tp: marks for tp, marks in note.ours.items() if tp.topic in topics}
    return notes.dump(replace(note, ours=ours)) if note is not None and ours else None


PARTS: Mapping[Kind, Callable[[bytes, Collection[str]], bytes | None]] = {GROUP: _part_of_note}
"""Of each kind that passes on in part: returns what a value says of topics."""


def part_of(plan: Plan, topics: Collection[str], name: str) -> Plan:
    """Return the first plan of the mirror that takes topics over. No cluster is asked.

    It selects these topics alone, and groups as the old one: a group moves with the topics that it reads.

    :param plan: of the old mirror, as it is amended by now. :param topics: of the source.
    :raises TopicsShared: the mirror shares its topics.
    :raises InputError: the plan has no such topic, or not with identical offsets. :raises InvalidField: ``name`` is none.
    """
    requirements.require_exclusive_topics(plan, "split off topics")
    if name == plan.mirror.name:
        raise InputError(
            f"topics would pass from mirror {name!r} to itself",
            "the new one has the same name",
            "Give the new one a name of its own.",
        )
    planned = {t.source_topic: t for t in plan.topics}
    if unknown := sorted(set(topics) - set(planned)):
        raise InputError(
            f"mirror {plan.mirror.name!r} does not copy {some(unknown)}",
            "its plan has no such topic",
            "Correct the names.",
        )
    mine = tuple(planned[topic] for topic in sorted(topics))
    if mapped := [t.source_topic for t in mine if t.mode != IDENTICAL]:
        raise InputError(
            some(mapped),
            "the offset map of a topic is its mirror's",
            "Leave them out: only topics that keep their offsets can be split off.",
        )
    positions = {group: {t: at[t] for t in topics if t in at} for group, at in plan.positions.items()}
    return replace(
        plan,
        mirror=replace(plan.mirror, name=name, topics=[exact(t.source_topic) for t in mine], exclude_topics=()),
        topics=mine,
        positions={group: at for group, at in positions.items() if at},
        findings=(),
        known_topics={t.target_topic: t.mode for t in mine},
        returning=(),
        amendments=(),
        rule=None,
    )


def rest_of(plan: Plan, part: Plan) -> Plan | None:
    """Return the old mirror's plan without the topics that pass on; None if it has none of them, or no other."""
    gone, targets = {t.source_topic for t in part.topics}, {t.target_topic for t in part.topics}
    left = tuple(t for t in plan.topics if t.source_topic not in gone)
    if not left or len(left) == len(plan.topics):
        return None
    positions = {group: {t: at for t, at in its.items() if t not in gone} for group, its in plan.positions.items()}
    return replace(
        plan,
        mirror=replace(plan.mirror, exclude_topics=(*plan.mirror.exclude_topics, *part.mirror.topics)),
        topics=left,
        positions={group: its for group, its in positions.items() if its},
        known_topics={topic: mode for topic, mode in plan.known_topics.items() if topic not in targets},
        amendments=(),
        rule=None,
    )


def require_apart(topics: Collection[str], every: Collection[str], reads: Mapping[str, Collection[str]]) -> list[str]:
    """Return the groups that read the topics, sorted.

    :param every: all topics of the mirror. :param reads: the topics of each group.
    :raises InputError: a group also reads topics that stay. It has one bootstrap address, and would be in two cutovers.
    """
    for wave in waves(every, reads):
        ties = {g: its for g, its in wave.ties.items() if set(its) & set(topics) and set(its) - set(topics)}
        if ties:
            shown = "; ".join(
                f"group {group!r} also reads {some(sorted(set(its) - set(topics)))}" for group, its in ties.items()
            )
            raise InputError(
                "groups and the topics that they read are cut over together",
                shown,
                f"Split all of them off, which are {some(wave.topics, 20)}.",
            )
    return sorted(group for group, its in reads.items() if set(its) & set(topics))


@dataclass(frozen=True, kw_only=True)
class Split:
    """Topics that pass from one mirror to another.

    :param mirror: name of the old one. :param part: the plan of the new one; see :func:`part_of`.
    :param rest: of the old one, from then on; see :func:`rest_of`. :param whole: hash of its plan that this was made of.
    :param topic_ids: of the target topics, as they are now.
    :param state: of what begins with :func:`keys_of` either mirror. :param plans: with the new one's plans;
        ``old_plans``: with the old one's.
    :param end_writing: takes the old one's writer lease, and returns when no job of it can write any more.
    """

    mirror: str
    part: Plan
    rest: Plan | None
    whole: str
    topic_ids: Mapping[str, str]
    ledger: Decisions
    state: State
    plans: State
    old_plans: State
    end_writing: Callable[[], object]

    def require_possible(self) -> None:
        """Return if the topics are the old mirror's, or the new one's already, and the new one has nothing else.

        :raises MirrorCutOver: some are in production. :raises TopicsOwned: some are other mirrors'.
        :raises InputError: the target lacks some, or the new mirror has a plan of its own.
        """
        name = self.part.mirror.name
        topics = [t.target_topic for t in self.part.topics]
        if missing := [topic for topic in topics if topic not in self.topic_ids]:
            raise InputError(
                f"the target has no topic {some(missing)}",
                "nothing was copied that could pass on",
                "Copy first, or leave it out.",
            )
        owned = decided(self.ledger.values(), {topic: self.topic_ids[topic] for topic in topics})
        if opened := [topic for topic, one in owned.items() if one.opened_by is not None]:
            raise MirrorCutOver(self.mirror, opened, owned[opened[0]].opened_at or "")
        source = self.part.source_cluster_id
        ours = {t: one for t, one in owned.items() if one.source_id == source and one.mirror in (self.mirror, name)}
        if others := {topic: one.owner for topic, one in owned.items() if topic not in ours}:
            raise TopicsOwned(self.mirror, others)
        if nobodys := [topic for topic in topics if topic not in owned]:
            raise InputError(
                f"topics {some(nobodys)}", f"the ledger does not say that they belong to mirror {self.mirror!r}"
            )
        if ledger_store.last_hash(self.ledger.values(), name) not in (None, self.part.hash):
            raise InputError(
                f"mirror {name!r}", "it has a plan of its own already", "Choose another name for the new one."
            )

    def steps(self) -> Iterator[Step]:
        """Yield what is to be done, in order. Each step must be done before the next one is asked for, or none at all."""
        name, old = self.part.mirror.name, self.mirror
        passing = self._passing()
        planned = ledger_store.last_hash(self.ledger.values(), name) == self.part.hash
        topics = count(len(self.part.topics), "topic")
        plan = [] if planned else [f"{self.part.hash[:12]}, the first one of mirror {name!r}: {topics}"]
        dag = ledger_store.dag_of(self.ledger.values(), old)  # who may see the old one sees what was split off
        yield Step("plan", plan, lambda: ledger_store.keep(self.part, self.plans, self.ledger, dag=dag))
        to_give = [f"{topic}: mirror {old!r} gives it up" for topic, one in passing.items() if not one.released]
        yield Step("topics", to_give, lambda: ownership.give_up(self.ledger, old, passing))
        lease = [f"the writer lease of mirror {old!r} is taken; its tail has to be started again"] if passing else []
        yield Step("writing", lease, self.end_writing)
        known = self._known() if passing else {}
        noted = [f"what is known of these topics: {count(len(known), 'note')}"] if known else []
        yield Step("notes", noted, lambda: self.state.write(known))
        to_take = [f"{topic}: mirror {name!r} goes on where mirror {old!r} ended" for topic in passing]
        yield Step("owner", to_take, lambda: ownership.pass_on(self.ledger, old, name, passing))
        if (rest := self.rest) is not None:
            left = f"{rest.hash[:12]}, of mirror {old!r} from now on: {count(len(rest.topics), 'topic')}"
            yield Step("rest", [left], partial(ledger_store.keep, rest, self.old_plans, self.ledger, also=self._tail_had))

    def _tail_had(self, values: Values) -> Values:
        """Return what decides that the old mirror's tail, which has ended, had the rest for its plan.

        :raises TryAgain: it was planned anew meanwhile, as who starts its tail does.
        """
        assert self.rest is not None
        # Its writing was waited for since that plan was read. A tail that began by a later one would be failed over, and
        # cut over, by a plan that lacks what it has found since.
        if ledger_store.last_hash(values, self.mirror) != self.whole:
            raise TryAgain(
                f"mirror {self.mirror!r} was planned anew while topics passed on to mirror {self.part.mirror.name!r}",
                "they have passed on; that plan, and a tail that was started by it, were left as they are",
                "Exclude the topics from its Mirror, if that plan has them, and plan again.",
            )
        return with_plan(values, self.mirror, self.rest.hash)

    def _passing(self) -> dict[str, Owned]:
        """Return what is decided about those topics that are the old mirror's by now."""
        owned = decided(self.ledger.values(), self.topic_ids)
        return {topic: one for topic, one in sorted(owned.items()) if one.mirror == self.mirror}

    def _known(self) -> dict[str, bytes]:
        """Return what the new mirror has to know, as values of the state, and does not know yet."""
        found, old, name = self.state.read(), self.mirror, self.part.mirror.name
        wanted = {}
        for key, value in found.items():
            if (of := kind_of(key)) is None or of[1].get("mirror") != old:
                continue
            kind, names = of
            passes = kind.split is COPIED or (kind.split is PASSES and names["topic"] in self.topic_ids)
            part = PARTS[kind](value, self.topic_ids) if kind.split is IN_PART else value if passes else None
            if part is not None:
                wanted[kind.below(name) + key.removeprefix(kind.below(old))] = part
        return {key: value for key, value in wanted.items() if found.get(key) != value}
