"""What is left of a mirror that is over, and its removal: everything on the target but the data.

Each step looks what there is to do, and does it; done twice, it finds nothing. They are in an order in which a crash
between any two leaves enough for the next try: the plan is there until the settings are restored. The decisions that name
the mirror go before the plans and reports: a cutover that has begun keeps what lifts its fence, or can't decide any more
that it goes up. What a cutover has handed over stays decided, for good: no task of the mirror, cleared by mistake in a
year, may write there.

A retirement may be frozen at any line while another one ends the mirror, and somebody makes it anew. So it looks right
before each effect whether anything was decided about the mirror since it began that it has not decided itself. Its first
step marks the mirror's last plan: the same plan made again is a decision from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

from airflow_mirror.common.policy import TRACES, progress_group, scratch_topic, starts_group
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import LedgerNewer, PlanNotKept, PlanUnreadable, TryAgain
from airflow_mirror.jobs.decommission import Step, require_at_rest
from airflow_mirror.jobs.runner.active import Watch
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit, recently
from airflow_mirror.ledger.decisions import Decisions, Values
from airflow_mirror.ledger.records import ACTIVE, AMENDMENT, FENCED, LAST_PLAN, LINK, REMOVED, kind_of
from airflow_mirror.ledger.state import State
from airflow_mirror.plan import ledger_store, ownership
from airflow_mirror.plan.mm2_topics import marked
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import Owned, owners, shares
from airflow_mirror.sync.configs import sync_configs
from airflow_mirror.sync.seen_configs import LastSeen
from airflow_mirror.wording import count, some


@dataclass(frozen=True, kw_only=True)
class Retirement:
    """The removal of one mirror.

    :param keys: the whole state; its values are not needed. :param seen: see :mod:`.seen_configs`, of this mirror.
    :param maps: of this mirror.
    :param end_writing: takes the writer lease for good, and returns when no job of the mirror can write any more.
    """

    mirror: str
    target: ClusterAdmin
    ledger: Decisions
    keys: State
    seen: State
    maps: MapStore
    end_writing: Callable[[], object]

    def require_over(self, watch: Watch, *, may_be_held: bool) -> None:
        """Return if nothing of the mirror runs.

        :param may_be_held: also if its writer lease is held: by a job that was killed, or by one that nobody knows of.
        :raises InputError: it still does something.
        :raises LedgerNewer: a newer version of the package decided about it, or about what may be its topic.
        """
        self._require_known()
        require_at_rest(self.mirror, self.ledger, self.target.wire, watch, may_be_held=may_be_held)

    def _require_known(self) -> None:
        """Return unless a decision that this version can't read may be about one of the mirror's topics.

        Whose a topic is only the decision says. So it is another mirror's if this one's plan never had it.
        """
        for topic, e in self._newer().items():
            plan = next(iter(self._plans), None)
            if plan is None or topic in plan.known_topics or topic in (t.target_topic for t in plan.topics):
                raise LedgerNewer(f"topic {topic!r}, which may be mirror {self.mirror!r}'s,", e.value) from None

    def _newer(self) -> dict[str, LedgerNewer]:
        """Return the topics about which a newer version of the package decided."""
        return owners(self.ledger.values())[1]

    def steps(self, keep: Mapping[str, str] | None, as_seen: Callable[[Values], object]) -> Iterator[Step]:
        """Yield what is to be done, in order. Each step must be done before the next one is asked for, or none at all.

        :param keep: names of a cutover whose fence is kept, ``run`` and ``plan``: what lifts that one stays. Without a
            run: its report goes, and what names a rule of it that comes late stays.
        :param as_seen: raises unless what is decided about the mirror's fence is what ``keep`` says.
        """
        as_begun = self._as_begun(keep, as_seen)

        def permit() -> None:
            as_begun(self.ledger.values())

        def marked(values: Values) -> Values | None:
            as_begun(values)
            return ledger_store.retiring(values, self.mirror)

        # Dies behind it: a last plan as any other one, which the next plan replaces, or the next retirement finds marked.
        lines = ["marked: whoever plans the mirror from now on ends its retirement"]
        lines = lines if ledger_store.retiring(self.ledger.values(), self.mirror) else []
        yield Step("plan", lines, lambda: self.ledger.decide(marked))
        owned = self._owned()
        ours = sorted(topic for topic, one in owned.items() if one.opened_by is None)
        nobodys = [f"{topic}: nobody's afterwards; its data stay" for topic in ours]
        yield Step("topics", nobodys, lambda: ownership.give_up(self.ledger, self.mirror, require=as_begun))
        ends = ours or lease.is_anybody_writing(self.target.wire, self.mirror)
        yield Step("writing", ["its writer lease is taken, for good"] if ends else [], partial(self._end_writing, permit))
        yield Step("settings", self._settings(), partial(self._settings, permit))
        maps = len(self.maps.names(self.target.wire))
        lines = [f"offset maps of partitions: {maps}"] if maps else []
        yield Step("maps", lines, lambda: self.maps.remove_all(self.target.wire, permit))
        for group in (progress_group(self.mirror), starts_group(self.mirror)):
            positions = self.target.group_offsets(group)
            lines = [f"positions of {group}: {len(positions)}"] if positions else []
            yield Step("groups", lines, partial(self.target.forget_group_offsets, group, positions, permit))
        scratch = [*self.target.topics([scratch_topic(self.mirror)])]
        yield Step("scratch", scratch, lambda: self.target.delete_topics(scratch, permit))
        topics = [f"topic: {len(ours)}"] if ours else []
        decisions = topics + _counted(self._gone(self.ledger.values(), keep))
        yield Step("decisions", decisions, partial(self._forget, keep, as_begun))
        # Behind the decisions: until then a fence may go up that is lifted by its plan and its report.
        # Plans before their amendments: half of them gone, it would be a plan that can't be read.
        keys = sorted(self._gone(self.keys.read(), keep), key=lambda key: AMENDMENT.match(key) is not None)
        yield Step("state", _counted(keys), lambda: self.keys.write(dict.fromkeys(keys), permit))

    def _as_begun(
        self, keep: Mapping[str, str] | None, as_seen: Callable[[Values], object]
    ) -> Callable[[Values], None]:  # fmt: skip
        """Return what raises once anything is decided about the mirror that was not when this is called.

        What ends meanwhile does not count: that another retirement takes away this one would have taken away as well.
        """

        def found(values: Values) -> dict[str, object]:
            # With the time: a plan that is made anew may be the same plan.
            keys = {key: (values[key], self.ledger.time_ms(key)) for key in self._gone(values, keep)}
            if ledger_store.is_retiring(values, self.mirror):  # by this one, or another one: nobody has planned since
                del keys[LAST_PLAN.key(self.mirror)]
            held = shares(owners(values)[0])
            mine = {f"topic {t}": one for t, one in held if one.mirror == self.mirror and not one.opened_by}
            return {**keys, **{topic: one for topic, one in mine.items() if not one.released}}

        begun = found(self.ledger.values())

        def check(values: Values) -> None:
            as_seen(values)
            # Looked up, so that a decision which rests on this is refused if they are decided before it.
            for kind in (LAST_PLAN, ACTIVE):
                kind.at(values, self.mirror)
            if new := sorted(key for key, one in found(values).items() if begun.get(key) != one):
                raise TryAgain(
                    f"mirror {self.mirror!r}: {some(new)} was decided since its retirement began",
                    "it was planned again meanwhile, or a job of it has begun. Nothing more was changed",
                    "Retire it again if it is over all the same.",
                )

        return check

    def left(self) -> list[str]:
        """Return what stays, and why."""
        owned = self._owned()
        lines = [
            f"{topic}: in production since {one.opened_at}. That stays decided: no task of the mirror may write there"
            for topic, one in sorted(owned.items())
            if one.opened_by is not None
        ]
        held = [topic for topic, one in owned.items() if one.opened_by is None]
        planned = {t.target_topic for plan in self._plans for t in plan.topics}
        unknown = sorted(set(held) - planned)
        lines += [f"{topic}: on hold, because others share it" for topic in sorted(self._of_others() & set(held))]
        lines += [f"{line} (in production: yours to set)" for line in self._settings(opened=True)]
        lines += [
            f"{topic}: decided by a newer version of airflow-mirror (version {e.version}); no plan of this mirror has it"
            for topic, e in sorted(self._newer().items())
        ]
        lines += [
            f"{topic}: traces for Java clients; others may write there, too. That stays decided: no mirror copies it. "
            "Delete it when nobody reads it any more"
            for topic in self._traces()
        ]
        if chain := LINK.under(self.ledger.values(), self.mirror):
            lines.append(f"the chain that proves the reports of its cutovers: {count(len(chain), 'link')}")
        return lines + [f"{topic}: its settings; no plan that is kept says what they were to be" for topic in unknown]

    def _traces(self) -> list[str]:
        """Return the topics of traces that are there and may be the mirror's."""
        known = marked(self.ledger.values())
        names = {name for plan in self._plans[:1] for kind in TRACES for name in plan.mirror.trace_topics_of(kind)}
        return sorted(self.target.topics([name for name in names if name in known]))

    def _owned(self) -> dict[str, Owned]:
        """Return what is decided about the mirror's topics."""
        return {topic: one for topic, one in self._shares() if one.mirror == self.mirror}

    def _of_others(self) -> set[str]:
        """Return the topics that others have, perhaps besides the mirror: they still write on."""
        return {topic for topic, one in self._shares() if one.mirror != self.mirror}

    def _shares(self) -> list[tuple[str, Owned]]:
        return shares(owners(self.ledger.values())[0])

    @cached_property
    def _plans(self) -> list[Plan]:
        """The last plan, and of earlier ones that are kept what those after them have left out and what is on hold.

        A topic that is gone from the source is in no later plan, and its copy stays. Empty: an earlier try has removed
        the last one, after it had restored the settings; or it can't be loaded, and :meth:`left` says what stays.
        """
        last = ledger_store.last_hash(self.ledger.values(), self.mirror)
        left = {topic for topic, one in self._owned().items() if one.opened_by is None}
        found: list[Plan] = []
        for plan_hash in [] if last is None else [last, *ledger_store.hashes(self.keys.read(), self.mirror)[::-1]]:
            try:
                plan = ledger_store.fetch(plan_hash, self.mirror, self.target, self.ledger)
            except (PlanNotKept, PlanUnreadable):
                if not found:  # what older ones say was right before the last one was made
                    break
                continue
            found.append(replace(plan, topics=tuple(t for t in plan.topics if not found or t.target_topic in left)))
            left -= {t.target_topic for t in plan.topics}
            if not left:
                break
        return found

    def _settings(self, permit: Permit | None = None, *, opened: bool = False) -> list[str]:
        """Apply what the source's settings were last, to topics on hold; return what differs, one line each.

        :param permit: of the retirement; None: nothing is applied.
        :param opened: to those in production, instead of those that are the mirror's.
        """
        shares, owned, others = self._shares(), self._owned(), self._of_others()
        there = self.target.topics(list(owned))
        meant = {
            topic
            for topic, one in owned.items()
            if topic not in others
            and (one.opened_by is not None) is opened
            and topic in there
            and one.topic_id in ("", there[topic].topic_id)
        }

        def ours() -> None:
            if permit is not None:
                permit()
            before, now = ([one for one in some if one[0] in meant] for some in (shares, self._shares()))
            if now != before:  # another mirror may hold them by now: the records that it copies may be old
                raise TryAgain(
                    f"mirror {self.mirror!r} is not retired",
                    "who its topics belong to was decided anew meanwhile",
                    "Retire the mirror again.",
                )

        lines: list[str] = []
        for whole in self._plans:
            plan = replace(whole, topics=tuple(t for t in whole.topics if t.target_topic in meant))
            seen = LastSeen(plan, self.seen.read())
            found = sync_configs(plan, seen, self.target, recently(ours), hold=False, dry_run=permit is None)
            lines += [*found.drift, *found.remarks]
        return lines

    def _end_writing(self, permit: Permit) -> None:
        permit()
        self.end_writing()
        # Seconds later. A cutover that was looking when we began has decided by now, and needs what goes next.
        permit()

    def _forget(self, keep: Mapping[str, str] | None, as_begun: Callable[[Values], None]) -> None:
        # Looked at where the record is appended: writing was waited for since the first look, and a cutover that was
        # looking by then may have raised its fence. Behind this record the mirror has no plan that is its last one, so
        # that none goes up any more (`decision.go_up`).
        def forgotten(values: Values) -> Values | None:
            as_begun(values)
            return dict.fromkeys(self._gone(values, keep)) or None

        # Dies behind it: topics that were given up, and are nobody's with the next try, which finds all that is left by
        # the mirror's name.
        self.ledger.decide(forgotten)
        ownership.free(self.ledger, self.mirror, self._owned(), require=as_begun)

    def _gone(self, keys: Iterable[str], keep: Mapping[str, str] | None) -> list[str]:
        """Return the keys that end with the mirror: by their rows; of a kind that has none by its name."""

        def ends(key: str) -> bool:
            if (of := kind_of(key)) is None:
                return key.split("/")[1:2] == [self.mirror]
            kind, names = of
            stays = keep and kind.retire is FENCED and all(names.get(name, one) == one for name, one in keep.items())
            return names.get("mirror") == self.mirror and kind.retire in (REMOVED, FENCED) and not stays

        return [key for key in keys if ends(key)]


def _counted(keys: list[str]) -> list[str]:
    """Return how many keys there are of each kind."""
    kinds = [key.split("/")[0] for key in keys]
    return [f"{kind}: {kinds.count(kind)}" for kind in dict.fromkeys(kinds)]
