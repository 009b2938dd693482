"""What a cutover is given, and what it makes of an earlier attempt in its directory."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common import files
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover import run as cutover
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.decision import CLOSED, LIFTED, OPENED, fence_state
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.lifting import locked
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.report import CutoverReport, FenceRecord
from airflow_mirror.cutover.request import Additions
from airflow_mirror.cutover.short_lease import ShortLease
from airflow_mirror.cutover.undoing import recover
from airflow_mirror.errors import (
    CutoverBlocked,
    CutoverCancelled,
    CutoverRunning,
    InputError,
    InvalidField,
    MirrorCutOver,
    TryAgain,
)
from airflow_mirror.plan.findings import Finding
from tests.unit.cutover.builders import (
    Acls,
    a_plan,
    a_run,
    kept_in,
    ledger_of,
    target_of,
    want,
)
from tests.unit.cutover.running import (
    DENY,
    NOTHING_BLOCKS,
    Away,
    Steps,
    fenced,
    lifts,
    run_of,
)

pytestmark = pytest.mark.usefixtures("silent")


def test_fence_of_another_kind_does_not_lift_this_one(tmp_path: Path) -> None:
    """The operator's argument was changed between two tries: it called `off`, noted it, and left the ACLs in place."""
    acls, calls = Acls(DENY), list[str]()
    other = CallableFence(lambda: calls.append("on"), lambda: calls.append("off"))
    fenced(tmp_path, "acl")
    recover(a_run(tmp_path, other, acls))
    assert acls.acls == set() and calls == []
    left = kept_in(tmp_path).load()
    assert left is not None and left.outcome == reports.BACKED_OUT

    fenced(tmp_path, "callable")
    with pytest.raises(InputError, match=r"the fence that is up is of kind 'callable' \(ops\.gate\).*kind 'acl'"):
        recover(a_run(tmp_path, AclFence(acls), acls))  # type: ignore[arg-type]
    left = kept_in(tmp_path).load()
    assert left is not None and left.is_fenced
    for given in (None, AclFence(acls)):  # type: ignore[arg-type]
        with pytest.raises(InputError, match="Pass the fence that was used"):
            lifts(tmp_path, given)
    assert lifts(tmp_path, other) and calls == ["off"]


@pytest.mark.parametrize("keep", [True, False])
def test_made_up_report_neither_ends_a_kept_fence_nor_a_cutover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    """Who may write to the topic of the reports decides nothing."""
    monkeypatch.setattr(cutover, "reverify", lambda _: None)
    acls = Acls(DENY)
    fence = AclFence(acls)  # type: ignore[arg-type]
    report = fenced(tmp_path, "acl", reports.DONE if keep else reports.RUNNING)
    report.outcome, report.fence.kept = reports.DONE, False  # type: ignore[union-attr]
    kept_in(tmp_path).save(report)
    if keep:
        assert lifts(tmp_path, None, acls) == [] and acls.acls == {DENY}
        cutover._run(a_run(tmp_path, fence, acls))
        assert acls.acls == {DENY} and fence_state(ledger_of(tmp_path).values(), "flow").phase == OPENED  # type: ignore[union-attr]
    else:
        left = recover(a_run(tmp_path, fence, acls))
        assert left is not None and left.outcome == reports.BACKED_OUT and not acls.acls
        assert fence_state(ledger_of(tmp_path).values(), "flow").phase == LIFTED  # type: ignore[union-attr]


def test_finished_cutover_looks_at_the_fence_that_it_kept(tmp_path: Path) -> None:
    fenced(tmp_path, "acl", reports.DONE)
    run = a_run(tmp_path, CallableFence(print, print), Acls(DENY))
    cutover._run(run)
    assert run.fence.kind == "acl"


@pytest.mark.parametrize("since", ["", "lifted", "another run's", "no report"])
def test_fence_of_a_source_that_returned_is_no_finished_cutover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    """Its report has the same outcome, and the cut in the place of fenced ends. No direction tells it: the way back was
    armed since, or the mirror retired.
    """
    seen, run_dir = Steps(monkeypatch), tmp_path / "failover-a1"
    report = fenced(run_dir, "callable", reports.DONE)
    report.steps = []
    kept = kept_in(run_dir)
    kept.load()
    kept.save(report)
    its: dict[str, Any] = {"lifted": {"phase": CLOSED}, "another run's": {"run": "later", "id": "later"}}.get(since, {})
    ledger_of(run_dir).decide(lambda values: {"fence/flow": {**values["fence/flow"], "max_fence_s": 0.0, **its}})
    if since == "no report":
        target_of(run_dir).write({key: None for key in target_of(run_dir).read() if key.startswith("report/")})
    with pytest.raises(MirrorCutOver, match=r"was cut over \(by a failover\)"):
        cutover._run(a_run(run_dir, seen.fence))
    assert seen.calls == []


def test_run_that_is_named_like_a_failover_is_a_cutover_by_its_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DAG run may be called anything."""
    seen, run_dir = Steps(monkeypatch), tmp_path / "failover-a1"
    fenced(run_dir, "callable", reports.DONE)
    cutover._run(a_run(run_dir, seen.fence))
    assert seen.calls == []


@pytest.mark.parametrize("broken", ["", "reverify"])
def test_finished_cutover_lets_in_whoever_waits_before_it_compares_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """The old source of a rollback takes no writes until then: a group that has read on must not keep it shut."""
    seen = Steps(monkeypatch, broken)
    report = fenced(tmp_path, "callable", reports.DONE)
    report.plan_hash = a_plan("orders").hash
    kept_in(tmp_path).save(report)
    with pytest.raises(RuntimeError, match=broken) if broken else nullcontext():
        run_of(tmp_path, fence=seen.fence, additions=Additions(afterwards=lambda: seen.calls.append("open")))
    assert seen.calls[-2:] == ["open", "reverify"]


@pytest.mark.parametrize("keep_fence", [True, False])
def test_first_attempt_checks_first_and_lifts_fence_under_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_fence: bool
) -> None:
    """A fence that is to be kept stays up."""
    seen = Steps(monkeypatch)
    run = a_run(tmp_path, seen.fence)
    want(run, keep_fence=keep_fence)
    assert cutover._run(run).attempt == 1
    assert seen.calls == ["precheck", "walk"] + ([] if keep_fence else ["hold_lease", "off"])
    assert keep_fence or not kept_in(tmp_path).load().is_fenced  # type: ignore[union-attr]


def test_preview_that_blocks_raises_no_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Steps(monkeypatch)
    blocks = replace(NOTHING_BLOCKS, findings=[Finding("block", "lag", "orders-0", "stands still", "Look there.")])
    monkeypatch.setattr(cutover, "ask_first", lambda _: blocks)
    monkeypatch.setattr(ShortLease, "wait", lambda *_: None)
    with pytest.raises(CutoverBlocked, match="nothing was touched:\n  - lag: orders-0: stands still"):
        cutover._run(a_run(tmp_path, seen.fence))
    assert seen.calls == ["precheck"] and kept_in(tmp_path).load() is None


def test_what_the_precheck_finds_touches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Steps(monkeypatch, broken="precheck")
    with pytest.raises(RuntimeError, match="precheck"):
        cutover._run(a_run(tmp_path, seen.fence))
    assert seen.calls == ["precheck"] and kept_in(tmp_path).load() is None


def test_what_else_refuses_a_cutover_is_asked_behind_the_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Steps(monkeypatch, broken="groups")
    run = a_run(tmp_path, seen.fence)
    want(run, require=lambda: seen._note("groups"))
    with pytest.raises(RuntimeError, match="groups"):
        cutover._run(run)
    assert seen.calls == ["precheck", "groups"] and kept_in(tmp_path).load() is None


# --- the teardown ---


def test_one_process_at_a_time_holds_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mirror.cutover.lifting._LOCK_PATIENCE_S", 0.0)
    seen = Steps(monkeypatch)
    fenced(tmp_path, "callable")
    """Where the ledger does not answer, nothing else says that a cutover is at work."""
    with locked(kept_in(tmp_path)), pytest.raises(CutoverRunning):
        lifts(tmp_path, seen.fence, ledger=Away())
    assert seen.calls == []


def test_alarm_that_cannot_be_called_refuses_the_cutover(tmp_path: Path) -> None:
    with pytest.raises(InvalidField, match="can't be imported"):
        run_of(tmp_path / "run", alarm="company.that.is.not.here")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def at_work(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Attempt], object]], None]:
    """Return a function that puts another in the place of a cutover's work."""

    def work(do: Callable[[Attempt], object]) -> None:
        def instead(attempt: Attempt) -> CutoverReport:
            do(attempt)
            return attempt.report

        monkeypatch.setattr(cutover, "_run", instead)

    return work


def test_limits_that_are_given_are_the_ones_in_force(tmp_path: Path, at_work: Any) -> None:
    seen: list[Limits] = []
    at_work(lambda run: seen.append(run.limits))
    given = Limits(drain_timeout_s=1, quiet_s=2, wait_groups_s=3, poll_s=4)
    run_of(tmp_path, limits=given)
    assert seen == [given]


def test_finished_cutover_whose_fence_was_lifted_since_is_not_done(tmp_path: Path) -> None:
    """It was rolled back, say: its report still says that it has cut over, and whoever believes that moves producers."""
    fenced(tmp_path, "callable", reports.DONE)
    fence = CallableFence(lambda: None, lambda: None)
    ledger_of(tmp_path).decide(lambda values: {"fence/flow": {**values["fence/flow"], "phase": CLOSED}})
    with pytest.raises(InputError, match="was lifted since, by a rollback.*a run of its own"):
        cutover._run(a_run(tmp_path, fence))


@pytest.mark.parametrize("since", ["", "another run has cut over"])
def test_finished_cutover_whose_lifting_is_in_its_report_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    """What lifted it has noted that, and the cleared task of the cutover turned green on it: producers would move."""
    seen = Steps(monkeypatch)
    fenced(tmp_path, "callable", reports.DONE)
    lifts(tmp_path, seen.fence, include_retained=True)
    left = kept_in(tmp_path).load()
    assert left is not None and left.fence is not None and left.fence.lifted is not None
    assert not left.summary()["fence_kept"]
    if since:
        changed = {"run": "later", "id": "later", "phase": OPENED}
        ledger_of(tmp_path).decide(lambda values: {"fence/flow": {**values["fence/flow"], **changed}})
    with pytest.raises(InputError, match="was lifted since, by a rollback.*a run of its own"):
        cutover._run(a_run(tmp_path, seen.fence))
    assert seen.calls == ["end_writing", "off"]


def test_directory_of_another_plans_cutover_is_refused(tmp_path: Path) -> None:
    fenced(tmp_path, "acl", reports.DONE)
    other = a_run(tmp_path, AclFence(Acls()), Acls())  # type: ignore[arg-type]
    want(other, plan=a_plan("something-else"))
    with pytest.raises(InputError, match="holds the cutover of another plan"):
        cutover._run(other)


def test_attempt_after_a_backed_out_one_keeps_its_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fenced(tmp_path, "callable", reports.BACKED_OUT)
    run = a_run(tmp_path, CallableFence(print, print))
    order: list[str] = []
    monkeypatch.setattr(cutover, "precheck", lambda _: order.append("precheck"))
    monkeypatch.setattr(cutover, "ask_first", lambda _: NOTHING_BLOCKS)
    monkeypatch.setattr(ShortLease, "wait", lambda *_: None)

    def walk(attempt: Attempt) -> None:
        order.append("walk")
        attempt.report.fence = FenceRecord(kind="callable", intent={}, requested=10.0, kept=True)

    monkeypatch.setattr(cutover.steps, "walk", walk)  # type: ignore[attr-defined]
    report = cutover._run(run)
    assert (report.attempt, order) == (2, ["precheck", "walk"])
    assert [e["outcome"] for e in report.earlier] == [reports.BACKED_OUT]


def test_second_cutover_waits_for_the_first_then_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_work: Any
) -> None:
    """One that was just told to stop needs a moment to back out."""
    now, naps = SimpleNamespace(s=0.0), list[float]()

    def sleep(seconds: float) -> None:
        now.s += seconds
        naps.append(seconds)

    def second(_: Attempt) -> None:
        with pytest.raises(CutoverRunning, match=str(tmp_path)):
            run_of(tmp_path)

    at_work(second)
    monkeypatch.setattr(files, "time", SimpleNamespace(monotonic=lambda: now.s, sleep=sleep))
    run_of(tmp_path)
    assert 4.9 < sum(naps) < 6
    at_work(lambda _: None)
    run_of(tmp_path)  # the lock is free again


def test_sigterm_makes_a_cutover_stop_even_inside_a_loop_of_retries(tmp_path: Path, at_work: Any) -> None:
    """Where it would end the process at once, the fence would stay up. An error would be a lost answer to that loop."""

    def work(attempt: Attempt) -> None:
        with suppress(TryAgain):
            os.kill(os.getpid(), signal.SIGTERM)
            assert attempt.stop.wait(60)
        attempt.check_stop()

    at_work(work)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(CutoverCancelled):
            run_of(tmp_path)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_handler_of_the_host_is_left_in_place(tmp_path: Path, at_work: Any) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        at_work(lambda _: os.kill(os.getpid(), signal.SIGTERM))
        run_of(tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]
