"""Move what a registry holds to another one, with its ids, by API: what the target lacks, one thing after the other.

Each step is what is still missing, so a move that was killed goes on when it is called again, and one that is done does
nothing. Nothing that the target has is overwritten: what differs is named, and left. Its applications may register there
meanwhile, and other moves may run beside this one; so each place is looked at again right before something is written
there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain, groupby
from typing import Any

from airflow_mirror.errors import BrokerError, InputError, NeedsHuman
from airflow_mirror.sync.schemas import apicurio
from airflow_mirror.sync.schemas.difference import (
    Difference,
    at_first,
    changing_mode,
    compare,
    deleting,
    normalizing,
    registering,
    setting,
)
from airflow_mirror.sync.schemas.held import (
    IMPORT,
    READONLY,
    Place,
    Version,
    is_context,
    part,
    path_of,
    read,
    settings_of,
    version_at,
)
from airflow_mirror.sync.schemas.hold import HELD, hold, mode_of, open_in
from airflow_mirror.sync.schemas.registry import Registry
from airflow_mirror.sync.schemas.ways import ByContents, ByMode, Way, set_mode

_OF_ONE = (400, 404, 409, 422)  # answers that refuse one schema or one setting, and say nothing of others


@dataclass(frozen=True, kw_only=True)
class MoveReport:
    """What was done, or would be. :param conflicts: what differs, and stays. :param left_out: what can't be moved.

    :param lacking: the versions that would be registered, before any is; each as text.
    """

    done: Sequence[str]
    conflicts: Sequence[str]
    left_out: Sequence[str]
    versions: int
    lacking: Collection[str] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it; what would be registered is among what would be done."""
        return {name: value for name, value in asdict(self).items() if name != "lacking"}


def move(
    source: Registry, target: Registry, *, dry_run: bool, keep_out: bool = False, complete: bool = False,
    only: Collection[str] | None = None, say: Callable[[str], object] = lambda _: None,
) -> MoveReport:  # fmt: skip
    """Give the target what it lacks of the source. :param say: is told each step, before it is done.

    :param keep_out: others: hold the target, before its first version comes; see :mod:`.hold`.
    :param complete: soft deletions, settings and modes come also where the target has the subject: what was left by a
        kill, or was done on the source since. Not where applications use the target by now.
    :param only: these subjects, and what they refer to; None: all.
    :raises InputError: the target can't keep ids, or can't be held, or both are one registry.
    :raises TryAgain, BrokerError: a registry is away, or refuses. What was done stays, and is not done again.
    :raises NeedsHuman: the target has given another id, or another version, than it was to.
    """
    if source.url == target.url:
        raise InputError("schema registries", f"both are {source.url}", "Correct one of them.")
    to_hold = keep_out and mode_of(target) != READONLY
    exported, there = (apicurio.export(one) if one.native else None for one in (source, target))
    here = read(source, only=only) if exported is None else exported.held if only is None else part(exported.held, only)
    if there is None:
        held = read(target, also=here, only=None if only is None else {subject for subject, _ in here.versions})
        way: Way = ByMode(target, held)
        todo = compare(here, held, complete=complete)
    elif exported is None:
        raise InputError(
            "the target's schema registry", "Apicurio keeps ids by its own export and import, and the source is none",
            "Use a registry whose API has the mode IMPORT.",
        )  # fmt: skip
    else:
        way = ByContents(target, exported)
        todo = compare(here, there.held, apicurio.keeper(exported, there), complete=complete)
    own = {name: mode for name, mode in {**way.modes, **todo.modes}.items() if mode}
    left_out = [*here.left_out, *(open_in(own) if keep_out else [])]
    if dry_run:
        return MoveReport(
            done=[*([HELD] if to_hold else []), *todo.lines()], conflicts=todo.conflicts, left_out=left_out,
            versions=len(here.versions), lacking={str(one) for one in todo.register},
        )  # fmt: skip
    filling = _Filling(source, target, way, say)
    filling.fill(todo, to_hold=to_hold)
    return MoveReport(
        done=filling.done, conflicts=[*todo.conflicts, *filling.conflicts], left_out=left_out,
        versions=len(here.versions),
    )  # fmt: skip


class _Filling:
    """What is done to a target, step by step. :ivar conflicts: what was found in the way meanwhile, and stays."""

    def __init__(self, source: Registry, target: Registry, way: Way, say: Callable[[str], object]) -> None:
        self._source, self._target, self._way, self._say = source, target, way, say
        self.done, self.conflicts = list[str](), list[str]()
        self._left, self._came, self._lacked = set[Place](), set[Place](), set[Place]()
        self._unfinished = dict[str, Mapping[str, Any]]()

    def fill(self, todo: Difference, *, to_hold: bool) -> None:
        """Do what is to be done.

        Settings come before what they are about: who goes on after a kill can't tell a default from a setting, and
        changes none of what the target has. Without a mode IMPORT one would be gone by when versions are registered, and
        so comes behind them. And so does ``normalize`` everywhere: it would have their texts rewritten.
        """
        settings, later, deletions = dict(todo.settings), list[Version](), dict[str, list[Version]]()
        for one in todo.delete:
            deletions.setdefault(one.subject, []).append(one)
        if self._way.sends_ids and "" in settings:
            self._set_for_all(settings.pop(""))
        if to_hold:
            self._do(HELD, partial(hold, self._target))
            self._way.held = True
        for name in [one for one in settings if self._way.sends_ids and is_context(one)]:
            self._set_apart(name, settings.pop(name), self._set)
        # What others refer to stays until these have come.
        needed = {place for one in todo.register for place in one.refers_to}
        self._lacked = {one.place for one in todo.register}
        groups = [(subject, list(its)) for subject, its in groupby(todo.register, lambda one: one.subject)]
        last = {subject: at for at, (subject, _) in enumerate(groups)}
        for at, (subject, versions) in enumerate(groups):
            with self._way.opened(subject) as shut:
                its = settings.pop(subject, None) if self._way.sends_ids else None
                self._bring(versions, its, shut)
                # With the last live version the subject's settings go: while more are to come, that is none of it.
                for one in deletions.pop(subject, ()) if at == last[subject] else ():
                    if one.place in self._came and one.place not in needed:
                        self._delete(one, later.append)
                    else:
                        later.append(one)
        for name, its in sorted(settings.items()):
            self._set_apart(name, its, self._set)
        for name, its in self._unfinished.items():
            self._set_apart(name, its, self._set_rest)
        rest = {one.place for one in (*later, *chain.from_iterable(deletions.values()))}
        for one in (one for one in todo.delete if one.place in rest):
            with self._touching(one.subject):
                self._delete(one)
        for name, mode in todo.modes.items():
            self._change_mode(name, mode)

    def _set_for_all(self, its: Mapping[str, Any]) -> None:
        if self._way.held:
            self.conflicts.append("settings of all subjects are not set: the target is in mode READONLY")
        else:
            self._set("", its)

    def _bring(self, versions: Sequence[Version], its: Mapping[str, Any] | None, shut: str) -> None:
        """Register versions of one subject, behind its setting. :param shut: why that can't be; "": it can."""
        if not shut and its is not None:
            self._set(versions[0].subject, its)
        for one in versions:
            if shut:
                self._leave(one, f"not registered: {shut}")
            else:
                self._register(one)

    def _register(self, one: Version) -> None:
        """Register it, unless its place was taken since the target was read, or it needs one whose place was."""
        before = {place for place in self._left if place[0] == one.subject}
        if before or self._left.intersection(one.refers_to):
            self._leave(one, "not registered: it needs what was not registered, either")
            return
        # In mode IMPORT nobody else can register any more, and the registry would write over what is there.
        found = self._there(one)
        if found is not None:
            if found.id != one.id:
                self._leave(one, f"id {one.id} on the source, and id {found.id} on the target, registered meanwhile")
            return
        try:
            self._do(registering(one), partial(self._post, one))
        except BrokerError as e:
            if e.code not in _OF_ONE:
                raise
            self._leave(one, f"not registered: {e}")  # others need not wait for it
        else:
            self._came.add(one.place)
            self._look_at(one)

    def _look_at(self, one: Version) -> None:
        """Look whether the target has kept a version as it was sent: one that normalizes by itself rewrites it."""
        found = self._there(one) if self._way.sends_ids else None
        if found is not None and found.content != one.content:
            self.conflicts.append(
                f"{one} is id {one.id} on the source, and another schema (id {found.id}) on the target, which has "
                "rewritten it: look for normalize in its settings"
            )

    def _delete(self, one: Version, refused: Callable[[Version], object] | None = None) -> None:
        """Delete it, if the source says once more that it is deleted. :param refused: told, instead of people."""
        if one.place in self._left or not self._is_deleted(one):
            return
        if one.place in self._lacked and one.place not in self._came:  # somebody else's: not ours to delete
            self.conflicts.append(f"{one} is deleted on the source, and was registered on the target meanwhile")
            return
        path = f"/subjects{path_of(one.subject)}/versions/{one.number}"
        try:
            self._do(deleting(one), partial(self._target.ask, "DELETE", path))
        except BrokerError as e:  # what refers to it there may have come from elsewhere: nothing else waits for this
            if refused is None:
                self.conflicts.append(f"{one} is deleted on the source, and not on the target: {e}")
            else:
                refused(one)

    def _change_mode(self, name: str, mode: str | None) -> None:
        """Set a mode where there is none, or end mode IMPORT, as was seen; what was set meanwhile stays."""
        found = self._target.mode(name)
        if found == IMPORT or (mode is not None and found == ""):
            self._try(changing_mode(name, mode), partial(set_mode, self._target, name, mode))

    def _post(self, one: Version) -> None:
        self._way.bring(one)
        body = {**one.body, "id": one.id, "version": one.number} if self._way.sends_ids else one.body
        got = self._target.ask("POST", f"/subjects{path_of(one.subject)}/versions", body)
        if got is None or got.get("id") != one.id:
            raise NeedsHuman(
                f"{one} on the target", f"it was registered under id {(got or {}).get('id')} instead of {one.id}",
                "Delete it there. This registry does not keep ids: use another one.",
            )  # fmt: skip
        if not self._way.sends_ids and ((found := self._there(one)) is None or found.id != one.id):
            raise NeedsHuman(
                f"{one} on the target", "somebody has registered meanwhile, and it has another number",
                "Delete it there, and call it again.",
            )  # fmt: skip

    def _there(self, one: Version) -> Version | None:
        """Return what is at a version's place on the target; None: nothing is."""
        return version_at(self._target, one.subject, one.number, deleted=True)

    def _is_deleted(self, one: Version) -> bool:
        """Return whether the source says so once more: one that lags behind may have told less than it has."""
        return version_at(self._source, one.subject, one.number, none=True) is None

    def _touching(self, name: str) -> AbstractContextManager[str]:
        return self._way.opened(name) if self._way.held and name else nullcontext("")

    def _set_apart(self, name: str, its: Mapping[str, Any], how: Callable[[str, Mapping[str, Any]], object]) -> None:
        """Set it while no version of its subject comes. :param how: sets it."""
        with self._touching(name) as shut:
            if shut:
                self.conflicts.append(f"settings of {name} are not set: {shut}")
            else:
                how(name, its)

    def _set(self, name: str, its: Mapping[str, Any]) -> None:
        """Set what nobody has set; of all subjects there always is something, and an Apicurio tells that of each."""
        first, own = at_first(its), bool(name) and self._way.sends_ids
        found = settings_of(self._target, name) if own else None
        if found not in (None, first):
            self.conflicts.append(f"settings of {name} were set on the target meanwhile")
            return
        if found is None and not self._try(setting(name, first), partial(self._put, name, first)):
            return
        if first != its:
            self._unfinished[name] = its

    def _set_rest(self, name: str, its: Mapping[str, Any]) -> None:
        """Set all of what was set in part before the versions, unless somebody has changed that meanwhile."""
        if not name and self._way.held:
            self.conflicts.append("normalize of all subjects is not set: the target is in mode READONLY")
            return
        found = settings_of(self._target, name)
        if found is None or not at_first(its).items() <= found.items():
            self.conflicts.append(f"settings of {name or 'all subjects'} were set on the target meanwhile")
            return
        self._try(normalizing(name), partial(self._put, name, its))

    def _put(self, name: str, its: Mapping[str, Any]) -> None:
        self._target.ask("PUT", f"/config{path_of(name)}", its)

    def _leave(self, one: Version, why: str) -> None:
        self._left.add(one.place)
        self.conflicts.append(f"{one} is {why}")

    def _try(self, line: str, do: Callable[[], object]) -> bool:
        """As :meth:`_do`; False: the target refuses this one thing, which is named, and nothing else waits for it."""
        try:
            self._do(line, do)
        except BrokerError as e:
            if e.code not in _OF_ONE:
                raise
            self.conflicts.append(f"not done: {line}: {e}")
            return False
        return True

    def _do(self, line: str, do: Callable[[], object]) -> None:
        self._say(line)
        do()
        self.done.append(line)
