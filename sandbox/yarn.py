"""A YARN of one ResourceManager and one NodeManager on this machine: Hadoop's own MiniYARNCluster.

    with YarnCluster() as yarn:
        subprocess.run([..., "spark-submit", "--master", "yarn", ...], env={**os.environ, **yarn.client_env})

Its own jars are fetched as Kafka's are (:mod:`sandbox.jars`); the others that it needs are among PySpark's. There is no
Java of ours to compile: the gateway that ships with PySpark runs in the cluster's JVM, and is told from here what to
start.

A container is a process group of its own, whose working directory lies below the cluster's: that is how what a killed
cluster leaves behind is found and ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from airflow_mirror.errors import InputError, TryAgain
from airflow_mirror.jobs.runner.command import spark_home
from airflow_mirror.jobs.runner.java import cache_dir, find_java, java_home_for_spark
from sandbox.home import Home
from sandbox.jars import ensure
from sandbox.process import Child, Started
from sandbox.program import log_lines
from sandbox.versions import HADOOP_VERSION

_ADDRESSES = tuple(f"yarn.resourcemanager.{name}address" for name in ("", "scheduler.", "webapp.", "admin."))


class YarnCluster(Started):
    """A ResourceManager and a NodeManager; start it with ``with``.

    :param memory_mb: what the NodeManager gives to containers; it is counted, not enforced.
    :param ready_timeout_s: how long the start may take, in seconds.
    """

    def __init__(self, memory_mb: int = 3072, ready_timeout_s: float = 240.0) -> None:
        self._memory_mb, self._ready_timeout_s = memory_mb, ready_timeout_s
        self._home: Home | None = None
        self._child: Child | None = None
        self._gateway: Any = None
        self._cluster: Any = None
        self._addresses: dict[str, str] = {}

    def start(self) -> None:
        """Start the cluster and wait until its NodeManager has registered.

        :raises InputError, JarsUnavailable: when there is nothing to start.
        :raises TryAgain: when it does not come up; with the end of its log.
        """
        self._home = Home("yarn")
        self._launch()
        self._start()

    def stop(self) -> None:
        """End the cluster and every container, and remove its directory. Safe to call twice."""
        if self._gateway is not None:
            try:
                self._cluster.stop()  # ends containers in order
            except Exception:  # py4j raises anything when the JVM is gone
                pass
            self._gateway.close()
        if self._child is not None:
            self._child.kill()
        if self._home is not None:
            _end_below(self._home.path)
            self._home.release()
        self._home, self._child, self._gateway, self._cluster = None, None, None, None

    @property
    def directory(self) -> Path:
        """Everything that the cluster writes: its log, its containers' directories, staging."""
        if self._home is None:
            raise InputError("the YARN cluster is not started; use it in a 'with' block.")
        return self._home.path

    @property
    def client_env(self) -> dict[str, str]:
        """Environment variables of whoever submits."""
        return {"HADOOP_CONF_DIR": str(self.directory / "conf"), "JAVA_HOME": str(java_home_for_spark())}

    @property
    def spark_conf(self) -> dict[str, str]:
        """Spark settings that let an application of two executors fit in here, and upload no jars."""
        return {
            "spark.yarn.jars": f"local:{spark_home()}/jars/*",
            "spark.yarn.stagingDir": (self.directory / "staging").as_uri(),
            "spark.executor.instances": "2", "spark.executor.cores": "1",
            "spark.executor.memory": "512m", "spark.executor.memoryOverhead": "128m",
            "spark.driver.memory": "512m", "spark.driver.memoryOverhead": "128m",
        }  # fmt: skip

    def applications(self, tag: str) -> list[dict[str, Any]]:
        """Return what the ResourceManager's web service says of the applications with a tag."""
        return list((self._ask(f"apps?applicationTags={tag}").get("apps") or {}).get("app", []))

    def web(self, path: str) -> str:
        """Return the address of a page of the ResourceManager."""
        return f"http://{self._addresses['yarn.resourcemanager.webapp.address']}{path}"

    def _ask(self, what: str) -> dict[str, Any]:
        with urllib.request.urlopen(self.web(f"/ws/v1/cluster/{what}"), timeout=60) as answer:
            return dict(json.load(answer))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        """Start the JVM with nothing but the gateway in it."""
        folder = self.directory
        for name in ("conf", "tmp", "staging"):
            (folder / name).mkdir()
        jars = ensure("yarn", sys.stderr, cache_dir() / f"hadoop-{HADOOP_VERSION}", HADOOP_VERSION)
        classpath = os.pathsep.join([*map(str, jars), str(spark_home() / "jars" / "*")])
        log4j = Path(__file__).with_name("log4j2.properties")
        command = [
            str(find_java().executable), "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k",
            "-XX:-UsePerfData", f"-Djava.io.tmpdir={folder / 'tmp'}", f"-Dlog4j2.configurationFile={log4j}",
            f"-Dkafka.logs.dir={folder}", "-cp", classpath, "py4j.GatewayServer", "--enable-auth", "0",
        ]  # fmt: skip
        env = {"PATH": os.defpath, "HOME": str(folder), "JAVA_HOME": str(java_home_for_spark())}
        self._child = Child(command, folder / "log.txt", folder, env)

    def _start(self) -> None:
        """Tell the JVM to start the cluster, and write the files by which clients find it."""
        from py4j.java_gateway import GatewayParameters, JavaGateway

        port, token = self._await_gateway()
        # Without memory management nothing is said to a JVM that has ended.
        parameters = GatewayParameters(port=port, auth_token=token, enable_memory_management=False)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        jvm = self._gateway.jvm
        conf = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
        for key, value in self._settings().items():
            conf.set(key, value)
        try:
            self._cluster = jvm.org.apache.hadoop.yarn.server.MiniYARNCluster("mini", 1, 1, 1, 1)
            self._cluster.init(conf)
            self._cluster.start()
            if not self._cluster.waitForNodeManagersToConnect(int(self._ready_timeout_s * 1000)):
                raise TryAgain(f"YARN: no NodeManager within {self._ready_timeout_s:.0f} s.\n{self._log()}")
            told = self._cluster.getConfig()
            self._addresses = {key: str(told.get(key)) for key in _ADDRESSES}
        except Exception as e:  # whatever the JVM raises
            raise TryAgain(f"YARN does not start: {e}\n{self._log()}") from e
        _write_xml(self.directory / "conf" / "yarn-site.xml", self._addresses)
        _write_xml(self.directory / "conf" / "core-site.xml", {"fs.defaultFS": "file:///"})

    def _settings(self) -> dict[str, str]:
        return {
            "fs.defaultFS": "file:///",
            "hadoop.tmp.dir": str(self.directory / "tmp"),
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": "100",
            "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.minicluster.yarn.nodemanager.resource.memory-mb": str(self._memory_mb),
            "yarn.nodemanager.resource.memory-mb": str(self._memory_mb),
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100.0",
        }

    def _await_gateway(self) -> tuple[int, str]:
        """Return the port and the token that the gateway prints first."""
        assert self._child is not None
        deadline = time.monotonic() + self._ready_timeout_s
        while True:
            lines = (self.directory / "log.txt").read_text(errors="replace").split("\n")
            for at, line in enumerate(lines[:-2]):  # the last one may be half of it
                if line.isdigit():
                    return int(line), lines[at + 1].strip()
            if not self._child.alive() or time.monotonic() > deadline:
                raise TryAgain(f"YARN: its JVM does not start.\n{self._log()}")
            time.sleep(0.1)

    def _log(self) -> str:
        return "\n".join(log_lines(self.directory / "log.txt", 20))


def _write_xml(path: Path, settings: Mapping[str, str]) -> None:
    rows = "".join(f"<property><name>{k}</name><value>{escape(v)}</value></property>" for k, v in settings.items())
    path.write_text(f"<configuration>{rows}</configuration>\n")


def _end_below(directory: Path) -> None:
    """End every process whose working directory lies below ``directory``, until none is left."""
    deadline = time.monotonic() + 10.0
    while (left := processes_below(directory)) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended by itself
        time.sleep(0.1)


def processes_below(directory: Path) -> list[int]:
    """Return the pids of the processes whose working directory lies below ``directory``."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                cwd = os.readlink(f"/proc/{entry}/cwd")
            except OSError:
                continue  # another user's, or it has just ended
            if Path(cwd).is_relative_to(directory):
                found.append(int(entry))
    return found
