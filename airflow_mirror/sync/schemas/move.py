"""Move what a registry holds to another one, with its ids, by API: what the target lacks, one thing after the other.

Each step is what is still missing, so a move that was killed goes on when it is called again, and one that is done does
nothing. Nothing that the target has is overwritten: what differs is named, and left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from airflow_mirror.errors import InputError, MirrorError, NeedsHuman
from airflow_mirror.sync.schemas import apicurio
from airflow_mirror.sync.schemas.difference import Difference, compare
from airflow_mirror.sync.schemas.held import IMPORT, Held, Version, path_of, read
from airflow_mirror.sync.schemas.hold import HELD, READONLY, hold, mode_of, open_in
from airflow_mirror.sync.schemas.registry import Registry


@dataclass(frozen=True, kw_only=True)
class MoveReport:
    """What was done, or would be. :param conflicts: what differs, and stays. :param left_out: what can't be moved."""

    done: Sequence[str]
    conflicts: Sequence[str]
    left_out: Sequence[str]
    versions: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


class _Way(Protocol):
    """How ids are kept.

    :ivar sends_ids: with each registration. :ivar held: nobody may register, but in a mode of a subject's own.
    :ivar modes: of subjects and contexts, as they were before.
    """

    sends_ids: bool
    held: bool
    modes: Mapping[str, str]

    def begin(self, one: Version) -> None:
        """Make it possible that the next registration keeps its id."""

    def touch(self, name: str) -> None:
        """Make it possible that something of a subject or a context is changed, in a registry that is held."""

    def end(self) -> None:
        """Leave the target as it is to be."""


class _ByMode:
    """In mode IMPORT, which a subject is given when its first version comes, and loses when all have come."""

    sends_ids = True

    def __init__(self, target: Registry, there: Held) -> None:
        if (mode := target.ask("GET", "/mode", none=True)) is None:
            raise InputError(
                "the target's schema registry", "it has no modes, and is no Apicurio: no id could be kept",
                "Move the registry's own topic instead, or use a registry with mode IMPORT.",
            )  # fmt: skip
        self._target, self.modes, self._begun = target, there.modes, set[str]()
        self.held = mode["mode"] == READONLY

    def begin(self, one: Version) -> None:
        """Set the mode."""
        self._open(one.subject)

    def touch(self, name: str) -> None:
        """Set the mode as well, if nothing could be changed otherwise."""
        if self.held:
            self._open(name)

    def _open(self, name: str) -> None:
        """Forced: what a killed move has left is not empty any more."""
        if name not in self._begun:
            self._begun.add(name)  # an answer may be lost
            self._target.ask("PUT", f"/mode{path_of(name)}?force=true", {"mode": IMPORT})

    def end(self) -> None:
        """Take it away again; also where the right to register was lost meanwhile.

        Left there, nobody could register under that subject. Late, it ends another one's move for a pass, and no id.
        """
        for subject in sorted(self._begun):
            had = self.modes.get(subject)
            _set_mode(self._target.freely, subject, None if had == IMPORT else had)


class _ByContents:
    """By Apicurio's own import, of contents."""

    sends_ids, held = False, False
    modes: Mapping[str, str] = {}

    def __init__(self, target: Registry, here: apicurio.Export) -> None:
        self._target, self._here = target, here

    def begin(self, one: Version) -> None:
        """Import the content."""
        apicurio.bring(self._target, self._here, one.id)

    def touch(self, name: str) -> None:
        """Nothing holds it."""

    def end(self) -> None:
        """There is nothing to end."""


def move(
    source: Registry, target: Registry, *, dry_run: bool, keep_out: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> MoveReport:  # fmt: skip
    """Give the target what it lacks of the source. :param say: is told each step, before it is done.

    :param keep_out: others: hold the target, before its first version comes; see :mod:`.hold`.
    :raises InputError: the target can't keep ids, or can't be held, or both are one registry.
    :raises TryAgain, BrokerError: a registry is away, or refuses. What was done stays, and is not done again.
    :raises NeedsHuman: the target has given another id than it was sent.
    """
    if source.url == target.url:
        raise InputError("schema registries", f"both are {source.url}", "Correct one of them.")
    to_hold = keep_out and mode_of(target) != READONLY
    exported, there = (apicurio.export(one) if one.native else None for one in (source, target))
    here = read(source) if exported is None else exported.held
    if there is None:
        held = read(target, also=here)
        way: _Way = _ByMode(target, held)
        todo = compare(here, held)
    elif exported is None:
        raise InputError(
            "the target's schema registry", "Apicurio keeps ids by its own export and import, and the source is none",
            "Use a registry whose API has the mode IMPORT.",
        )  # fmt: skip
    else:
        way = _ByContents(target, exported)
        todo = compare(here, there.held, apicurio.keeper(exported, there))
    if not dry_run:
        try:
            _fill(target, todo, way, say, to_hold=to_hold)
        except MirrorError:
            # What is refused once may be refused for ever: no subject stays in mode IMPORT until it is not.
            with suppress(MirrorError):
                way.end()
            raise
        way.end()
        for name, mode in todo.modes.items():
            _set_mode(target, name, mode)
    own = {name: mode for name, mode in {**way.modes, **todo.modes}.items() if mode}
    return MoveReport(
        done=[*([HELD] if to_hold else []), *todo.lines()], conflicts=todo.conflicts,
        left_out=[*here.left_out, *(open_in(own) if keep_out else [])], versions=len(here.versions),
    )  # fmt: skip


def _fill(target: Registry, todo: Difference, way: _Way, say: Callable[[str], object], *, to_hold: bool) -> None:
    """Do what is to be done, but for modes.

    The setting of all subjects comes first, while the target is empty: who goes on after a kill can't tell a default from
    a setting. Without a mode IMPORT it would be gone by when versions are registered, and so comes last.
    """
    settings = sorted(todo.settings.items())
    first = [one for one in settings if one[0] == "" and way.sends_ids]
    _set(target, first)
    if to_hold:
        say(HELD)
        hold(target)
        way.held = True
    for one in todo.register:
        say(f"register {one} as id {one.id}")
        way.begin(one)
        body = {**one.body, "id": one.id, "version": one.number} if way.sends_ids else one.body
        got = target.ask("POST", f"/subjects{path_of(one.subject)}/versions", body)
        if got is None or got.get("id") != one.id:
            raise NeedsHuman(
                f"{one} on the target", f"it was registered under id {(got or {}).get('id')} instead of {one.id}",
                "Delete it there. This registry does not keep ids: use another one.",
            )  # fmt: skip
    for one in todo.delete:
        say(f"delete {one}, softly")
        way.touch(one.subject)
        target.ask("DELETE", f"/subjects{path_of(one.subject)}/versions/{one.number}")
    rest = [one for one in settings if one not in first]
    for name, _ in rest:
        way.touch(name)
    _set(target, rest)


def _set(registry: Registry, settings: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    for name, its in settings:
        registry.ask("PUT", f"/config{path_of(name)}", its)


def _set_mode(registry: Registry, name: str, mode: str | None) -> None:
    """Set the mode of a subject or a context; None: it has none of its own."""
    if mode is None:
        registry.ask("DELETE", f"/mode{path_of(name)}")
    else:
        registry.ask("PUT", f"/mode{path_of(name)}", {"mode": mode})
