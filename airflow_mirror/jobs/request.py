"""What one run of a job is asked to do: a value, from a command line or from the file that the job's starter has written.

A field is one declaration (:mod:`airflow_mirror.common.knobs`): what it takes, what it means, and its option. It holds no
secret: clusters are references (:func:`airflow_mirror.config.load`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Self

from airflow_mirror.common.knobs import check, knob, one_of, seconds, switch, text, whole
from airflow_mirror.mirror import Mirror
from airflow_mirror.verify.result import LEVELS

LATE_S = 300.0  # how late a window's last records may arrive
LISTED = 2000  # partitions with series of their own: some 4 MB
TURN_S = 600.0  # of a tail whose tasks don't hear the driver, and between two looks at how they share the load
_run = partial(knob, section="this run")
_spark = partial(knob, section="on Spark")
_figures = partial(knob, section="figures for Prometheus")
_LATE = knob(
    LATE_S, seconds(0, 1e9), "with --end ISO: how late its last records may arrive, in seconds", "--late-s", "S"
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """What every job takes.

    :param source: reference to the settings of the cluster to read. :param target: likewise, of the one to write.
    :param start: where this run begins, if not where the Mirror says: a time, ``earliest`` or ``latest``.
    :param report: key of the reports of a job that was submitted in cluster mode.
    :param tasks: so many Spark tasks, or plain processes, copy at the same time; None: as the cores allow.
    :raises InvalidField: a value makes no sense. Nothing was touched.
    """

    mirror: Mirror
    source: str
    target: str
    start: str = ""
    plan: str = _run("", text(), "plan.json; without it the job makes a plan and creates topics", "--plan", "FILE")
    no_probe: bool = _run(False, switch(), "don't try out the rights on the target with a scratch topic", "--no-probe")
    report: str = _run("", text(), "", "--report")
    job_dir: str = _run("", text(), "directory of status.json while the job runs", "--job-dir", "DIR")
    tasks: int | None = _spark(
        None, whole(1, "no number of tasks", "Give 1 or more."),
        "number of Spark tasks (default: from the cluster's cores and the bytes)", "--tasks", "N",
    )  # fmt: skip
    settings_from: str = _spark(
        "driver", one_of("driver", "executor"),
        "on a Spark cluster: the driver hands the clusters' settings to its tasks, in memory, or each executor reads "
        "--source and --target", "--settings-from",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check(self)
        if self.start:
            object.__setattr__(self, "mirror", replace(self.mirror, start=self.start))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; ``from_dict`` is its inverse."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"mirror": self.mirror.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from the result of ``to_dict``, in which fields with their defaults may be missing."""
        return cls(**{**values, "mirror": Mirror.from_dict(values["mirror"])})


@dataclass(frozen=True, kw_only=True)
class CopyRequest(JobRequest):
    """What a job that writes to the target takes besides."""

    hold: bool = knob(
        False, switch(),
        "without --plan: turn retention and compaction off on target topics that already hold data, instead of refusing "
        "them", "--hold",
    )  # fmt: skip
    give_up_after_s: float | None = knob(
        None, seconds(0.001, math.inf, optional=True),
        "how long a partition may make no progress before it is given up, in seconds; inf: never (default: 120, and 600 "
        "while nobody can tell whether this job may write). A tail tries it again", "--give-up-after-s", "S",
    )  # fmt: skip
    abort_on_send_failure: bool = knob(
        False, switch(),
        "end the job with the first partition that stops, instead of copying the others; a tail that is to end because "
        "the target is away needs --give-up-after-s as well", "--abort-on-send-failure",
    )  # fmt: skip
    no_progress: bool = knob(
        False, switch(),
        "open no port for the tasks' reports: positions are read from the clusters, counters are known at the end",
        "--no-progress",
    )  # fmt: skip
    metrics_file: str = _figures(
        "", text(),
        "rewritten every few seconds, for node_exporter's textfile collector (a name that ends in .prom)",
        "--metrics-file", "FILE",
    )  # fmt: skip
    metrics_port: int | None = _figures(
        None, whole(0, "no port", "Give one, or 0 for any that is free.", most=65535),
        "listen on the loopback interface; 0: at any free port", "--metrics-port", "N",
    )  # fmt: skip
    metrics_partitions: int = _figures(
        LISTED, whole(0, "less than none", "Use 0 or more.", optional=False),
        "most partitions with figures of their own", "--metrics-partitions", "N",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BulkRequest(CopyRequest):
    """What a copy that ends takes."""

    end: str = knob(
        "latest", text(), "where to stop; latest: where the logs end when the job starts", "--end", "latest|ISO"
    )
    accept_open_transactions: bool = knob(
        False, switch(),
        "exit 0 although an open transaction of the source keeps records from being copied; something else copies them "
        "later, such as a tail", "--accept-open-transactions",
    )  # fmt: skip
    late_s: float = _LATE


@dataclass(frozen=True, kw_only=True)
class TailRequest(CopyRequest):
    """What a copy that follows takes.

    :param replaces: a tail that was found to be lost, with its last sign (:class:`.active.Watch`).
    """

    turn_s: float | None = knob(
        None, seconds(0.01, math.inf, optional=True),
        "seconds that a turn takes, a micro-batch on Spark (default: until there is a reason for another one)",
        "--turn-s", "S",
    )  # fmt: skip
    takeover: bool = knob(False, switch(), "replace the mirror's tail even if it gives signs of life", "--takeover")
    replaces: str = knob("", text(), "", "--replaces")
    fail_fast: bool = knob(
        False, switch(), "end with status 1 where a cluster is away at the start, instead of waiting for it",
        "--fail-fast",
    )  # fmt: skip
    alarm: str = knob(
        "", text(),
        "package.module.function that calls a person if a cutover dies behind its fence (default: none)", "--alarm",
        "FUNCTION",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class VerifyRequest(JobRequest):
    """What a comparison takes.

    :param end: "": up to where the target is at the start; at level ``offsets``, where the source is.
    """

    level: str = knob("batches", one_of(*LEVELS), "how closely to compare", "--level")
    only_new: bool = knob(
        False, switch(), "leave out what an earlier comparison of the plan has proven, at this level", "--only-new"
    )
    end: str = knob("", text(), "compare up to here and require that the target reached it", "--end", "latest|ISO")
    spot_checks: int = knob(
        50, whole(0, "less than none", "Use 0 or more.", optional=False),
        "records, sampled at random, that confluent-kafka's client reads from both clusters; 0: none",
        "--spot-checks", "N",
    )  # fmt: skip
    seed: int | None = knob(
        None, whole(0, "no seed", "Give the one that an earlier run has printed."),
        "draw the records of an earlier run again", "--seed", "N",
    )  # fmt: skip
    late_s: float = _LATE


REQUESTS: Mapping[str, type[JobRequest]] = {
    "bulk_copy": BulkRequest, "streaming_tail": TailRequest, "verify": VerifyRequest,
}  # fmt: skip
"""What each kind of job takes."""
