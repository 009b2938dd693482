from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.knobs import knobs_of
from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.driver.arguments import mirror_of, parser, request_of
from airflow_mirror.jobs.request import REQUESTS, BulkRequest, TailRequest, VerifyRequest
from airflow_mirror.mirror import Mirror


def parsed(*given: Any, kind: Any = BulkRequest) -> Namespace:
    return parser("job", "", kind).parse_args(["--source", "s", "--target", "t", *given])


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
    assert (asked().no_probe, asked("--no-probe").no_probe) == (False, True)


def asked(*given: str) -> BulkRequest:
    return request_of(BulkRequest, parsed(*given))


def test_when_a_copy_gives_up_is_an_option() -> None:
    assert (asked().give_up_after_s, asked().abort_on_send_failure) == (None, False)
    given = asked("--give-up-after-s", "inf", "--abort-on-send-failure")
    assert (given.give_up_after_s, given.abort_on_send_failure) == (float("inf"), True)


@pytest.mark.parametrize("none", ["0", "-1", "nan"])
def test_no_time_to_copy_in_is_refused(none: str) -> None:
    with pytest.raises(InvalidField, match="give_up_after_s"):
        asked("--give-up-after-s", none)


def test_a_run_may_begin_elsewhere_than_its_mirror() -> None:
    assert (asked().start, asked().mirror.start) == ("", "earliest")
    assert (asked("--start", "latest").start, asked("--start", "latest").mirror.start) == ("latest", "latest")


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (BulkRequest, ["--end", "latest", "--metrics-port", "0", "--tasks", "3", "--start", "latest"]),
        (TailRequest, ["--give-up-after-s", "inf", "--takeover", "--alarm", "x.y"]),
        (VerifyRequest, ["--level", "records", "--seed", "7", "--only-new"]),
    ],
)  # fmt: skip
def test_a_request_survives_its_file(kind: Any, given: list[str]) -> None:
    one = request_of(kind, parsed(*given, kind=kind))
    assert kind.from_dict(json.loads(json.dumps(one.to_dict()))) == one


def test_each_field_of_a_request_has_an_option_or_is_said_by_the_starter() -> None:
    """One declaration makes the option, and what reads it: a field that a command line can't name would be forgotten."""
    for kind in REQUESTS.values():
        options = {one.name for one, its in knobs_of(kind) if its.option}
        assert {one.name for one in fields(kind)} - options == {"mirror", "source", "target", "start"}
        shown = vars(parsed(kind=kind))
        assert options <= shown.keys()
