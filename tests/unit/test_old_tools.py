"""The page about the older tools' behaviour: no cell is empty, and the test that each row names is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from airflow_mirror.compat.client_keys import CONSUMER, PRODUCER
from airflow_mirror.compat.keys import DRIVER, FLOW, WORKER

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "old-tools.md").read_text()
COLUMNS = ["tool", "behaviour there", "here", "verdict", "test"]
VERDICTS = {"same", "better", "refused", "without effect"}
TOOLS = {"MM1", "MM2", "Go"}
# What somebody who has run one of them asks first. Each is a word of some row.
ASKED = (
    "abort.on.send.failure", "target that is away", "new topic", "rebalance", "exactly.once", "order within",
    "num.partitions", "murmur2", "auto.offset.reset", "heartbeats", "settings", "ACLs", "transactions", "compaction",
    "headers", "timestamps", "max.request.size", "SIGTERM", "MBeans", "positions", "message.handler", "replicas",
)  # fmt: skip


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row != COLUMNS and not row[0].startswith("---")]


ROWS = rows()


@cache
def names_of(file: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1][:40])
def test_a_row_is_whole_and_its_test_exists(row: list[str]) -> None:
    assert len(row) == len(COLUMNS) and all(row), row
    tools, _, _, verdict, test = row
    assert set(tools.split(", ")) <= TOOLS
    assert verdict in VERDICTS
    named = re.fullmatch(r"`([\w/]+\.py)::(test_\w+)`", test)
    assert named is not None, test
    file = ROOT / "tests" / named[1]
    assert file.is_file() and named[2] in names_of(file), f"{test} is not there"


def test_every_tool_and_every_verdict_has_rows() -> None:
    assert {tool for row in ROWS for tool in row[0].split(", ")} == TOOLS
    assert {row[3] for row in ROWS} == VERDICTS
    assert len({row[1] for row in ROWS}) == len(ROWS) > 60, "a behaviour has one row"


def test_a_key_that_is_not_kept_is_told_as_the_tables_of_keys_do() -> None:
    fates = {row.key: row.fate.value for table in (DRIVER, WORKER, FLOW, CONSUMER, PRODUCER) for row in table.rows}
    told = {key: row[3] for row in ROWS for key in re.findall(r"`([\w.]+)(?:=\w+)?`", row[1]) if key in fates}
    not_kept = {key: verdict for key, verdict in told.items() if verdict not in ("same", "better")}
    assert not_kept == {key: fates[key] for key in not_kept} and len(not_kept) > 3


@pytest.mark.parametrize("word", ASKED)
def test_what_people_ask_about_has_a_row(word: str) -> None:
    assert any(word in row[1] for row in ROWS)
