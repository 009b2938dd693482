"""The systems that copy: how each is started, asked whether it did well, and ended."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_mirror.jobs.runner.command import JVM_OPTIONS, spark_home
from airflow_mirror.jobs.runner.java import java_home_for_spark
from benchmarks import mirrormaker
from benchmarks.cases import Case, Tail
from benchmarks.processes import Tree
from benchmarks.replay import Replay
from benchmarks.worlds import World
from sandbox.process import Child

ROOT = Path(__file__).parents[1]
OURS, PLAIN, LIMIT, READING_LIMIT, MM2 = "ours", "ours-plain", "limit", "reading-limit", "mm2"
LIMITS = (LIMIT, READING_LIMIT)
CANDIDATES = tuple(f"{MM2}-{name}" for name in {**mirrormaker.BULK, **mirrormaker.TAIL})
TITLES = {
    MM2: "MirrorMaker 2",
    **{name: f"MirrorMaker 2, {name.removeprefix(MM2 + '-')}" for name in CANDIDATES},
    OURS: "airflow_mirror",
    PLAIN: "airflow_mirror, plain processes",
    LIMIT: "the limit",
    READING_LIMIT: "the limit, reading too",
}
_END_S = 60.0  # a bulk copy whose target is complete has so long to say so
_LOG_TAIL = 25


@dataclass(frozen=True)
class Task:
    """What one run has to do.

    :param alias: unique to the run: every name that a system leaves on a cluster derives from it.
    :param work: a directory of the run's own.
    :param tail: what is followed, beginning with the case's topic; None: the case's topic is copied.
    :param tuning: of MirrorMaker 2, one of its candidates.
    """

    case: Case
    world: World
    scale: float
    alias: str
    work: Path
    tail: Tail | None = None
    tuning: str = mirrormaker.DEFAULTS

    @property
    def target_topic(self) -> str:
        """The topic on the target."""
        return f"{self.alias}.{self.case.topic}"

    @property
    def pattern(self) -> str:
        """A regex of what is copied or followed."""
        return self.case.topic if self.tail is None else self.tail.pattern


class Running:
    """A system at work. Use it in a ``with`` block: nothing of it is left behind."""

    def __init__(self, children: Sequence[Child], log: Path) -> None:
        self._children, self.log = children, log
        self.tree = Tree(child.pid for child in children)
        self.tree.look()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.tree.look()
        for child in self._children:
            child.send(signal.SIGTERM)
        for child in self._children:
            child.terminate(5)
        self.tree.end()

    def ended(self) -> int | None:
        """Return an exit status when all processes have ended (the first that is not 0), else None."""
        statuses = [child.status() for child in self._children]
        bad = [status for status in statuses if status]
        return bad[0] if bad else None if None in statuses else 0

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end; the exit status, or None when something still runs."""
        for child in self._children:
            child.wait(timeout_s)
        return self.ended()

    def tail_of_log(self) -> str:
        """Return the last lines of what it said."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL:])
        except OSError:
            return ""


def is_mirrormaker(system: str) -> bool:
    """Say whether a system is MirrorMaker 2, with whatever tuning."""
    return system == MM2 or system in CANDIDATES


def start(system: str, task: Task) -> Running:
    """Start a system: to copy what is there, or to follow it."""
    task.work.mkdir(parents=True, exist_ok=True)
    return _start_mirrormaker(task) if is_mirrormaker(system) else _STARTERS[system](task)


def proof(system: str, running: Running, total: int) -> str | None:
    """Return what is wrong with a bulk copy whose target is complete, or None.

    Ours ends by itself, with status 0 and a summary; so do the processes that show the limit. MirrorMaker 2 never ends,
    and knows nothing of completeness: the target's offsets are all there is.
    """
    if is_mirrormaker(system):
        return "it ended" if running.ended() is not None else None
    status = running.wait(_END_S)
    if status != 0:
        return "it did not end" if status is None else f"exit status {status}"
    if system in LIMITS:
        return None
    summary = json.loads(running.log.read_text().strip().splitlines()[-1])
    if summary["errors"] or summary["records"] != total:
        return f"it reports {summary['records']} of {total} records, errors: {len(summary['errors'])}"
    return None


# --- ours ------------------------------------------------------------------------------------------------------------


def _start_ours(task: Task) -> Running:
    script = "bulk_copy.py" if task.tail is None else "streaming_tail.py"
    spark = [
        str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]", "--conf", "spark.ui.enabled=false",
        "--driver-java-options", JVM_OPTIONS,
        "--conf", f"spark.local.dir={task.work}", "--conf", f"spark.sql.warehouse.dir={task.work}/warehouse",
        str(ROOT / "spark_jobs" / script),
    ]  # fmt: skip
    return _running(task, [[*spark, *_flow(task)]], _spark_environment(task.work))


def _start_plain(task: Task) -> Running:
    """Two processes, as the Spark job has two tasks at a time."""
    assert task.tail is None, "no tail of it is measured"
    command = [sys.executable, "-m", "airflow_mirror.console.main", "copy", "--processes", "2", *_flow(task)]
    return _running(task, [command], dict(os.environ) | {"PYTHONPATH": str(ROOT)})


def _flow(task: Task) -> list[str]:
    return [
        "--source", _properties(task.work / "source.properties", task.world.source.properties),
        "--target", _properties(task.work / "target.properties", task.world.target.properties),
        "--include", task.pattern, "--name", task.alias, "--policy", "prefix", "--source-alias", task.alias,
        "--offsets", task.case.offsets,
    ]  # fmt: skip


def _spark_environment(work: Path) -> dict[str, str]:
    return dict(os.environ) | {
        "JAVA_HOME": str(java_home_for_spark()),
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(work),
    }


def stop_tail(running: Running) -> str | None:
    """End our tail as an operator would; return what was wrong, or None."""
    running.tree.look()
    driver = running.tree.find("streaming_tail.py")
    if driver is None:
        return "it ended"
    os.kill(driver, signal.SIGTERM)
    status = running.wait(_END_S)
    return None if status == 0 else f"exit status {status}"


def _properties(path: Path, settings: Mapping[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


# --- the limit -------------------------------------------------------------------------------------------------------


def _start_limit(reading: bool) -> Callable[[Task], Running]:
    def start_it(task: Task) -> Running:
        source, target, batches = task.world.source, task.world.target, task.case.batches(task.scale)
        read = dict(source.properties) if reading else None
        commands = replay_commands(task.case, target.properties, task.target_topic, batches, read=read)
        return _running(task, commands, dict(os.environ) | {"PYTHONPATH": str(ROOT)})

    return start_it


def replay_commands(
    case: Case,
    properties: dict[str, str],
    topic: str,
    batches: int,
    depth: int = 1,
    processes: int = 2,
    read: dict[str, str] | None = None,
) -> list[list[str]]:
    """Return the commands that produce a case's batches: as many processes as the copy has tasks."""
    dealt = [list(range(first, case.partitions, processes)) for first in range(processes)]
    specs = [Replay(case, properties, topic, own, batches, depth, read) for own in dealt]
    return [[sys.executable, "-m", "benchmarks.replay", spec.dump()] for spec in specs]


# --- MirrorMaker 2 ---------------------------------------------------------------------------------------------------


def _start_mirrormaker(task: Task) -> Running:
    ends = task.world.source, task.world.target
    candidates = mirrormaker.BULK if task.tail is None else mirrormaker.TAIL
    settings = mirrormaker.settings(
        task.alias, task.pattern, ends[0].java, ends[1].java, (ends[0].replicas, ends[1].replicas)
    ) | mirrormaker.tuned(task.alias, task.case, candidates[task.tuning])
    file = task.work / "mm2.properties"
    _properties(file, settings)
    return _running(task, [mirrormaker.command(file, task.work)], dict(os.environ))


def _running(task: Task, commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> Running:
    log = task.work / "log"
    return Running([Child(command, log, task.work, environment) for command in commands], log)


_STARTERS: Mapping[str, Callable[[Task], Running]] = {
    OURS: _start_ours,
    PLAIN: _start_plain,
    LIMIT: _start_limit(reading=False),
    READING_LIMIT: _start_limit(reading=True),
}
