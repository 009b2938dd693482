"""The link of a report: which one counts, and who wrote it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover import run as cutover
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.decision import LIFTED
from airflow_mirror.cutover.evidence import prove
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore, text_in
from airflow_mirror.cutover.signing import Signer
from airflow_mirror.cutover.undoing import recover
from airflow_mirror.errors import (
    TryAgain,
)
from airflow_mirror.ledger import chain
from airflow_mirror.ledger.chain import Link, add, links
from tests.unit.cutover.builders import (
    a_run,
    go_up,
    kept_in,
    ledger_of,
    target_of,
)
from tests.unit.cutover.running import (
    Steps,
    fenced,
    run_of,
)


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no target that would hear signs of life, or could be asked by a guard."""
    monkeypatch.setattr(Platform, "signs_of_life", lambda *_: nullcontext())
    monkeypatch.setattr(Platform, "guarded", lambda *_: nullcontext(lambda: None))


@pytest.fixture
def at_work(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Attempt], object]], None]:
    """Return a function that puts another in the place of a cutover's work."""

    def work(do: Callable[[Attempt], object]) -> None:
        def instead(attempt: Attempt) -> CutoverReport:
            do(attempt)
            return attempt.report

        monkeypatch.setattr(cutover, "_run", instead)

    return work


# --- the link of a report ---


SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(b"1" * 32))


def ends(outcome: str) -> Callable[[Attempt], None]:
    """A run whose report says how it ended."""

    def work(attempt: Attempt) -> None:
        go_up(attempt)
        attempt.report.outcome = outcome
        attempt.save()
        ledger_of(attempt.store.directory).decide(
            lambda values: {"fence/flow": {**values["fence/flow"], "phase": LIFTED}}
        )  # type: ignore[arg-type]

    return work


def chain_of(run_dir: Path) -> list[Link]:
    return links(ledger_of(run_dir).values(), "flow")


@pytest.mark.parametrize("outcome", [reports.DONE, reports.BACKED_OUT])
def test_report_of_a_run_that_ended_is_linked_and_signed(tmp_path: Path, at_work: Any, outcome: str) -> None:
    at_work(ends(outcome))
    run_of(tmp_path, signer=SIGNER)
    (link,) = chain_of(tmp_path)
    text = (tmp_path / "report.json").read_text()
    (proven,) = prove({"report.json": text}, SIGNER._key.public_key(), [link])
    assert proven.link == link and link.run == tmp_path.name
    assert text == text_in(target_of(tmp_path).read(), "flow", tmp_path.name)


@pytest.mark.parametrize("outcome", [reports.RUNNING, reports.UNDO_FAILED])
def test_report_of_a_run_that_goes_on_has_no_link(tmp_path: Path, at_work: Any, outcome: str) -> None:
    at_work(ends(outcome))
    run_of(tmp_path)
    assert chain_of(tmp_path) == []


@pytest.mark.parametrize("dies", ["before the decision", "behind the decision", "before the writing"])
def test_killed_at_its_end_a_run_gets_its_one_link_from_the_next_process(
    tmp_path: Path, at_work: Any, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    def add_and_die(*arguments: Any) -> None:
        add(*arguments)
        die()

    def write_or_die(store: ReportStore, report: CutoverReport) -> None:
        (die if report.seal is not None else lambda: write(store, report))()

    write = ReportStore._write
    with monkeypatch.context() as patched:
        at_work(ends(reports.BACKED_OUT))
        if dies == "before the writing":
            patched.setattr(ReportStore, "_write", write_or_die)
        else:
            patched.setattr(chain, "add", die if dies.startswith("before") else add_and_die)
        with pytest.raises(KeyboardInterrupt):
            run_of(tmp_path)
    left = kept_in(tmp_path).load()
    assert left is not None and left.seal is None
    for _ in range(2):
        run = a_run(tmp_path, CallableFence(print, print))
        earlier = recover(run)
        assert earlier is not None
        cutover._seal(run, earlier)
        text = (tmp_path / "report.json").read_text()
        assert [prove({"report.json": text}, None, chain_of(tmp_path))[0].link] == chain_of(tmp_path)


def test_next_attempt_links_what_the_killed_one_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That attempt's report is then not on the target any more; its digest is."""
    seen = Steps(monkeypatch)
    fenced(tmp_path, "callable")
    cutover._run(a_run(tmp_path, seen.fence))
    (link,) = chain_of(tmp_path)
    assert link.run == tmp_path.name


def test_report_that_changed_since_carries_both_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished cutover was made again: it has compared once more, and says so."""
    seen = Steps(monkeypatch)
    fenced(tmp_path, "callable", reports.DONE)
    run = a_run(tmp_path, seen.fence)
    cutover._run(run)
    run.save()  # as who compares again does
    cutover._seal(run, run.report)
    first, second = chain_of(tmp_path)
    assert first.report != second.report
    assert run.report.seal == {"links": [first.value(), second.value()]}


def test_target_that_is_away_at_the_end_fails_no_cutover(
    tmp_path: Path, at_work: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: object) -> None:
        raise TryAgain("no broker answered")

    at_work(ends(reports.DONE))
    monkeypatch.setattr(chain, "add", away)
    assert run_of(tmp_path).outcome == reports.DONE
    assert "next process adds it: no broker answered" in caplog.text


def test_report_that_could_not_be_written_is_not_linked(
    tmp_path: Path, at_work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target has an older one, of which the next process makes its own."""

    def work(attempt: Attempt) -> None:
        go_up(attempt)
        attempt.save()
        attempt.report.outcome = reports.BACKED_OUT
        with monkeypatch.context() as patched:
            patched.setattr(target_of(tmp_path), "fails_at", target_of(tmp_path)._written)
            with suppress(KeyboardInterrupt):
                attempt.save()

    at_work(work)
    run_of(tmp_path)
    assert chain_of(tmp_path) == []
