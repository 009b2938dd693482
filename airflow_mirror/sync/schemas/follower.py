"""Schemas follow while a tail runs: what the source's registry has and the target's lacks is registered there.

The order of writing, what differs and what a crash leaves are those of :mod:`.move`. Each change takes the tail's right
to write, so that nothing is registered behind an opening. A pass asks each registry four times a subject and once a
version.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from airflow_mirror.config import ClientConfig
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.passes import Pass, PassReport, listed
from airflow_mirror.sync.schemas.move import move
from airflow_mirror.sync.schemas.registry import Registry

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class SchemaFollowReport(PassReport):
    """One pass over both registries; see :class:`.move.MoveReport`.

    :param versions: of the source's. :param done: by this pass. :param differs: what stays as the target has it.
    """

    head = "{versions:version} of schemas kept level"
    versions: int = 0
    done: list[str] = listed()
    differs: list[str] = listed("differ on the target", said="schemas don't follow: {line}", most=3)


def registries(mirror: Mirror, source: ClientConfig, target: ClientConfig) -> tuple[Registry, Registry]:
    """Return the registries of a Mirror that lets schemas follow, unasked. Errors as :meth:`.Registry.beside`."""
    here, there = mirror.source_registry or "", mirror.target_registry or ""  # Mirror sees to it that both are named
    return Registry.beside(source, here), Registry.beside(target, there)


class SchemaFollower(Pass[SchemaFollowReport]):
    """Keeps the target's registry level with the source's."""

    report = SchemaFollowReport

    def make(self, plan: Plan, now_ms: int, report: SchemaFollowReport) -> None:
        """Make one pass. Errors as :func:`.move.move`.

        :raises InputError: a registry's name leads nowhere, or the settings can't be read.
        """
        here, there = self._registries()
        found = move(here, there, dry_run=False, say=lambda line: log.info("schemas: %s", line))
        report.versions, report.done, report.differs = found.versions, [*found.done], [*found.conflicts]
        report.left_out += found.left_out

    def _registries(self) -> tuple[Registry, Registry]:
        """Return both by what their settings say now: a tail lives longer than a password."""
        source, target = self._sides.source.config.as_now(), self._sides.target.config.as_now()
        here, there = registries(self._mirror, source, target)
        # Who stops it waits for what is being written, not for thousands of answers.
        going = self._right.require_going
        return here.by_right(self._granted, going), there.by_right(self._granted, going)
