"""Cluster deploy mode on YARN: the driver runs in the first container of an application.

The application carries a tag made of the job's id, by which any host finds and kills it, whatever became of the process
that submitted it. ``spark-submit --status`` and ``--kill`` know nothing of YARN, so Hadoop's own command is asked, from
the jars that come with Spark: it reads the same ``yarn-site.xml`` as spark-submit, and knows Kerberos and standby
ResourceManagers.

The clusters' settings travel as Hadoop credentials (:mod:`airflow_mirror.common.tokens`). Other ways are worse: a setting
of Spark is in the staging directory and in the UI, a variable of the container in ``launch_container.sh``, which the
NodeManager shows to anybody, and a file that is shipped stays in the NodeManager's cache.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_mirror.common import tokens
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.runner.cluster_mode import Elsewhere, silent
from airflow_mirror.jobs.runner.command import JVM_OPTIONS, Submit, spark_home
from airflow_mirror.jobs.runner.java import find_java
from airflow_mirror.jobs.runner.spec import JobSpec
from airflow_mirror.kafka.admin import ClusterAdmin

_SECRETS = {role: f"airflow-mirror.{role}" for role in ("source", "target")}
_COMMAND = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
_PATIENCE_S = 60.0  # of one question; Hadoop's own is a quarter of an hour
_ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})


@dataclass(frozen=True)
class Application:
    """An application as ``yarn application -list`` shows it."""

    id: str
    state: str
    final_state: str


def run_yarn(*arguments: str, java: Path | None = None, patience_s: float = _PATIENCE_S) -> str:
    """Run ``yarn application`` and return what it prints.

    :param java: None: the one that is found here. :raises TryAgain: YARN does not answer.
    """
    classpath = os.pathsep.join([_conf_dir(os.environ), str(spark_home() / "jars" / "*")])
    jvm = [str(java or find_java().executable), *JVM_OPTIONS.split(), "-Xmx128m", "-cp", classpath]
    command = [*jvm, _COMMAND, "application", *arguments]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=patience_s
        )
    except subprocess.TimeoutExpired:
        raise silent("YARN", f"no answer within {patience_s:.0f} s") from None
    if done.returncode:
        raise silent("YARN", (done.stderr.strip() or done.stdout.strip())[-1000:])
    return done.stdout


class Yarn(Elsewhere):
    """See the module, :class:`.cluster_mode.Elsewhere` and :class:`.place.Place`. :param run: asks YARN."""

    name = "yarn"
    references = f"hadoop:{_SECRETS['source']}", f"hadoop:{_SECRETS['target']}"

    def __init__(
        self, submit: Submit, open_target: Callable[[], ClusterAdmin], run: Callable[..., str] = run_yarn
    ) -> None:  # fmt: skip
        super().__init__(submit, open_target)
        self._run = run

    def has_settings(self, spec: JobSpec) -> bool:
        """See :class:`.cluster_mode.Elsewhere`. They get the same credentials as the driver."""
        return True

    def settings(self, spec: JobSpec, job: str) -> dict[str, str]:
        """See :class:`.cluster_mode.Elsewhere`.

        :raises InvalidField: a setting would start the driver twice; nothing says where YARN is.
        """
        _conf_dir(os.environ)
        attempts = spec.spark_conf.get("spark.yarn.maxAppAttempts", "1")
        if attempts != "1":
            raise InvalidField(
                "spark.yarn.maxAppAttempts", attempts, "a driver that failed would run again behind Airflow's back",
                "Leave it out; the task's retries start the job again.",
            )  # fmt: skip
        tags = filter(None, [spec.spark_conf.get("spark.yarn.tags"), tag_of(job)])
        defaults = {"spark.yarn.submit.waitAppCompletion": "false", "spark.pyspark.python": sys.executable}
        ours = {"spark.yarn.maxAppAttempts": "1", "spark.yarn.tags": ",".join(tags)}
        return defaults | dict(spec.spark_conf) | ours

    def hand_over(self, secrets: Mapping[str, ClientConfig]) -> tuple[dict[str, str], tuple[int, ...]]:
        """See :class:`.cluster_mode.Elsewhere`. The token file is in memory: it is gone with the submitting process.

        :raises InvalidField: this process has credentials of its own, which would be lost.
        """
        there = os.environ.get(tokens.FILE_VARIABLE)
        if there is not None:
            raise InvalidField(
                tokens.FILE_VARIABLE, there, "it is set for this worker, and the job needs it for its own credentials",
                "Unset it, and let Spark get its tokens by keytab and principal of the connection, or by kinit.",
            )  # fmt: skip
        content = tokens.encode({_SECRETS[role]: secrets[role].with_files().dump() for role in _SECRETS})
        descriptor = os.memfd_create("airflow-mirror")
        os.write(descriptor, content)
        return {tokens.FILE_VARIABLE: f"/proc/self/fd/{descriptor}"}, (descriptor,)

    def ask(self, job: str) -> bool | None:
        """See :class:`.cluster_mode.Elsewhere`. :raises TryAgain: YARN does not answer."""
        found = self._find(job)
        return found is not None and found.state not in _ENDED

    def kill(self, job: str) -> bool:
        """See :class:`.cluster_mode.Elsewhere`. :raises TryAgain: YARN does not answer."""
        found = self._find(job)
        if found is None or found.state in _ENDED:
            return False
        self._run("-kill", found.id)
        return True

    def why(self, job: str) -> str:
        """See :class:`.cluster_mode.Elsewhere`. :raises TryAgain: YARN does not answer."""
        found = self._find(job)
        if found is None:
            return ""
        said = re.search(r"Diagnostics : (.*?)\n\tUnmanaged Application", self._run("-status", found.id), re.DOTALL)
        return (
            f"{found.id} is {found.state} ({found.final_state}) on YARN, and the job said nothing at its end. YARN says: "
            f"{said.group(1).strip() if said else 'nothing'}. Its log: yarn logs -applicationId {found.id}"
        )

    def _find(self, job: str) -> Application | None:
        for line in self._run("-list", "-appTags", tag_of(job), "-appStates", "ALL").splitlines():
            fields = [field.strip() for field in line.split("\t")]
            if fields[0].startswith("application_"):  # id, name, type, user, queue, state, final state, ...
                return Application(fields[0], fields[5], fields[6])
        return None


def tag_of(job: str) -> str:
    """Return the tag of a job's application, from its id. YARN writes tags in small letters."""
    return f"airflow-mirror-{job}"


def _conf_dir(env: Mapping[str, str]) -> str:
    found = env.get("HADOOP_CONF_DIR") or env.get("YARN_CONF_DIR")
    if not found:
        raise InvalidField(
            "HADOOP_CONF_DIR",
            found,
            "nothing says where YARN is",
            "Set it for the worker: the directory of yarn-site.xml.",
        )
    return found
