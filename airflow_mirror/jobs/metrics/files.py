"""The figures of several jobs of this host together, read from the files that they write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from airflow_mirror.common.files import replace_file
from airflow_mirror.jobs.metrics.catalogue import RUNNING


def say_ended(file: Path) -> None:
    """Say in a job's file that the job has ended. One that was killed could not."""
    with suppress(FileNotFoundError):
        told = re.sub(rf"(?m)^({RUNNING.name}\b.*) 1(\.0)?$", r"\1 0.0", file.read_text(encoding="utf-8"))
        replace_file(file, told, durable=False)


class FilesCollector(Collector):
    """Tells what the files say now; one that is not there yet says nothing. Each has labels of its own."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def end(self) -> None:
        """Each job has said in its file that it has ended."""

    def collect(self) -> Iterable[Metric]:
        """Return each figure once, with the series of all files."""
        found: dict[str, Metric] = {}
        for file in self._files:
            with suppress(FileNotFoundError):
                for one in text_string_to_metric_families(file.read_text(encoding="utf-8")):
                    found.setdefault(one.name, Metric(one.name, one.documentation, one.type)).samples += one.samples
        return found.values()
