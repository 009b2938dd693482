"""What a newcomer has before he begins, and how he installs the package: by the README, and with nothing of this tree.

The wheel goes into an environment of the newest Python that is found, by the README's own line and with Airflow's
constraints: the file or address in ``AIRFLOW_CONSTRAINTS``, or else this repository's ``constraints.txt``.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.admin import ClusterAdmin
from sandbox import Cluster
from tests.dist import build_into, run

ROOT = Path(__file__).parents[2]
REUSED = "NEWCOMER_ENV"  # in the environment: a directory whose installation is kept, and used again
README = (ROOT / "README.md").read_text(encoding="utf-8")


class Clock:
    """How long each phase of the trial took, in seconds."""

    def __init__(self) -> None:
        self.phases: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Measure a phase, and print it."""
        began = time.monotonic()
        yield
        self.phases[phase] = time.monotonic() - began
        print(f"newcomer: {phase}: {self.phases[phase]:.0f} s", flush=True)


def readme(*beginnings: str) -> str:
    """Return the lines of "The first migration" that begin so, to be typed as they are."""
    (section,) = re.findall(r"^## The first migration\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    (block,) = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    lines = [line for line in block.splitlines() if line.startswith(beginnings)]
    assert len(lines) >= len(beginnings), f"README.md lacks a line that begins with one of {beginnings}"
    return "\n".join(lines)


def newest_python() -> Path:
    """Return the newest Python that ``make pythons`` finds and that the package says it runs on."""
    said = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    supported = set(re.findall(r"Python :: (3\.\d+)$", said, re.MULTILINE))
    found = dict(line.split("=", 1) for line in run("make", "--no-print-directory", "pythons").splitlines())
    return Path(found[max(supported & found.keys(), key=lambda v: int(v.partition(".")[2]))])


def install(home: Path, clock: Clock) -> Path:
    """Build the wheel, type the README's ``pip install``, and return the environment's Python."""
    home = Path(os.environ.get(REUSED) or home)
    python = home / "env" / "bin" / "python"
    if python.exists():
        return python
    run("mkdir", "-p", home)
    build_into(home / "dist", int(run("git", "log", "-1", "--format=%ct")))  # somebody has given him the wheel
    base, constraints = newest_python(), os.environ.get("AIRFLOW_CONSTRAINTS") or str(ROOT / "constraints.txt")
    print(f"newcomer: {base}, constraints of {constraints}", flush=True)
    with clock("install"):
        run(base, "-m", "venv", home / "env")
        line = readme("pip install").splitlines()[0]
        typed = line.replace("pip install", f"pip install -q --disable-pip-version-check -c '{constraints}'")
        type_in(home, typed, {"PATH": f"{python.parent}:{os.environ['PATH']}"})
    return python


def type_in(directory: Path, text: str, more: Mapping[str, str]) -> str:
    """Type lines into a shell, without this repository on any path; return what they print.

    :raises AssertionError: they fail; with what they printed.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | dict(more)
    done = subprocess.run(
        ["sh", "-e", "-c", text], cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}"
    return done.stdout


@contextmanager
def admin_of(cluster: Cluster) -> Iterator[ClusterAdmin]:
    """Whoever runs a cluster: he grants rights, and is no part of the trial."""
    with ClusterAdmin(ClientConfig(cluster.admin_properties(), cluster.name), timeout_s=60) as admin:
        yield admin


def contents(clusters: Collection[Cluster]) -> list[object]:
    """Return what a mistake could touch: the topics and the ends of their logs, the rules, the positions of groups."""
    seen: list[object] = []
    for cluster in clusters:
        with admin_of(cluster) as admin:
            topics = admin.topics(name for name in admin.topic_names() if not name.startswith("__"))
            partitions = [TopicPartition(name, p) for name, info in topics.items() for p in range(info.partitions)]
            groups = admin.groups_offsets([group.group_id for group in admin.groups()])
            seen.append(
                (sorted(topics), sorted(admin.wire.log_ends(partitions).items()), sorted(admin.describe_acls()), groups)
            )
    return seen
