"""The command line and the environment of a Spark job that runs as a child process.

Settings with secrets are passed in two environment variables of the driver: every user of the host can read a command
line, and Spark shows its configuration in the UI and in event logs. The driver passes them to the executors of a
cluster in memory (:class:`airflow_mirror.config.Handover`).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_mirror.errors import SparkMissing
from airflow_mirror.jobs.runner import package
from airflow_mirror.jobs.runner.java import java_home_for_spark
from airflow_mirror.jobs.runner.process import JOB_DIR_VARIABLE
from airflow_mirror.jobs.runner.spec import JobSpec, is_local

if TYPE_CHECKING:
    from airflow_mirror.config import ClientConfig

SOURCE_VARIABLE, TARGET_VARIABLE = "AIRFLOW_MIRROR_SOURCE", "AIRFLOW_MIRROR_TARGET"
SCRIPT = Path(__file__).parents[1] / "driver" / "run_job.py"
# No record enters the JVM, so its optimizing compiler has no benefit: it took a third of the CPU time of the start.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_PACKAGE_PARENT = Path(__file__).resolve().parents[3]
# (script, its arguments) come last on every command line; what precedes them depends on where Spark runs.
Submit = Callable[[JobSpec, Path, list[str]], list[str]]


def script_args(spec: JobSpec, directory: Path) -> list[str]:
    """Return the arguments of run_job.py: references to settings, never settings."""
    return [
        spec.kind, "--job-dir", str(directory), "--mirror", str(directory / "mirror.json"),
        "--source", f"env:{SOURCE_VARIABLE}", "--target", f"env:{TARGET_VARIABLE}",
        *(("--plan", spec.plan) if spec.plan else ()),
        *(("--replaces", spec.replaces) if spec.replaces else ()),
        *(("--metrics-file", spec.metrics) if spec.metrics else ()), *spec.args,
    ]  # fmt: skip


def spark_conf(spec: JobSpec, directory: Path) -> dict[str, str]:
    """Return the Spark settings of a job; ``spec.spark_conf`` wins over the defaults given here."""
    conf = {
        # A speculative copy of a task would be a second writer of its partitions.
        "spark.speculation": "false",
        # Lost executors count. A repeated task continues at the target's log end offset, so a retry costs nothing.
        "spark.task.maxFailures": "2" if is_local(spec.master) else "8",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": (directory / "warehouse").as_uri(),
        "spark.driver.extraJavaOptions": f"{JVM_OPTIONS} -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
    }
    if is_local(spec.master):
        conf |= {
            "spark.ui.enabled": "false",
            # The host's own name may resolve to an address that it can't reach (laptops, containers without network).
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(directory / "spark"),
        }
    return conf | dict(spec.spark_conf)


def py_files(spec: JobSpec, directory: Path) -> str | None:
    """Return the files from which executors import the package: a zip in the job's directory; None on a local master.

    Files that ``spec.spark_conf`` names in ``spark.submit.pyFiles`` are added.
    """
    if is_local(spec.master):
        return None
    more = spec.spark_conf.get("spark.submit.pyFiles")
    return ",".join(filter(None, [str(package.build(directory / f"{package.NAME}.zip")), more]))


def local_submit(spec: JobSpec, directory: Path, arguments: list[str]) -> list[str]:
    """Return the command that runs a job with the installed Spark.

    :raises SparkMissing: pyspark is not installed.
    """
    command = [
        str(spark_home() / "bin" / "spark-submit"),
        "--master",
        spec.master,
        "--name",
        f"airflow-mirror {spec.kind}",
    ]
    for key, value in sorted(spark_conf(spec, directory).items()):
        command += ["--conf", f"{key}={value}"]
    if (shipped := py_files(spec, directory)) is not None:
        command += ["--py-files", shipped]
    return [*command, str(SCRIPT), *arguments]


def spark_home() -> Path:
    """Return the directory of the installed pyspark, which is a complete Spark.

    :raises SparkMissing: it is not installed.
    """
    found = importlib.util.find_spec("pyspark")  # located, not imported
    if found is None or found.origin is None or not (Path(found.origin).parent / "jars").is_dir():
        raise SparkMissing()
    return Path(found.origin).parent


def environment(directory: Path, secrets: Mapping[str, ClientConfig], base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job: ``base`` without Airflow's own settings, plus what Spark and the job need.

    :param secrets: ``source`` and ``target``.
    :raises JavaNotFound: there is no usable Java.
    """
    # Airflow's variables hold its database address and connections; a job has no use for them.
    env = {k: v for k, v in base.items() if not k.startswith(("AIRFLOW_", "_AIRFLOW"))}
    bin_dir = str(Path(sys.executable).parent)
    paths = [str(_PACKAGE_PARENT), *filter(None, [base.get("PYTHONPATH")])]
    return env | {
        JOB_DIR_VARIABLE: str(directory),
        SOURCE_VARIABLE: secrets["source"].dump(),
        TARGET_VARIABLE: secrets["target"].dump(),
        "JAVA_HOME": str(java_home_for_spark(base)),
        "PATH": os.pathsep.join(filter(None, [bin_dir, base.get("PATH")])),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        # Without these two Spark uses the first python3 on PATH, which may lack every library.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # A SPARK_HOME of the host may be another version than the installed pyspark.
        "SPARK_HOME": str(spark_home()),
    }
