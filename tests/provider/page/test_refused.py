"""What refused a mirror's last task stands on the page, and in the console."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_mirror.console.status import View, _shown
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.records import REFUSED
from airflow_mirror.plan.findings import BLOCK, Finding
from airflow_mirror.plan.refused import Refusal, forget, note
from tests.page.world import HOSTILE, World
from tests.provider.page.asking import DAGS, get

if TYPE_CHECKING:
    from fastapi.testclient import TestClient


def refuse(world: World, kind: str, at: float | None = None) -> None:
    found = Finding(BLOCK, "tail", HOSTILE, "no tail lives", "Start the tail.")
    note(world.state, "orders", kind, Refusal.of([found], f"{DAGS[0]}.{kind}, run r", at or time.time() + 60))


def refused(page: TestClient) -> list[str]:
    (row,) = get(page, "/list").json()["mirrors"]
    assert row["needs_person"] is bool(row["refused"])
    return [one["kind"] for one in row["refused"]]


def a_mirror_that_follows(world: World) -> None:
    world.create({"orders": [0]})
    tail = world.tail(world.plan("orders", {"orders": 1}, DAGS[0]))
    world.own("orders", "orders")
    world.says(tail, phase="copying", summary={"lag": 0})


def test_mirror_whose_preview_was_refused_needs_a_person_who_is_told_what_to_do(
    world: World, page_anew: TestClient
) -> None:
    """It was green, following, and not at Home."""
    a_mirror_that_follows(world)
    assert refused(page_anew) == []
    refuse(world, "preview")
    (row,) = get(page_anew, "/list", f"anna:{DAGS[0]}", "VIEWER").json()["mirrors"]
    (one,) = row["refused"]
    assert row["needs_person"] and one["by"] == f"{DAGS[0]}.preview, run r"
    assert (one["findings"][0]["object"], one["findings"][0]["remedy"]) == (HOSTILE, "Start the tail.")
    assert get(page_anew, "/list", "anna:other", "VIEWER").json()["mirrors"] == []
    forget(world.state, "orders", "preview")
    assert refused(page_anew) == []


def test_refusal_counts_until_time_has_passed_it(world: World, page_anew: TestClient) -> None:
    """A plan by hand removes no record, and neither does a cutover by hand."""
    refuse(world, "plan", at=5.0)
    a_mirror_that_follows(world)
    assert refused(page_anew) == []
    refuse(world, "plan")
    refuse(world, "cutover")
    assert refused(page_anew) == ["plan", "cutover"]
    world.own("orders", "orders", opened="plan")
    assert refused(page_anew) == ["plan"]


def test_record_that_no_task_has_written_takes_nobodys_page_away(world: World, page_anew: TestClient) -> None:
    a_mirror_that_follows(world)
    odd: dict[str, Any] = {"by": "x", "at": float("nan"), "findings": []}
    world.state.write(REFUSED.put(odd, "orders", "preview"))
    answer = get(page_anew, "/list").json()
    assert [row["refused"] for row in answer["mirrors"]] == [[]] and answer["targets"][0]["newer"]


def test_status_in_the_console_says_it_too(world: World) -> None:
    from io import StringIO

    from rich.console import Console

    a_mirror_that_follows(world)
    refuse(world, "preview")
    with ClusterAdmin(world.target.config) as target:
        view = View(target)
        out = StringIO()
        Console(file=out, width=200).print(_shown(view.rows(), view.newer))
    assert "orders: its preview was refused at" in out.getvalue()
    assert "no tail lives. Start the tail." in out.getvalue()
