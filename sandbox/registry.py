"""A schema registry on this machine: Apicurio, with Confluent's API below ``/apis/ccompat/v7``, in memory.

    with SchemaRegistry() as registry:
        print(registry.url)

It is fetched as Kafka's jars are (:mod:`sandbox.jars`) and listens on 127.0.0.1 only. Its API has no modes (with 3.0.9)
and ignores an id that is sent with a schema; what keeps ids is its own export and import.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Self

from airflow_mirror.errors import TryAgain
from airflow_mirror.jobs.runner.java import cache_dir, find_java
from sandbox.home import Home
from sandbox.jars import ensure
from sandbox.ports import HOST, reserve
from sandbox.process import Child, Started
from sandbox.program import log_lines
from sandbox.store import keep
from sandbox.versions import APICURIO_VERSION

_RUNNER = f"apicurio-registry-app-{APICURIO_VERSION}-runner.jar"


class SchemaRegistry(Started):
    """One Apicurio; start it with ``with``. What is registered is gone when it ends.

    :param ready_timeout_s: how long the start may take, in seconds: 6 on a quiet machine, 40 on a busy one.
    """

    def __init__(self, name: str = "registry", ready_timeout_s: float = 180.0) -> None:
        self._name, self._ready_timeout_s = name, ready_timeout_s
        self._child: Child | None = None

    def __enter__(self) -> Self:
        """Start it, and wait until it answers.

        :raises JarsUnavailable, JavaNotFound: there is nothing to start. :raises TryAgain: it does not come up.
        """
        self._home, self._port, self._other = Home(self._name), reserve(self._name), reserve(self._name)
        return super().__enter__()

    @property
    def url(self) -> str:
        """Of Confluent's API."""
        return f"http://{self._port.address}/apis/ccompat/v7"

    def start(self) -> None:
        """Start the process, at the same address after :meth:`kill`, and empty. Errors as of ``with``."""
        directory = self._home.path
        command = [
            str(find_java().executable), "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
            f"-Djava.io.tmpdir={directory}", "-jar", str(_installed() / _RUNNER),
        ]  # fmt: skip
        env = {
            "PATH": os.defpath, "HOME": str(directory), "QUARKUS_HTTP_HOST": HOST, "QUARKUS_MANAGEMENT_HOST": HOST,
            "QUARKUS_HTTP_PORT": str(self._port.number), "QUARKUS_MANAGEMENT_PORT": str(self._other.number),
        }  # fmt: skip
        self._child = Child(command, directory / "log.txt", directory, env)
        deadline = time.monotonic() + self._ready_timeout_s
        while True:
            try:
                self.ask("GET", "/subjects")
                return
            except OSError:
                if not self._child.alive() or time.monotonic() > deadline:
                    raise TryAgain(f"the schema registry does not start.\n{self._log()}") from None
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL: whoever asks finds nobody."""
        if self._child is not None:
            self._child.kill()

    def stop(self) -> None:
        """End it and remove its directory. Safe to call twice."""
        self.kill()
        self._home.release()
        for port in (self._port, self._other):
            port.release()

    def register(self, subject: str, schema: str, kind: str = "AVRO", **more: Any) -> int:
        """Register a schema and return its id."""
        return int(self.ask("POST", f"/subjects/{subject}/versions", schema=schema, schemaType=kind, **more)["id"])

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """Send a request of Confluent's API and return the answer. :raises OSError: it refuses, or is away."""
        data = json.dumps(body).encode() if body else None
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def _log(self) -> str:
        return "\n".join(log_lines(self._home.path / "log.txt", 20))


def _installed() -> Path:
    """Return the directory of the distribution in the user's cache, unpacked if need be."""
    root = cache_dir() / f"apicurio-{APICURIO_VERSION}"
    place = root / "app"
    if not (place / _RUNNER).exists():
        (archive,) = ensure("registry", sys.stderr, root, APICURIO_VERSION)
        keep(place, (place / _RUNNER).exists, lambda work: _unpacked(archive, work), sys.stderr)
    return place


def _unpacked(archive: Path, work: Path) -> Path:
    with tarfile.open(archive) as file:
        file.extractall(work / "app", filter="data")
    return work / "app"
