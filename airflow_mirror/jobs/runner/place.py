"""Where the driver of a job runs, and what that changes: how it is started, seen and ended. One module for each place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from airflow_mirror.config import ClientConfig
from airflow_mirror.jobs.runner.spec import JobSpec

PLAIN = "plain"  # plain processes on this host


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The process that submits a job.

    :param environment: all of it.
    :param descriptors: open files that it inherits; the caller closes its own once the process is started.
    """

    command: list[str]
    environment: Mapping[str, str] = field(repr=False)  # may hold secrets
    descriptors: tuple[int, ...] = ()


class Place(Protocol):
    """Where drivers run. Handles are those of :class:`.local.LocalRunner`."""

    @property
    def name(self) -> str:
        """``client``, ``yarn``, ``kubernetes`` or :data:`PLAIN`; kept in the handle."""

    def launch(self, spec: JobSpec, directory: Path, secrets: Mapping[str, ClientConfig]) -> Launch:
        """Return how to submit the job of a job directory.

        :raises InputError: it can't run there as it is described; nothing was started.
        """

    def reaches(self, handle: Mapping[str, Any]) -> bool:
        """Return whether the job can be judged and ended from this host."""

    def is_alive(self, handle: Mapping[str, Any]) -> bool | None:
        """Return whether the job may still do something; None if that can't be known. Its status file is as new then.

        :raises TryAgain: nobody who knows can be asked.
        """

    def is_away(self, handle: Mapping[str, Any]) -> bool:
        """Return whether the job needs no process of this host any more, and is heard wherever its target is reached."""

    def stop(self, handle: Mapping[str, Any], grace_s: float) -> bool:
        """End a job that :meth:`reaches` reaches; return whether it stopped by itself within ``grace_s`` seconds."""

    def kill(self, job: str) -> bool:
        """End the application of the job with this id, whoever submitted it; return whether there was one."""

    def clean_up(self, handle: Mapping[str, Any], ended_well: bool) -> None:
        """End what a job that is over has left running.

        :param ended_well: it has written a final state, so that its last processes are about to end.
        """

    def close(self) -> None:
        """Give up connections. The place can still be used."""
