"""``airflow-mirror clients``: who reads and writes a mirror's topics on the source, and who of them has come."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from airflow_mirror.common.knobs import number
from airflow_mirror.console.clusters import add_source, add_target, planned_source, target_of
from airflow_mirror.console.command import add_json, add_mirror, command
from airflow_mirror.console.request import last_plan
from airflow_mirror.cutover.report_store import newest_reports, reports_of
from airflow_mirror.errors import TryAgain
from airflow_mirror.extras.clients.broker_files import Told, told
from airflow_mirror.extras.clients.commits import AT, Commits
from airflow_mirror.extras.clients.inventory import WATCH_S, Inventory, Reader, Writer, look, opened_at
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.requirements import require_planned_clusters
from airflow_mirror.wording import duration, listed, some

_TEXT = """\
List who reads and writes the topics of a mirror's last plan on the source, by wave: groups with their members and last
commit, and the producers that partition leaders remember, with their last record. Once a cutover has opened the target,
each is ticked off that was seen there since; who has not come, or is still on the source, is named. Only reads.

Exit status: 0 nobody is waited for; 1 somebody is, or could not be seen; 2 wrong input.

examples:
  airflow-mirror clients --target dst.properties --mirror dc1-to-dc2
  airflow-mirror clients --target kafka_dc2 --mirror dc1-to-dc2 --watch        # after the cutover, until all have come
  airflow-mirror clients --target kafka_dc2 --mirror dc1-to-dc2 --broker-file kafka-request.log
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "clients", _TEXT, _run)
    add_target(p)
    add_mirror(p)
    add_source(p)
    p.add_argument(
        "--broker-file", type=Path, nargs="+", default=(), metavar="FILE",
        help="a source broker's request log, or its metrics as Prometheus has them: too old for Kafka 4, or refused",
    )  # fmt: skip
    p.add_argument(
        "--watch", type=number, nargs="?", const=10.0, metavar="SECONDS",
        help="look again every so many seconds (10), and print what changed, until nobody is waited for",
    )  # fmt: skip
    add_json(p)


def _run(arguments: argparse.Namespace) -> int:
    plan = last_plan(arguments)
    broker = told(arguments.broker_file)
    commits = Commits()
    with (
        target_of(arguments) as target,
        ClusterAdmin(planned_source(arguments, plan.mirror)) as source,
    ):
        require_planned_clusters(plan, source, target)

        def once() -> Inventory:
            reports = newest_reports(reports_of(target, plan.mirror.name).read(), plan.mirror.name)
            last = max(reports, key=opened_at, default=None)
            seen = look(plan, source, target, last, commits, WATCH_S)
            return replace(seen, unseen=[*seen.unseen, *sorted(broker.unseen)])

        found, before, missing = once(), None, set[str]()
        while True:
            if arguments.json:
                said = {"too_old": sorted(broker.too_old), "refused": sorted(broker.refused)}
                print(json.dumps(found.to_dict() | said, indent=None if arguments.watch else 1), flush=True)
            elif before is None:
                _show(found, broker)
            else:
                _show_news(found, before)
            over = found.opened_ms and not found.waiting and missing.issuperset(found.unanswered)
            if arguments.watch is None or over:
                return int(bool(found.waiting or found.unseen))
            # What no look has answered, perhaps for want of a right, none will: a watch must end in spite of it.
            missing = set(found.unanswered) if before is None else missing.intersection(found.unanswered)
            before, found = found, _again(once, arguments)


def _again(once: Callable[[], Inventory], arguments: argparse.Namespace) -> Inventory:
    """Return the next look. One that a cluster does not answer is said, and made again: a watch lasts for days."""
    said = ""
    while True:
        arguments.clock.sleep(arguments.watch)
        try:
            return once()
        except TryAgain as e:
            if said != str(e):
                print(f"{time.strftime('%H:%M:%S')} not seen: {e}", file=sys.stderr, flush=True)
            said = str(e)


def _show_news(found: Inventory, before: Inventory) -> None:
    if (found.waiting, found.unseen) == (before.waiting, before.unseen):
        return
    print(f"{time.strftime('%H:%M:%S')} waited for:\n{listed(found.waiting) or f'  {_nobody(found)}'}", flush=True)
    if found.unseen != before.unseen:
        print(f"not seen:\n{listed(found.unseen) or '  only what no broker lists'}", flush=True)


def _nobody(found: Inventory) -> str:
    return "nobody that could be seen" if found.unseen else "nobody"


def _show(found: Inventory, broker: Told) -> None:
    console = Console(markup=False, highlight=False)
    readers = Table(
        "wave", "group", "kind", "on the source", "members there", "last commit", "topics",
        box=box.SIMPLE_HEAD, title="who reads",
    )  # fmt: skip
    writers = Table(
        "wave", "producer", "id", "last record, by its time", "topics", box=box.SIMPLE_HEAD, title="who writes"
    )
    if found.opened_ms:
        readers.add_column("on the target")
        writers.add_column("on the target")
    for reader in found.readers:
        readers.add_row(
            str(reader.wave or "none"), reader.group, reader.kind, reader.state, some(reader.clients, 3, "\n") or "none",
            _committed(reader), some(reader.topics), *([reader.on_target] if found.opened_ms else []),
        )  # fmt: skip
    for writer in found.writers:
        writers.add_row(
            ", ".join(map(str, writer.waves)), writer.name, str(writer.producer_id), _wrote(writer, found.at_ms),
            some(writer.topics), *([writer.on_target or "?"] if found.opened_ms else []),
        )  # fmt: skip
    console.print(readers if found.readers else "no group has committed offsets in these topics")
    console.print(writers if found.writers else "no partition leader remembers a producer of these topics")
    if found.opened_ms:
        console.print(f"{found.newcomers} producer(s) without a transactional id have written to the target")
        console.print(f"waited for:\n{listed(found.waiting)}" if found.waiting else f"{_nobody(found)} is waited for")
    said = (("too old for Kafka 4", sorted(broker.too_old)), ("refused by the source", sorted(broker.refused)))
    for head, lines in (*said, ("not seen", [*found.unseen, found.untold])):
        if lines:
            console.print(f"{head}:\n{listed(lines)}")


def _committed(reader: Reader) -> str:
    """Return when a group committed last: coordinators and we have clocks of their own, so a time, and no duration."""
    if not reader.commit_is:
        return "not told"
    at = datetime.fromtimestamp(reader.commit_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return at if reader.commit_is == AT else f"{reader.commit_is} {at}"


def _wrote(one: Writer, at_ms: int) -> str:
    """Return when a producer wrote: only what was seen is ``now``, since the time of a record is its client's."""
    since_s = (at_ms - one.last_ms) / 1000
    if one.writing:
        return "now"
    if one.last_ms < 0:
        return "unknown"
    return f"{duration(since_s)} before" if since_s >= 0 else f"{duration(-since_s)} ahead of our clock"
