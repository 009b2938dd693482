"""Check what executors must have before anything is copied, and hand them the clusters' settings.

On a cluster a task runs with the packages of another host. Without this check the first missing package would end the
job with a stack trace from some task; with it the job ends at its start and names host, package and remedy. The check
is the job's first Python work, so the Python workers start only once.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import airflow_mirror
from airflow_mirror.config import Handover
from airflow_mirror.errors import InputError, TryAgain
from airflow_mirror.jobs.runner.spec import is_local
from airflow_mirror.wording import count

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

# The only list of what every task imports besides this package and pyspark: module -> distribution.
PACKAGES: Mapping[str, str] = {
    "aiokafka.record.default_records": "aiokafka",
    "confluent_kafka": "confluent-kafka",
    "crc32c": "crc32c",
    "cramjam": "cramjam",
    "kafka.protocol.metadata": "kafka-python",
    "lz4.frame": "lz4",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "xxhash": "xxhash",
    "zstandard": "zstandard",
}
# What tasks import besides, where the clusters' settings ask for it: logins, and stores of Java's.
_OF_SETTINGS = {
    "gssapi": "gssapi",
    "aws_msk_iam_sasl_signer.MSKAuthTokenProvider": "aws-msk-iam-sasl-signer-python",
    "google.auth.transport.requests": "google-auth",
    "cryptography.hazmat.primitives.serialization.pkcs12": "cryptography",
}
# Their internals are used, so the executors must have the driver's versions.
PINNED = frozenset({"aiokafka", "kafka-python"})

_PATIENCE_S = 300.0  # wait for the cluster's first executor; a queue may be long
_ROUNDS = 3
_SAY_EVERY_S = 15.0
# What one task of the check found: its host, its daemon's pid, Python, versions, failures, and the package's file.
Found = dict[str, Any]


def modules_wanted() -> dict[str, str]:
    """Return what to look for on executors: the list, and what the settings have made this driver import."""
    return {**PACKAGES, **{module: package for module, package in _OF_SETTINGS.items() if module in sys.modules}}


def slots(context: SparkContext) -> int:
    """Return how many tasks run at the same time on the current executors; without any, what the cluster may give."""
    return _running(context) or int(context.defaultParallelism)


def _running(context: SparkContext) -> int:
    if is_local(context.master):
        return int(context.defaultParallelism)
    jvm: Any = context._jsc
    scala = jvm.sc()
    # defaultParallelism is a setting, and never below 2; this is the scheduler's own count.
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def await_slots(context: SparkContext, tails: int, stopping: threading.Event, begun: float) -> None:
    """Return once each of several tails can have a task, or when they stop.

    The tasks of a tail end with it, and who waits for one waits for ever.

    :param begun: since when they are waited for, by the monotonic clock.
    :raises InputError: a local master runs fewer.
    :raises TryAgain: so do the executors that the cluster gives within five minutes.
    """
    if _running(context) >= tails:
        return
    cause, otherwise = "each needs one that runs all the time", "or follow them in several applications."
    if is_local(context.master):
        raise InputError(_too_few(context, tails), cause, f"Give local[{tails}] or more, {otherwise}")
    with _queued(context, tails):
        for waited_s in _waiting(context, stopping, begun):
            if _running(context) >= tails:
                return
            if waited_s > _PATIENCE_S:
                raise TryAgain(_too_few(context, tails), cause, f"Give the application more cores, {otherwise}")


def _too_few(context: SparkContext, tails: int) -> str:
    return f"{tails} sources are followed, and {context.master} runs {count(_running(context), 'task')} at the same time"


def handover_for(context: SparkContext, settings_from: str, *references: str) -> Handover:
    """Return the clusters' settings for tasks; empty if tasks can read the references themselves.

    :param settings_from: ``driver``, or ``executor`` if each executor reads the references itself.
    """
    if is_local(context.master) or settings_from == "executor":
        return Handover()
    encrypted = _is_set(context, "spark.network.crypto.enabled")
    handed = Handover.of(*references)
    if not encrypted and handed.secrets():
        log.warning(
            "the clusters' passwords go to the executors over Spark's own connections, which are not encrypted. Set "
            "spark.authenticate and spark.network.crypto.enabled, or keep the settings on each executor and pass "
            "--settings-from executor."
        )
    return handed


def check_executors(context: SparkContext, stopping: threading.Event | None = None) -> list[Found]:
    """Check every executor for what tasks need; skipped on a local master, where the driver's own imports prove it.

    Executors that join later are not checked; if they lack something, the task and, after its retries, the job fails.

    :param stopping: ends the wait for the first executor.
    :raises InputError: names host, package and remedy.
    :raises TryAgain: the cluster gives none.
    """
    if is_local(context.master):
        return []
    if not _await_first(context, stopping):
        return []
    found: dict[tuple[str, int], Found] = {}
    for round_no in range(_ROUNDS):
        for answer in _ask(context, pause_s=0.2 * round_no):
            found[answer["host"], answer["daemon"]] = answer
        # Executors register one after another: those that joined during the check need another round.
        if len(found) >= _registered(context):
            break
    answers = list(found.values())
    _judge(answers)
    for a in answers:
        log.info("executor on %s has what a copy needs; package from %s", a["host"], a["package"].get("file"))
    return answers


def _await_first(context: Any, stopping: threading.Event | None) -> bool:
    if _registered(context):
        return True
    with _queued(context, 1):
        for waited_s in _waiting(context, stopping, time.monotonic()):
            if _registered(context):
                return True
            if waited_s > _PATIENCE_S:
                raise TryAgain(
                    f"{context.master} gave this job no executor within {waited_s:.0f} s",
                    "its cores may be taken (an application without spark.cores.max takes all of a standalone "
                    "cluster), or no worker has as much memory as spark.executor.memory asks for",
                    "Free what is taken, or ask for less.",
                )
    return False


def _waiting(context: Any, stopping: threading.Event | None, begun: float) -> Iterator[float]:
    """Yield for how many seconds executors have been waited for, again and again until the job stops."""
    said = time.monotonic()
    while stopping is None or not stopping.is_set():
        now = time.monotonic()
        yield now - begun
        if now - said > _SAY_EVERY_S:
            said = now
            log.warning("waiting for executors of %s for %.0f s", context.master, now - begun)
        time.sleep(0.1)


@contextmanager
def _queued(context: Any, tasks: int) -> Iterator[None]:
    """Have so many tasks wait meanwhile: with dynamic allocation a cluster gives executors to none but those."""
    # Elsewhere they bring nothing, and keep the first slots busy for two seconds: Spark ends a Python worker only then.
    if not _is_set(context, "spark.dynamicAllocation.enabled"):
        yield
        return
    group, rest_s = f"airflow-mirror-slots-{uuid.uuid4()}", _PATIENCE_S

    def rest(_: int) -> None:  # longer than any setting waits until it asks for executors
        time.sleep(rest_s)

    def queue() -> None:
        context.setJobGroup(group, "wait for executors")
        with suppress(Exception):  # it is cancelled, or executors are lost: who waits goes by the slots
            context.parallelize(range(tasks), tasks).foreach(rest)

    threading.Thread(target=queue, name="queued", daemon=True).start()
    try:
        yield
    finally:
        context._jsc.sc().cancelJobGroupAndFutureJobs(group)  # its thread may be slower than the cluster


def _is_set(context: Any, setting: str) -> bool:
    """Return whether a setting is true, as Spark reads it: one of a form or a DAG may begin with a capital."""
    return bool(context.getConf().get(setting, "false").strip().lower() == "true")


def _registered(context: Any) -> int:
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver counts as one


def _ask(context: Any, pause_s: float) -> list[Found]:
    tasks = max(context.defaultParallelism, _registered(context), 1)
    try:
        answers: list[Found] = context.parallelize(range(tasks), tasks).mapPartitions(_probe(pause_s)).collect()
    except Exception as e:  # from py4j and pyspark: no Python on the executor, another Python, a worker that dies
        host, cause = cause_of(str(e))
        raise InputError(
            "executors can't copy",
            f"{host}: no Python task runs ({cause})",
            f"Every executor needs Python {_python()} with pyspark {version('pyspark')} at the driver's path; where it "
            "is elsewhere, set spark.pyspark.python to its path.",
        ) from e
    return answers


def _probe(pause_s: float) -> Callable[[Iterator[int]], Iterator[Found]]:
    modules = modules_wanted()

    # Nested, so that it is sent as code, not as a reference to a module that the executor may not have.
    def probe(_: Iterator[int]) -> Iterator[Found]:
        import importlib
        import importlib.metadata
        import os
        import platform
        import socket
        import sys
        import time

        versions, failures = {}, {}
        for module, distribution in modules.items():
            try:
                importlib.import_module(module)
                versions[distribution] = importlib.metadata.version(distribution)
            except Exception as e:  # a broken native library raises anything
                failures[distribution] = f"{type(e).__name__}: {e}"
        package: dict[str, str] = {}
        try:
            own: Any = importlib.import_module("airflow_mirror")
            package = {"version": own.__version__, "file": os.path.abspath(own.__file__)}
        except ImportError as e:
            failures["airflow-mirror"] = f"{type(e).__name__}: {e}"
        time.sleep(pause_s)
        yield {
            "host": socket.gethostname(), "daemon": os.getppid(), "python": platform.python_version(),
            "executable": sys.executable, "versions": versions, "failures": failures, "package": package,
        }  # fmt: skip

    return probe


def _judge(answers: list[Found]) -> None:
    mine = {name: _installed(name) for name in PINNED}
    problems: dict[str, None] = {}
    remedies: dict[str, None] = {}
    for a in sorted(answers, key=lambda a: str(a["host"])):
        where = f"{a['host']} ({a['executable']}, Python {a['python']})"
        for name, failure in a["failures"].items():
            problems[f"{where}: package {name!r} can't be imported ({failure})"] = None
            remedies[_remedy(name)] = None
        for name, wanted in mine.items():
            has = a["versions"].get(name)
            if has is not None and wanted is not None and has != wanted:
                problems[f"{where}: {name} {has}, but the driver has {wanted}"] = None
                remedies[f"Install {name}=={wanted} there."] = None
        own = a["package"].get("version")
        if own is not None and own != airflow_mirror.__version__:
            problems[f"{where}: airflow-mirror {own}, but the driver has {airflow_mirror.__version__}"] = None
            remedies[_remedy("airflow-mirror")] = None
    if problems:
        raise InputError("executors can't copy", "; ".join(problems), " ".join(remedies))


def _remedy(distribution: str) -> str:
    if distribution == "airflow-mirror":
        return (
            "Build the zip with 'python -m airflow_mirror.jobs.runner.package OUT.zip' and give it to spark-submit "
            "--py-files."
        )
    wanted = _installed(distribution)
    return f"Install {distribution}{f'=={wanted}' if wanted else ''} there."


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def cause_of(text: str) -> tuple[str, str]:
    """Return host and last exception line from the message of a failed Spark job; "?" for what is missing."""
    host = re.search(r"\(TID \d+\) \(([^ )]+)", text)
    if program := re.search(r'Cannot run program "[^"]*"[^\n]*', text):
        cause = program.group(0)
    else:
        lines = re.findall(r"^(?:[\w.]+\.)?\w*(?:Error|Exception)\b:? ?.*$", text, re.MULTILINE)
        cause = next((line for line in lines if "org.apache.spark" not in line and "py4j" not in line), text[:200])
    return host.group(1) if host else "an executor", cause.strip()
