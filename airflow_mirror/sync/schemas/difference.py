"""What a registry lacks of another one, in the order in which it can be given it. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from typing import Any

from airflow_mirror.errors import InputError
from airflow_mirror.sync.schemas.held import IMPORT, Held, Place, Version


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What is to be done so that a target holds what a source does, and what is not done.

    :param register: in an order in which what a version refers to comes before it. :param delete: softly.
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
            *(f"register {one} as id {one.id}" for one in self.register),
            *(f"delete {one}, softly" for one in self.delete),
            *(f"set {its['compatibility']} of {name or 'all subjects'}" for name, its in self.settings.items()),
            *(f"set mode {its} of {name}" if its else f"end mode IMPORT of {name}" for name, its in self.modes.items()),
        ]  # fmt: skip


def compare(here: Held, there: Held, keeps: Callable[[Version], str] = lambda _: "") -> Difference:
    """Return what a target lacks of a source. Nothing that it has is to be changed, but for a soft deletion that follows,
    and a mode IMPORT, in which an interrupted move leaves a subject of the source's.

    :param keeps: returns why the target would give a version another id or number; "": it would not.
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
        elif other is None:
            needed = [f"{s} version {n}" for s, n in (*one.refers_to, *earlier) if (s, n) in left]
            why = f"not registered: it needs {', '.join(needed)}" if needed else keeps(one)
        elif other.deleted and not one.deleted:
            conflicts.append(f"{one} is deleted on the target")
        if why:
            conflicts.append(f"{one} is {why}")
            left.add(place)
            continue
        register += [one] * (other is None)
        delete += [one] * (one.deleted and not (other is not None and other.deleted))
    conflicts += [f"{one} is on the target alone" for place, one in there.versions.items() if place not in here.versions]
    return Difference(register=register, delete=delete, conflicts=conflicts, **_own(here, there, conflicts))


def _own(here: Held, there: Held, conflicts: list[str]) -> dict[str, Any]:
    """Return the settings and modes to set; what differs otherwise is added to ``conflicts``."""
    settings = dict[str, Mapping[str, Any]]()
    for name, its in here.settings.items():
        has = there.settings.get(name)
        if has is None or (has != its and name == "" and not there.versions):
            settings[name] = its
        elif has != its:
            told = f"{its['compatibility']} on the source, {has['compatibility']} on the target"
            conflicts.append(f"settings of {name or 'all subjects'} differ: {told}")
    modes, moved = dict[str, str | None](), {subject for subject, _ in here.versions}
    for name in sorted({*here.modes, *there.modes}):
        wanted, found = here.modes.get(name), there.modes.get(name)
        # In mode IMPORT a move leaves subjects of its own; a context, or a subject from elsewhere, is an exporter's.
        if wanted != found and (found is None or (found == IMPORT and name in moved)):
            modes[name] = wanted
        elif wanted != found:
            conflicts.append(f"mode of {name}: {wanted or 'none'} on the source, {found} on the target")
    return {"settings": settings, "modes": modes}


def _ordered(versions: Mapping[Place, Version]) -> list[tuple[Place, list[Place]]]:
    """Return all places, each with the one before it in its subject, so that what a version refers to comes before it."""
    order, earlier = TopologicalSorter[Place](), dict[Place, list[Place]]()
    for _, its in groupby(sorted(versions), lambda place: place[0]):
        before = list[Place]()
        for place in its:
            order.add(place, *before, *(one for one in versions[place].refers_to if one in versions))
            earlier[place], before = before, [place]
    try:
        return [(place, earlier[place]) for place in order.static_order()]
    except CycleError as e:
        raise InputError("schemas of the source", f"they refer to each other in a circle: {e.args[1][:3]}", "") from None
