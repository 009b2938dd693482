"""The report on the target: what a process on another host, with an empty disk, finds of one that was killed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_mirror.cutover.report import CutoverReport, FenceRecord
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.errors import InputError, TryAgain
from airflow_mirror.ledger.records import REPORT
from tests.unit.ledger.memory import MemoryState


def a_report(text: str = "", mirror: str = "m", **fence: object) -> CutoverReport:
    record = FenceRecord(kind="acl", intent={"topics": []}, requested=1.0)
    for name, value in fence.items():
        setattr(record, name, value)
    return CutoverReport(mirror=mirror, plan_hash="p", fence=record, error=text)


def elsewhere(state: MemoryState, run: str = "monday", mirror: str = "m") -> ReportStore:
    """The same run on a host that has no file of it."""
    return ReportStore(state, mirror, run, None)


def test_report_is_found_where_no_file_is(tmp_path: Path) -> None:
    state = MemoryState()
    here = ReportStore(state, "m", "monday", tmp_path)
    assert here.load() is None
    for text in ("first", "second"):
        here.save(a_report(text))
    found = elsewhere(state).load()
    assert found is not None and found.error == "second" and found == here.on_disk()
    assert elsewhere(state, run="mon").load() is None and elsewhere(state, mirror="m2").load() is None
    assert len(state.read()) == 1, "of earlier writings nothing stays"


def test_kill_between_two_pieces_leaves_the_writing_before(small_records: Callable[[int], None]) -> None:
    small_records(200)
    for fatal in range(100):
        state = MemoryState()
        ReportStore(state, "m", "monday", None).save(a_report("first"))
        pieces = len(state.read())
        assert pieces > 2
        state.fails_at = pieces + fatal
        try:
            ReportStore(state, "m", "monday", None).save(a_report("second " * 50))
        except KeyboardInterrupt:
            state.fails_at = None
            new = len(state.read()) - pieces  # before the old ones are removed
            found = elsewhere(state).load()
            assert found is not None and found.error in ("first", "second " * 50)
            assert fatal > pieces or new <= 0 or found.error == "first"
            elsewhere(state).save(a_report("third"))
            assert len({key.split("/")[3] for key in state.read()}) == 1, "what was left is removed by the next writing"
            continue
        assert fatal > 2 * pieces
        return
    pytest.fail("it is never done")


def test_two_processes_of_one_run_do_not_mix_their_pieces(small_records: Callable[[int], None]) -> None:
    """One was thought dead, and wakes up."""
    small_records(200)
    state = MemoryState()
    old, new = elsewhere(state), elsewhere(state)
    assert old.load() is new.load() is None
    for kept, text in ((old, "old " * 99), (new, "new")):
        kept.save(a_report(text))
        found = elsewhere(state).load()
        assert found is not None and found.error == text


def test_report_of_an_attempt_is_found_behind_those_of_one_that_thawed() -> None:
    """Whoever undoes the newer attempt needs what that one has set, not what was written last."""
    state = MemoryState()
    old, new = elsewhere(state), elsewhere(state)
    old.save(replace(a_report("old"), id="a"))
    new.begin_anew()
    new.save(replace(a_report("new"), id="b"))
    for _ in range(3):
        old.save(replace(a_report("thawed"), id="a"))
    assert [found and found.error for found in map(elsewhere(state).of, "abc")] == ["thawed", "new", None]


def test_attempt_that_waited_for_another_one_numbers_above_it() -> None:
    """It has looked before the other one was up: below that one's numbers, its own would count as older."""
    state = MemoryState()
    waits, other = elsewhere(state), elsewhere(state)
    assert waits.load() is None
    for _ in range(3):
        other.save(a_report("other"))
    waits.begin_anew()
    waits.save(a_report("mine"))
    found = elsewhere(state).load()
    assert found is not None and found.error == "mine"


def test_full_disk_is_no_reason_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CutoverReport, "save", full)
    state = MemoryState()
    ReportStore(state, "m", "monday", tmp_path).save(a_report("first"))
    assert elsewhere(state).load() is not None and "could not be written" in caplog.text


def test_page_is_as_fresh_as_the_file_after_each_writing(tmp_path: Path) -> None:
    """A process that is killed leaves both as they were at its last writing."""
    kept = ReportStore(MemoryState(), "m", "monday", tmp_path)
    for text in ("first", "second"):
        kept.save(a_report(text))
        assert text in (tmp_path / "report.html").read_text() and text in (tmp_path / "report.json").read_text()


def test_page_that_can_not_be_drawn_ends_no_cutover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> str:
        raise ZeroDivisionError("a page")

    monkeypatch.setattr("airflow_mirror.cutover.report_store.render", broken)
    state = MemoryState()
    ReportStore(state, "m", "monday", tmp_path).save(a_report("first"))
    assert elsewhere(state).load() is not None and CutoverReport.load(tmp_path) is not None
    assert "could not be written" in caplog.text and "a page" in caplog.text


class Away(MemoryState):
    """A target that does not answer."""

    def read(self) -> dict[str, bytes]:
        raise TryAgain("no broker answered")


def test_file_counts_only_where_the_target_has_none(tmp_path: Path) -> None:
    state = MemoryState()
    a_report("in the file").save(tmp_path)
    found = ReportStore(state, "m", "monday", tmp_path).load()
    assert found is not None and found.error == "in the file"
    with pytest.raises(TryAgain):
        ReportStore(Away(), "m", "monday", tmp_path).load()  # a cutover that begins must know
    elsewhere(state).save(a_report("on the target"))
    found = ReportStore(state, "m", "monday", tmp_path).load()
    assert found is not None and found.error == "on the target"


def test_report_is_of_the_attempt_whose_fence_is_decided() -> None:
    """Two processes of a run that know nothing of each other are both its first attempt."""
    state = MemoryState()
    report = a_report()
    report.id = "x"
    elsewhere(state).save(report)
    elsewhere(state, "other", "m2").save(a_report(mirror="m2"))
    assert elsewhere(state).of("x") == report and elsewhere(state).of("y") is None
    assert REPORT.under(state.read()) == ["m", "m2"]


def test_report_of_a_newer_version_is_refused() -> None:
    state = MemoryState()
    state.write({"report/m/monday/000001-x/0/1": b'{"version": 9}'})
    with pytest.raises(InputError, match="version 9"):
        elsewhere(state).load()
    assert REPORT.version == 1
