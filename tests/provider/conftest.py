"""An AIRFLOW_HOME of its own, set before anything imports Airflow; stand-ins for what a task is given."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat
from airflow_mirror.jobs.runner.spec import JobSpec

os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-mirror-unit-")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, PlanDirectory
from tests.builders import plan_of, topic_plan
from tests.memory.admin import MemoryAdmin
from tests.memory.asking import at_once
from tests.memory.cluster import MemoryCluster
from tests.rumours import soon_believed  # noqa: F401 - a fixture of every test
from tests.unit.ledger.memory import MemoryLedger, MemoryState

# What the fake Spark has started, command line by command line, and how its jobs behave.
Started = tuple[list[dict[str, Any]], dict[str, str]]
DAGS = Path(__file__).parents[2] / "dags"
FAKE_JOB = Path(__file__).parents[1] / "unit" / "jobs" / "fake_job.py"


class FakeTI:
    dag_id, task_id, run_id, map_index, try_number = "kafka_migration", "bulk_copy", "manual__1", -1, 1
    max_tries = 9
    stats_tags: dict[str, str] = {}

    def __init__(self) -> None:
        self.returned: dict[str, Any] = {}  # by the tasks before it
        self.states: dict[str, str] = {}  # of other tasks of its run
        self.pushed: dict[tuple[str, str], Any] = {}  # what tasks have pushed, by task and key

    def xcom_push(self, key: Any, value: Any) -> None:
        self.pushed[self.task_id, key] = value

    def xcom_pull(self, task_ids: Any, key: str = "return_value") -> Any:
        return self.returned.get(task_ids) if key == "return_value" else self.pushed.get((task_ids, key))

    def get_task_states(self, dag_id: str, run_ids: list[str]) -> dict[str, dict[str, str]]:
        return {self.run_id: self.states}


class FakeStore(dict[str, Any]):
    def set(self, key: Any, value: Any, **_: Any) -> None:
        self[key] = json.loads(json.dumps(value))  # a store keeps JSON, not objects

    def delete(self, key: Any) -> None:
        self.pop(key, None)


@pytest.fixture
def context() -> dict[str, Any]:
    return {"ti": FakeTI(), "task_state_store": FakeStore()}


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Two connections of type kafka, and one without what it needs."""

    def add(conn_id: str, **extra: Any) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": "kafka", "extra": extra}))

    secrets = {"sasl.password": "hunter2-src", "ssl.key.pem": "PEM-of-src"}
    add("src", **{"bootstrap.servers": "127.0.0.1:1", "security.protocol": "PLAINTEXT", **secrets})
    add("dst", **{"bootstrap.servers": "127.0.0.1:2"})
    add("bare", **{"client.id": "x"})
    return add


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW__MIRROR__HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def ledger(monkeypatch: pytest.MonkeyPatch) -> MemoryLedger:
    """What the target's ledger says, without a target."""
    one = MemoryLedger()
    for module in ("airflow_mirror.ledger.decisions", "airflow_mirror.cutover.platform", "airflow_mirror.sync.holding"):
        monkeypatch.setattr(f"{module}.Ledger", lambda *_: one)
    return one


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> MemoryState:
    """What its state says."""
    one = MemoryState()
    for module in (
        "airflow_mirror.ledger.state",
        "airflow_mirror.extras.drill.store",
        "airflow_mirror.cutover.platform",
        "airflow_mirror.verify.proof",
        "airflow_mirror.sync.holding",
    ):
        monkeypatch.setattr(f"{module}.state_of", lambda *_, **__: one)
    return one


@pytest.fixture
def mirror() -> dict[str, Any]:
    return {"name": "m", "source": "src", "target": "dst", "topics": ["t"]}


THE_PLAN = plan_of(
    Mirror(name="m", source="src", target="dst", topics=["t"]),
    topic_plan("t", {0: 0, 1: 5}, source_topic_id="id-1", ends={0: 9, 1: 7}),
    source_cluster_id="A",
    target_cluster_id="B",
)
PLAN = THE_PLAN.hash


@pytest.fixture
def plan(home: Path) -> Plan:
    """A stored plan of two partitions; :data:`PLAN` is its hash."""
    return store_plan(home, THE_PLAN)


class InMemory:
    """Both clusters of a task, in memory. ``before``, ``after``: called where something is done, by how it is said."""

    def __init__(self) -> None:
        self.source, self.target = MemoryCluster("source"), MemoryCluster("target")
        self.source.cluster_id, self.target.cluster_id = THE_PLAN.source_cluster_id, THE_PLAN.target_cluster_id
        self.before, self.after = dict[str, Callable[[], object]](), dict[str, Callable[[], object]]()

    def admin(self, config: ClientConfig, *_: float) -> MemoryAdmin:
        return MemoryAdmin({"source": self.source, "target": self.target}[config.role], self._ask)

    def _ask(self, what: str, do: Callable[[], Any], **how: Any) -> Any:
        for words in (words for words in self.before if words in what):
            self.before[words]()
        found = at_once(what, do, **how)
        for words in (words for words in self.after if words in what):
            self.after[words]()
        return found


@pytest.fixture
def clusters(connections: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> InMemory:
    """Where the connections of a task lead."""
    one = InMemory()
    for module in ("airflow_mirror.hooks.kafka", "airflow_mirror.cutover.request"):
        monkeypatch.setattr(f"{module}.ClusterAdmin", one.admin)
    return one


@pytest.fixture
def cut_over_by(clusters: InMemory, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have tasks cut over by a function of the test, as they call the package's own."""
    return lambda run: monkeypatch.setattr("airflow_mirror.cutover.run.run_cutover", run)


def store_plan(home: Path, plan: Plan) -> Plan:
    """Keep a plan as PlanMirrorOperator does."""
    PlanDirectory(home / plan.mirror.name / "plans").save(plan)
    return plan


def decided(ledger: MemoryLedger, handle: dict[str, Any], **changed: Any) -> ActiveTail:
    """Decide that a fake tail is the mirror's, as a real one does itself."""
    spec = json.loads(Path(handle["dir"], "spec.json").read_text())
    given = {
        "directory": handle["dir"],
        "mirror": spec["mirror"],
        "inputs": spec["inputs"],
        "plan": Path(spec["plan"]).stem,
    }
    tail = ActiveTail(**{**given, "pid": handle["pid"], "started": handle["started"], **changed})
    ledger.decide(lambda _: {f"active/{tail.name}": tail.value()})
    return tail


@pytest.fixture
def fake_spark(
    monkeypatch: pytest.MonkeyPatch, home: Path, connections: Callable[..., Any], ledger: MemoryLedger, state: MemoryState
) -> Iterator[Started]:
    """Run the fake job instead of Spark; returns what the jobs that were started are asked to do."""
    from airflow_mirror.hooks import spark
    from airflow_mirror.jobs.runner.client import ThisHost
    from airflow_mirror.jobs.runner.command import Submission
    from airflow_mirror.jobs.runner.local import LocalRunner
    from airflow_mirror.operators import mirror as operators
    from airflow_mirror.operators import spark_job

    started: list[dict[str, Any]] = []
    behaviour = {"is": "quick"}

    def submit(submission: Submission) -> list[str]:
        started.append(json.loads(Path(submission.request).read_text()))
        return [sys.executable, str(FAKE_JOB), *submission.arguments, behaviour["is"]]

    class Runner(LocalRunner):
        def _launch(self, name: str, spec: JobSpec, secrets: Any) -> Any:
            handle = super()._launch(name, spec, secrets)
            if spec.kind == "streaming_tail":
                tail = decided(ledger, handle)
                if behaviour["is"].startswith("copying"):
                    Heartbeat(state, tail).give("RUNNING", phase="copying")
            return handle

    def runner(mirror: Any, spark_conn_id: None = None) -> LocalRunner:
        return Runner(home / (mirror if isinstance(mirror, str) else mirror.name), ThisHost(submit))

    for module in (spark, operators, spark_job):
        monkeypatch.setattr(module, "runner_for", runner)
    monkeypatch.setenv("AIRFLOW__MIRROR__POLL_INTERVAL", "0.05")
    monkeypatch.setattr("airflow_mirror.hooks.tail.TailView.is_writing_ended", lambda _: behaviour["is"] == "ended")
    yield started, behaviour
    runner("m").cancel_all(grace_s=0.2)


class Pauses:
    """What happens while a task that waits for a tail pauses. Nothing else takes time then."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[float], object] = lambda seconds: None

    def __call__(self, seconds: float) -> None:
        self.meanwhile(seconds)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    one = Pauses()
    monkeypatch.setattr("airflow_mirror.operators.tail.sleep", one)
    return one


def submitted(task: Any, plan: Plan, context: dict[str, Any]) -> Any:
    """Have a task start its job and not wait for it; return its handle."""
    task._prepare(plan.mirror)
    task._context = context
    return task.submit_job(context)


@pytest.fixture
def tail(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
) -> Any:
    """A tail that copies what the stored plan says; returns its handle."""
    from airflow_mirror.jobs.runner.local import LocalRunner
    from airflow_mirror.operators.mirror import StartMirrorOperator

    fake_spark[1]["is"] = "copying"
    StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="tail").execute(context)
    fake_spark[1]["is"] = "quick"
    return LocalRunner(home / "m").find("tail")


@pytest.fixture(scope="module")
def bag() -> Any:
    """The DAGs that this repository has, as Airflow parses them."""
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(str(DAGS))
