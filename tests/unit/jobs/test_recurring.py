"""What recurs beside a copy: it survives every failure, and when it is stopped nothing is written any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover.failover.tail_seen import TailSeen
from airflow_mirror.errors import ClusterUnreachable
from airflow_mirror.jobs.driver import recurring
from airflow_mirror.jobs.driver.recurring import Recurring
from airflow_mirror.jobs.health.judging import Facts, Limits, TailFacts, judge
from airflow_mirror.jobs.runner.active import ActiveTail, Sign
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.sync.following.follower import FollowReport
from airflow_mirror.sync.write_permit import Stopped, WritePermit
from tests.memory.admin import MemoryAdmin
from tests.memory.cluster import MemoryCluster

Pass = Callable[[int], FollowReport]


class World:
    """A thread whose passes are a test's own, under a lease; ``told`` is what stands in the status, in order."""

    def __init__(self, *passes: Pass) -> None:
        self.target: Any = MemoryAdmin(MemoryCluster("target")).wire
        self.token = lease.take(self.target, "m")
        self.left, self.told = list(passes), list[dict[str, Any]]()
        self.came, self.opened, self.closed = threading.Condition(), 0, 0
        self.right = WritePermit(lambda: self.token)
        self.thread = Recurring("groups", self.connect, self.right, 0.01, self.tell)

    @contextmanager
    def connect(self) -> Iterator[Pass]:
        self.opened += 1
        try:
            yield self.next
        finally:
            self.closed += 1

    def next(self, now_ms: int) -> FollowReport:
        self.right.confirm(self.target)
        return self.left.pop(0)(now_ms) if self.left else FollowReport(groups=7)

    def tell(self, found: dict[str, Any]) -> None:
        with self.came:
            self.told.append(found)
            self.came.notify_all()

    def wait_for(self, what: Callable[[dict[str, Any]], object]) -> None:
        with self.came:
            assert self.came.wait_for(lambda: any(what(found) for found in self.told), 60)


def fail(error: Exception) -> Pass:
    def one(now_ms: int) -> FollowReport:
        raise error

    return one


@pytest.mark.parametrize(
    ("error", "opened"), [(ClusterUnreachable("target", "b:1", "silent"), 1), (ZeroDivisionError("a mistake"), 2)]
)
def test_failed_pass_is_told_and_the_next_one_comes(error: Exception, opened: int) -> None:
    """On the same connections, unless the error is none of ours."""
    world = World(fail(error))
    world.thread.start()
    world.wait_for(lambda found: found["error"] == str(error))
    world.wait_for(lambda found: found["error"] is None and found.get("groups") == 7)
    world.thread.stop()
    assert world.opened == world.closed == opened
    assert all(found["at"] and found["every_s"] == 0.01 for found in world.told), "who looks knows when one is overdue"


@pytest.mark.parametrize("error", [MemoryError(), AssertionError()], ids=repr)
def test_a_pass_whose_error_has_no_text_is_no_good_one(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    world, name = World(fail(error)), type(error).__name__
    world.thread.start()
    world.wait_for(lambda found: found["error"] is None and found.get("groups") == 7)
    world.thread.stop()
    told = next(found for found in world.told if found["error"] is not None)
    assert findings_of_follow(told) == [f"groups do not follow: {name}"]
    assert f"groups don't follow now: {name}" in caplog.messages
    assert findings_of_follow({**told, "error": ""}) == ["groups do not follow: it does not say why"], "an older tail's"


def findings_of_follow(told: dict[str, Any]) -> list[str]:
    sign = Sign(number=1, state=RUNNING, at=told["at"], follows={"groups": told})
    active = ActiveTail(mirror={"name": "m"}, plan="p", inputs="i", directory="d", host="h", where="w")
    found = judge(Facts(tail=TailFacts(active=active, status=RUNNING, sign=sign)), Limits())
    return [one.evidence for one in found if one.check == "follow"]


def test_first_pass_that_hangs_is_missed_and_counts_for_nothing() -> None:
    """It reports nothing, and health goes by reports. A failover takes it for no look at the source."""
    go_on, world = threading.Event(), World()

    def hang(now_ms: int) -> FollowReport:
        assert go_on.wait(60)
        return FollowReport(groups=7)

    world.left.append(hang)
    world.thread.start()
    (told,) = world.told
    sign = Sign(number=1, state=RUNNING, at=told["at"] + 3600.0, follows={"groups": told, "source": told})
    active = ActiveTail(mirror={"name": "m"}, plan="p", inputs="i", directory="d", host="h", where="w")
    found = judge(Facts(tail=TailFacts(active=active, status=RUNNING, sign=sign)), Limits())
    assert [one.evidence.partition(",")[0] for one in found if one.check == "follow"] == [
        "groups have not followed for 60 min", "source have not followed for 60 min"
    ]  # fmt: skip
    seen = TailSeen.of(RUNNING, "h", sign)
    assert seen.unseen_s is None and seen.ages_s == {} and sign.followed == {}
    go_on.set()
    world.wait_for(lambda found: found.get("groups") == 7)
    world.thread.stop()


def test_what_the_passes_were_given_is_renewed_when_it_changes() -> None:
    world = World()
    world.thread.start()
    world.wait_for(lambda found: found.get("groups") == 7)
    world.thread.renew()
    with world.came:
        assert world.came.wait_for(lambda: world.opened == 2, 60)
    world.thread.stop()
    assert world.opened == world.closed == 2 and not any(found["error"] for found in world.told)


def test_thread_that_never_began_can_be_stopped() -> None:
    World().thread.stop()


def test_stop_returns_only_when_nothing_is_being_set() -> None:
    writing, go_on, stopped = threading.Event(), threading.Event(), threading.Event()
    world = World()

    def write(now_ms: int) -> FollowReport:
        with world.right.writing:
            writing.set()
            assert go_on.wait(60)
            with pytest.raises(Stopped):
                world.right.check()  # what would be sent now
        return FollowReport()

    world.left.append(write)
    world.thread.start()
    assert writing.wait(60)
    stopping = threading.Thread(target=lambda: (world.thread.stop(0.0), stopped.set()))
    stopping.start()
    assert world.right._ended.wait(60)
    stopping.join(0.2)
    assert stopping.is_alive()
    go_on.set()
    stopping.join(60)
    assert stopped.is_set() and not world.left


def test_stop_does_not_wait_for_a_cluster_that_is_silent() -> None:
    reading, go_on, end = threading.Event(), threading.Event(), threading.Event()
    world, refused = World(), list[BaseException]()

    def read(now_ms: int) -> FollowReport:
        reading.set()
        assert go_on.wait(60)
        try:
            world.right.check()
        except Stopped as e:
            refused.append(e)
        end.set()
        return FollowReport()

    world.left.append(read)
    world.thread.start()
    assert reading.wait(60)
    world.thread.stop(0.0)
    go_on.set()
    assert end.wait(60) and refused


def test_lost_lease_sets_nothing_and_a_lease_taken_again_does() -> None:
    world = World()
    another = lease.take(world.target, "m")
    world.thread.start()
    world.wait_for(lambda found: f"writer lease {another.transactional_id!r}" in str(found["error"]))
    assert all(found["error"] for found in world.told[1:])
    world.token = another
    world.wait_for(lambda found: found.get("groups") == 7)
    world.thread.stop()


def test_log_says_what_changes_and_not_every_pass(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger=recurring.__name__)
    error = ClusterUnreachable("target", "b:1", "silent")
    world = World(*[lambda _, n=n: FollowReport(groups=n) for n in range(5)], fail(error), fail(error))
    world.thread.start()
    world.wait_for(lambda _: len(world.told) > 9)
    world.thread.stop()
    said = ["groups: 0 groups kept level", f"groups don't follow now: {error}", "groups: 7 groups kept level"]
    assert [record.message for record in caplog.records] == said
