"""The command line and the environment of a Spark job.

Settings with secrets are on no command line and in no Spark setting: every user of the host can read the first, and
Spark shows the second in its UI and in event logs. How they reach the driver depends on where it runs
(:mod:`.client`, :mod:`.yarn`, :mod:`.kubernetes`). The driver passes them to the executors of a cluster in memory
(:class:`airflow_mirror.config.Handover`).
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_mirror.errors import InputError
from airflow_mirror.jobs.runner import package
from airflow_mirror.jobs.runner.directory import SPARK, spark_path, write_json
from airflow_mirror.jobs.runner.java import java_home_for_spark
from airflow_mirror.jobs.runner.process import JOB_DIR_VARIABLE
from airflow_mirror.jobs.runner.spec import JobSpec, is_local

SOURCE_VARIABLE, TARGET_VARIABLE = "AIRFLOW_MIRROR_SOURCE", "AIRFLOW_MIRROR_TARGET"
REQUEST = "request.json"
SCRIPT = Path(__file__).parents[1] / "driver" / "run_job.py"
# No record enters the JVM, so its optimizing compiler has no benefit: it took a third of the CPU time of the start.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1"
_MAX_FAILURES = "spark.task.maxFailures"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_PACKAGE_PARENT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What ``spark-submit`` is to run: the job's script with its kind and the file of its request.

    :param conf: Spark settings. :param py_files: what executors import, :param files: what the driver finds in its
        working directory; comma-separated, None for nothing.
    """

    kind: str
    master: str
    request: str
    conf: Mapping[str, str]
    py_files: str | None = None
    files: str | None = None

    @property
    def name(self) -> str:
        """The application's name, for people."""
        return f"airflow-mirror {self.kind}"

    @property
    def arguments(self) -> list[str]:
        """The arguments of the script."""
        return [self.kind, self.request]


# Makes the command line; what precedes script and arguments depends on who knows the cluster.
Submit = Callable[[Submission], list[str]]


def store_request(spec: JobSpec, directory: Path) -> Path:
    """Write the request of a job whose driver runs here into its directory, and return its file."""
    where = {"job_dir": str(directory), "plan": spec.plan}
    if spec.metrics:
        where["metrics_file"] = spec.metrics
    asked = spec.request(f"env:{SOURCE_VARIABLE}", f"env:{TARGET_VARIABLE}", **where)
    write_json(directory / REQUEST, asked)
    return directory / REQUEST


def cluster_conf() -> dict[str, str]:
    """Return the Spark settings of every job, as for a cluster."""
    return {
        # A speculative copy of a task would be a second writer of its partitions.
        "spark.speculation": "false",
        # A task that is run again writes nothing and says so (`copy.spark.attempt`). With 1 all others would end with it.
        _MAX_FAILURES: "8",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
    }


def spark_conf(spec: JobSpec, directory: Path) -> dict[str, str]:
    """Return the Spark settings of a job whose driver runs here; ``spec.spark_conf`` wins over the defaults."""
    conf = cluster_conf() | {
        "spark.sql.warehouse.dir": spark_path(directory / "warehouse"),
        "spark.driver.extraJavaOptions": f"{JVM_OPTIONS} -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
    }
    if is_local(spec.master):
        conf |= {
            _MAX_FAILURES: "2",
            "spark.ui.enabled": "false",
            # The host's own name may resolve to an address that it can't reach (laptops, containers without network).
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(directory / SPARK),
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


def local_submit(submission: Submission) -> list[str]:
    """Return the command that runs a job with the installed Spark.

    :raises InputError: pyspark is not installed.
    """
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", _master(submission), "--name", submission.name]
    for key, value in sorted(submission.conf.items()):
        command += ["--conf", f"{key}={value}"]
    for option, files in (("--py-files", submission.py_files), ("--files", submission.files)):
        command += [option, files] if files else []
    return [*command, str(SCRIPT), *submission.arguments]


def _master(submission: Submission) -> str:
    """Return the master. A local one takes from its own name alone how often a task may fail, by default once.

    A Python worker that the kernel ends, because memory is short, would end the copy. Source: Spark's
    ``SparkContext.createTaskScheduler``.
    """
    cores = re.fullmatch(r"local(?:\[([^,\]]+)\])?", submission.master)
    failures = submission.conf.get(_MAX_FAILURES)
    return f"local[{cores[1] or 1},{failures}]" if cores and failures else submission.master


def spark_missing() -> InputError:
    """Return the error where no Spark is installed with this package."""
    what, cause = "pyspark is not installed here, or only pyspark-client is", "a local Spark job needs all of pyspark"
    return InputError(what, cause, "Install airflow-mirror[spark] on every worker.")


def spark_home() -> Path:
    """Return the directory of the installed pyspark, which is a complete Spark.

    :raises InputError: it is not installed.
    """
    found = importlib.util.find_spec("pyspark")  # located, not imported
    if found is None or found.origin is None or not (Path(found.origin).parent / "jars").is_dir():
        raise spark_missing()
    return Path(found.origin).parent


def without_airflow(directory: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job without Spark: ``base`` without Airflow's settings, and where the package is."""
    # Airflow's variables hold its database address and connections; a job has no use for them.
    env = {k: v for k, v in base.items() if not k.startswith(("AIRFLOW_", "_AIRFLOW"))}
    bin_dir = str(Path(sys.executable).parent)
    paths = [str(_PACKAGE_PARENT), *filter(None, [base.get("PYTHONPATH")])]
    return env | {
        JOB_DIR_VARIABLE: str(directory),
        "PATH": os.pathsep.join(filter(None, [bin_dir, base.get("PATH")])),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
    }


def environment(directory: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of what submits a job: ``base`` without Airflow's settings, plus what Spark needs.

    :raises JavaNotFound: there is no usable Java.
    """
    return without_airflow(directory, base) | {
        "JAVA_HOME": str(java_home_for_spark(base)),
        # Without these two Spark uses the first python3 on PATH, which may lack every library.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # A SPARK_HOME of the host may be another version than the installed pyspark.
        "SPARK_HOME": str(spark_home()),
    }
