"""A mirror's gauges in Airflow's own metrics (StatsD, OpenTelemetry, Datadog), while a task or a trigger watches it.

Each gauge is sent twice, as Airflow sends its own: with the mirror as a tag, and with the mirror in the name for StatsD,
which knows no tags. Where Airflow sends no metrics, this does nothing.

Core has a module of the same name with a state of its own. The SDK's is the one that is set up in both places: by a
task's process as it starts, and by the triggerer, which imports the same runner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.observability.stats import gauge

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "kafka_mirror"
# By key of a lag's summary (`sync.lag.summary`), and of a running copy's (`jobs.progress.figures.summary_of`).
OF_LAG = {"lag_records": "lag_records", "max_lag_records": "max_lag_records", "partitions": "partitions"}
OF_COPY = {
    "lag": "lag_records", "partitions": "partitions", "bytes_per_s": "bytes_per_second",
    "records_per_s": "records_per_second",
}  # fmt: skip


def tell_lag(mirror: str, found: Mapping[str, Any]) -> None:
    """Send a sample of the lag.

    :param found: from `sync.lag.summary`; empty if there was no answer.
    """
    _send(mirror, {name: found.get(key) for key, name in OF_LAG.items()})


def tell_copy(mirror: str, progress: Mapping[str, Any]) -> None:
    """Send the figures of a running copy.

    :param progress: its status.json; a comparison's has no such figures, and nothing is sent.
    """
    summary = progress.get("summary") or {}
    if "states" in summary:
        stopped = {"partitions_stopped": summary["states"].get("stopped", 0)}
        _send(mirror, {name: summary.get(key) for key, name in OF_COPY.items()} | stopped)


def _send(mirror: str, values: Mapping[str, float | None]) -> None:
    for name, value in values.items():
        if value is not None:
            gauge(f"{PREFIX}.{name}", value, tags={"mirror": mirror})
            gauge(f"{PREFIX}.{mirror.replace('.', '__')}.{name}", value)
