"""A real Airflow for the demo, the drills and the end-to-end tests: ``airflow standalone`` as a child process.

SQLite, an ``AIRFLOW_HOME`` of its own, a free port, and nothing that listens beyond 127.0.0.1. The child gets its own
process session, because a signal to the parent alone leaves the scheduler and the API server behind;
:meth:`AirflowStandalone.stop` ends the whole session. Spark jobs that tasks started live in sessions of their own and are
stopped separately, before Airflow is.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.process import in_sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REPOSITORY = Path(__file__).resolve().parents[1]
COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")
FINAL_RUN_STATES = frozenset({"success", "failed"})
# The log servers of scheduler and triggerer listen on all addresses and two fixed ports, and no setting changes that.
# Nobody needs them here: the API server reads the files themselves.
_LAUNCHER = """#!/bin/sh
case "$1" in scheduler|triggerer) set -- "$@" --skip-serve-logs ;; esac
exec {airflow} "$@"
"""


class AirflowError(RuntimeError):
    """Airflow did not start, or refused a request; the message has the status and the answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class AirflowStandalone:
    """One Airflow with scheduler, DAG processor, triggerer and API server, driven over its REST API.

    :param home: its ``AIRFLOW_HOME``; created when missing. Jobs and reports go below ``<home>/mirror``.
    :param dags: the folder of DAG files.
    :param connections: Airflow connection id -> librdkafka settings; created as connections of type ``kafka``.
    :param env: more environment variables for all of its processes.
    :param parallelism: tasks that may run at once.
    :param port: of the API server and UI; default: a free one.
    :param path: below which these are served, as ``/airflow``.
    :param python: of an environment whose Airflow runs, with what is installed there alone; default: this process's own,
        with the repository on its path.
    """

    user = "admin"

    def __init__(
        self,
        home: Path,
        dags: Path = REPOSITORY / "dags",
        connections: Mapping[str, Mapping[str, str]] | None = None,
        env: Mapping[str, str] | None = None,
        parallelism: int = 4,
        port: int | None = None,
        path: str = "",
        python: Path | None = None,
    ) -> None:
        self.home, self.dags, self.parallelism = Path(home).resolve(), Path(dags).resolve(), parallelism
        self.connections, self.extra_env = dict(connections or {}), dict(env or {})
        self.port, self.path = port or _free_port(), path
        self._python = python
        # Not resolved: the name by which an environment is entered is what tells Python that it is one.
        self.command = Path(python or sys.executable).absolute().parent / "airflow"
        self._process: subprocess.Popen[bytes] | None = None
        self._token: str | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The URL of the UI."""
        return f"http://127.0.0.1:{self.port}{self.path}"

    @property
    def password(self) -> str:
        """The password that Airflow made up for :attr:`user`; known once it has started."""
        path = self.home / "simple_auth_manager_passwords.json.generated"
        return str(json.loads(path.read_text(encoding="utf-8"))[self.user])

    @property
    def mirror_home(self) -> Path:
        """The ``[mirror] home`` of this Airflow: plans, jobs, reports."""
        return self.home / "mirror"

    def environment(self) -> dict[str, str]:
        """Return the environment of its processes; also right for ``airflow`` commands against it."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("AIRFLOW_")}
        inherited = env.pop("PYTHONPATH", None)
        if self._python is None:
            env["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), *filter(None, [inherited])])
        env |= {
            "AIRFLOW_HOME": str(self.home),
            # `standalone` starts its parts by the name `airflow`, which has to be our launcher.
            "PATH": os.pathsep.join([str(self.home / "bin"), str(self.command.parent), os.environ.get("PATH", "")]),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__PARALLELISM": str(self.parallelism),
            # The driver's default, 5 s, ends a component that finds the database locked while the machine is busy.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home}/airflow.db?timeout=60",
            # Workers find the execution API by the base URL: the port alone leaves every task queued for ever.
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__BASE_URL": self.address,
            "AIRFLOW__API__WORKERS": "1",
            # The default, 5 s, fails tasks that have not begun yet while a busy machine starts the API server's routes.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
            "AIRFLOW__MIRROR__HOME": str(self.mirror_home),
            "SPARK_LOCAL_IP": "127.0.0.1",  # the jobs of its tasks: a driver would listen on the host's address
        }
        return env | self.extra_env

    def start(self, timeout_s: float = 180.0) -> AirflowStandalone:
        """Start it and return when all four components are healthy and the connections exist.

        :raises AirflowError: when it ends or is not healthy within ``timeout_s``; the message has its log's tail.
        """
        launcher = self.home / "bin" / "airflow"
        launcher.parent.mkdir(parents=True, exist_ok=True)
        launcher.write_text(_LAUNCHER.format(airflow=shlex.quote(str(self.command))), encoding="utf-8")
        launcher.chmod(0o755)
        with open(self.home / "standalone.log", "ab") as log:
            self._process = subprocess.Popen(
                [str(launcher), "standalone"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self.environment(), cwd=self.home, start_new_session=True,
            )  # fmt: skip
        atexit.register(self.stop)  # also after Ctrl-C or a failing caller
        deadline = time.monotonic() + timeout_s
        while not self._is_healthy():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AirflowError(f"Airflow did not start within {timeout_s:.0f} s; end of its log:\n{self._log_tail()}")
            time.sleep(0.5)
        for conn_id, settings in self.connections.items():
            self.add_connection(conn_id, settings)
        return self

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop the Spark jobs of this Airflow, then all of its processes. Safe to call twice."""
        atexit.unregister(self.stop)
        process, self._process = self._process, None
        if process is None:
            return
        self._stop_jobs()
        # Once asked politely as a group: scheduler and API server stop their own children in order. A task that hangs
        # sits in a process group of its own and hears nothing of it; it is still in the session.
        _signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        while _group_lives(process) and time.monotonic() < deadline:
            time.sleep(0.2)
        for pid in in_sessions(process.pid):
            _end(pid)
        process.wait(timeout=60)

    def _stop_jobs(self) -> None:
        from airflow_mirror.jobs.runner.local import LocalRunner

        for mirror in self.mirror_home.iterdir() if self.mirror_home.is_dir() else ():
            LocalRunner(mirror).cancel_all()

    def __enter__(self) -> AirflowStandalone:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/api/v2/monitor/health", timeout=30) as answer:
                health = json.load(answer)
        except (OSError, ValueError):
            return False
        return all((health.get(part) or {}).get("status") == "healthy" for part in COMPONENTS)

    def _log_tail(self, lines: int = 30) -> str:
        text = (self.home / "standalone.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    # --- REST ---------------------------------------------------------------------------------------------------------

    def api(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """Call ``/api/v2/<path>`` and return the decoded JSON answer (None when empty).

        :raises AirflowError: for any status of 400 and above; ``.status`` has it.
        """
        for attempt in (1, 2):
            token = self._token or self._log_in()
            try:
                return self._send(method, f"/api/v2/{path.lstrip('/')}", body, query, token)
            except AirflowError as e:
                if e.status != 401 or attempt == 2:
                    raise
                self._token = None  # it has expired
        raise AssertionError("unreachable")

    def _log_in(self) -> str:
        who = {"username": self.user, "password": self.password}
        self._token = str(self._send("POST", "/auth/token", who, {}, None)["access_token"])
        return self._token

    def _send(self, method: str, path: str, body: object, query: Mapping[str, object], token: str | None) -> Any:
        url = self.address + path + (f"?{urllib.parse.urlencode(query, doseq=True)}" if query else "")
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=300) as answer:
                text = answer.read()
        except urllib.error.HTTPError as e:
            detail = e.read().decode(errors="replace")[:2000]
            raise AirflowError(f"{method} {path}: {e.code} {detail}", e.code) from None
        return json.loads(text) if text else None

    def add_connection(self, conn_id: str, settings: Mapping[str, str]) -> None:
        """Create (or replace) a connection of type ``kafka`` whose extra holds ``settings``."""
        body = {"connection_id": conn_id, "conn_type": "kafka", "extra": json.dumps(dict(settings))}
        try:
            self.api("POST", "connections", body)
        except AirflowError as e:
            if e.status != 409:
                raise
            self.api("PATCH", f"connections/{conn_id}", body)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def trigger(
        self, dag_id: str, conf: Mapping[str, Any] | None = None, run_id: str | None = None, timeout_s: float = 300.0,
        **window: str | None,
    ) -> str:  # fmt: skip
        """Start a run and return its id. Waits up to ``timeout_s`` until the DAG has been parsed.

        ``window`` may give ``logical_date``, ``data_interval_start`` and ``data_interval_end`` as ISO 8601.
        """
        body = {"logical_date": None, "conf": dict(conf or {}), **window}
        if run_id:
            body["dag_run_id"] = run_id
        return str(self._once_parsed("POST", f"dags/{dag_id}/dagRuns", body, timeout_s)["dag_run_id"])

    def turn_on(self, dag_id: str, timeout_s: float = 300.0) -> None:
        """Let the scheduler start runs of a DAG. Waits up to ``timeout_s`` until the DAG has been parsed."""
        self._once_parsed("PATCH", f"dags/{dag_id}", {"is_paused": False}, timeout_s)

    def turn_off(self, dag_id: str) -> None:
        """Let the scheduler start no more runs of a DAG; those that run go on."""
        self.api("PATCH", f"dags/{dag_id}", {"is_paused": True})

    def _once_parsed(self, method: str, path: str, body: object, timeout_s: float) -> Any:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self.api(method, path, body)
            except AirflowError as e:
                if e.status != 404 or time.monotonic() > deadline:
                    raise AirflowError(f"{e}; import errors: {self.import_errors()}", e.status) from None
            time.sleep(1)

    def import_errors(self) -> dict[str, str]:
        """Return file name -> stack trace of the DAG files that could not be parsed."""
        found = self.api("GET", "importErrors")["import_errors"]
        return {e["filename"]: e["stack_trace"] for e in found}

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return ``queued``, ``running``, ``success`` or ``failed``."""
        return str(self.api("GET", _run(dag_id, run_id))["state"])

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str]:
        """Return task id -> state (``none`` before it was scheduled); mapped tasks as ``id[index]``."""
        found = self.api("GET", f"{_run(dag_id, run_id)}/taskInstances", limit=200)["task_instances"]
        return {
            t["task_id"] if t["map_index"] < 0 else f"{t['task_id']}[{t['map_index']}]": t["state"] or "none"
            for t in found
        }

    def wait(
        self, dag_id: str, run_id: str, timeout_s: float = 600.0,
        on_change: Callable[[dict[str, str]], None] | None = None, poll_s: float = 1.0,
    ) -> str:  # fmt: skip
        """Wait until a run ends and return its state; ``on_change`` is called with the task states when they change.

        :raises AirflowError: after ``timeout_s``, with the task states.
        """
        deadline, seen = time.monotonic() + timeout_s, None
        while True:
            state, tasks = self.run_state(dag_id, run_id), self.task_states(dag_id, run_id)
            if tasks != seen and on_change:
                on_change(tasks)
            seen = tasks
            if state in FINAL_RUN_STATES:
                return state
            if time.monotonic() > deadline:
                raise AirflowError(f"{dag_id} {run_id} is {state} after {timeout_s:.0f} s: {tasks}")
            time.sleep(poll_s)

    def wait_for_task(
        self, dag_id: str, run_id: str, task_id: str, states: tuple[str, ...], timeout_s: float = 300.0
    ) -> str:
        """Wait until a task is in one of ``states``; return the state.

        :raises AirflowError: when the run ended without it, or after ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            state, run = self.task_states(dag_id, run_id).get(task_id, "none"), self.run_state(dag_id, run_id)
            if state in states:
                return state
            if run in FINAL_RUN_STATES or time.monotonic() > deadline:
                raise AirflowError(f"{dag_id} {run_id}: task {task_id} is {state}, the run {run}; waited for {states}")
            time.sleep(0.5)

    def approve(self, dag_id: str, run_id: str, task_id: str, option: str = "Approve") -> None:
        """Answer an approval task that is (or comes to be) waiting for one."""
        self.wait_for_task(dag_id, run_id, task_id, ("awaiting_input",))
        self._wait_until_parked(dag_id, run_id, task_id)
        body = {"chosen_options": [option], "params_input": {}}
        self.api("PATCH", f"{_run(dag_id, run_id)}/taskInstances/{task_id}/-1/hitlDetails", body)

    def _wait_until_parked(self, dag_id: str, run_id: str, task_id: str, timeout_s: float = 300.0) -> None:
        """Wait until the scheduler has seen that a waiting task handed its slot back.

        Airflow 3.3.2 marks an approval that is answered before that as failed. The scheduler's log alone tells.
        """
        number = self.api("GET", f"{_run(dag_id, run_id)}/taskInstances/{task_id}")["try_number"]
        seen = re.compile(
            rf"TaskInstance Finished: dag_id={re.escape(dag_id)}, task_id={re.escape(task_id)}, "
            rf"run_id={re.escape(run_id)}, .*\btry_number={number},"
        )
        deadline = time.monotonic() + timeout_s
        while not seen.search((self.home / "standalone.log").read_text(encoding="utf-8", errors="replace")):
            if time.monotonic() > deadline:
                raise AirflowError(f"{dag_id} {run_id}: after {timeout_s:.0f} s {task_id} still has its slot")
            time.sleep(0.2)

    def clear(self, dag_id: str, run_id: str, *task_ids: str, downstream: bool = False) -> None:
        """Clear tasks of a run, as the button in the UI does: they run again."""
        body = {
            "dry_run": False, "dag_run_id": run_id, "task_ids": list(task_ids), "only_failed": False,
            "include_downstream": downstream, "reset_dag_runs": True,
        }  # fmt: skip
        self.api("POST", f"dags/{dag_id}/clearTaskInstances", body)

    def mark(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """Mark a task ``failed`` or ``success``, as a user would."""
        self.api("PATCH", f"{_run(dag_id, run_id)}/taskInstances/{task_id}", {"new_state": state})

    def map_labels(self, dag_id: str, run_id: str) -> dict[str, str]:
        """Return what the UI calls the mapped tasks: ``id[index]`` -> what their ``map_index_template`` said.

        Those that did not run are left out: they are called by their number.
        """
        found = self.api("GET", f"{_run(dag_id, run_id)}/taskInstances", limit=200)["task_instances"]
        labels = {f"{t['task_id']}[{t['map_index']}]": t["rendered_map_index"] for t in found if t["map_index"] >= 0}
        return {task: label for task, label in labels.items() if f"[{label}]" not in task}

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """Return an XCom value of a task."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{task_id}/xcomEntries/{key}"
        return self.api("GET", path, deserialize=True)["value"]

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
        """Return the log of one try of a task as text, a line per event."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{task_id}/logs/{try_number}"
        content = self.api("GET", path, full_content=True)["content"]
        return "\n".join(_log_line(event) for event in content)


# Fields that every line of a task's log repeats.
_LOG_NOISE = frozenset({
    "timestamp", "event", "level", "logger", "filename", "lineno", "loc",
    "ti_id", "map_index", "try_number", "dag_id", "task_id", "run_id",
})  # fmt: skip


def _log_line(event: Any) -> str:
    if not isinstance(event, dict):
        return str(event)
    extra = {k: v for k, v in event.items() if k not in _LOG_NOISE}
    return " ".join(str(part) for part in (event.get("level", ""), event.get("event", ""), extra or "") if part)


def _run(dag_id: str, run_id: str) -> str:
    return f"dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id, safe='')}"


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass  # all of them have ended


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended by itself


def _group_lives(leader: subprocess.Popen[bytes]) -> bool:
    leader.poll()  # reaps it: a zombie would count as alive
    try:
        os.killpg(leader.pid, 0)
    except ProcessLookupError:
        return False
    return True
