"""How a version comes to stand under the id that it has: by a mode of its subject, or by what was imported before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Protocol

from airflow_mirror.errors import InputError, MirrorError
from airflow_mirror.sync.schemas import apicurio
from airflow_mirror.sync.schemas.held import IMPORT, READONLY, Held, Version, path_of
from airflow_mirror.sync.schemas.registry import Registry


class Way(Protocol):
    """How ids are kept.

    :ivar sends_ids: with each registration. :ivar held: nobody may register, but in a mode of a subject's own.
    :ivar modes: of subjects and contexts, as they were before.
    """

    sends_ids: bool
    held: bool
    modes: Mapping[str, str]

    @contextmanager
    def opened(self, subject: str) -> Iterator[str]:
        """Have registrations of the block keep their ids, in one subject, and others keep out of it.

        Yields why that can't be; "": it is so.
        """
        yield ""

    def bring(self, one: Version) -> None:
        """Make it possible that the next registration keeps its id."""


class ByMode:
    """In mode IMPORT, which a subject has only while its versions come: at most one at a time."""

    sends_ids = True

    def __init__(self, target: Registry, there: Held) -> None:
        if (mode := target.ask("GET", "/mode", none=True)) is None:
            raise InputError(
                "the target's schema registry", "it has no modes, and is no Apicurio: no id could be kept",
                "Move the registry's own topic instead, or use a registry with mode IMPORT.",
            )  # fmt: skip
        self._target, self.modes = target, there.modes
        self.held = mode["mode"] == READONLY

    @contextmanager
    def opened(self, subject: str) -> Iterator[str]:
        """Set the mode, and take it away again, whatever happens.

        Left there, nobody could register in that subject any more. So that needs no right, and comes as soon as may be.
        """
        had = self._target.mode(subject)  # of now: since the target was read somebody may have shut it
        if had.startswith(READONLY):
            yield f"it has mode {had} of its own on the target"
            return
        try:
            # Forced: it is not empty, if it is not the first time. An answer may be lost.
            self._target.ask("PUT", f"/mode{path_of(subject)}?force=true", {"mode": IMPORT})
            yield ""
        except BaseException:
            with suppress(MirrorError):
                self._close(subject, had)
            raise
        self._close(subject, had)

    def _close(self, subject: str, had: str) -> None:
        """Unless somebody else has set another one meanwhile. Late, it ends another one's move for a pass, and no id."""
        target = self._target.freely
        if target.mode(subject) == IMPORT:
            set_mode(target, subject, None if had in ("", IMPORT) else had)

    def bring(self, one: Version) -> None:
        """It comes with its registration."""


class ByContents:
    """By Apicurio's own import, of contents."""

    sends_ids, held = False, False
    modes: Mapping[str, str] = {}

    def __init__(self, target: Registry, here: apicurio.Export) -> None:
        self._target, self._here = target, here

    @contextmanager
    def opened(self, subject: str) -> Iterator[str]:
        """Nothing keeps others out."""
        yield ""

    def bring(self, one: Version) -> None:
        """Import the content."""
        apicurio.bring(self._target, self._here, one.id)


def set_mode(registry: Registry, name: str, mode: str | None) -> None:
    """Set the mode of a subject or a context; None: it has none of its own."""
    if mode is None:
        registry.ask("DELETE", f"/mode{path_of(name)}")
    else:
        registry.ask("PUT", f"/mode{path_of(name)}", {"mode": mode})
