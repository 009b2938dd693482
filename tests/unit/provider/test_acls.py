"""Access rules as a task: what it asks for, and what it leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_mirror.operators.acls import SyncAclsOperator
from airflow_mirror.plan import Plan
from airflow_mirror.sync.acl_rules import LeftOut
from airflow_mirror.sync.acls import AclDiff, AclReport
from tests.builders import rule
from tests.unit.provider.conftest import PLAN

RULES = tuple(rule("orders", "READ", "ALLOW", f"User:u{i}") for i in range(10_000))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Answer every task with ten thousand rules; note what it asked for."""
    found: list[dict[str, Any]] = []

    def sync(*_: Any, **given: Any) -> AclReport:
        found.append(given)
        diff = AclDiff(
            own=(), deny=(), allow=RULES, kept=RULES[:3], later=RULES[:1], drift=(), lost=("TOPIC 'orders': ...",),
            left_out=(LeftOut(RULES[0], "because"),), written_out=(),
        )  # fmt: skip
        applied = not given["dry_run"]
        return AclReport(phase=given["phase"], diff=diff, open_by_default=None, removed=(), applied=applied, notes=("n",))

    monkeypatch.setattr("airflow_mirror.sync.acls.sync_acls", sync)
    return found


@pytest.mark.parametrize(("dry_run", "name"), [(True, "acls.early.dry-run.json"), ("False", "acls.early.json")])
def test_verdict_is_small_and_its_file_is_whole(
    asked: list[dict[str, Any]], dry_run: bool | str, name: str, context: dict[str, Any],
    connections: Callable[..., None], mirror: dict[str, Any], plan: Plan, home: Path,
) -> None:  # fmt: skip
    found = SyncAclsOperator(task_id="t", mirror=mirror, plan=PLAN, dry_run=dry_run).execute(context)
    assert len(json.dumps(found)) < 50_000
    assert (found["changes"], found["kept"], found["later"]) == (10_000, 3, [str(RULES[0])])
    assert found["left_out"] == [{"rule": str(RULES[0]), "reason": "because"}] and found["lost"] and found["notes"]
    file = Path(found["path"])
    assert file.name == name and found["granted"] == f"left out, see {file}"
    assert json.loads(file.read_text())["granted"] == [str(one) for one in RULES]
    (options,) = asked
    assert options["dry_run"] is (dry_run is True)
    assert (options["phase"], options["remove"], options["cluster_wide"]) == ("early", False, False)
    assert (options["open_to_all"], options["own"]) == (None, {})


def test_rendered_arguments_are_what_they_say(
    asked: list[dict[str, Any]], context: dict[str, Any], connections: Callable[..., None], mirror: dict[str, Any],
    plan: Plan, home: Path,
) -> None:  # fmt: skip
    SyncAclsOperator(
        task_id="t", mirror=mirror, plan=PLAN, phase="cutover", remove="True", cluster_wide="true",
        open_by_default="False", own_principals={"target": "User:CN=m"},
    ).execute(context)  # fmt: skip
    assert asked == [
        {"phase": "cutover", "dry_run": False, "remove": True, "cluster_wide": True, "open_to_all": False,
         "own": {"target": "User:CN=m"}}
    ]  # fmt: skip


@pytest.mark.parametrize("value", [{"both": "User:m"}, {"target": "mirror"}, "User:m"])
def test_own_principals_are_given_by_role(
    value: Any, asked: list[dict[str, Any]], context: dict[str, Any], connections: Callable[..., None],
    mirror: dict[str, Any], plan: Plan, home: Path,
) -> None:  # fmt: skip
    with pytest.raises(AirflowFailException, match="InvalidField: own_principals="):
        SyncAclsOperator(task_id="t", mirror=mirror, plan=PLAN, own_principals=value).execute(context)
    assert asked == []


def test_a_changed_map_of_principals_needs_no_new_plan(
    asked: list[dict[str, Any]], context: dict[str, Any], connections: Callable[..., None], mirror: dict[str, Any],
    plan: Plan, home: Path,
) -> None:  # fmt: skip
    mapped = {**mirror, "principals": {"User:a": "User:b"}}
    SyncAclsOperator(task_id="t", mirror=mapped, plan=PLAN).execute(context)
    assert len(asked) == 1
