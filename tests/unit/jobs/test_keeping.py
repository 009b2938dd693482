"""A tail is kept running: started again when it dies, left alone when it runs elsewhere, ended with its keeper."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InputError, JobFailed, JobNeedsHuman, MirrorError, TryAgain
from airflow_mirror.jobs.progress.wording import progress_line
from airflow_mirror.jobs.runner import keeping
from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat
from airflow_mirror.jobs.runner.keeping import Kept, keep
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.jobs.runner.plain import PlainProcesses
from airflow_mirror.jobs.runner.spec import JobSpec
from airflow_mirror.jobs.runner.state import FAILED, LOST, RUNNING, SUCCEEDED
from tests.driven.ledger import LedgerCluster

ELSEWHERE = keeping._elsewhere
SPEC = JobSpec(kind="streaming_tail", mirror={"name": "m"})
SECRETS = {role: ClientConfig({"bootstrap.servers": "x:1"}, role) for role in ("source", "target")}


class Runner:
    """Runs nothing. ``ends``: how each start of the job ends, and with which error; the last one runs on."""

    def __init__(self, *ends: MirrorError | None, stops_cleanly: bool = True) -> None:
        self.ends, self.stops_cleanly = list(ends), stops_cleanly
        self.starts, self.cancelled = 0, 0
        self.current = RUNNING

    def ensure_started(self, name: str, spec: JobSpec, secrets: Any) -> dict[str, Any]:
        self.starts += 1
        self.current = RUNNING if len(self.ends) < self.starts else SUCCEEDED
        if len(self.ends) >= self.starts and self.ends[self.starts - 1] is not None:
            self.current = FAILED
        return {"dir": f"/job/{self.starts}"}

    def status(self, handle: Any) -> str:
        return self.current

    def raise_for(self, handle: Any) -> None:
        if (error := self.ends[self.starts - 1]) is not None:
            raise error

    def progress(self, handle: Any) -> dict[str, Any]:
        return {}

    def cancel(self, handle: Any, grace_s: float) -> bool:
        self.cancelled += 1
        self.current = SUCCEEDED if self.stops_cleanly else FAILED
        return self.stops_cleanly


class Stopping(threading.Event):
    """Set once somebody has waited for it often enough; notes the waits. No time passes."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left, self.waits = after, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        self.left -= 1
        if self.left <= 0:
            self.set()
        return self.is_set()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[str | None | MirrorError]:
    """What is found of other hosts' tails, look for look; then nothing."""
    found: list[str | None | MirrorError] = []

    def look(*_: Any) -> str | None:
        one = found.pop(0) if found else None
        if isinstance(one, MirrorError):
            raise one
        return one

    monkeypatch.setattr(keeping, "_elsewhere", look)
    return found


Keeping = Callable[..., tuple[Kept, list[str], Stopping]]


@pytest.fixture
def kept(elsewhere: Any) -> Keeping:
    def run(runner: Runner, looks: int = 20) -> tuple[Kept, list[str], Stopping]:
        said, stopping = list[str](), Stopping(looks)
        return keep(runner, SPEC, lambda: SECRETS, stopping, said.append, progress_line), said, stopping

    return run


def failed(cause: str = "killed") -> JobFailed:
    return JobFailed("tail/1", "LOST", cause, "log.txt")


def test_a_tail_that_dies_is_started_again_with_growing_pauses(kept: Keeping) -> None:
    runner = Runner(*[failed()] * 7)
    end, said, stopping = kept(runner, looks=40)
    assert (end, runner.starts, runner.cancelled) == (Kept("m", 0), 8, 1)
    assert [wait for wait in stopping.waits if wait > 1] == [2, 4, 8, 16, 32, 60, 60]
    assert said[-1] == "ended cleanly"


class Clock(Stopping):
    """Time passes while somebody waits, and no otherwise."""

    now = 1000.0

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        return super().wait(timeout)

    def install(self, patch: pytest.MonkeyPatch) -> Clock:
        patch.setattr(keeping, "time", SimpleNamespace(monotonic=lambda: self.now))
        return self


def test_what_lasts_is_said_when_it_changes_and_once_an_hour(elsewhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    summary: dict[str, Any] = {"lag": None, "partitions": 2, "states": {"opening": 2}}
    clock = Clock(2 * 3600 * 2).install(monkeypatch)

    class Reports(Runner):
        def progress(self, handle: Any) -> dict[str, Any]:
            if clock.now < 1100:
                return {}
            return {"phase": "copying", "summary": {**summary, "lag": None if clock.now < 1300 else 0, "offsets": None}}

    said = list[str]()
    keep(Reports(), SPEC, lambda: SECRETS, clock, said.append, progress_line)  # type: ignore[arg-type]
    assert said == [
        "its tail runs; log: /job/1/log.txt",
        "starting",
        "copying: 2 partitions being opened; 0.0 kB/s, 0 records/s",
        *["copying: 0 offsets behind in 2 partitions; 0.0 kB/s, 0 records/s"] * 2,
        "ended cleanly",
    ]


def test_a_copy_that_a_quota_holds_up_is_told_so(elsewhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Throttled(Runner):
        def progress(self, handle: Any) -> dict[str, Any]:
            summary = {"lag": 9, "offsets": None, "partitions": 1, "throttled": {"target": 9_800}}
            return {"phase": "copying", "summary": summary}

    clock, said = Clock(200).install(monkeypatch), list[str]()
    keep(Throttled(), SPEC, lambda: SECRETS, clock, said.append, progress_line)  # type: ignore[arg-type]
    assert said[1].startswith("copying: 9 offsets behind in 1 partition")
    assert said[1].endswith("; throttled by quota: the target by 9.8 s a request")


def test_a_failure_that_lasts_is_not_told_at_each_start(elsewhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = Clock(1000).install(monkeypatch), list[str]()
    runner = Runner(*(JobFailed(f"tail/{n}", "FAILED", "no broker answers", f"/job/{n}/log.txt") for n in range(30)))
    keep(runner, SPEC, lambda: SECRETS, clock, said.append, progress_line)  # type: ignore[arg-type]
    starts = [line for line in said if line.startswith("its tail runs")]
    assert len([line for line in said if "no broker answers" in line]) == 6, "each pause once"
    assert starts[-2:] == ["its tail runs; log: /job/7/log.txt", "its tail runs; log: /job/31/log.txt"]
    assert len(starts) == 8, "the last one lasts"


@pytest.mark.parametrize(
    ("error", "status"), [(JobNeedsHuman("t", "foreign data", "log"), 1), (InputError("job 't'", "bad (log: log)"), 2)]
)
def test_what_only_a_person_can_help_is_not_started_again(kept: Keeping, error: MirrorError, status: int) -> None:
    runner = Runner(error)
    end, said, _ = kept(runner)
    assert (end, runner.starts) == (Kept("m", status), 1)
    assert said[-1].startswith("not started again: ")


class RanWell(Runner):
    """Its first start ran for some minutes before it ended."""

    def __init__(self, clock: Clock, *ends: MirrorError | None) -> None:
        super().__init__(*ends)
        self.clock, self.until = clock, clock.now + keeping.WELL_AFTER_S + 1

    def status(self, handle: Any) -> str:
        return RUNNING if self.starts == 1 and self.clock.now < self.until else super().status(handle)


def test_login_that_is_refused_behind_a_tail_that_ran_well_is_tried_again(
    elsewhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever changes a password does that on the cluster and in a file: not at one moment. Each start reads the file."""
    refused = InputError("job 'tail'", "refused to authenticate (log: log)")
    clock, said, read = Clock(700).install(monkeypatch), list[str](), list[float]()

    def secrets() -> dict[str, ClientConfig]:
        read.append(clock.now)
        return SECRETS

    runner: Any = RanWell(clock, refused, refused, refused)
    assert keep(runner, SPEC, secrets, clock, said.append, progress_line) == Kept("m", 0)
    assert (runner.starts, len(read)) == (4, 4)
    assert [line.partition(":")[0] for line in said if "again" in line] == [f"started again in {n} s" for n in (2, 4, 8)]


def test_login_that_stays_refused_is_given_up_in_the_end(elsewhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = Clock(3000).install(monkeypatch), list[str]()
    runner: Any = RanWell(clock, *[InputError("job 'tail'", "refused to authenticate (log: log)")] * 40)
    assert keep(runner, SPEC, lambda: SECRETS, clock, said.append, progress_line) == Kept("m", 2)
    assert said[-1].startswith("not started again: ")
    assert keeping.WELL_AFTER_S <= clock.now - runner.until <= keeping.WELL_AFTER_S + 61


def test_a_tail_that_was_asked_to_stop_is_not_started_again(kept: Keeping) -> None:
    runner = Runner(None)
    end, said, _ = kept(runner)
    assert (end, runner.starts) == (Kept("m", 0), 1)
    assert said[-1] == "its tail was asked to stop, and has ended"


def test_a_tail_elsewhere_is_waited_for_and_said_once(kept: Keeping, elsewhere: list[Any]) -> None:
    elsewhere += ["host-b", "host-b", "host-b", None]
    runner = Runner()
    end, said, _ = kept(runner)
    assert (end, runner.starts) == (Kept("m", 0), 1)
    assert said[:2] == [
        "its tail runs already, on host host-b; it is left alone, and this one waits",
        "its tail runs; log: /job/1/log.txt",
    ]


def test_a_target_that_does_not_answer_is_asked_again(kept: Keeping, elsewhere: list[Any]) -> None:
    elsewhere += [TryAgain("no broker answers"), None]
    runner = Runner()
    end, said, _ = kept(runner)
    assert (end, runner.starts) == (Kept("m", 0), 1)
    assert said[0] == "started again in 2 s: no broker answers"


def test_a_host_without_room_for_a_start_ends_no_keeping(kept: Keeping) -> None:
    """The error ended the thread that keeps one flow of several, and nobody heard of it."""
    full = [OSError(28, "No space left on device"), BlockingIOError(11, "Resource temporarily unavailable")]

    class Full(Runner):
        def ensure_started(self, name: str, spec: JobSpec, secrets: Any) -> dict[str, Any]:
            if full:
                raise full.pop(0)
            return super().ensure_started(name, spec, secrets)

    runner = Full()
    end, said, _ = kept(runner)
    assert (end, runner.starts, runner.cancelled) == (Kept("m", 0), 1, 1)
    assert said == [
        "started again in 2 s: [Errno 28] No space left on device",
        "started again in 4 s: [Errno 11] Resource temporarily unavailable",
        "its tail runs; log: /job/1/log.txt",
        "ended cleanly",
    ]


def test_a_tail_that_can_not_be_stopped_has_not_ended_cleanly(kept: Keeping) -> None:
    class Stuck(Runner):
        def cancel(self, handle: Any, grace_s: float) -> bool:
            raise PermissionError(1, "Operation not permitted")

    with pytest.raises(PermissionError):
        kept(Stuck())


def test_a_tail_that_has_to_be_killed_is_told(kept: Keeping) -> None:
    runner = Runner(stops_cleanly=False)
    end, said, _ = kept(runner)
    assert end == Kept("m", 1)
    assert said[-1] == "it did not end by itself, and was killed after 0 s; nothing is lost"


def test_a_tail_that_is_stopped_while_it_starts_has_ended_well(elsewhere: Any, tmp_path: Path) -> None:
    """A process that has just been started dies of SIGTERM before it can write why."""
    said, stopping = list[str](), threading.Event()

    def say(line: str) -> None:
        said.append(line)
        stopping.set()

    kept = keep(LocalRunner(tmp_path, PlainProcesses()), SPEC, lambda: SECRETS, stopping, say, progress_line)
    assert kept == Kept("m", 0)
    assert said[1:] == ["ended while it was starting; it had copied nothing"]


def test_a_tail_that_has_copied_and_is_gone_without_a_word_has_not_ended_well(kept: Keeping) -> None:
    class Gone(Runner):
        def progress(self, handle: Any) -> dict[str, Any]:
            return {"phase": "tail", "error": None}

        def status(self, handle: Any) -> str:
            return LOST if self.cancelled else super().status(handle)

    end, said, _ = kept(Gone())
    assert (end, said[-1]) == (Kept("m", 1), "it ended without a last word; its log: /job/1/log.txt")


def test_nothing_begins_that_is_to_stop_already(kept: Keeping) -> None:
    runner, stopping = Runner(), Stopping(1)
    stopping.set()
    assert keep(runner, SPEC, lambda: SECRETS, stopping, lambda _: None, progress_line) == Kept("m", 0)
    assert runner.starts == 0


def test_who_wants_to_fail_fast_is_told_at_the_first_failure(elsewhere: Any) -> None:
    runner, said = Runner(failed("source away")), list[str]()
    assert keep(runner, SPEC, lambda: SECRETS, Stopping(20), said.append, progress_line, fail_fast=True) == Kept("m", 1)
    assert runner.starts == 1 and said[-1].startswith("given up (--fail-fast): ") and "source away" in said[-1]


@pytest.mark.parametrize(
    ("deals", "place", "host"),
    [(True, "plain", None), (True, "client", "host-b"), (False, "plain", "host-b")],
)
def test_plain_processes_share_with_a_tail_elsewhere_and_others_wait_for_it(
    deals: bool, place: str, host: str | None, ledger_target: LedgerCluster
) -> None:
    tail = ActiveTail(mirror={"name": "m"}, plan="", inputs="", directory="", host="host-b", deals=deals)
    ledger_target.ledger.decide(lambda _: {f"active/{tail.name}": tail.value()})
    runner: Any = SimpleNamespace(find=lambda _: None, place=SimpleNamespace(name=place))
    with giving_signs(ledger_target, tail):
        assert ELSEWHERE(runner, "m", ledger_target.config) == host


@contextmanager
def giving_signs(target: LedgerCluster, tail: ActiveTail) -> Iterator[None]:
    ended = threading.Event()

    def live() -> None:
        signs = Heartbeat(target.state, tail)
        while not ended.wait(0.05):
            signs.give(RUNNING)

    with ThreadPoolExecutor(1) as pool:
        living = pool.submit(live)
        try:
            yield
        finally:
            ended.set()
        living.result()
