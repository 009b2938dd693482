"""What executors must have, without a Spark: the list, and what is made of an executor's answers."""

from __future__ import annotations

import configparser
import importlib
import re
import subprocess
import sys
import threading
import time
import zipfile
from contextlib import ExitStack
from importlib.metadata import requires, version
from pathlib import Path
from tempfile import gettempdir
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from airflow_mirror import __version__
from airflow_mirror.compat import stores
from airflow_mirror.config import ClientConfig, Handover, load
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.errors import InputError, InvalidField, TryAgain
from airflow_mirror.jobs.driver import executors, spark_crew
from airflow_mirror.jobs.driver.spark_crew import crew_of
from airflow_mirror.jobs.runner import package
from airflow_mirror.jobs.runner.client import ThisHost
from airflow_mirror.jobs.runner.command import spark_conf
from airflow_mirror.jobs.runner.directory import SPARK
from airflow_mirror.jobs.runner.process import JOB_DIR_VARIABLE
from airflow_mirror.jobs.runner.spec import JobSpec
from airflow_mirror.wire import heart

ROOT = Path(__file__).parents[3]

# What a task does, with everything that the list does not name hidden: each codec, each request, both Spark doors.
TASK = """
import importlib.metadata, re, sys
allowed = set(sys.argv[1].split(","))
there = importlib.metadata.packages_distributions()
class Hidden:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in there and not allowed & {re.sub("[-_.]+", "-", name).lower() for name in there[top]}:
            raise ModuleNotFoundError(f"No module named {name!r}, hidden")
sys.meta_path.insert(0, Hidden())
import airflow_mirror
assert ".zip/" in airflow_mirror.__file__, airflow_mirror.__file__
import airflow_mirror.copy.task, airflow_mirror.copy.spark.bulk, airflow_mirror.copy.spark.tail
import airflow_mirror.copy.offsets.store
import airflow_mirror.verify.spark, airflow_mirror.common.oauth.methods
from airflow_mirror.wire import codec, requests, transactions
for name in ("GZIP", "SNAPPY", "LZ4", "ZSTD"):
    assert codec.decompress(getattr(codec, name), codec.compress(getattr(codec, name), b"x" * 99)) == b"x" * 99
import kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.producer, kafka.protocol.sasl, kafka.net.sasl
import pyarrow
print("done")
"""


def with_what_they_bring(names: set[str]) -> set[str]:
    """The distributions with all that their installation installs, names in the normal form."""
    found: set[str] = set()
    open_ = {canonicalize_name(name) for name in names}
    while open_:
        found.add(name := open_.pop())
        wanted = [Requirement(text) for text in requires(name) or ()]
        open_ |= {
            canonicalize_name(r.name) for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})
        } - found
    return found


def test_a_task_imports_nothing_that_the_list_does_not_name(tmp_path: Path) -> None:
    zipped = package.build(tmp_path / "p.zip")
    allowed = with_what_they_bring({*executors.PACKAGES.values(), "pyspark"}) | {"airflow-mirror", "pyspark-client"}
    command = [sys.executable, "-c", TASK, ",".join(allowed)]
    done = subprocess.run(command, env={"PYTHONPATH": str(zipped)}, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "done", done.stderr[-2000:]


def test_library_of_a_login_is_looked_for_where_the_driver_has_used_it(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"
    monkeypatch.delitem(sys.modules, signer, raising=False)
    assert signer not in executors.modules_wanted()
    importlib.import_module(signer)
    assert executors.modules_wanted()[signer] == "aws-msk-iam-sasl-signer-python"


def test_library_of_stores_is_looked_for_where_the_driver_has_opened_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reader = "cryptography.hazmat.primitives.serialization.pkcs12"
    monkeypatch.delitem(sys.modules, reader, raising=False)
    monkeypatch.delattr(serialization, "pkcs12", raising=False)  # an import takes it from there
    assert reader not in executors.modules_wanted()
    (tmp_path / "truststore.p12").write_bytes(b"no store")
    with pytest.raises(InvalidField):
        stores.trusted(str(tmp_path / "truststore.p12"), "")
    assert executors.modules_wanted()[reader] == "cryptography"


def test_every_package_of_the_list_is_a_dependency() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    wanted = config["options"]["install_requires"] + config["options.extras_require"]["spark"]
    assert executors.PINNED <= set(executors.PACKAGES.values()) <= set(re.findall(r"^([\w-]+)", wanted, re.MULTILINE))


def test_the_documented_list_is_the_list() -> None:
    page = (ROOT / "docs" / "spark-jobs.md").read_text(encoding="utf-8")
    table = page.partition("**What executors must have.**")[2].partition("\n\n|")[2].partition("\n\n")[0]
    named = {name for row in re.findall(r"^\| ([a-z0-9, -]+) \|", table, re.MULTILINE) for name in row.split(", ")}
    assert named - {"pyspark", "---"} - {"the network"} == set(executors.PACKAGES.values())


def answer(host: str = "spark-7", **more: object) -> executors.Found:
    found = {name: version(name) for name in executors.PACKAGES.values()}
    return {
        "host": host, "daemon": 1, "python": "3.11.7", "executable": "/usr/bin/python3", "versions": found,
        "failures": {}, "package": {"version": __version__, "file": "x"}, **more,
    }  # fmt: skip


def test_complete_executors_pass() -> None:
    executors._judge([answer(), answer("spark-8")])


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ({"failures": {"lz4": "ImportError: GLIBC_2.99 not found"}},
         ["spark-7", "'lz4'", "GLIBC_2.99", f"Install lz4=={version('lz4')} there."]),
        ({"versions": {"aiokafka": "0.10.0"}}, ["aiokafka 0.10.0", version("aiokafka"), "Install aiokafka=="]),
        ({"package": {"version": "0.0.1", "file": "x"}}, ["airflow-mirror 0.0.1", __version__, "--py-files"]),
        ({"failures": {"airflow-mirror": "ModuleNotFoundError: ..."}, "package": {}}, ["spark-7", "--py-files"]),
    ],
    ids=["library-broken", "other-version-of-a-pinned-one", "other-package", "no-package"],
)  # fmt: skip
def test_what_an_executor_lacks_is_named_with_host_and_remedy(lacking: dict[str, object], said: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        executors._judge([answer("spark-6"), answer(**lacking)])
    assert [part for part in said if part not in str(caught.value)] == []
    assert "spark-6" not in str(caught.value)
    assert isinstance(caught.value, InputError)


@pytest.mark.parametrize(
    ("text", "host", "cause"),
    [
        ('Lost task 0.3 in stage 0.0 (TID 3) (10.1.2.3 executor 0): java.io.IOException: Cannot run program "/opt/py": '
         'error=2, No such file or directory\n\tat java.base/java.lang.ProcessBuilder.start',
         "10.1.2.3", 'Cannot run program "/opt/py": error=2, No such file or directory'),
        ("stage 0.0 (TID 1) (host-b executor 1): org.apache.spark.api.python.PythonException: Traceback (most recent "
         "call last):\n  File x\npyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in "
         "worker has different version: 3.9 than that in driver: 3.11\n\n\tat org.apache.spark.X",
         "host-b", "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
         "different version: 3.9 than that in driver: 3.11"),
    ],
    ids=["no-python", "other-python"],
)  # fmt: skip
def test_python_that_fails_to_start_is_reported_with_host(text: str, host: str, cause: str) -> None:
    assert executors.cause_of(text) == (host, cause)


def test_a_stop_ends_the_wait_for_a_cluster_without_room() -> None:
    context: Any = Context(slots=0, master="spark://h:7077")
    stopping = threading.Event()
    threading.Timer(0.2, stopping.set).start()
    assert executors.check_executors(context, stopping) == []
    assert not context.queued, "tasks that wait bring no executor there"


def test_zip_holds_the_package_and_is_reproducible(tmp_path: Path) -> None:
    one, two = package.build(tmp_path / "a.zip"), package.build(tmp_path / "sub" / "b.zip")
    assert one.read_bytes() == two.read_bytes()
    names = set(zipfile.ZipFile(one).namelist())
    assert {"airflow_mirror/__init__.py", "airflow_mirror/copy/task.py"} <= names
    assert "airflow_mirror/jobs/runner/log4j2.properties" in names
    assert not [name for name in names if "__pycache__" in name]


WHICH = "from airflow_mirror.wire import heart; print(heart.name()); print(heart.__file__)"


def heart_of(zipped: Path, cwd: Path, before: str = "") -> str:
    """Return which heart a process has that finds the package in the zip alone, as on an executor."""
    command = [sys.executable, "-c", f"{before}\n{WHICH}"]
    done = subprocess.run(command, env={"PYTHONPATH": str(zipped)}, cwd=cwd, capture_output=True, text=True)
    name, file = done.stdout.splitlines() or [done.stderr[-2000:], ""]
    assert file.startswith(str(zipped)), done.stdout
    return name


def with_heart(zipped: Path, content: bytes | None) -> Path:
    """Return the zip with another extension in it, or with none."""
    changed = zipped.with_name("changed.zip")
    with zipfile.ZipFile(zipped) as before, zipfile.ZipFile(changed, "w") as after:
        for name in before.namelist():
            if not name.endswith(".so"):
                after.writestr(name, before.read(name))
        if content is not None:
            after.writestr("airflow_mirror/wire/_heart.abi3.so", content)
    return changed


@pytest.mark.skipif(heart.engine is None, reason="nothing could compile the heart on this machine")
def test_the_compiled_heart_comes_with_the_zip(tmp_path: Path) -> None:
    assert heart_of(package.build(tmp_path / "p.zip"), tmp_path) == "compiled"


@pytest.mark.parametrize("content", [None, b"", b"no library at all", b"\x7fELF" + bytes(60)])
def test_without_an_extension_that_fits_pure_python_runs(tmp_path: Path, content: bytes | None) -> None:
    assert heart_of(with_heart(package.build(tmp_path / "p.zip"), content), tmp_path) == "pure"


def test_where_nothing_can_be_loaded_from_memory_pure_python_runs(tmp_path: Path) -> None:
    zipped = package.build(tmp_path / "p.zip")
    assert heart_of(zipped, tmp_path, "import os; del os.memfd_create") == "pure"
    assert heart_of(zipped, tmp_path, "import os; os.memfd_create = lambda name: os.open('/nowhere', 0)") == "pure"


@pytest.mark.skipif(heart.engine is None, reason="nothing could compile the heart on this machine")
def test_a_heart_that_was_built_from_an_older_state_does_not_run(tmp_path: Path) -> None:
    zipped = package.build(tmp_path / "p.zip")
    with zipfile.ZipFile(zipped) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith("wire/heart.py"))
        text = archive.read(name).decode()
        rest = {one: archive.read(one) for one in archive.namelist() if one != name}
    with zipfile.ZipFile(zipped, "w") as archive:
        newer = re.sub(r"_INTERFACE = (\d+)", lambda found: f"_INTERFACE = {int(found[1]) + 1}", text)
        assert newer != text
        archive.writestr(name, newer)
        for one, content in rest.items():
            archive.writestr(one, content)
    assert heart_of(zipped, tmp_path) == "pure"


def test_handed_over_settings_are_loaded_and_show_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mirror.config._handed", {})
    monkeypatch.setenv("HERE", '{"bootstrap.servers": "a:1", "sasl.password": "hush"}')
    handed = Handover.of("env:HERE")
    assert "hush" not in repr(handed)
    monkeypatch.delenv("HERE")
    with pytest.raises(InputError, match="HERE is not set"):
        load("env:HERE")
    handed.accept()
    assert load("env:HERE", "target").properties["sasl.password"] == "hush"


def test_cluster_is_sent_the_zip_and_local_master_nothing(tmp_path: Path) -> None:
    there = JobSpec(
        kind="bulk_copy", mirror={}, spark_conf={"spark.submit.pyFiles": "/x/more.zip"}, master="spark://h:7077"
    )
    settings = {role: ClientConfig({"bootstrap.servers": "x:1"}, role) for role in ("source", "target")}
    command = ThisHost().launch(there, tmp_path, settings).command
    assert command[command.index("--py-files") + 1] == f"{tmp_path / 'airflow_mirror.zip'},/x/more.zip"
    assert zipfile.is_zipfile(tmp_path / "airflow_mirror.zip")
    here = ThisHost().launch(JobSpec(kind="bulk_copy", mirror={}), tmp_path, settings)
    assert "--py-files" not in here.command


class Context:
    """A SparkContext that runs so many tasks at the same time.

    :param grown: how many once tasks wait: a cluster with dynamic allocation gives executors to those alone.
    """

    def __init__(self, slots: int, master: str = "local[*]", grown: int | None = None) -> None:
        self._settings = {"spark.dynamicAllocation.enabled": "True"} if grown else {}  # as of a form
        self.master, self.defaultParallelism = master, 2 if master.startswith("spark:") else slots
        profiles = SimpleNamespace(defaultResourceProfile=lambda: "default")
        self.queued: list[int] = []
        self._groups, self.cancelled = list[str](), list[str]()
        scala = SimpleNamespace(
            resourceProfileManager=lambda: profiles, cancelJobGroupAndFutureJobs=self.cancelled.append,
            maxNumConcurrentTasks=lambda _: grown if self.queued and grown else slots,
            getExecutorMemoryStatus=lambda: SimpleNamespace(size=lambda: 1 + (grown if self.queued and grown else slots)),
        )  # fmt: skip
        self._jsc = SimpleNamespace(sc=lambda: scala)

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return self._settings

    def setJobGroup(self, group: str, _: str) -> None:  # noqa: N802
        self._groups.append(group)

    def parallelize(self, _: range, tasks: int) -> Any:
        return SimpleNamespace(foreach=lambda _: self.queued.append(tasks))

    def has_cancelled(self) -> bool:
        return self.cancelled == self._groups


@pytest.mark.parametrize("tails", [1, 2, 3])
def test_tails_of_one_application_share_its_slots(tails: int) -> None:
    """Their tasks end with them: one live source took all, and no other one was ever copied."""
    context: Any = Context(slots=3)
    executors.await_slots(context, tails, threading.Event(), 0.0)
    with ExitStack() as stack:
        crews = [stack.enter_context(crew_of(context, "driver", tails)) for _ in range(tails)]
        assert all(crew.slots() >= 1 for crew in crews) and sum(crew.slots() for crew in crews) <= 3


@pytest.mark.parametrize("of_a_job", [True, False])
def test_files_of_a_tail_lie_where_nobody_clears_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_a_job: bool
) -> None:
    """In /tmp hosts remove what nobody has touched for ten days; started by hand, a job has no other place."""
    monkeypatch.delenv(JOB_DIR_VARIABLE, raising=False)
    if of_a_job:
        monkeypatch.setenv(JOB_DIR_VARIABLE, str(tmp_path / "1"))
    context: Any = Context(slots=1)
    with crew_of(context, "driver") as crew:
        place = crew._scratch.parent
        assert crew._scratch.is_dir() and place == (tmp_path / "1" / SPARK if of_a_job else Path(gettempdir()))
    assert not crew._scratch.exists()


class Query:
    """Builds a streaming query, as a session does, and knows its options."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def __getattr__(self, _: str) -> Any:
        return self

    def __call__(self, *_: Any, **__: Any) -> Query:
        return self

    def option(self, name: str, value: str) -> Query:
        self.given[name] = value
        return self


def test_directories_of_a_job_are_named_to_spark_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hadoop decodes no path: of an escaped one it makes a directory of that name beside the home, or fails there."""
    home = tmp_path / "jane@corp.com ü+%"
    query, context = Query(), SimpleNamespace(master="local[1]")
    tail: Any = SimpleNamespace(tell_turns=lambda _: None, job=SimpleNamespace(mirror=SimpleNamespace(name="m")))
    monkeypatch.setattr(spark_crew, "sql_session", lambda: query)
    lease = LeaseToken(transactional_id="id", producer_id=1, epoch=2, mark_ms=3, wait_s=0.0)
    work = CopyWork(source="a", target="b", options=CopyOptions(mirror="m"), lease=lease)
    spark_crew.SparkCrew(context, home, "driver").follow(tail, work, 5.0)
    assert query.given["checkpointLocation"] == f"file://{home}/checkpoint-1"
    spec = JobSpec(kind="verify", mirror={"name": "m"}, options={}, spark_conf={}, master="local[1]", inputs="", plan="")
    assert spark_conf(spec, home)["spark.sql.warehouse.dir"] == f"file://{home}/warehouse"


@pytest.mark.parametrize(("master", "error"), [("local[1]", InputError), ("spark://host:7077", TryAgain)])
def test_tails_without_a_slot_each_are_refused(master: str, error: type) -> None:
    context: Any = Context(slots=1, master=master)
    with pytest.raises(error, match="2 sources are followed, and .* runs 1 task at the same time"):
        executors.await_slots(context, 2, threading.Event(), float("-inf"))


def test_cluster_that_gives_executors_to_waiting_tasks_hears_of_the_tails() -> None:
    """Nothing asked it for more: the sources were begun again for ever, or ended at once with --fail-fast."""
    context: Any = Context(slots=1, master="spark://host:7077", grown=3)
    executors.await_slots(context, 3, threading.Event(), time.monotonic())
    assert context.queued == [3] and context.has_cancelled()


def test_slots_that_a_cluster_only_may_give_are_none_yet() -> None:
    """Its executors were given back while a tail rested: what Spark takes for its parallelism then is a setting."""
    context: Any = Context(slots=0, master="spark://host:7077", grown=2)
    context.defaultParallelism = 2
    executors.await_slots(context, 2, threading.Event(), time.monotonic())
    assert context.queued == [2]


def test_cluster_that_begins_without_an_executor_hears_of_the_job() -> None:
    """Dynamic allocation begins with none, and gives one to a task that waits: the check waited before its first."""
    context: Any = Context(slots=0, master="yarn", grown=1)
    assert executors._await_first(context, None)
    assert context.queued == [1] and context.has_cancelled()


def test_cluster_with_an_executor_is_asked_for_none() -> None:
    context: Any = Context(slots=1, master="yarn", grown=2)
    assert executors._await_first(context, None)
    assert not context.queued


def test_tails_that_are_stopped_wait_for_no_slot() -> None:
    context: Any = Context(slots=1, master="spark://host:7077", grown=2)
    stopping = threading.Event()
    stopping.set()
    executors.await_slots(context, 2, stopping, time.monotonic())
    assert len(context.cancelled) == 1
