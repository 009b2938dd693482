"""JobSpec: the specification of one Spark job. A value; it holds no secret and is passed as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.request import REQUESTS

# Kinds that write to the target. At most one of them runs for a mirror.
WRITERS = frozenset({"bulk_copy", "streaming_tail"})
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What a job does. Two specs with the same :attr:`hash` describe the same work.

    :param kind: ``bulk_copy``, ``streaming_tail`` or ``verify``.
    :param mirror: a Mirror as a dict.
    :param options: other fields of the job's request (:mod:`airflow_mirror.jobs.request`), such as ``end``.
    :param spark_conf: Spark settings on top of the runner's own.
    :param master: Spark master; ``local[*]`` unless a cluster is named.
    :param inputs: digest of what the job reads besides its arguments, so that a changed plan makes another job.
    :param plan: path of the plan file. Not part of the hash: an older job may already do what a new plan says, which
        ``inputs`` shows.
    :param replaces: a tail that was found to be lost, with its last sign; the new one need not listen for it again. Not
        part of the hash.
    :param metrics: file for the figures of a job that copies; empty: none. Not part of the hash either: whoever begins to
        watch a mirror finds its job running.
    :param alarm: path of the function by which a tail's guard calls a person; "": none. Not part of the hash.
    :raises InvalidField: the kind, or an option, is unknown.
    """

    kind: str
    mirror: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    master: str = "local[*]"
    inputs: str = ""
    plan: str = ""
    replaces: str = ""
    metrics: str = ""
    alarm: str = ""

    def __post_init__(self) -> None:
        if self.kind not in REQUESTS:
            raise InvalidField("kind", self.kind, "no such Spark job", f"Use one of {', '.join(REQUESTS)}.")
        if unknown := self.options.keys() - {one.name for one in fields(REQUESTS[self.kind])}:
            raise InvalidField("options", sorted(unknown), f"no field of a {self.kind} job", "Leave it out.")

    @property
    def hash(self) -> str:
        """16 hex digits over everything that defines the job."""
        asked = {k: v for k, v in self.to_dict().items() if k not in ("plan", "replaces", "metrics", "alarm")}
        text = json.dumps(asked, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def writes(self) -> bool:
        """Whether the job writes to the target."""
        return self.kind in WRITERS

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; ``from_dict`` is its inverse."""
        return {"version": VERSION, **asdict(self)}

    def request(self, source: str, target: str, **where: Any) -> dict[str, Any]:
        """Return the job's request, JSON-ready: references to settings, never settings.

        :param where: fields that depend on where the driver runs.
        """
        asked: dict[str, Any] = {"mirror": dict(self.mirror), "source": source, "target": target, **where}
        if (
            self.kind == "streaming_tail"
        ):  # whoever keeps a tail hears by its end that a cluster is away, and starts it again
            asked |= {"fail_fast": True, "replaces": self.replaces, "alarm": self.alarm}
        return asked | dict(self.options)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> JobSpec:
        """Build from the result of ``to_dict``.

        :raises InvalidField: it was written by another version.
        """
        if values.get("version") != VERSION:
            raise InvalidField("version", values.get("version"), "unknown job spec", f"This software reads {VERSION}.")
        return cls(**{k: v for k, v in values.items() if k != "version"})


def is_local(master: str) -> bool:
    """Return whether tasks run on this machine, with this environment."""
    return master.startswith("local[") or master == "local"
