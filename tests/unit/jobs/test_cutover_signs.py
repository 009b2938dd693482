"""How a tail hears that a cutover of its mirror is at work."""

from __future__ import annotations

from airflow_mirror.jobs.runner.active import Sign
from airflow_mirror.jobs.runner.cutover_signs import PHASE, CutoverSigns
from airflow_mirror.jobs.runner.state import RUNNING, SUCCEEDED
from airflow_mirror.ledger.records import SIGN


class Scene:
    """The signs on a target, and a clock."""

    def __init__(self) -> None:
        self.now, self.values = 0.0, dict[str, bytes]()
        self.signs = CutoverSigns(lambda: self.now)

    def give(self, job: str, number: int, state: str = RUNNING, phase: str = PHASE, mirror: str = "flow") -> None:
        self.values[SIGN.key(mirror, job)] = Sign(number=number, state=state, phase=phase).encode()

    @property
    def heard(self) -> bool:
        return self.signs.look(self.values, "flow")


def test_a_cutover_is_heard_from_its_first_sign_to_its_last() -> None:
    scene = Scene()
    assert not scene.heard
    scene.give("c", 1)
    assert scene.heard
    scene.now += 5
    scene.give("c", 2)
    assert scene.heard
    scene.give("c", 3, SUCCEEDED)
    assert not scene.heard


def test_one_that_was_killed_counts_for_twelve_seconds_more() -> None:
    scene = Scene()
    assert not scene.heard
    scene.give("c", 1)
    assert scene.heard
    scene.now += 11.9
    assert scene.heard
    scene.now += 0.2
    assert not scene.heard
    scene.give("c", 2)
    assert scene.heard, "it was frozen only"


def test_what_a_killed_one_left_is_not_heard_by_a_tail_that_begins() -> None:
    scene = Scene()
    scene.give("dead", 7)
    assert not scene.heard
    scene.now += 2
    assert not scene.heard
    scene.give("alive", 1)
    assert scene.heard


def test_other_jobs_and_other_mirrors_are_no_cutover() -> None:
    scene = Scene()
    assert not scene.heard
    scene.give("tail", 1, phase="copying")
    scene.give("other", 1, mirror="flow2")
    scene.values[SIGN.key("flow", "newer")] = b"\x00"
    assert not scene.heard
