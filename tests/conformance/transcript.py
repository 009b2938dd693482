"""Holds a conversation and compares what was answered.

What a real broker answered is kept in tests/golden/broker, a transcript for each case. The driven broker is held against
it in every unit run, real brokers in tests/integration; with GOLDEN=write their answers are written down anew.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from tests.conformance.asker import Asker
from tests.conformance.cases import Case
from tests.driven.release import RELEASES

GOLDEN = Path(__file__).parents[1] / "golden" / "broker"


def written(version: str, name: str) -> Path:
    """Return where the answers of a release to a case are kept."""
    release = RELEASES[version]
    return GOLDEN / (release.answers or release.version) / f"{name}.txt"


def transcript(config: ClientConfig, topic: str, conversation: Case) -> str:
    """Return a line for each answer; the topic's name is masked."""
    lines: list[str] = []

    def note(what: str, answer: Any) -> None:
        lines.append(f"{what}: {answer}".replace(f"'{topic}", "'TOPIC"))

    with Asker(config, topic) as asker:
        conversation(asker, note)
    return "".join(f"{line}\n" for line in lines)


def assert_alike(answers: str, expected: str) -> None:
    """Name the first answer that differs, and what led to it."""
    pairs = list(zip_longest(answers.splitlines(), expected.splitlines()))
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if first is not None:
        before = "\n".join(str(pair[1]) for pair in pairs[max(0, first - 25) : first])
        pytest.fail(f"after\n{before}\n\nanswered {pairs[first][0]}\nexpected {pairs[first][1]}", pytrace=False)
