"""What a registry lacks of another one, in the order in which it can be given it. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import groupby, starmap
from typing import Any

from airflow_mirror.errors import InputError
from airflow_mirror.sync.schemas.held import IMPORT, READONLY, Held, Place, Version, context_of


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What is to be done so that a target holds what a source does, and what is not done.

    :param register: in an order in which what a version refers to comes before it; versions of one subject together,
        as far as that allows. :param delete: softly, in an order in which what refers to a version comes before it.
    :param settings, modes: to set; a mode of None: the subject has none of its own.
    :param conflicts: what the target has otherwise; it stays, and nothing that needs it is registered.
    """

    register: Sequence[Version]
    delete: Sequence[Version]
    settings: Mapping[str, Mapping[str, Any]]
    modes: Mapping[str, str | None]
    conflicts: Sequence[str]

    def lines(self) -> list[str]:
        """Return what is to be done, a line each."""
        return [
            *map(registering, self.register), *map(deleting, self.delete), *starmap(setting, self.settings.items()),
            *(normalizing(name) for name, its in self.settings.items() if its != at_first(its)),
            *starmap(changing_mode, self.modes.items()),
        ]  # fmt: skip


def registering(one: Version) -> str:
    """Return the line of a registration."""
    return f"register {one} as id {one.id}"


def deleting(one: Version) -> str:
    """Return the line of a soft deletion."""
    return f"delete {one}, softly"


def setting(name: str, its: Mapping[str, Any]) -> str:
    """Return the line of a setting."""
    return f"set {its['compatibility']} of {name or 'all subjects'}"


def at_first(its: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings as they are set while versions come: a registry that normalizes rewrites what it is given."""
    return {key: value for key, value in its.items() if key != "normalize" or not value}


def normalizing(name: str) -> str:
    """Return the line of the rest of a setting."""
    return f"set normalize of {name or 'all subjects'}"


def changing_mode(name: str, mode: str | None) -> str:
    """Return the line of a mode."""
    return f"set mode {mode} of {name}" if mode else f"end mode {IMPORT} of {name}"


def compare(
    here: Held, there: Held, keeps: Callable[[Version], str] = lambda _: "", *, complete: bool = False
) -> Difference:  # fmt: skip
    """Return what a target lacks of a source.

    Nothing of a subject that the target has is changed, as its applications may be there by now: not what the source
    deletes, sets or freezes. Only a mode IMPORT is ended in which an interrupted move leaves a subject of the source's.

    :param keeps: returns why the target would give a version another id or number; "": it would not.
    :param complete: soft deletions, settings and modes come also where the target has the subject.
    :raises InputError: schemas refer to each other in a circle.
    """
    conflicts, left, register, delete = list[str](), set[Place](), list[Version](), list[Version]()
    ids = {one.known_as: one for one in there.versions.values()}
    for place, earlier in _ordered(here.versions):
        one, other = here.versions[place], there.versions.get(place)
        why = ""
        if other is not None and (other.id, other.content) != (one.id, one.content):
            what = f"id {other.id}" if other.content == one.content else f"another schema (id {other.id})"
            why = f"id {one.id} on the source, and {what} on the target"
        elif other is None and (same := ids.get(one.known_as)) is not None and same.content != one.content:
            why = f"id {one.id}, which is {same} on the target, another schema"
        elif other is None and (held := _held_by(one.subject, there.modes)):
            why = f"not registered: {held}"
        elif other is None:
            needed = [f"{s} version {n}" for s, n in (*one.refers_to, *earlier) if (s, n) in left]
            why = f"not registered: it needs {', '.join(needed)}" if needed else keeps(one)
        elif other.deleted and not one.deleted:
            conflicts.append(f"{one} is deleted on the target")
        elif one.deleted and not other.deleted and not complete:
            conflicts.append(f"{one} is deleted on the source, and not on the target")
        if why:
            conflicts.append(f"{one} is {why}")
            left.add(place)
            continue
        register += [one] * (other is None)
        delete += [one] * (one.deleted and (other is None or (complete and not other.deleted)))
    conflicts += [f"{one} is on the target alone" for place, one in there.versions.items() if place not in here.versions]
    own = _own(here, there, conflicts, complete=complete)
    # Backwards: a registry refuses to delete what a version refers to that is not deleted.
    return Difference(register=register, delete=delete[::-1], conflicts=conflicts, **own)


def _held_by(subject: str, modes: Mapping[str, str]) -> str:
    """Return why somebody keeps others from registering in a subject, by its own mode or its context's; "": nobody."""
    own, context = modes.get(subject), f":{context_of(subject)}:"
    if own is not None and own.startswith(READONLY):
        return f"it has mode {own} of its own on the target"
    if modes.get(context, "").startswith(READONLY):
        return f"context {context} has mode {modes[context]} on the target"
    return ""


def _own(here: Held, there: Held, conflicts: list[str], *, complete: bool) -> dict[str, Any]:
    """Return the settings and modes to set; what differs otherwise is added to ``conflicts``."""
    settings, modes = dict[str, Mapping[str, Any]](), dict[str, str | None]()
    known, moved = {subject for subject, _ in there.versions}, {subject for subject, _ in here.versions}
    known |= {f":{context_of(subject)}:" for subject in known} | ({""} if known else set())
    for name, its in here.settings.items():
        has, first = there.settings.get(name), name not in known and not _held_by(name, there.modes)
        # Those of all subjects are there by default; while there are no subjects they are nobody's.
        begun = complete and its != at_first(its) == has
        if (has is None and (first or complete)) or (has != its and name == "" and first) or begun:
            settings[name] = its
        elif has != its:
            told = f"{_said(its)} on the source, {_said(has) if has else 'none'} on the target"
            conflicts.append(f"settings of {name or 'all subjects'} differ: {told}")
    for name in sorted({*here.modes, *there.modes}):
        found = there.modes.get(name)
        # A mode IMPORT is a move that goes on, and no setting. On the target a move leaves subjects of its own in it; a
        # context, or a subject from elsewhere, is an exporter's.
        wanted = None if here.modes.get(name) == IMPORT else here.modes.get(name)
        left = found == IMPORT and name in moved
        if left or (complete and wanted and found is None):
            modes[name] = wanted if complete else None
        if wanted != modes.get(name, found):
            conflicts.append(f"mode of {name}: {wanted or 'none'} on the source, {found or 'none'} on the target")
    return {"settings": settings, "modes": modes}


def _said(its: Mapping[str, Any]) -> str:
    return f"{its['compatibility']}{', normalize' if its.get('normalize') else ''}"


def _ordered(versions: Mapping[Place, Version]) -> list[tuple[Place, list[Place]]]:
    """Return all places, each with the one before it in its subject, so that what a version refers to comes before it.

    Subject by subject, but for what others refer to.
    """
    needs, earlier = dict[Place, list[Place]](), dict[Place, list[Place]]()
    for _, its in groupby(sorted(versions), lambda place: place[0]):
        before = list[Place]()
        for place in its:
            earlier[place] = before
            needs[place] = [*before, *(one for one in versions[place].refers_to if one in versions)]
            before = [place]
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as e:
        raise InputError("schemas of the source", f"they refer to each other in a circle: {e.args[1][:3]}", "") from None
    order = dict[Place, None]()
    for place in sorted(needs):
        waiting = [place]
        while waiting:  # no recursion: a chain may be as long as a history
            missing = [one for one in needs[waiting[-1]] if one not in order]
            if missing:
                waiting.append(missing[0])
            else:
                order[waiting.pop()] = None
    return [(place, earlier[place]) for place in order]
