"""The search finds what is known to be wrong, and goes through everything of what is right."""

from __future__ import annotations

import pytest

from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover.heartbeat import SILENCE_S
from tests.explore import cutovers, search
from tests.explore.__main__ import explore, main
from tests.explore.actors import LIMITS
from tests.explore.deviations import REST, around, freeze, kill, late, read, scenario_of, switch, written
from tests.explore.scenario import run
from tests.explore.search import share
from tests.unit.explore.toys import ALONE, COUNTED, FREE, TOYS


def test_update_that_is_lost_is_found_by_one_switch() -> None:
    (found,) = explore(["broken"], TOYS)
    assert found.single[0] == found.single[1] > 20
    stories = {one.events: one for one in found.findings}
    lost_update = stories[(("A", "set n to 1", 1, switch("B")),)]
    assert (lost_update.sentence, lost_update.wrong) == (COUNTED.sentence, "2 were told, the counter is 1")
    assert (("A", "set n to 1", 1, late()),) not in stories, "such requests can't be late here"


def test_freezes_end_before_behind_and_between_the_limits() -> None:
    assert around(60.0, 12.0) == (6.0, 36.0, REST)
    limits = (lease.HANDOVER_S, SILENCE_S, LIMITS.max_fence_s)
    assert [sum(one < limit for one in cutovers.FREEZES) for limit in limits] == [1, 3, 6]


def test_owner_that_is_killed_in_between_and_one_that_thaws_are_found() -> None:
    (found,) = explore(["lock"], TOYS)
    by_story = {(one.sentence, one.events) for one in found.findings}
    assert (FREE.sentence, (("B", "set owner to ", 1, kill()),)) in by_story
    assert (ALONE.sentence, (("A", "do part 2", 1, freeze(90)),)) in by_story
    assert not any(one[0] == ALONE.sentence and one[1][0][3] == freeze(30) for one in by_story), "B waits a minute"


def test_actor_that_never_comes_to_what_it_is_there_for_is_found() -> None:
    late, never = explore(["late", "never"], TOYS)
    assert late.findings == [], "when the first one is killed it does"
    assert [str(one).splitlines()[0] for one in never.findings] == [
        "each actor comes to what it is there for: B never did `set m to `"
    ]


def test_sound_one_passes_completely_its_pairs_and_at_random() -> None:
    (found,) = explore(["sound"], TOYS, depth=2, at_random=200)
    assert found.findings == [] and found.at_random == 200
    assert found.single[0] == found.single[1] > 20
    assert found.roots == (found.single[1],) * 2 and found.pairs[0] == found.pairs[1] > 200


def test_same_seed_tries_the_same_and_what_it_finds_can_be_told_again() -> None:
    seeds = range(300)
    first, second = ([search.at_random(TOYS["broken"], seed) for seed in seeds] for _ in range(2))
    assert [one.text for one in first] == [one.text for one in second]
    assert len({one.text for one in first}) > 20
    counts = [(len(told), sum(one[3].is_fault for one in told)) for told in (run.scheduler.happened for run in first)]
    assert max(counts)[0] <= 4 and max(faults for _, faults in counts) == 2
    for one in first:
        again = run(TOYS["broken"], one.scheduler.happened)
        assert (again.text, again.broken) == (one.text, one.broken)


def test_time_limit_ends_pairs_and_random_ones_but_no_single_deviation() -> None:
    (found,) = explore(["sound"], TOYS, depth=2, at_random=1000, seconds=0)
    assert found.single[0] == found.single[1] and found.pairs[0] == found.at_random == 0
    assert "0 of 0 related pairs behind 0 of" in str(found)


def test_finding_is_printed_as_a_story_that_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", "broken"], TOYS) == 1
    printed = capsys.readouterr().out
    begin = printed.index("story(")
    text = printed[begin : printed.index("\n)", begin) + 2]
    assert scenario_of(text) == "broken"
    assert main(["--show", text], TOYS) == 1
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].startswith("   1     0.00 s  A begins") and f"BROKEN  {COUNTED.sentence}" in shown
    assert main(["--scenario", "broken", "--show", "", "--events"], TOYS) == 0
    assert capsys.readouterr().out.startswith(
        "('A', 'read n', 1)  reads counter:n\n('A', 'set n to 1', 1)  changes counter:n\n"
    )
    assert main(["--scenario", "sound"], TOYS) == 0


def test_scenarios_and_their_invariants_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"], TOYS) == 0
    assert "sound: Two actors count by compare-and-set" in capsys.readouterr().out


def test_story_is_read_as_it_was_written() -> None:
    events = (("A", "set 'x'", 2, freeze(30, cut="target")), ("B", "read", 1, switch("A")), ("A", "w", 1, late(5)))
    text = written(events, "retry")
    assert (scenario_of(text), read(text)) == ("retry", list(events))
    assert read(", ".join(f"({a!r}, {w!r}, {n}, {d})" for a, w, n, d in events)) == list(events)
    assert read("('A', 'x', 1, kill())") == [("A", "x", 1, kill())]


@pytest.mark.parametrize(
    ("these", "those", "shared"),
    [
        ("acl:TOPIC", "acl:TOPIC", True), ("acl:TOPIC", "acl:GROUP", False), ("acl:*", "acl:GROUP", True),
        ("ledger:a", "ledger:*", True), ("ledger:*", "group:*", False), ("", "acl:*", False),
    ],
)  # fmt: skip
def test_operations_share_what_both_touch(these: str, those: str, shared: bool) -> None:
    assert share(frozenset(these.split()), frozenset(those.split())) is shared
