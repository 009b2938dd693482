"""Where Prometheus finds a job's figures: in a file for node_exporter's textfile collector, and at a port of loopback.

Both are opened before the job touches anything, so that a wrong path or a taken port ends it at its beginning. After that
nothing that fails here is a reason to stop the copy.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest, start_http_server

from airflow_mirror.common.files import replace_file
from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.metrics.collector import CopyCollector
from airflow_mirror.jobs.metrics.files import FilesCollector

log = logging.getLogger(__name__)

EVERY_S = 5.0
LOOPBACK = "127.0.0.1"  # who may log in on this machine may read names of topics and counts; nobody else can
_SHARE = 20  # the file may take one part in so many of a core, whatever the number of partitions


class Publication:
    """Publishes a job's figures, from :meth:`show` until :meth:`close`.

    The file is written once more at the end, and stays: it then says that the job has ended.

    :param file: its directory exists; rewritten every few seconds. None: no file.
    :param port: 0 takes any free one; None: no port. :param every_s: how often the file is rewritten.
    :ivar address: host and port, or None.
    :raises InvalidField: the file can't be written; the port can't be bound.
    """

    def __init__(self, file: Path | None, port: int | None, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._file, self._registry = file, CollectorRegistry()  # not the library's own, which has this process's figures
        self._ended = threading.Event()
        self._at_the_end = ExitStack()  # what was begun last ends first
        self.address = None if port is None else self._listen(port)
        if file is not None:
            self._clear(file)

    @property
    def is_open(self) -> bool:
        """Whether anybody can see anything."""
        return self._file is not None or self.address is not None

    def show(self, collector: CopyCollector | FilesCollector) -> None:
        """Publish what ``collector`` tells, from now on."""
        self._registry.register(collector)
        if self._file is not None:
            writer = threading.Thread(target=self._keep, args=(self._file,), name="figures", daemon=True)
            writer.start()
            self._at_the_end.callback(writer.join, 10.0)
        self._at_the_end.callback(self._ended.set)
        self._at_the_end.callback(collector.end)

    def close(self) -> None:
        """Write the file for the last time, and close the port."""
        self._at_the_end.close()

    def _listen(self, port: int) -> str:
        try:
            server, thread = start_http_server(port, LOOPBACK, self._registry)
        except (OSError, OverflowError) as e:
            raise InvalidField(
                "--metrics-port", port, f"can't listen on {LOOPBACK}: {e}", "Use another one, or 0."
            ) from e
        self._at_the_end.callback(thread.join)
        self._at_the_end.callback(server.server_close)
        self._at_the_end.callback(server.shutdown)
        address = f"{LOOPBACK}:{server.server_port}"
        log.info("figures for Prometheus: http://%s/metrics", address)
        return address

    def _clear(self, file: Path) -> None:
        """Replace the figures that an earlier job left, which would pass for this one's."""
        try:
            file.parent.stat()  # a misspelled directory is not to be created
            replace_file(file, "", durable=False)
        except OSError as e:
            self.close()
            raise InvalidField("--metrics-file", str(file), f"can't be written: {e}", "Use another path.") from e

    def _keep(self, file: Path) -> None:
        ended = False
        while not ended:
            ended = self._ended.is_set()
            begun = time.thread_time()
            try:
                replace_file(file, generate_latest(self._registry), durable=False)
            except OSError as e:  # a full disk is no reason to stop the copy
                log.warning("%s not written: %s", file, e)
            self._ended.wait(max(self._every_s, _SHARE * (time.thread_time() - begun)))
