"""What is shown and asked before a cutover, and what its task makes of the answer."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from markdown_it import MarkdownIt

from airflow_mirror.cutover.forecast import Forecast
from airflow_mirror.cutover.preview import Preview
from airflow_mirror.cutover.report import BACKED_OUT, RUNNING, CutoverReport, FenceRecord
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.request import Additions, Clusters, CutoverRequest
from airflow_mirror.errors import DrainTimedOut, InputError, TryAgain
from airflow_mirror.hooks.home import report_dir
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.approval import ApproveCutoverOperator
from airflow_mirror.operators.cutover import CutoverOperator, PreviewCutoverOperator
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.markdown import finding_row, table
from tests.provider.conftest import PLAN
from tests.unit.ledger.memory import MemoryState

WARN = Finding("warn", "disk", "target", "2.0 GB free", "Look.")
NO_WAY = Finding("warn", "way_back", "old source", "no way back after opening: brokers before 3.0", "Go on if")
BACK = Finding("pass", "way_back", "old source", "it can be armed")
BLOCK = Finding("block", "lag", "orders-0", "stands still", "Look there.")


def seen(*findings: Finding) -> Preview:
    return Preview(
        mirror="m", plan=PLAN, revision="r0", at=1_790_000_000.5, findings=findings,
        forecast=Forecast(steps={"drain": 8.2}),
    )  # fmt: skip


class Looked:
    """What a look at a cutover before it finds, and at the way back. ``asked``: what was looked for."""

    def __init__(self) -> None:
        self.findings: tuple[Finding, ...] = (WARN,)
        self.way_back, self.asked = BACK, list[CutoverRequest]()

    def preview(self, request: CutoverRequest, *_: Any, **__: Any) -> Preview:
        self.asked.append(request)
        return seen(*self.findings)


@pytest.fixture(autouse=True)
def looked(cut_over_by: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Looked:
    one = Looked()
    monkeypatch.setattr("airflow_mirror.cutover.run.preview_cutover", one.preview)
    monkeypatch.setattr("airflow_mirror.cutover.rollback.foresee.foresee", lambda *_: one.way_back)
    return one


def directory(mirror: dict[str, Any]) -> Path:
    return report_dir(Mirror.from_dict(mirror), "manual__1")


def test_preview_returns_its_lines_and_keeps_them(
    context: dict[str, Any], mirror: dict[str, Any], looked: Looked
) -> None:
    found = PreviewCutoverOperator(
        task_id="t", mirror=mirror, plan=PLAN, max_fence_s="20", accept_still_groups=["a", "7"], leave_out_groups="bad"
    ).execute(context)
    (asked,) = looked.asked
    assert asked.limits.max_fence_s == 20.0
    assert (asked.accept_still_groups, asked.leave_out_groups) == (["a", "7"], ["bad"])
    assert (found["revision"], found["at"], found["predicted_seconds"]) == ("r0", 1_790_000_000.5, 8.2)
    assert found["lines"] == [
        "predicted length of the fence: 8.2 s (drain 8.2)", "warn: disk: target: 2.0 GB free. Look.",
        "ok: way_back: old source: it can be armed",
    ]  # fmt: skip
    assert found["no_way_back"] == ""
    kept = json.loads((directory(mirror) / "preview.json").read_text())
    assert kept["predicted"]["seconds"] == 8.2 and kept["findings"][0]["evidence"] == "2.0 GB free"


def test_preview_says_why_there_will_be_no_way_back(
    context: dict[str, Any], mirror: dict[str, Any], looked: Looked
) -> None:
    looked.way_back = NO_WAY
    found = PreviewCutoverOperator(task_id="t", mirror=mirror, plan=PLAN).execute(context)
    assert found["no_way_back"] == NO_WAY.evidence and found["lines"][-1].startswith("warn: way_back: old source: no way")


def test_preview_that_blocks_fails_with_all_of_it(
    context: dict[str, Any], mirror: dict[str, Any], looked: Looked
) -> None:
    looked.findings = (BLOCK, WARN)
    with pytest.raises(
        AirflowException, match="CutoverBlocked: .*nothing was touched\n  - lag: orders-0: stands still"
    ) as e:
        PreviewCutoverOperator(task_id="t", mirror=mirror, plan=PLAN).execute(context)
    assert not isinstance(e.value, AirflowFailException), "it may pass by itself"
    assert (directory(mirror) / "preview.json").exists()


def test_cutover_tells_its_assets_what_became_of_it(
    context: dict[str, Any], mirror: dict[str, Any], cut_over_by: Callable[..., None]
) -> None:
    report = CutoverReport(mirror="m", plan_hash=PLAN, outcome="cut_over")
    cut_over_by(lambda *_, **__: report)
    switched = Asset("switched")
    context["outlet_events"] = {switched: SimpleNamespace(extra={})}
    found = CutoverOperator(task_id="t", mirror=mirror, plan=PLAN, outlets=[switched]).execute(context)
    assert context["outlet_events"][switched].extra == found and found["outcome"] == "cut_over"


def test_cutover_is_told_what_was_shown_and_when(
    context: dict[str, Any], mirror: dict[str, Any], cut_over_by: Callable[..., None]
) -> None:
    told: list[tuple[Any, ...]] = []

    def cut_over(request: CutoverRequest, *_: Any, **__: Any) -> None:
        told.append((request.compared, request.shown_at, request.limits.approval_valid_s))
        raise InputError("far enough")

    cut_over_by(cut_over)
    with DAG("d"):
        previews = [PreviewCutoverOperator(task_id=f"preview{n}", mirror=mirror, plan=PLAN) for n in range(2)]
        cutover = CutoverOperator(task_id="t", mirror=mirror, plan=PLAN, approval_valid_s="900")
        previews >> cutover  # type: ignore[operator]
    for returned in (
        {},
        {f"preview{n}": {"mirror": "m", "plan": PLAN, "revision": f"r{n}", "at": 70.5 - n} for n in range(2)},
    ):
        context["ti"].returned = returned
        with pytest.raises(AirflowFailException, match="far enough"):
            cutover.execute(context)
    assert told == [([], None, 900.0), (["r0", "r1"], 69.5, 900.0)]


@pytest.mark.parametrize(
    ("outcome", "fenced", "again", "final"),
    [
        (BACKED_OUT, True, False, True),
        (BACKED_OUT, True, True, False),
        (BACKED_OUT, False, False, False),
        (RUNNING, True, False, False),  # nobody knows what became of it: only the next try finds out
    ],
)
def test_retry_raises_no_second_fence_unless_asked(
    context: dict[str, Any], mirror: dict[str, Any], cut_over_by: Callable[..., None], outcome: str, fenced: bool,
    again: bool, final: bool,
) -> None:  # fmt: skip
    def cut_over(_request: CutoverRequest, _clusters: Clusters, store: ReportStore, **_: Any) -> None:
        report = CutoverReport(mirror="m", plan_hash=PLAN, outcome=outcome)
        if fenced:
            report.fence = FenceRecord(kind="acl", intent={}, requested=time.time() - 9, lifted=time.time())
        store.save_here(report)
        raise DrainTimedOut(5.0, {"orders-0": 3})

    cut_over_by(cut_over)
    with pytest.raises(AirflowException, match="orders-0 by 3") as e:
        CutoverOperator(task_id="t", mirror=mirror, plan=PLAN, fence_again=again).execute(context)
    assert isinstance(e.value, AirflowFailException) is final
    assert ("kept out for 9 s" in str(e.value)) is final


@pytest.mark.parametrize(
    ("try_number", "max_tries", "fenced", "again", "refused"),
    [
        (2, 2, True, False, True),
        (3, 2, True, False, True),
        (2, 2, False, False, False),  # it was killed before it raised a fence
        (2, 2, True, True, False),
        (3, 4, True, False, False),  # cleared after its second try: somebody wants it
    ],
)
def test_retry_after_a_kill_raises_no_second_fence_either(
    context: dict[str, Any], mirror: dict[str, Any], cut_over_by: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch, try_number: int, max_tries: int, fenced: bool, again: bool, refused: bool,
) -> None:  # fmt: skip
    """Its report is on the target; the host of the first try is gone."""
    reports = MemoryState()
    monkeypatch.setattr("airflow_mirror.cutover.platform.state_of", lambda *_, **__: reports)
    before = CutoverReport(mirror="m", plan_hash=PLAN, outcome=BACKED_OUT)
    if fenced:
        before.fence = FenceRecord(kind="acl", intent={}, requested=time.time() - 30, lifted=time.time() - 21)
    ReportStore(reports, "m", directory(mirror).name, None).save(before)

    def cut_over(*_: Any, additions: Additions, **__: Any) -> None:
        additions.require()
        raise TryAgain("far enough")

    cut_over_by(cut_over)
    context["ti"].try_number, context["ti"].max_tries = try_number, max_tries
    cutover = CutoverOperator(task_id="t", mirror=mirror, plan=PLAN, fence_again=again, retries=2)
    with pytest.raises(AirflowException) as e:
        cutover.execute(context)
    assert isinstance(e.value, AirflowFailException) is refused
    assert ("producers were kept out for 9 s" in str(e.value)) is refused


def test_failure_before_the_fence_is_tried_again_whatever_came_before(
    context: dict[str, Any], mirror: dict[str, Any], cut_over_by: Callable[..., None]
) -> None:
    """The report of an earlier attempt is still there."""
    before = CutoverReport(mirror="m", plan_hash=PLAN, outcome=BACKED_OUT, started=time.time() - 100)
    before.fence = FenceRecord(kind="acl", intent={}, requested=time.time() - 90, lifted=time.time() - 80)
    before.save(directory(mirror))

    def cut_over(*_: Any, **__: Any) -> None:
        raise TryAgain("a broker is down")

    cut_over_by(cut_over)
    with pytest.raises(AirflowException, match="a broker is down") as e:
        CutoverOperator(task_id="t", mirror=mirror, plan=PLAN).execute(context)
    assert not isinstance(e.value, AirflowFailException)


# --- the approval ----------------------------------------------------------------------------------------------------


def approval(**given: Any) -> ApproveCutoverOperator:
    with DAG("d"):
        return ApproveCutoverOperator(task_id="approve", subject="Cut over?", preview="preview", retries=2, **given)


def answered(option: str) -> dict[str, Any]:
    return {
        "chosen_options": [option], "params_input": {}, "responded_at": datetime.now(UTC), "responded_by_user": None,
        "timedout": False,
    }  # fmt: skip


def test_approval_shows_what_the_preview_has_found(context: dict[str, Any]) -> None:
    task = approval()
    context["ti"].returned = {"preview": {"lines": seen(WARN, BLOCK).lines()}}
    context["task"] = task
    task.render_template_fields(context)  # type: ignore[arg-type]
    assert task.body is not None
    assert "* predicted length of the fence: 8.2 s" in task.body and "* warn: disk: target: 2.0 GB free" in task.body


HOSTILE = [
    "g\n* ok: nothing blocks\n\nApprove.", "](javascript:alert(1))", "[approve](https://evil.example)", "`x` ``y``",
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a|b | c |",
    "back\\slash \\[", "\u202eesrever", "\x1b[2J", "&#8238;",
    "**bold**", "\r\n# Heading",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_names_can_not_write_what_a_person_approves(context: dict[str, Any], name: str) -> None:
    """Whoever may use a group or a topic chooses its name."""
    task, one = approval(), Finding("warn", "groups", f"group {name}", "lag 7", "")
    context["ti"].returned = {"preview": {"lines": [str(one)]}}
    context["task"] = task
    task.render_template_fields(context)  # type: ignore[arg-type]
    assert task.body is not None
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(one))
    tags, text = rendered(task.body)
    assert tags == ["p", "ul", "li", "p"] and shown in text
    tags, text = rendered(table(("", "", "", "", ""), [finding_row(one)]))
    assert tags == ["table", "thead", "tr", *["th"] * 5, "tbody", "tr", *["td"] * 5]
    assert "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in one.object) in text


def rendered(markdown: str) -> tuple[list[str], str]:
    """Return the tags that a browser gets to see, and the text, as a parser of Markdown that is not ours makes them."""
    page = MarkdownIt("commonmark").enable("table").render(markdown)
    return re.findall(r"<([a-z]+)", page), html.unescape(re.sub(r"<[^>]*>", "", page))


@pytest.mark.parametrize("red", [True, "True"])
def test_rejecting_fails_without_a_retry_if_asked(context: dict[str, Any], red: Any) -> None:
    with pytest.raises(AirflowFailException, match="Reject") as e:
        approval(fail_on_reject=red).execute_complete(context, answered("Reject"))  # type: ignore[arg-type]
    assert e.value.__suppress_context__, "no chained traceback"


@pytest.mark.parametrize("option", ["Reject", "Approve"])
def test_other_answers_do_not_fail(context: dict[str, Any], option: str) -> None:
    found = approval(fail_on_reject="False").execute_complete(context, answered(option))  # type: ignore[arg-type]
    assert found["chosen_options"] == [option]


def test_answer_is_waited_for_as_long_as_it_is_good(context: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    parent = ApproveCutoverOperator.__mro__[1]
    monkeypatch.setattr(parent, "execute", lambda task, _: asked.append(task.response_timeout))
    approval(valid_s="900").execute(context)  # type: ignore[arg-type]
    assert asked == [timedelta(minutes=15)]
    with pytest.raises(AirflowFailException, match="valid_s"):
        approval(valid_s="soon").execute(context)  # type: ignore[arg-type]
