"""A record of the target's ledger is data: whoever may write there must not choose what runs here.

Functions and classes are named by settings of this host alone. This file lists every place where the package imports by
a name that it was given, and says from where that name comes; a place that is not listed fails.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import airflow_mirror
from airflow_mirror.cutover.rollback.reverse import reverse_of
from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.driver import prepare
from airflow_mirror.plan import Plan
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic
from tests.unit.plan.test_amend import decided, made

PACKAGE = Path(airflow_mirror.__file__).parent
IMPORTS = {
    "import_module", "resolve_name", "__import__", "exec", "eval", "exec_module", "run_module", "run_path",
    "function_at", "alarm_of", "_alarm_of", "Alarm", "fence_of", "_loaded",
}  # fmt: skip
# File, function, what it calls with which name: where that name comes from.
SOURCES = {
    ("console/lift_fence.py", "_lifted", "fence_of(arguments.fence)"): "--fence",
    ("console/lift_fence.py", "_lift_unexplained", "fence_of(arguments.fence)"): "--fence",
    ("console/lift_fence.py", "lift", "fence_of(arguments.fence)"): "--fence",
    ("cutover/alarm.py", "_call", "alarm_of(path)"): "that of the Alarm",
    ("cutover/alarm.py", "alarm_of", "function_at(path)"): "that of the Alarm, or of the cutover",
    ("console/main.py", "parser", "import_module(f'airflow_mirror.console.{COMMANDS[name][0]}')"): "a table",
    ("console/main.py", "every", "import_module(f'airflow_mirror.console.{module}')"): "likewise",
    ("console/home.py", "hooks_of", "import_module(f'airflow_mirror.hooks.{module}')"): "a word in its callers",
    ("cutover/fence.py", "fence_of", "function_at(str(fence))"): "the caller's",
    ("cutover/foreseen.py", "_fence", "fence_of(request.fence)"): "what was asked for: an operator's field, or --fence",
    ("cutover/guard.py", "__init__", "Alarm()"): "none",
    ("cutover/guard.py", "_alarm_of", "Alarm(path)"): "its order",
    ("cutover/guard.py", "_alarm_of", "alarm_of(path)"): "its order",
    ("cutover/guard.py", "_looked_up", "fence_of(self._named)"): "its order",
    ("cutover/guard.py", "main", "_alarm_of(order['alarm'])"): "its order: what the process that starts it was told",
    ("cutover/request.py", "connected", "fence_of(request.fence)"): "what was asked for: an operator's field, or --fence",
    ("cutover/run.py", "run_cutover", "alarm_of(request.alarm)"): "what was asked for: [mirror] alarm, or --alarm",
    ("common/oauth/callback.py", "maker", "function_at(path)"): "oauth_cb of settings of this host",
    ("common/oauth/extra.py", "library", "import_module(module)"): "a word in its callers",
    ("common/dotted.py", "function_at", "resolve_name(path)"): "the caller's",
    ("cutover/failover/returned.py", "watch", "fence_of(fence)"): "an argument: --fence",
    ("jobs/driver/executors.py", "probe", "import_module(module)"): "a list in the same file",
    ("jobs/driver/executors.py", "probe", "import_module('airflow_mirror')"): "said there",
    ("jobs/driver/run_job.py", "_carried_out", "import_module(WORK[kind])"): "a table in the same file",
    ("operators/acls.py", "secrets_of", "function_at(str(reference))"): "the operator's field",
    ("operators/lift_fence.py", "run", "fence_of(self.fence)"): "the operator's field",
    ("wire/heart.py", "_from_zip", "exec_module(module)"): "a file of the package's own zip",
    ("common/policy.py", "_loaded", "import_module(module)"): "a Mirror that no stored plan has brought",
    ("common/policy.py", "_named", "_loaded(self.kind)"): "a Mirror that no stored plan has brought",
}


def calls() -> Iterator[tuple[str, str, str]]:
    """Yield each call that imports by a name: its file, the function around it, and the call with that name."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        within = {
            node: each.name
            for each in ast.walk(tree)  # outer functions come before inner ones
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(each)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in IMPORTS:
                    given = ast.unparse(node.args[0]) if node.args else ""
                    yield str(path.relative_to(PACKAGE)), within.get(node, ""), f"{name}({given})"


def test_every_import_by_a_name_takes_it_from_settings_of_this_host() -> None:
    found = set(calls())
    assert found == SOURCES.keys(), "say here from where a new one has its name; never from a record of the ledger"


# --- names of topics, by a class ----------------------------------------------------------------------------------------


RAN: list[str] = []


class Hostile:
    """A class that somebody names who may write plans."""

    def __init__(self) -> None:
        RAN.append("it")

    def target_topic(self, source_topic: str) -> str:
        return source_topic


CLASS = f"{__name__}:Hostile"


@pytest.fixture
def stored() -> Plan:
    """A plan as it lies in the ledger, whose naming policy is a class."""
    plan = replace(made("orders"), mirror=a_mirror(policy=CLASS))
    read = Plan.from_json(plan.to_json())
    assert (read.hash, read.mirror) == (plan.hash, plan.mirror)
    return read


@pytest.mark.parametrize("changed", [{}, {"max_bytes_per_second": 5}])
def test_class_that_only_a_stored_plan_names_is_not_imported(stored: Plan, changed: dict[str, Any]) -> None:
    RAN.clear()
    plan = replace(stored, mirror=replace(stored.mirror, **changed))
    with pytest.raises(InvalidField, match="a stored plan names this class, and nothing here does.*--policy"):
        decided(plan, a_topic("users"), there=a_cluster(cluster_id="c2"))
    assert RAN == []


def test_job_names_new_topics_by_the_class_of_its_own_mirror(
    stored: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan came from the target, and its topics are amended later."""
    monkeypatch.setattr(prepare, "with_amendments", lambda plan, *_: plan)
    path = tmp_path / "plan.json"
    nowhere: Any = None
    path.write_text(stored.to_json())
    own = a_mirror(policy=CLASS)
    assert decided(prepare._stored(path, own, nowhere, True), a_topic("users")).topics
    with pytest.raises(InvalidField, match="nothing here does"):
        decided(prepare._stored(path, a_mirror(), nowhere, True), a_topic("users"))


def test_reverse_mirror_brings_no_class_along(stored: Plan) -> None:
    """Its fields go from task to task; its topics have one name on both sides, or there is no way back."""
    assert reverse_of(stored.mirror).policy == "identity"
