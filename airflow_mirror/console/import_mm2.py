"""``airflow-mirror import-mm2``: files of MirrorMaker 2 become Mirror files and Airflow connections."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from airflow_mirror.common.files import replace_file
from airflow_mirror.compat import files
from airflow_mirror.compat.known_settings import of_properties
from airflow_mirror.compat.rows import Noticed
from airflow_mirror.console.command import command
from airflow_mirror.errors import InputError
from airflow_mirror.mirror import Mirror

_TEXT = """\
Read a connect-mirror-maker.properties, or the JSON (or properties) files of MirrorMaker 2's three connectors, and say
what becomes of each key. With --out, write a Mirror for each enabled flow, and a connection for each cluster. No cluster
is asked.

What can't be kept is refused, all of it at once, before anything is written. Secrets are printed nowhere: they stand in
connections.json and in clusters/, which nobody else may read.

Exit status: 0 done; 2 something can't be kept, nothing was written.

examples:
  airflow-mirror import-mm2 connect-mirror-maker.properties
  airflow-mirror import-mm2 connect-mirror-maker.properties --out mirrors
  airflow-mirror import-mm2 source.json checkpoint.json heartbeat.json --out mirrors
"""
_PRIVATE = 0o600


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "import-mm2", _TEXT, _run)
    p.add_argument("file", nargs="+", type=Path, metavar="FILE", help="of the driver, or of the connectors")
    p.add_argument(
        "--out", type=Path, metavar="DIR",
        help="write NAME.yaml for each flow, connections.json for 'airflow connections import',\n"
        "and clusters/ID.properties (librdkafka settings) for use without Airflow",
    )  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    brought = files.read(arguments.file, secrets=arguments.out is not None)
    mirrors = [Mirror.from_dict(fields) for fields in brought.mirrors.values()]
    for line in _table(brought.noticed):
        print(line)
    for flow, mirror in zip(brought.mirrors, mirrors, strict=True):
        print(f"{'->'.join(flow)}: Mirror {mirror.name}, from connection {mirror.source} to {mirror.target}")
    if arguments.out is None:
        print("Nothing was written. --out DIR writes Mirrors and connections.")
        return 0
    written = _write(arguments.out, brought.mirrors.values(), brought.connections)
    print("\n".join(["", "Written:", *(f"  {path}" for path in written), "", "With Airflow:"]))
    print(f"  airflow connections import {shlex.quote(str(arguments.out / 'connections.json'))}")
    return 0


def _table(noticed: Iterable[Noticed]) -> Iterator[str]:
    """Yield the lines of a table of keys, and what became of each."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="")
    for title in ("key", "is", "becomes, or why"):
        table.add_column(title, overflow="fold")
    for one in noticed:
        table.add_row(one.key, one.fate.value, one.text)
    console = Console()
    with console.capture() as shown:
        console.print(table)
    return (line.rstrip() for line in shown.get().splitlines())


def _write(out: Path, mirrors: Iterable[Mapping[str, Any]], connections: Mapping[str, Mapping[str, str]]) -> list[Path]:
    written = []

    def write(path: Path, text: str, mode: int | None = None) -> None:
        replace_file(path, text, mode=mode)
        written.append(path)

    for fields in mirrors:
        write(out / f"{fields['name']}.yaml", yaml.safe_dump(dict(fields), sort_keys=False))
    imported = {name: {"conn_type": "kafka", "extra": json.dumps(dict(one))} for name, one in connections.items()}
    write(out / "connections.json", json.dumps(imported, indent=1) + "\n", _PRIVATE)
    for name, settings in connections.items():
        ending, text = _as_load_reads_it(settings)
        write(out / "clusters" / f"{name}{ending}", text, _PRIVATE)
    return written


def _as_load_reads_it(settings: Mapping[str, str]) -> tuple[str, str]:
    """Return a file for :func:`airflow_mirror.config.load`, and how its name ends: of one setting a line, if that may be.

    Such a file is refused where Java would read it otherwise: a password may end in a blank.
    """
    lines = "".join(f"{key}={_one_line(value)}\n" for key, value in settings.items())
    with suppress(InputError):
        if of_properties(lines, "") == dict(settings):
            return ".properties", lines
    return ".json", json.dumps(dict(settings), indent=1) + "\n"


def _one_line(value: str) -> str:
    return value.replace("\n", "\\n")  # of a PEM text
