"""Several processes of one mirror: what the tail deals to the others, what they report, and who takes whose place."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.errors import FollowDiffers, NeedsHuman, TailRuns, TryAgain
from airflow_mirror.jobs.driver.turns import Deal
from airflow_mirror.jobs.plain import shares
from airflow_mirror.jobs.plain.crew import PlainStream, parted
from airflow_mirror.jobs.plain.dealer import Dealer
from airflow_mirror.jobs.plain.member import Member, Verdict
from airflow_mirror.jobs.plain.shares import Share
from airflow_mirror.jobs.runner import active
from airflow_mirror.jobs.runner.active import SILENCE_S, Heartbeat, Watch, ask_to_stop, begin
from airflow_mirror.jobs.runner.state import FAILED, RUNNING, SUCCEEDED
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.ledger.records import MEMBER, SIGN, TOPIC
from airflow_mirror.ledger.state import State
from airflow_mirror.plan.owned import Owned
from tests.driven.ledger import LedgerCluster
from tests.unit.jobs.sharing import LEASE, MIRROR, TAIL, Clock, process, ranges, result, share
from tests.unit.ledger.memory import MemoryState
from tests.waiting import wait_until


@pytest.fixture
def state() -> MemoryState:
    return MemoryState()


# --- values -----------------------------------------------------------------------------------------------------------


def test_a_share_reads_as_it_was_given(state: MemoryState) -> None:
    one = share(1, 2)
    state.write(shares.given("m", TAIL, "b", one, state.read()))
    assert shares.share_of(state.read(), "m", TAIL, "b") == one
    assert shares.share_of(state.read(), "m", TAIL, "b", after=1) is None
    assert shares.share_of(state.read(), "m", TAIL, "c") is None
    assert shares.share_of(state.read(), "m", "another tail", "b") is None, "what another tail deals is its own"


def test_the_newest_share_counts_and_stands_alone(state: MemoryState) -> None:
    for number in (9, 10):
        state.write(shares.given("m", TAIL, "b", share(number, number=number), state.read()))
    found = shares.share_of(state.read(), "m", TAIL, "b")
    assert found is not None
    assert found.number == 10
    assert len(state.read()) == 1


def test_a_report_of_thousands_of_partitions_comes_whole(state: MemoryState) -> None:
    many = [result(p, error=f"cause {p}" * 9) for p in range(3000)]
    state.write(shares.reported("m", "b", TAIL, 4, many, state.read()))
    assert shares.report_of(state.read(), "m", "b", TAIL, after=3) == (4, many)
    assert shares.report_of(state.read(), "m", "b", TAIL, after=4) is None


def test_a_tail_removes_what_others_have_left_and_nothing_of_its_own(state: MemoryState) -> None:
    for tail in (TAIL, "dead"):
        state.write(shares.given("m", tail, "b", share(1), {}))
        state.write(shares.reported("m", "b", tail, 1, [result(1)], {}))
    state.write(shares.left_by_others(state.read(), "m", TAIL))
    assert sorted(state.read()) == sorted(key for key in state.read() if TAIL in key)
    assert shares.share_of(state.read(), "m", TAIL, "b") is not None
    assert shares.report_of(state.read(), "m", "b", TAIL) is not None


def test_partitions_are_named_and_thousands_are_counted() -> None:
    assert shares.named([ranges(1)]) == "1 partition: t-1"
    assert shares.named([ranges(2, 0), ranges(1)]) == "3 partitions: t-0, t-1, t-2"
    assert shares.named([ranges(*range(2000))]).endswith("t-19 and 1980 more")


@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_every_list_goes_to_exactly_one_process(count: int) -> None:
    lists = [ranges(p) for p in range(count)]
    parts = parted(lists, {"": 1, "b": 2, "c": 1})
    assert sorted(one[0].partition for part in parts.values() for one in part) == list(range(count))
    if count == 4:
        assert {job: len(part) for job, part in parts.items()} == {"": 1, "b": 2, "c": 1}


# --- the tail's side --------------------------------------------------------------------------------------------------


class Dealt:
    """A dealer that looks when it is told to, and a clock that stands still meanwhile."""

    def __init__(self, state: State) -> None:
        self.clock, self.state = Clock(), state
        self.reports = list[str]()
        self.dealer = Dealer("m", TAIL, "b", watch=lambda state: Watch(state, self.clock))
        self.dealer.on_report = lambda: self.reports.append("report")

    def look(self, later_s: float = 0.0) -> dict[str, int]:
        self.clock.now += later_s
        self.dealer._look(self.state)
        return dict(self.dealer.present)

    def results(self, **numbers: int) -> list[PartitionResult] | None:
        return self.dealer.results(numbers, float("inf"), 0.0)


@pytest.fixture
def dealt(state: MemoryState) -> Dealt:
    return Dealt(state)


def test_only_who_gives_a_sign_while_we_listen_is_dealt_to(dealt: Dealt, state: MemoryState) -> None:
    """A process that died before we began has left its keys, and gives no more signs."""
    dead, signs = process(job="dead"), Heartbeat(state, process(job="b"))
    Heartbeat(state, dead).give(RUNNING)
    signs.give(RUNNING)
    assert dealt.look() == {}
    signs.give(RUNNING)
    assert dealt.look(1.0) == {"b": 2}
    for _ in range(int(SILENCE_S / 5)):
        signs.give(RUNNING)
        assert dealt.look(5.0) == {"b": 2}
    assert not [key for key in state.read() if "dead" in key], "nobody else cleans up"


def test_who_is_silent_is_present_for_thirty_seconds_and_its_share_is_not_taken_as_over(
    dealt: Dealt, state: MemoryState
) -> None:
    """Its tasks may still write: the driver has to withdraw the lease first."""
    signs = Heartbeat(state, process(job="b"))
    for _ in range(2):
        signs.give(RUNNING)
        dealt.look(1.0)
    numbers = dealt.dealer.give({"b": share(1)})
    assert dealt.look(SILENCE_S - 1) == {"b": 2}
    assert dealt.look(1.0) == {}
    assert dealt.results(**numbers) is None
    dealt.look(1.0)
    assert dealt.results(**numbers) is None, "its keys are gone, because we removed them"
    assert dealt.dealer.results(numbers, 0.0, 0.0) == [], "the time is over in which it must have stopped"


def test_who_was_only_slow_comes_back(dealt: Dealt, state: MemoryState) -> None:
    signs = Heartbeat(state, process(job="b"))
    for _ in range(2):
        signs.give(RUNNING)
        dealt.look(1.0)
    assert dealt.look(SILENCE_S) == {}
    dealt.look(1.0)
    for _ in range(2):
        signs.give(RUNNING)
        found = dealt.look(1.0)
    assert found == {"b": 2}


def test_who_leaves_has_stopped(dealt: Dealt, state: MemoryState) -> None:
    signs = Heartbeat(state, process(job="b"))
    for _ in range(2):
        signs.give(RUNNING)
        dealt.look(1.0)
    numbers = dealt.dealer.give({"b": share(1)})
    dealt.look()
    assert dealt.results(**numbers) is None
    signs.forget()
    assert dealt.look(1.0) == {}, "at once, not after a silence"
    assert dealt.results(**numbers) == []


def test_who_has_only_vanished_with_the_state_may_copy_on(dealt: Dealt, state: MemoryState) -> None:
    """Its topic was deleted, or lost records: the driver has to wait for tasks that nobody can hear."""
    signs = Heartbeat(state, process(job="b"))
    for _ in range(2):
        signs.give(RUNNING)
        dealt.look(1.0)
    numbers = dealt.dealer.give({"b": share(1)})
    dealt.look()
    state.write(dict.fromkeys(state.read()))
    dealt.look()
    assert dealt.dealer.unheard(numbers) == ["b"]
    assert dealt.results(**numbers) is None


def test_a_report_ends_the_turn_and_one_on_an_older_share_does_not(dealt: Dealt, state: MemoryState) -> None:
    signs = Heartbeat(state, process(job="b"))
    for _ in range(2):
        signs.give(RUNNING)
        dealt.look(1.0)
    old = dealt.dealer.give({"b": share(1)})["b"]
    dealt.look()
    new = dealt.dealer.give({"b": share(1, 2)})["b"]
    dealt.look()
    state.write(shares.reported("m", "b", TAIL, old, [result(1)], state.read()))
    dealt.look()
    assert (dealt.results(b=new), dealt.reports) == (None, [])
    state.write(shares.reported("m", "b", TAIL, new, [result(1), result(2)], state.read()))
    dealt.look()
    assert (dealt.results(b=new), dealt.reports) == ([result(1), result(2)], ["report"])


def test_a_recall_is_a_share_of_nothing_that_says_what_it_ends(dealt: Dealt, state: MemoryState) -> None:
    numbers = dealt.dealer.give({"b": share(1)})
    dealt.look()
    dealt.dealer.recall()
    dealt.look()
    found = shares.share_of(state.read(), "m", TAIL, "b")
    assert found is not None
    assert (found.lists, found.ends, found.number) == ([], numbers["b"], numbers["b"] + 1)
    dealt.dealer.recall()
    dealt.look()
    assert shares.share_of(state.read(), "m", TAIL, "b") == found, "once is enough"


# --- one that shares --------------------------------------------------------------------------------------------------


class FakeWorkers:
    """Tasks that run until they are ended; ``carried`` has the partitions of each share."""

    count = 2

    def __init__(self) -> None:
        self.carried: list[tuple[list[int], LeaseToken]] = []
        self.running = 0
        self.most = 0
        self.fails: Exception | None = None

    def run(
        self, dealt: Sequence[Sequence[CopyRange]], work: CopyWork, duration_s: float, ending: threading.Event
    ) -> list[PartitionResult]:
        self.running += 1
        self.most = max(self.most, self.running)
        self.carried.append(([one.partition for part in dealt for one in part], work.lease))
        try:
            assert ending.wait(20), "nobody ended it"
            if self.fails is not None:
                raise self.fails
            return [result(one.partition) for part in dealt for one in part]
        finally:
            self.running -= 1

    def end_tasks(self) -> None:
        pass


class Impatient(threading.Event):
    """An event for which nobody waits longer than a moment."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(0.01 if timeout is None else min(timeout, 0.01))


class There:
    """A member in a thread, and the tail whose mirror it shares."""

    def __init__(self, ledger_target: LedgerCluster) -> None:
        self.cluster, self.clock = ledger_target, Clock()
        self.state, self.ledger = ledger_target.state, ledger_target.ledger
        self.workers, self.stopping = FakeWorkers(), Impatient()
        self.tail = process(job=TAIL, processes=0, deals=True)
        them: Any = self.workers
        self.member = Member(MIRROR, "a", ledger_target.reference, them, StatusFile(None), self.clock)
        self.ends: tuple[Verdict, str] | Exception | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.ends = self.member.run(self.stopping)
        except Exception as e:
            self.ends = e

    def start(self) -> str:
        """Decide that there is a tail, start the member, and return its job."""
        begin(self.ledger, self.tail, Watch(self.state, self.clock), takeover=True)
        Heartbeat(self.state, self.tail).give(RUNNING)
        self.thread.start()
        wait_until(lambda: active.said(MEMBER, self.state.read(), "m") or self.ends is not None)
        return next((one.job for one in active.said(MEMBER, self.state.read(), "m")), "")

    def end_writing(self) -> None:
        """Take the lease, as a cutover does."""
        lease.take(self.cluster.admin.wire, "m", to_end=True)

    def give(self, job: str, one: Share) -> None:
        self.state.write(shares.given("m", self.tail.job, job, one, dict(self.state.read())))

    def end(self) -> Any:
        self.thread.join(20)
        assert not self.thread.is_alive()
        return self.ends


@pytest.fixture
def there(ledger_target: LedgerCluster) -> Iterator[There]:
    one = There(ledger_target)
    yield one
    one.stopping.set()
    if one.thread.ident is not None:
        one.thread.join(20)


def test_a_share_is_carried_out_under_its_lease_and_reported(there: There) -> None:
    job = there.start()
    there.give(job, share(1, 2))
    wait_until(lambda: there.workers.carried == [([1, 2], LEASE)])
    there.give(job, Share(number=2, lease=LEASE, options=CopyOptions(mirror="m"), ends=1))
    wait_until(lambda: shares.report_of(dict(there.state.read()), "m", job, TAIL))
    assert shares.report_of(dict(there.state.read()), "m", job, TAIL) == (1, [result(1), result(2)])


def test_a_new_share_begins_when_the_old_one_has_ended(there: There) -> None:
    """Two at once would copy under two leases, and one of them may have other partitions."""
    job, other = there.start(), replace(LEASE, epoch=5)
    there.give(job, share(1))
    wait_until(lambda: there.workers.running == 1)
    there.give(job, replace(share(2, number=2), lease=other))
    wait_until(lambda: there.workers.carried[1:] == [([2], other)])
    assert there.workers.most == 1


def test_a_share_that_was_recalled_before_it_was_seen_is_reported_as_nothing(there: There) -> None:
    job = there.start()
    there.give(job, Share(number=2, lease=LEASE, options=CopyOptions(mirror="m"), ends=1))
    wait_until(lambda: shares.report_of(dict(there.state.read()), "m", job, TAIL) == (2, []))
    assert there.workers.carried == []


def test_who_is_stopped_reports_and_leaves_at_once(there: There) -> None:
    job = there.start()
    there.give(job, share(1))
    wait_until(lambda: there.workers.running == 1)
    there.stopping.set()
    assert there.end()[0] is Verdict.END
    assert shares.report_of(there.state.read(), "m", job, TAIL) == (1, [result(1)])
    assert active.said(MEMBER, there.state.read(), "m") == []
    assert there.member.outcome()[0]["bytes"] == 10


def test_the_tails_silence_ends_the_share_and_its_place_is_taken(there: There) -> None:
    job = there.start()
    there.give(job, share(1))
    wait_until(lambda: there.workers.running == 1)
    there.clock.now += SILENCE_S - 1
    threading.Event().wait(0.1)
    assert there.ends is None
    there.clock.now += 1
    verdict, seen = there.end()
    assert (verdict, there.workers.running) == (Verdict.TAKE_PLACE, 0)
    assert seen.startswith(f"{TAIL}/"), "so that nobody listens for another silence"


@pytest.mark.parametrize("final", [SUCCEEDED, FAILED])
def test_a_tail_that_ends_by_itself_is_followed_by_one_of_us_at_once(there: There, final: str) -> None:
    there.start()
    Heartbeat(there.state, there.tail).give(final, blame="retry", error="no broker")
    assert there.end()[0] is Verdict.TAKE_PLACE


def test_a_tail_that_was_asked_to_stop_takes_all_with_it(there: There) -> None:
    there.start()
    ask_to_stop(there.state, "m", TAIL, "an operator")
    Heartbeat(there.state, there.tail).give(SUCCEEDED)
    assert there.end()[0] is Verdict.END


def test_what_only_a_person_can_help_is_not_tried_again(there: There) -> None:
    there.start()
    Heartbeat(there.state, there.tail).give(FAILED, blame="human", error="the source lost records")
    error = there.end()
    assert isinstance(error, NeedsHuman)
    assert "the source lost records" in str(error)


def test_a_cutover_that_ended_all_writing_leaves_the_place_empty(there: There) -> None:
    there.end_writing()
    there.start()
    Heartbeat(there.state, there.tail).give(FAILED, blame="retry", error="the lease is lost")
    assert isinstance(there.end(), NeedsHuman)


def test_who_shares_ends_well_with_a_tail_whose_topics_were_handed_over(there: There) -> None:
    handed_over = Owned(topic_id="id", mirror="m", source_id="src", opened_by="hash")
    there.ledger.decide(lambda _: {TOPIC.key("t"): handed_over.value()})
    there.end_writing()
    there.start()
    Heartbeat(there.state, there.tail).give(SUCCEEDED)
    ended = there.end()
    assert isinstance(ended, tuple) and ended[0] is Verdict.END


def test_there_is_no_sharing_with_a_job_that_deals_nothing(there: There) -> None:
    """A tail on Spark, say."""
    there.tail = replace(there.tail, deals=False)
    there.start()
    error = there.end()
    assert isinstance(error, TailRuns)
    assert "elsewhere" in str(error)


def test_who_would_copy_by_other_rules_is_refused(there: There) -> None:
    there.tail = replace(there.tail, mirror=replace(MIRROR, offsets="mapped").to_dict())
    there.start()
    error = there.end()
    assert isinstance(error, FollowDiffers)
    assert isinstance(error, TryAgain), "a restart with new rules, one process after the other, ends well"
    assert "offsets" in str(error)


def test_another_tails_share_waits_for_the_end_of_the_first_ones(there: There) -> None:
    """A tail was replaced by one that gives a sign at once: what the old one dealt ends."""
    job = there.start()
    there.give(job, share(1))
    wait_until(lambda: there.workers.running == 1)
    there.tail = process(job="tail-2", processes=0, deals=True)
    begin(there.ledger, there.tail, Watch(there.state, there.clock), takeover=True)
    Heartbeat(there.state, there.tail).give(RUNNING)
    wait_until(lambda: there.workers.running == 0)
    there.give(job, share(3))
    wait_until(lambda: [partitions for partitions, _ in there.workers.carried] == [[1], [3]])
    assert there.workers.most == 1


# --- both together ----------------------------------------------------------------------------------------------------


class FakeTail:
    """Deals partitions 0 to 3 again and again, and takes what comes back."""

    def __init__(self) -> None:
        self.taken: list[list[int]] = []
        self.unheard: list[int] = []
        self.reported = threading.Event()

    def deal(self) -> Deal:
        return Deal(number=1, options=CopyOptions(mirror="m"), lists=[ranges(p) for p in range(4)])

    def take(self, results: Sequence[PartitionResult]) -> None:
        self.taken.append(sorted(one.partition for one in results))
        self.unheard = sorted(one.partition for one in results if one.unheard)


@contextmanager
def stream(dealt: Dealt, tail: FakeTail, own: FakeWorkers) -> Iterator[PlainStream]:
    work = CopyWork(source="a", target="b", options=CopyOptions(mirror="m"), lease=LEASE)
    one = PlainStream(own, dealt.dealer, tail, work, 60.0)  # type: ignore[arg-type]
    try:
        yield one
    finally:
        one.stop(0.5)


def test_a_turn_has_the_results_of_all_and_ends_for_all(there: There) -> None:
    state, dealt = there.state, Dealt(there.state)
    job = there.start()
    Heartbeat(state, process(job=job)).give(RUNNING)  # numbers differ from those of its own
    own, tail = FakeWorkers(), FakeTail()
    dealt.look()
    state.write({f"{SIGN.below('m')}{job}/sign": active.Sign(number=99, state=RUNNING).encode()})
    assert dealt.look(1.0) == {job: 2}
    with stream(dealt, tail, own) as one:
        wait_until(lambda: (dealt.look(), own.running and there.workers.running)[1])
        mine, theirs = own.carried[0][0], there.workers.carried[0][0]
        assert (sorted(mine + theirs), len(theirs)) == ([0, 1, 2, 3], 2)
        assert not one.must_restart
        one.end_turn()
        wait_until(lambda: (dealt.look(), tail.taken)[1])
        assert tail.taken[0] == [0, 1, 2, 3]
        there.stopping.set()
        wait_until(lambda: (dealt.look(), one.must_restart)[1])


def test_partitions_of_a_process_that_does_not_report_are_unheard(state: MemoryState, dealt: Dealt) -> None:
    """It gives signs of life, and may write: who copies them next must not do so beside it."""
    signs, own, tail = Heartbeat(state, process(job="b")), FakeWorkers(), FakeTail()
    for _ in range(2):
        signs.give(RUNNING)
        dealt.look(1.0)
    with stream(dealt, tail, own) as one:
        wait_until(lambda: (dealt.look(), own.running)[1])
        assert not one.stop(0.2)
        assert tail.taken == [[0, 1, 2, 3]] and len(tail.unheard) == 2
