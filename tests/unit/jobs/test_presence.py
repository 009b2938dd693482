"""What a tail says of itself on the target, and what it hears there."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from airflow_mirror.common.policy import DECISIONS
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.errors import MirrorPaused, TailReplaced, WritingEnded
from airflow_mirror.jobs.driver.prepare import CopyJob
from airflow_mirror.jobs.driver.presence import TailHeartbeat, presence
from airflow_mirror.jobs.request import TailRequest
from airflow_mirror.jobs.runner.active import ActiveTail, Watch, active_tail, ask_to_stop, ended
from airflow_mirror.jobs.runner.state import FAILED
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.jobs.runner.wishes import Wish, wish
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.kinds import whole
from airflow_mirror.ledger.records import TOPIC
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.amendment import amended, next_amendment
from airflow_mirror.plan.direction import Direction, turn
from airflow_mirror.plan.owned import Owned
from airflow_mirror.wire.error_codes import ErrorCode
from tests.builders import plan_of, request, topic_plan
from tests.driven.ledger import LedgerCluster
from tests.driven.script import Fault
from tests.driven.validation import TopicConfig
from tests.waiting import wait_until


def fast_clock() -> float:
    """By which it is time for a sign every ten milliseconds."""
    return time.monotonic() * 500


class Target:
    """A target of which nobody knows more than its ledger and its state.

    ``away``: it can be read and not written.
    """

    def __init__(self, ledger_target: LedgerCluster) -> None:
        self.away = False
        refused = Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        ledger_target.script.on("Produce", refused, times=None, when=lambda _: self.away)
        self.cluster, self.stopping = ledger_target, threading.Event()
        self.ledger, self.state = ledger_target.ledger, ledger_target.state
        self.plan = plan_of(Mirror(name="m", source="a", target="b"), topic_plan("t", {0: 0}, source_topic_id="id"))
        self.job = CopyJob(
            mirror=self.plan.mirror,
            source="a",
            target=ledger_target.reference,
            plan=self.plan,
            options=CopyOptions(mirror="m"),
        )

    @contextmanager
    def tail(self, replaces: str = "") -> Iterator[TailHeartbeat]:
        asked = request(TailRequest, target=self.cluster.reference, replaces=replaces)
        with presence(self.job, asked, StatusFile(None), self.stopping, every_s=0.01, clock=fast_clock) as there:
            yield there
            there.ends_with(({}, None))


@pytest.fixture
def target(ledger_target: LedgerCluster) -> Target:
    return Target(ledger_target)


def test_tail_is_known_by_its_own_mirror_not_the_plans(target: Target) -> None:
    """Rates may differ from the plan's. A task that asks for the very rate must not be refused for it."""
    target.job = replace(target.job, mirror=replace(target.plan.mirror, max_bytes_per_second=7))
    with target.tail():
        there = active_tail(target.ledger.values(), "m")
        assert there is not None and there.mirror["max_bytes_per_second"] == 7 and there.plan == target.plan.hash


def test_what_was_found_lost_is_not_listened_for_again(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = ActiveTail(mirror={"name": "m"}, plan="p", inputs="i", directory="/jobs/1", where="a host that is gone")
    target.ledger.decide(lambda _: {"active/m": lost.value()})

    def never(*_: object) -> None:
        raise AssertionError("it is listened for again")

    monkeypatch.setattr(Watch, "_probe", never)
    with target.tail(replaces=f"{lost.job}/"):
        there = active_tail(target.ledger.values(), "m")
        assert there is not None and there.job != lost.job


def test_a_tail_of_a_mirror_that_was_failed_over_or_retired_has_no_successor(target: Target) -> None:
    with target.tail() as there:
        target.ledger.decide(lambda _: ended("m"))
        wait_until(target.stopping.is_set)
        with pytest.raises(
            TailReplaced, match="was ended: it was failed over, rolled back or retired. This one copies no"
        ):
            there.require_active()


def test_the_last_sign_names_an_error_that_has_no_text(target: Target) -> None:
    with pytest.raises(MemoryError), target.tail():
        raise MemoryError
    active = active_tail(target.ledger.values(), "m")
    assert active is not None
    sign = Watch(target.state).sign(active)
    assert sign is not None and (sign.state, sign.error) == (FAILED, "MemoryError")


@pytest.mark.parametrize("by", ["rollback", "failover", "cutover"])
@pytest.mark.parametrize("noticed", ["by its sign", "by its lease"])
def test_a_tail_whose_topics_were_handed_over_ends_well(target: Target, by: str, noticed: str) -> None:
    handed = Owned(topic_id="id", mirror="m", source_id="src", opened_by="failover run" if by == "failover" else "hash")
    turned = Direction(generation=2, primary="p", by=by, attempt="run", plan="hash", at="now")
    with target.tail() as there:
        target.ledger.decide(
            lambda _: {
                TOPIC.key("t"): handed.value(), **turn("m", turned), **({} if by == "cutover" else ended("m")),
            }
        )  # fmt: skip
        if noticed == "by its sign" and by != "cutover":
            wait_until(target.stopping.is_set)
            assert there.ends_with(({"records": 3}, None)) == ({"records": 3, "ended": f"ended by {by}"}, None)
        else:
            assert there.ends_with(({}, WritingEnded("m"))) == ({"ended": f"ended by {by}"}, None)


def test_tail_writes_its_plan_again_where_the_target_has_lost_it(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody deleted the topic: without the plan, nobody could fail the mirror over."""
    amendment = next_amendment(target.plan, [topic_plan("later", {0: 0}, source_topic_id="l")], (), "now")
    plan = amended(target.plan, [amendment])
    with target.tail() as there:
        there.plan = lambda: plan
        for _ in range(2):
            wait_until(lambda: whole(target.state.read(), f"plan/m/{plan.hash}+{amendment.hash}") is not None)
            found = target.state.read()
            assert ledger_store.plan_in(found, "m", plan.hash) == target.plan
            assert ledger_store.amendments_in(found, "m", plan.hash, plan.revision) == [amendment]
            target.state.write(dict.fromkeys(target.state.read()))
    assert "had lost the plan by which this tail copies" in caplog.text


def test_wishes_are_known_at_the_start_and_heard_later(target: Target) -> None:
    pause = Wish(by="ann@desk", at="noon")
    wish(target.state, "m", "pause", pause)
    with target.tail() as there:
        assert there.wishes.pause == pause
        wish(target.state, "m", "pause", None)
        wish(target.state, "m", "rate", Wish(by="bob", at="one", max_bytes_per_second=5))
        wait_until(lambda: there.wishes.pause is None and there.wishes.rate_or(None) == 5)
        tail, watch = active_tail(target.ledger.values(), "m"), Watch(target.state)
        assert tail is not None
        wait_until(lambda: (sign := watch.sign(tail)) is not None and (sign.heard.get("rate") or {}).get("by") == "bob")


def test_paused_tail_does_not_begin_where_it_could_hear_nothing(target: Target) -> None:
    """Its ledger is lost; copying goes on without, but not against a wish."""

    target.cluster.create(DECISIONS)
    with target.tail() as there:
        assert there.wishes.pause is None
    wish(target.state, "m", "pause", Wish(by="ann@desk", at="noon"))
    with pytest.raises(MirrorPaused, match="paused by ann@desk since noon"), target.tail():
        raise AssertionError("it must not copy")


def test_tail_listens_while_it_can_give_no_sign(target: Target) -> None:
    """Who asked it to stop, or took its place, did so before nothing could be written any more."""
    with target.tail() as there:
        tail = active_tail(target.ledger.values(), "m")
        assert tail is not None
        wish(target.state, "m", "rate", Wish(by="bob", at="one", max_bytes_per_second=5))
        ask_to_stop(target.state, "m", tail.job, "ann")
        target.away = True
        wait_until(target.stopping.is_set)
        wait_until(lambda: there.wishes.rate is not None)
        target.away = False


def test_signs_resume_after_an_hour_in_which_none_could_be_written(target: Target) -> None:
    """Nothing ends meanwhile, nothing piles up, and it hears again who asks it to stop."""
    with target.tail():
        tail, watch = active_tail(target.ledger.values(), "m"), Watch(target.state)
        assert tail is not None
        wait_until(lambda: watch.sign(tail) is not None)
        target.away = True
        before, looks = watch.sign(tail), len(target.cluster.asked("Fetch"))
        wait_until(lambda: len(target.cluster.asked("Fetch")) > looks + 40)
        assert watch.sign(tail) == before and not target.stopping.is_set()
        target.away = False
        wait_until(lambda: (sign := watch.sign(tail)) is not None and sign.number > before.number)  # type: ignore[union-attr]
        ask_to_stop(target.state, "m", tail.job, "ann")
        wait_until(target.stopping.is_set)
    assert (last := watch.sign(tail)) is not None and last.state == "SUCCEEDED"


def test_what_was_decided_is_read_once_and_then_what_is_new(target: Target) -> None:
    """A tail looks every few seconds, for months, whether it is the one."""

    def whole() -> int:
        asked = [topic for request in target.cluster.asked("Fetch") for topic in request.message.topics]
        return sum(p.fetch_offset == 0 for topic in asked if topic.topic == DECISIONS for p in topic.partitions)

    with target.tail():
        tail, watch = active_tail(target.ledger.values(), "m"), Watch(target.state)
        assert tail is not None
        first, read = wait_until(lambda: watch.sign(tail)), whole()
        assert first is not None and read
        wait_until(lambda: (sign := watch.sign(tail)) is not None and sign.number > first.number + 5)
        assert whole() == read


def test_a_ledger_that_was_brought_back_is_read_anew(target: Target) -> None:
    """From an older export, say: what was read of the lost one is not there any more."""
    with target.tail() as there:
        wait_until(lambda: active_tail(target.ledger.values(), "m"))
        target.cluster.create(DECISIONS, config=TopicConfig(append_time=True))
        with ClusterAdmin(target.cluster.config) as admin:
            wait_until(lambda: there._complaints._said)
            Ledger(admin).create()
        target.stopping.wait(240)
        assert isinstance(there._replaced, TailReplaced)
