"""JobSpec: the specification of one Spark job. A value; it holds no secret and is passed as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_mirror.errors import InvalidField

KINDS = ("bulk_copy", "streaming_tail", "verify")
# Kinds that write to the target. At most one of them runs for a mirror.
WRITERS = frozenset({"bulk_copy", "streaming_tail"})
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What a job does. Two specs with the same :attr:`hash` describe the same work.

    :param kind: ``bulk_copy``, ``streaming_tail`` or ``verify``.
    :param mirror: a Mirror as a dict.
    :param args: additional command line arguments of the job, such as ``("--end", "2026-01-01T00:00:00Z")``.
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
    :raises InvalidField: the kind is unknown.
    """

    kind: str
    mirror: Mapping[str, Any]
    args: tuple[str, ...] = ()
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    master: str = "local[*]"
    inputs: str = ""
    plan: str = ""
    replaces: str = ""
    metrics: str = ""
    alarm: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidField("kind", self.kind, "no such Spark job", f"Use one of {', '.join(KINDS)}.")
        object.__setattr__(self, "args", tuple(str(a) for a in self.args))

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
        return {"version": VERSION, **asdict(self), "args": list(self.args)}

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
