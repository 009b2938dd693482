"""Release the target's registry behind a cutover: from then on applications register there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from airflow_mirror.cutover.request import Additions
from airflow_mirror.errors import InputError, MirrorError, RegistryStillHeld
from airflow_mirror.mirror import Mirror
from airflow_mirror.sync.schemas.hold import mode_of, release, what_was_done
from airflow_mirror.sync.schemas.registry import Registry


def release_after(registry: Registry) -> str:
    """Do it behind a cutover, and return what there is to say.

    :raises RegistryStillHeld: it can't be done now.
    """
    try:
        released = release(registry)
    except MirrorError as e:
        raise RegistryStillHeld(registry.role, str(e)) from e
    return what_was_done(registry, released)


def with_release(
    additions: Additions, mirror: Mirror, registry: Callable[[str, str], Registry], say: Callable[[str], object]
) -> Additions:
    """Return what a cutover does beside its steps, with the release of its target's registry behind the opening.

    :param registry: returns that of a role by what the mirror names.
    :raises InputError: the mirror names none. Before the fence it raises also what :func:`.mode_of` does.
    """
    if mirror.target_registry is None:
        raise InputError(f"mirror {mirror.name!r}", "it names no registry to release", "Set target_registry.")
    held = registry("target", mirror.target_registry)

    def require() -> None:
        additions.require()
        mode_of(held)

    def afterwards() -> None:
        additions.afterwards()
        say(release_after(held))

    return replace(additions, require=require, afterwards=afterwards)
