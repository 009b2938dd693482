"""Hold a registry: nobody registers a schema in it, until the cutover has opened the target.

By the mode of the whole registry, READONLY. A subject or a context with a mode of its own goes by that: so a move goes on
registering, in mode IMPORT of one subject, and so does everybody where somebody has given one READWRITE. Such are named.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_mirror.errors import InputError, NeedsHuman
from airflow_mirror.sync.schemas.held import READONLY, READWRITE
from airflow_mirror.sync.schemas.registry import Registry

HELD = f"set mode {READONLY} of the whole registry"


def mode_of(registry: Registry) -> str:
    """Return the mode of a whole registry. Errors as :meth:`.Registry.ask`.

    :raises InputError: it has none.
    """
    found = registry.ask("GET", "/mode", none=True)
    if found is None:
        raise InputError(
            f"the {registry.role}'s schema registry", "it has no modes, so it can't be held",
            "Keep writers out of it by its own rights, or by the network.",
        )  # fmt: skip
    return str(found["mode"])


def hold(registry: Registry) -> None:
    """Hold it. Errors as :func:`mode_of`.

    :raises NeedsHuman: it is in a mode that somebody else has set, or does not keep this one.
    """
    found = mode_of(registry)
    if found == READWRITE:
        registry.ask("PUT", "/mode", {"mode": READONLY})
        found = mode_of(registry)
    if found != READONLY:
        raise NeedsHuman(
            f"the {registry.role}'s schema registry", f"it is in mode {found}, and is not held",
            f"Find out who has set that, and set {READWRITE}.",
        )  # fmt: skip


def release(registry: Registry) -> bool:
    """Let everybody register again; False: it was not held. Errors as :func:`mode_of`."""
    if mode_of(registry) != READONLY:
        return False
    registry.ask("PUT", "/mode", {"mode": READWRITE})
    return True


def what_was_done(registry: Registry, released: bool) -> str:
    """Say what :func:`release` has returned."""
    return f"the {registry.role}'s schema registry {'takes schemas again' if released else 'was not held'}"


def open_in(modes: Mapping[str, str]) -> list[str]:
    """Return who may register in a registry that is held, a line each. :param modes: of subjects and contexts."""
    return [
        f"{name} is not held: it has mode {mode} of its own"
        for name, mode in modes.items()
        if not mode.startswith(READONLY)
    ]
