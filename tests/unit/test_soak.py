"""What a soak says of decisions: the replay is its own, because the product's would agree with itself."""

from __future__ import annotations

import json
from typing import Any

from tests.soak.observer import decided


def record(claim: str, expects: dict[str, int], **sets: Any) -> bytes:
    named = {key.replace("_", "/"): value for key, value in sets.items()}
    return json.dumps({"claim": claim, "expects": expects, "sets": named, "read": [-1, ""]}).encode()


def test_replay_counts_the_first_decision_and_refuses_the_late_one() -> None:
    first = record("a", {"active/m": 0}, active_m={"job": "1"})
    late = record("b", {"active/m": 0}, active_m={"job": "2"})
    found = decided([first, late, first, record("c", {"active/m": 1}, active_m={"job": "3"})], "m")
    assert (found.tails, found.refused, found.double) == (["1", "3"], 1, [])


def test_replay_tells_a_topic_that_had_two_owners() -> None:
    """Although no two decisions met: the second mirror should never have been let."""
    values = [
        record("a", {"topic/t": 0}, topic_t={"topic_id": "x", "mirror": "m"}),
        record("b", {"topic/t": 1}, topic_t={"topic_id": "x", "mirror": "rival"}),
        record("c", {"topic/t": 2}, topic_t={"topic_id": "y", "mirror": "rival"}),  # created again
    ]
    (double,) = decided(values, "m").double
    assert double.startswith("topic x")
