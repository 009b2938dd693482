"""Which schema registries a command is about: those of the mirror's plan, or others that are named instead."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace

from airflow_mirror.console.home import hooks_of
from airflow_mirror.cutover.request import Prove
from airflow_mirror.errors import InputError
from airflow_mirror.extras.schemas.proof import prover
from airflow_mirror.mirror import Mirror
from airflow_mirror.sync.schemas.registry import Registry, is_named_here

_HELP = "address, a file of properties, or an Airflow connection"


def add_registries(p: argparse._ActionsContainer) -> None:
    """Add ``--source-registry`` and ``--target-registry``."""
    for role in ("source", "target"):
        p.add_argument(
            f"--{role}-registry", metavar="REGISTRY",
            help=f"the {role}'s schema registry: its {_HELP} (default: the one in the mirror's plan)",
        )  # fmt: skip


def named_registries(arguments: argparse.Namespace, mirror: Mirror, *, turned: bool = False) -> Mirror:
    """Return a mirror with the registries that are named instead of its own.

    :param turned: it is the way back of the mirror whose roles the options have.
    :raises InvalidField: only one of both is named.
    """
    named = arguments.source_registry, arguments.target_registry
    given = dict(zip(("source_registry", "target_registry"), named[::-1] if turned else named, strict=True))
    return replace(mirror, **{name: value for name, value in given.items() if value})


def prover_of(
    arguments: argparse.Namespace, mirror: Mirror, *, each: int = 200, turned: bool = False
) -> Prove | None:  # fmt: skip
    """Return what proves the schemas of a planned mirror; None: there are no registries.

    :param each, turned: as for :func:`.prover` and :func:`named_registries`. Errors as theirs.
    """
    return prover(named_registries(arguments, mirror, turned=turned), registry_of, each)


def registry_of(role: str, name: str) -> Registry:
    """Return a registry by its name.

    :raises InputError: the name leads nowhere; errors as :meth:`.Registry.by`.
    """
    if is_named_here(name):
        return Registry.of(role, name)
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")  # as for clusters
    if (hooks := hooks_of("registries")) is None:
        raise InputError(
            f"{role} registry {name!r}", "neither an address nor a file of properties, and Airflow is not installed",
            f"Correct it, or name another one: --{role}-registry.",
        )  # fmt: skip
    found: Registry = hooks.registry_of(role, name)
    return found
