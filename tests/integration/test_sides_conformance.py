"""A real cluster answers what the code asks it as it did when its answers were written down.

The cluster in memory is held against the same answers in every unit run (tests/unit/memory).
"""

from __future__ import annotations

import os
from contextlib import closing

import pytest

from sandbox import Cluster
from tests.conformance.sides import CASES, GOLDEN, transcript
from tests.conformance.transcript import assert_alike
from tests.integration.real_side import RealSide


@pytest.mark.parametrize("name", CASES)
def test_real_cluster_answers_as_written_down(name: str, walled_cluster: Cluster, topic_name: str) -> None:
    with closing(RealSide(walled_cluster, f"t{topic_name[-8:]}")) as side:
        answers = transcript(side, CASES[name])
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(answers)
    assert_alike(answers, file.read_text())
