"""docs/mirrormaker-keys.md says what the rows say, docs/from-mirrormaker.md what the command prints.

UPDATE_GOLDEN=1 writes both anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.compat.client_keys import COMMON, CONSUMER, PRODUCER
from airflow_mirror.compat.keys import DRIVER, FLOW, WORKER
from airflow_mirror.compat.rows import Row
from airflow_mirror.console.main import main

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "from-mirrormaker.md"
KEYS = ROOT / "docs" / "mirrormaker-keys.md"
OF_ALL = {row.key for row in COMMON.rows}
TABLES = {
    "Keys of flows": FLOW.rows,
    "Keys of the driver and of Connect workers": (*DRIVER.rows, *WORKER.rows),
    "Keys of all clients": COMMON.rows,
    "Keys of consumers": [row for row in CONSUMER.rows if row.key not in OF_ALL],
    "Keys of producers": [row for row in PRODUCER.rows if row.key not in OF_ALL],
}
HEAD = "| key | is | becomes | why |\n| --- | --- | --- | --- |\n"


def held(pattern: str, wanted: str, file: Path = PAGE) -> None:
    """Compare a part of a page with what it should be, or write it."""
    page = file.read_text(encoding="utf-8")
    found = re.search(pattern, page, re.DOTALL)
    assert found is not None, pattern
    if os.environ.get("UPDATE_GOLDEN"):
        page = page[: found.start(1)] + wanted + page[found.end(1) :]
        file.write_text(page, encoding="utf-8")
    else:
        assert found[1] == wanted


def table(rows: Iterable[Row]) -> str:
    def cell(text: str) -> str:
        return text.replace("|", "\\|").replace("*", "\\*")

    lines = []
    for row in sorted(rows, key=lambda row: row.key):
        passes = (
            f"; passes as {', '.join(f'`{v}`' if v else 'the empty text' for v in row.harmless)}" if row.harmless else ""
        )
        becomes = ", ".join(f"`{name}`" for name in row.becomes.split(", ") if name) or "none"
        why = cell(row.why) or "it means the same"
        lines.append(f"| `{row.key}` | {row.fate.value} | {becomes} | {why}{passes} |\n")
    return HEAD + "".join(lines)


@pytest.mark.parametrize("heading", TABLES)
def test_the_tables_are_the_rows(heading: str) -> None:
    held(rf"\n### {heading}\n\n(\| key .*?)(?=\n###|\Z)", table(TABLES[heading]), KEYS)


def test_what_the_page_calls_refused_is_refused() -> None:
    told = PAGE.read_text(encoding="utf-8").partition("\n### What is refused\n")[2].partition("```")[0]
    keys = [key.partition(" = ") for key in re.findall(r"`([a-z][a-z.]+(?: = \w+)?)`", told)]
    assert len(keys) > 5
    for key, _, value in keys:
        row = next(row for rows in TABLES.values() for row in rows if row.key == key)
        assert row.refuses(value or "com.example.Own"), key


def test_the_shown_python_reads_the_shown_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "docs" / "examples")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, Any] = {}
    exec(code, found)
    assert [(one.name, one.source, one.target) for one in found["mirrors"]] == [("dc1-to-dc2", "kafka_dc1", "kafka_dc2")]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    def run(directory: str) -> str:
        monkeypatch.chdir(ROOT / directory)
        monkeypatch.setenv("COLUMNS", "98")
        main(["import-mm2", "connect-mirror-maker.properties"])
        shown = capsys.readouterr()
        return shown.out + shown.err

    return run


def test_the_shown_output_is_what_the_command_prints(printed: Callable[[str], str]) -> None:
    held(r"```\n(key  .*?)```\n", printed("docs/examples"))


def test_the_shown_refusal_is_what_the_command_prints(
    printed: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = ROOT / "tests" / "unit" / "compat" / "apache" / "syntax.properties"
    (tmp_path / "connect-mirror-maker.properties").write_text(example.read_text())
    held(r"```\n(error: connect.*?)```\n", printed(str(tmp_path)))
