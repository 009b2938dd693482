"""What people wish of a mirror, and what the commands say of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

import pytest

from airflow_mirror.common.policy import DECISIONS, STATE, WISHES
from airflow_mirror.console.main import main
from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat
from airflow_mirror.jobs.runner.pacing import pace
from airflow_mirror.jobs.runner.wishes import Wish, Wishes, wish
from airflow_mirror.kafka.permit import unfenced
from tests.driven.ledger import LedgerCluster
from tests.driven.records import Row
from tests.unit.console.conftest import Time

Heard = Callable[[Wishes], tuple[str, Wishes]]


class World:
    """A target with mirror m, whose tail may live."""

    def __init__(self, ledger_target: LedgerCluster, time: Time) -> None:
        self.target, self.ledger, self.state = ledger_target, ledger_target.ledger, ledger_target.state
        self.time = time
        owned = {"v": 1, "topic_id": "x", "mirror": "m", "source_id": "A"}
        self.ledger.decide(lambda _: {"topic/t": owned})

    def rows(self, topic: str) -> list[Row]:
        return self.target.topics[topic].logs[0].rows()

    def tail(self, heard: Heard = lambda now: ("copying", now)) -> ActiveTail:
        """Let a tail live, whose signs say phase and wishes by what is wished now."""
        one = ActiveTail(mirror={"name": "m"}, plan="p", inputs="i", directory="", host="host-a", where="host-a")
        self.ledger.decide(lambda _: {"active/m": one.value()})
        self.live(one, heard)
        return one

    def bulk_copy(self, heard: Heard) -> Heartbeat:
        """Let a bulk copy live, as :meth:`tail`."""
        one = ActiveTail(
            mirror={"name": "m"}, plan="p", inputs="i", directory="", host="host-b", where="host-b", bulk=True
        )
        return self.live(one, heard)

    def live(self, one: ActiveTail, heard: Heard) -> Heartbeat:
        signs = Heartbeat(self.state, one)

        def give() -> None:
            phase, known = heard(self.wished)
            signs.give("RUNNING", phase=phase, heard=asdict(known))

        self.time.meanwhile = lambda _: give()
        give()
        return signs

    @property
    def wished(self) -> Wishes:
        return Wishes.of(self.state.read(), "m")


@pytest.fixture
def world(ledger_target: LedgerCluster, time: Time) -> World:
    return World(ledger_target, time)


def command(world: World, verb: str, *rest: str, mirror: str = "m") -> int:
    return main([verb, "--target", world.target.reference, "--mirror", mirror, *rest], world.time)


def rests(now: Wishes) -> tuple[str, Wishes]:
    return ("copying" if now.pause is None else "paused"), now


def test_a_pause_without_a_tail_waits_for_the_next(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(world, "pause") == 0
    said = capsys.readouterr().out
    assert world.wished.pause is not None and f"m: paused by {world.wished.pause.by} since" in said
    assert "nothing copies for it now: a job that is started keeps to it" in said


def test_who_may_only_wish_writes_nothing_else(world: World) -> None:
    """Also while a tail is silent, and somebody has to find out whether it could have given a sign."""
    world.tail()
    world.time.meanwhile = lambda _: None
    before = {topic: len(world.rows(topic)) for topic in (DECISIONS, STATE, WISHES)}
    assert [command(world, "pause"), command(world, "resume"), command(world, "rate", "7")] == [0, 0, 0]
    written = {row.key for topic, known in before.items() for row in world.rows(topic)[known:]}
    assert written == {b"wish/m/pause", b"wish/m/rate", b"wish/m/look"}


def test_who_paused_first_stays_the_one(world: World) -> None:
    first = Wish(by="ann@desk", at="2026-11-23T07:00:00+00:00")
    wish(world.state, "m", "pause", first)
    assert command(world, "pause") == 0
    assert world.wished.pause == first


def test_a_pause_is_done_when_the_tail_rests(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A sign that it gave before it heard of the pause, or of another pause, proves nothing."""
    old = Wishes(pause=Wish(by="bob", at="yesterday"))
    signs = iter([("copying", Wishes()), ("paused", old), ("paused", Wishes())])
    world.tail(lambda now: next(signs, ("paused", now)))
    assert command(world, "pause", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tail"], found["host"], found["rate"]) == ("rests", "host-a", None) and found["pause"]["by"]
    assert next(signs, None) is None


def test_a_tail_that_does_not_rest_is_said_to_copy(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.tail(lambda now: ("copying", now))
    assert command(world, "pause") == 1
    assert "is paused, but its tail on host 'host-a' still copies after" in capsys.readouterr().err
    assert world.wished.pause is not None, "the wish stands"


def test_a_pause_that_is_taken_back_meanwhile_is_not_waited_for(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """By a person, while the tail ends a large batch. It is no error, which a task would answer by a second pause."""
    world.tail(lambda now: ("copying", now))
    began, give = world.time.now, world.time.meanwhile

    def resumed(seconds: float) -> None:
        give(seconds)
        if world.time.now > began + 9:
            wish(world.state, "m", "pause", None)

    world.time.meanwhile = resumed
    assert command(world, "pause") == 0 and world.time.now - began < 20
    assert "its tail on host host-a follows within seconds" in capsys.readouterr().out and world.wished == Wishes()


def test_next_try_leaves_what_was_wished_since(world: World) -> None:
    """Its own pause was resumed, or another one has come behind its resumption."""
    tries: list[str] = []
    for verb, since in (("pause", None), ("resume", Wish(by="ann", at="noon"))):
        pace(world.target.admin, "m", verb, clock=world.time, wished=lambda: tries.append("wished"))
        wish(world.state, "m", "pause", since)
        found = pace(world.target.admin, "m", verb, clock=world.time, is_wished=True)
        assert found.wishes.pause == since == world.wished.pause
    assert tries == ["wished"] * 2


def test_a_pause_is_done_when_the_bulk_copy_rests(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody has decided it, so it says itself that it is there."""
    signs = iter([("copying", Wishes()), ("copying", Wishes()), ("paused", Wishes())])
    world.bulk_copy(lambda now: next(signs, ("paused", now)))
    assert command(world, "pause", "--json") == 0
    assert json.loads(capsys.readouterr().out)["bulk_copies"] == [{"host": "host-b", "state": "rests"}]
    assert next(signs, None) is None and command(world, "resume") == 0
    assert "its bulk copy on host host-b follows within seconds" in capsys.readouterr().out


def test_a_bulk_copy_that_does_not_rest_is_named(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.bulk_copy(lambda now: ("copying", now))
    assert command(world, "pause") == 1
    assert "is paused, but its bulk copy on host 'host-b' still copies after" in capsys.readouterr().err


def test_a_bulk_copy_that_ends_meanwhile_copies_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """It took its leave: nobody waits for the silence of one that was killed."""
    signs = world.bulk_copy(lambda now: ("copying", now))
    began, world.time.meanwhile = world.time.now, lambda _: signs.forget()
    assert command(world, "pause") == 0 and world.time.now - began < 5
    assert "nothing copies for it now" in capsys.readouterr().out


def test_a_bulk_copy_that_was_killed_is_listened_for(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.bulk_copy(lambda now: ("copying", now))
    began, world.time.meanwhile = world.time.now, lambda _: None
    assert command(world, "pause") == 0 and world.time.now - began >= 30
    assert "nothing copies for it now" in capsys.readouterr().out


def test_resume_takes_the_pause_back_and_no_more(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.tail(rests)
    assert command(world, "rate", "7000000") == command(world, "pause") == command(world, "resume") == 0
    assert world.wished.pause is None and world.wished.rate is not None
    said = capsys.readouterr().out
    assert "its tail on host host-a rests" in said
    assert said.splitlines()[-2].startswith("m: rate set to 7,000,000 bytes per second by ")
    assert said.splitlines()[-1] == "its tail on host host-a follows within seconds"


@pytest.mark.parametrize(("given", "wished"), [("5", 5), ("none", None), ("default", 9)])
def test_a_rate_is_bytes_none_or_the_mirrors(world: World, given: str, wished: float | None) -> None:
    assert command(world, "rate", "3") == command(world, "rate", given) == 0
    assert world.wished.rate_or(9) == wished


@pytest.mark.parametrize("given", ["0", "fast", "1.5", "10MB", "²"])
def test_what_is_no_rate_changes_nothing(world: World, capsys: pytest.CaptureFixture[str], given: str) -> None:
    assert command(world, "rate", given) == 2
    assert f"rate={given!r}\n  why: not a rate" in capsys.readouterr().err and world.wished == Wishes()


def test_a_mirror_that_nobody_knows_is_refused(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(world, "pause", mirror="n") == 2
    assert "knows no such mirror. Nothing was changed\n  do:  Give one of m." in capsys.readouterr().err
    assert not world.state.read()


def test_wishes_of_a_newer_version_are_not_guessed(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.state.write({"wish/m/pause": b'{"v":2,"until":"tomorrow"}'})
    assert command(world, "rate", "5") == 2
    assert "can't read" in capsys.readouterr().err and list(world.state.read()) == ["wish/m/pause"]


def test_a_job_that_tidies_up_leaves_wishes_alone(world: World) -> None:
    command(world, "pause")
    command(world, "rate", "5")
    before = world.wished
    other = world.tail()
    Heartbeat(world.state, ActiveTail(mirror={"name": "m"}, plan="p", inputs="i", directory="")).forget_others(unfenced)
    assert world.wished == before and not any(other.job in key for key in world.state.read())
