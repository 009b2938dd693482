from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.driver.arguments import add_failures, failing, mirror_of, parser
from airflow_mirror.mirror import Mirror


def parsed(*given: Any) -> Namespace:
    return parser("job", "").parse_args(["--source", "s", "--target", "t", *given])


def test_command_line_budgets_override_the_mirror_file(tmp_path: Path) -> None:
    path = tmp_path / "mirror.json"
    path.write_text('{"name": "m", "source": "a", "target": "b", "hole_budget": 0.2, "prime_budget": 7}')
    made = mirror_of(parsed("--mirror", str(path), "--hole-budget", "0", "--compacted-filler", "tombstones"))
    assert (made.hole_budget, made.prime_budget, made.compacted_filler) == (0, 7, "tombstones")


def test_without_options_the_budgets_are_the_mirrors_defaults() -> None:
    made, plain = mirror_of(parsed()), Mirror(name="m", source="a", target="b")
    assert (made.hole_budget, made.prime_budget, made.compacted_filler) == (
        plain.hole_budget, plain.prime_budget, plain.compacted_filler,
    )  # fmt: skip


def test_a_budget_that_is_none_is_refused_with_its_field() -> None:
    with pytest.raises(InvalidField, match="hole_budget=2.0"):
        mirror_of(parsed("--hole-budget", "2"))


def test_the_target_is_tried_out_unless_told_not_to() -> None:
    assert (parsed().no_probe, parsed("--no-probe").no_probe) == (False, True)


def with_failures(*given: str) -> CopyOptions:
    p = parser("job", "")
    add_failures(p)
    return failing(CopyOptions(mirror="m"), p.parse_args(["--source", "s", "--target", "t", *given]))


def test_when_a_copy_gives_up_is_an_option() -> None:
    assert with_failures() == CopyOptions(mirror="m")
    given = with_failures("--give-up-after-s", "inf", "--abort-on-send-failure")
    assert (given.give_up_after_s, given.abort_on_send_failure) == (float("inf"), True)


@pytest.mark.parametrize("none", ["0", "-1", "nan"])
def test_no_time_to_copy_in_is_refused(none: str) -> None:
    with pytest.raises(InvalidField, match="--give-up-after-s"):
        with_failures("--give-up-after-s", none)
