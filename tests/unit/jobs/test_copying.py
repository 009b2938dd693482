"""A bulk copy from its request to its result, with a crew that copies nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.reporter import Reporter
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease_watch import LeaseWatch
from airflow_mirror.errors import ForeignData, InputError, LeaseLost, MirrorError
from airflow_mirror.jobs.driver import copying
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.held_lease import HeldLease, writer_lease
from airflow_mirror.jobs.driver.prepare import CopyJob
from airflow_mirror.jobs.metrics.publish import Publication
from airflow_mirror.jobs.progress.listener import LOOPBACK, Hosts
from airflow_mirror.jobs.request import BulkRequest
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.jobs.runner.wishes import Wish, wish
from airflow_mirror.mirror import Mirror, time_ms
from tests.builders import plan_of, request, topic_plan
from tests.driven.ledger import LedgerCluster
from tests.driven.records import Row, encode
from tests.waiting import wait_until

TIMES = ["2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"]


class Crew:
    """Says of each partition that it was copied. :ivar dealt: the lists of each round. :ivar rates: of a task in each."""

    hosts: Hosts | None = None

    def __init__(self, slots: int = 1) -> None:
        self._slots, self.dealt, self.rates = slots, list[int](), list[float | None]()

    def slots(self) -> int:
        return self._slots

    def has_lost(self) -> bool:
        return False

    def copy(self, dealt: Sequence[Sequence[CopyRange]], work: CopyWork) -> list[PartitionResult]:
        self.dealt.append(len(dealt))
        self.rates.append(work.options.max_bytes_per_second)
        return [
            PartitionResult(
                topic=r.source_topic, target_topic=r.target_topic, partition=r.partition,
                target_partition=r.target.partition, position=r.end_offset or 0, done=True,
            )
            for part in dealt
            for r in part
        ]  # fmt: skip


class Staggered(Crew):
    """A crew of two tasks, which lose the lease in the first round because somebody wishes another rate.

    The first one says so, and the second one notices only after the driver has heard of two more wishes.

    :param status: the job's. :param caplog: has what the driver has heard.
    :param error: what the first one says instead.
    """

    hosts = LOOPBACK

    def __init__(
        self, target: LedgerCluster, status: StatusFile, caplog: pytest.LogCaptureFixture,
        error: MirrorError | None = None,
    ) -> None:  # fmt: skip
        super().__init__(slots=2)
        self._target, self._status, self._caplog, self._error = target, status, caplog, error
        caplog.set_level(logging.WARNING)

    def copy(self, dealt: Sequence[Sequence[CopyRange]], work: CopyWork) -> list[PartitionResult]:
        if self.dealt:
            return super().copy(dealt, work)
        self.dealt.append(len(dealt))
        self.rates.append(work.options.max_bytes_per_second)
        with closing(LeaseWatch(self._target.config, work.lease)) as watch:
            self._wish(7)
            lost = wait_until(lambda: loss_of(watch))
        copies = [PartitionCopy(r, True, 1 << 20, opened=True, error=lost) for part in dealt for r in part]
        copies[0].error = self._error or lost
        copies[0].counters.records = 3
        with Reporter(work.report_to, copies[:1]):
            wait_until(lambda: self._status.brief()["summary"].get("records") == 3)
            for rate in (8, 9):  # what heard the second one has looked at the rows before
                self._wish(rate)
        return [PartitionResult.of(one, 1.0) for one in copies]

    def _wish(self, rate: int) -> None:
        wish(self._target.state, "m", "rate", Wish.now(rate))
        wait_until(lambda: f"rate set to {rate} bytes per second" in self._caplog.text)


def loss_of(watch: LeaseWatch) -> LeaseLost | None:
    try:
        watch.check()
    except LeaseLost as e:
        return e
    return None


@pytest.fixture
def source(tmp_path: Path) -> Iterator[LedgerCluster]:
    with LedgerCluster(tmp_path, "source") as source:
        yield source


def lay(cluster: LedgerCluster, partition: int, *days: int) -> None:
    """Append a record of each day to a partition."""
    log = cluster.topics["orders"].logs[partition]
    with cluster.changing():
        for day in days:
            row = Row(log.end, time_ms("start", TIMES[0]) + day * 86_400_000, b"k", b"v", ())
            log.lay(encode([row], leader_epoch=log.epoch))


@pytest.fixture
def copy(source: LedgerCluster, ledger_target: LedgerCluster, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Copy between clusters whose topic is planned already."""

    def run(
        crew: Crew, partitions: int = 1, rate: float | None = None, status: StatusFile | None = None, **fields: Any
    ) -> Outcome:
        source.create("orders", partitions), ledger_target.create("orders", partitions)
        for p in range(partitions):
            lay(source, p, 0, 0, 1, 1, 2)
        mirror = Mirror(name="m", source="a", target="b")
        plan = plan_of(mirror, topic_plan("orders", dict.fromkeys(range(partitions), 0), source_topic_id="id"))
        asked = request(BulkRequest, mirror, source=source.reference, target=ledger_target.reference, **fields)
        job = CopyJob(
            mirror=asked.mirror, source=asked.source, target=asked.target, plan=plan,
            options=replace(
                CopyOptions(mirror="m"), max_bytes_per_second=rate,
                abort_on_send_failure=fields.get("abort_on_send_failure", False),
            ),
        )  # fmt: skip
        monkeypatch.setattr(lease, "HANDOVER_S", 0.0)
        monkeypatch.setattr(copying, "prepare_to_copy", lambda _: job)
        monkeypatch.setattr(copying, "require_still_ours", lambda _: None)
        with closing(Publication(None, None)) as publication:
            return copying.copy(asked, status or StatusFile(None), publication, lambda _: mustered(crew))

    return run


def mustered(crew: Any) -> AbstractContextManager[Any]:
    return nullcontext(crew)


def test_a_window_before_one_that_was_copied_while_it_waited_for_the_lease_is_refused(
    ledger_target: LedgerCluster, copy: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be at its end by the other's records, and be told as copied."""

    @contextmanager
    def slow(reference: str, mirror: str) -> Iterator[HeldLease]:
        with writer_lease(reference, mirror) as held:
            ledger_target.topics["orders"].logs[0].begin_at(2)
            lay(ledger_target, 0, 1, 1)
            yield held

    monkeypatch.setattr(copying, "writer_lease", slow)
    crew = Crew()
    with pytest.raises(
        InputError, match=r"(?s)the copy of 1 partition\(s\) began later.*orders-0: 0 wanted, begins at 2"
    ):
        copy(crew, start=TIMES[0], end=TIMES[1], late_s=0.0)
    assert not crew.dealt


def test_a_window_that_can_be_copied_is(copy: Callable[..., Outcome]) -> None:
    summary, error = copy(crew := Crew(), start=TIMES[0], end=TIMES[1], late_s=0.0)
    assert error is None and summary["errors"] == [] and crew.dealt == [1]


@pytest.mark.parametrize(
    ("tasks", "rate", "lists", "share"),
    [(4, 80.0, 2, 40.0), (1, 80.0, 1, 80.0), (None, 80.0, 2, 40.0), (4, None, 4, None)],
)
def test_a_rate_is_shared_by_no_more_lists_than_run_at_once(
    copy: Callable[..., Outcome], tasks: int | None, rate: float | None, lists: int, share: float | None
) -> None:
    """An executor that joins would start one that waits, beside shares that make up the whole rate already."""
    copy(crew := Crew(slots=2), partitions=4, rate=rate, tasks=tasks)
    assert (crew.dealt, crew.rates) == ([lists], [share])


def test_a_task_that_notices_first_that_another_rate_is_wished_does_not_end_the_copy(
    ledger_target: LedgerCluster, copy: Callable[..., Outcome], caplog: pytest.LogCaptureFixture
) -> None:
    """It has no failure that the others have to end for: all go on in the next round."""
    crew = Staggered(ledger_target, status := StatusFile(None), caplog)
    summary, error = copy(crew, partitions=2, status=status, abort_on_send_failure=True)
    assert error is None and summary["errors"] == []
    assert crew.dealt == [2, 2] and crew.rates == [None, 4.5]


def test_a_failure_ends_the_copy_although_another_rate_is_wished(
    ledger_target: LedgerCluster, copy: Callable[..., Outcome], caplog: pytest.LogCaptureFixture
) -> None:
    failure = ForeignData("orders", 0, 0, 1, "another tool wrote them", "Delete them.")
    crew = Staggered(ledger_target, status := StatusFile(None), caplog, failure)
    _, error = copy(crew, partitions=2, status=status, abort_on_send_failure=True)
    assert "another tool wrote them" in str(error) and crew.dealt == [2]
