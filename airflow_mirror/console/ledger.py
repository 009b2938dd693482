"""``airflow-mirror ledger``: what is decided on a target cluster; begin, export and restore it."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from airflow_mirror.common.files import replace_file
from airflow_mirror.common.text_files import read_text
from airflow_mirror.console.clusters import add_target, target_of
from airflow_mirror.console.command import add_json, add_mirror, command
from airflow_mirror.console.parser import VerbParser
from airflow_mirror.cutover.platform import Side
from airflow_mirror.errors import InputError, LedgerMissing, LedgerNewer
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.export import export, restore
from airflow_mirror.plan.owned import Owned, owned_topics, owners, shares
from airflow_mirror.plan.ownership import release


def add(commands: Any) -> None:
    """Add the command."""
    text = "what the target's ledger says: whose its topics are, and which are in production"
    p = command(commands, "ledger", f"{text}\nexamples:\n  airflow-mirror ledger show --target dst.properties", _show)
    verbs = p.add_subparsers(metavar="WHAT", required=True, parser_class=VerbParser)
    for name, run, what in (
        ("show", _show, "print whose each target topic is"),
        ("init", _init, "begin a ledger where topics hold data already; never after one was lost"),
        ("release", _release, "give up the topics of a mirror that is over: another one may then write to them"),
        ("export", _export, "write all decisions into a file, for 'restore'"),
        ("restore", _restore, "bring a lost ledger back from an export"),
    ):
        verb = verbs.add_parser(name, help=what, description=what)
        add_target(verb)
        verb.set_defaults(run=run)
        if name == "init":
            verb.add_argument("--anew", action="store_true", help="also where one was lost that nobody needs")
        if name == "show":
            add_json(verb, "a list of topics")
        if name == "release":
            add_mirror(verb, "mirror", "the mirror, whose jobs are made to stop writing")
        if name in ("export", "restore"):
            verb.add_argument("file", metavar="FILE", help="JSON; - is standard output or input")


def _show(arguments: argparse.Namespace) -> None:
    with target_of(arguments) as target:
        owned, newer = owners(Ledger(target).values())
        topics = sorted(shares(owned), key=itemgetter(0))
        there = {name: info.topic_id for name, info in target.topics([name for name, _ in topics]).items()}
    if arguments.json:
        rows = [{"topic": topic, **_fields(one), "state": _state(one, there.get(topic))} for topic, one in topics]
        rows += [{"topic": topic, "state": _newer(e)} for topic, e in newer.items()]
        print(json.dumps(rows, indent=1))
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("topic", "mirror", "source cluster", "state"):
        table.add_column(column, overflow="fold")
    for topic, one in topics:
        table.add_row(topic, one.mirror, one.source_id, _state(one, there.get(topic)))
    for topic, e in newer.items():
        table.add_row(topic, "", "", _newer(e))
    Console().print(table if topics or newer else "no topic belongs to a mirror")


def _fields(one: Owned) -> dict[str, Any]:
    return {key: found for key, found in vars(one).items() if key != "sharers"}


def _state(one: Owned, topic_id: str | None) -> str:
    if topic_id is None:
        return "deleted"
    if one.topic_id not in ("", topic_id):
        return "created again: nobody's"
    if one.released:
        return "being given up"
    return "the mirror's" if one.opened_by is None else f"in production since {one.opened_at}"


def _newer(e: LedgerNewer) -> str:
    return f"decided by a newer version of airflow-mirror (version {e.version})"


def _init(arguments: argparse.Namespace) -> None:
    with target_of(arguments) as target:
        ledger = Ledger(target)
        with suppress(LedgerMissing):
            if not arguments.anew:
                ledger.values()
        ledger.create()
        print(f"the ledger is there: {len(owned_topics(Ledger(target)))} topics belong to mirrors")


def _release(arguments: argparse.Namespace) -> None:
    with target_of(arguments) as target:
        side = Side(target, arguments.clock)
        released = release(Ledger(target), arguments.mirror, lambda: side.end_writing(arguments.mirror))
        newer = owners(Ledger(target).values())[1]
    print(f"given up: {', '.join(released)}" if released else f"mirror {arguments.mirror!r} owns no topic to give up")
    for topic, e in newer.items():
        print(f"{topic}: {_newer(e)}; if it is the mirror's, give it up with that one")


def _export(arguments: argparse.Namespace) -> None:
    with target_of(arguments) as target:
        exported = export(target)
    text = json.dumps(exported, indent=1) + "\n"
    if arguments.file == "-":
        sys.stdout.write(text)
    else:
        replace_file(Path(arguments.file), text)
        print(f"{len(exported['records'])} records of cluster {exported['cluster_id']}: {arguments.file}")


def _restore(arguments: argparse.Namespace) -> None:
    try:
        text = sys.stdin.read() if arguments.file == "-" else read_text(Path(arguments.file), arguments.file)
        exported = json.loads(text)
    except ValueError as e:
        raise InputError(
            f"{arguments.file} can't be read as JSON", str(e), "Give what 'airflow-mirror ledger export' has written."
        ) from None
    with target_of(arguments) as target:
        count = restore(target, exported)
        print(f"restored: {count} records; {len(owned_topics(Ledger(target)))} topics belong to mirrors")
