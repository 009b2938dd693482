"""What once doubled records, or wrote where it must not, as stories of a copy; and that it is found without its cure."""

from __future__ import annotations

import pytest

from airflow_mirror.copy.spark import attempt
from airflow_mirror.errors import MirrorCutOver
from airflow_mirror.jobs.driver import following, held_lease
from airflow_mirror.jobs.driver.held_lease import HeldLease
from tests.explore import copying
from tests.explore.copying import TOPIC
from tests.explore.deviations import freeze, switch
from tests.explore.scenario import Outcome
from tests.explore.story import story

LEASE = "target: DescribeTransactions airflow-mirror:m:lease"
PRODUCE = f"target: Produce {TOPIC}"
ONCE, ELSEWHERE = (
    "each record is on the target once, where it was, in its order",
    "nothing is written into a topic that was created again",
)

pytestmark = pytest.mark.usefixtures("silent")


def orphaned(scenario: str, batch: int = 2) -> Outcome:
    return story(scenario, ("D.T0", PRODUCE, batch, switch("Net")))


def recreated() -> Outcome:
    return story("copy_recreated", ("D.T0 lease", LEASE, 3, switch("P")))


@pytest.fixture
def second_attempts_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "_require_first", lambda _: None)


@pytest.fixture
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldLease, "is_safe", True)


@pytest.fixture
def ids_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "id_of", lambda *_: "")


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("scenario", ["copy", "copy_mapped"])
def test_task_that_spark_has_lost_doubles_nothing_beside_who_goes_on(scenario: str, batch: int) -> None:
    outcome = orphaned(scenario, batch)
    assert outcome.broken == {}, outcome.text
    lost, again, next_round = outcome.world.spark[:3]
    assert (lost.is_lost, again.number, next_round.number) == (True, 1, 0)
    assert [one.unheard for one in again.told] == [True]
    assert next_round.actor.began - lost.actor.began > 7.0, "the lost one must have stopped"
    assert lost.told and lost.told[0].lease_lost


@pytest.mark.parametrize("scenario", ["copy", "copy_mapped"])
@pytest.mark.usefixtures("second_attempts_copy")
def test_next_attempt_that_copied_under_the_same_lease_would_be_found(scenario: str) -> None:
    assert ONCE in orphaned(scenario).broken


@pytest.mark.usefixtures("nobody_waits")
def test_next_round_that_did_not_wait_for_a_lost_task_would_be_found() -> None:
    assert ONCE in orphaned("copy", 1).broken


def test_tail_writes_nothing_into_a_topic_that_was_created_again_while_it_was_idle() -> None:
    outcome = recreated()
    assert outcome.broken == {}, outcome.text
    (result,) = outcome.scheduler.actor("D").result
    assert "created again" in result.error or "another" in result.error
    assert outcome.world.target.topics[TOPIC].logs[0].end == 0


@pytest.mark.usefixtures("ids_are_unknown")
def test_tail_that_knows_topics_by_their_names_only_would_be_found() -> None:
    assert list(recreated().broken) == [ELSEWHERE]


def test_story_of_a_copy_is_the_same_each_time() -> None:
    assert orphaned("copy").text == orphaned("copy").text


# --- a tail that stood still before it took its lease -----------------------------------------------------------------

TAKING = "target: InitProducerId airflow-mirror:m:lease"
OPENED = "nothing is written to the target by the mirror once it is open"
FIRST, BACK = 1, 3  # its takings: two requests each


def slow_to_take(nth: int) -> Outcome:
    return story("copy_tail", ("T", TAKING, nth, freeze()))


@pytest.mark.parametrize("nth", [FIRST, BACK])
def test_tail_that_takes_its_lease_behind_an_opening_writes_nothing(nth: int) -> None:
    outcome = slow_to_take(nth)
    assert outcome.broken == {}, outcome.text
    assert isinstance(outcome.scheduler.actor("T").error, MirrorCutOver)


@pytest.mark.parametrize("nth", [FIRST, BACK])
def test_tail_that_looked_only_before_it_took_its_lease_would_be_found(nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if nth == FIRST:
        monkeypatch.setattr(following, "require_still_ours", lambda _: None)
    else:
        take_back = HeldLease.take_back
        monkeypatch.setattr(
            HeldLease, "take_back", lambda held, _: take_back(held, lambda s: vars(held_lease)["time"].sleep(s))
        )
    assert list(slow_to_take(nth).broken) == [OPENED]
