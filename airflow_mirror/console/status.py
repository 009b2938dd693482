"""``airflow-mirror status``: all mirrors of a target cluster, whichever Airflow or person started them."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from airflow_mirror.common.clock import SYSTEM, Clock
from airflow_mirror.compat import files
from airflow_mirror.config import ClientConfig
from airflow_mirror.console.clusters import HELP, add_target, config_of, target_of
from airflow_mirror.console.command import add_json, command
from airflow_mirror.console.home import own_home
from airflow_mirror.console.run import add_clusters, add_home, chosen
from airflow_mirror.cutover.after import told_gone
from airflow_mirror.cutover.decision import OPENED, FenceState, fence_state, since_ms
from airflow_mirror.cutover.other_fences import told_unexplained
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.errors import LedgerMissing, LedgerNewer, MirrorError
from airflow_mirror.extras.drill.store import is_over
from airflow_mirror.jobs.health.copies import LISTENING, BulkCopy, bulk_copy
from airflow_mirror.jobs.health.judging import OF_THE_TAIL, Facts, Limits, TailFacts, judge, judge_seen
from airflow_mirror.jobs.progress.wording import throttled
from airflow_mirror.jobs.runner import active
from airflow_mirror.jobs.runner.active import ActiveTail, JobId, Sign, Watch, active_tail
from airflow_mirror.jobs.runner.local import TAIL, LocalRunner
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.jobs.runner.wishes import Wishes
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger, Values
from airflow_mirror.ledger.records import ACTIVE, BULK, DRILL, FENCE, LAST_PLAN, REFUSED, SIGN, TOPIC, WISH
from airflow_mirror.ledger.state import state_of
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.ledger_store import last_hash
from airflow_mirror.plan.owned import ended_by, owners, shares
from airflow_mirror.plan.refused import PLANNING, Refusal, refusals

T = TypeVar("T")
_EVERY_S = 2.0
_LONGEST = 500  # characters of what a tail says


def add(commands: Any) -> None:
    """Add the command."""
    text = "all mirrors of a target: their topics, and what their tails say, on any hosts"
    at_length = (
        f"{text}.\nA tail counts as running once it has given a sign while we listened (every five seconds), as lost\n"
        "after 30 seconds without.\n\nexamples:\n  airflow-mirror status --target dst.properties --watch"
    )
    p = command(commands, "status", at_length, _run)
    which = p.add_mutually_exclusive_group(required=True)
    add_target(which, required=False)
    which.add_argument(
        "--config", nargs="+", type=Path, metavar="FILE",
        help="the enabled flows of a MirrorMaker 2 file, or of its connectors' files, each with its target; the exit "
        "status is 0 only if all of them run",
    )  # fmt: skip
    add_clusters(p)
    add_home(p)
    p.add_argument(
        "--source", metavar="CLUSTER",
        help=f"also look there for rules that keep everybody out of mirrored topics, and that no record explains, and "
        f"whether kept fences stand: {HELP}",
    )  # fmt: skip
    p.add_argument("--watch", action="store_true", help="go on until interrupted")
    add_json(p, "a list of mirrors")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.config:
        return _of_files(arguments)
    with target_of(arguments) as target:
        view = View(target, arguments.clock)
        if arguments.watch:
            with Live(_shown(view.rows(), view.newer), auto_refresh=False) as live:
                while True:
                    arguments.clock.sleep(_EVERY_S)
                    live.update(_shown(view.rows(), view.newer), refresh=True)
        try:
            rows = view.settled()
        except LedgerMissing:
            if target.topic_names():  # they hold data, perhaps, of which nobody knows whose it is
                raise
            rows = []
        if arguments.source:
            with ClusterAdmin(config_of(arguments.source, "source")) as source:
                _look_at(source, target, rows, view.values)
    if arguments.json:
        print(json.dumps(rows, indent=1))
        print("\n".join(_newer_lines(view.newer)), end="\n" if view.newer else "", file=sys.stderr)
    else:
        Console().print(_shown(rows, view.newer))
    return int(bool(view.newer))


def _of_files(arguments: argparse.Namespace) -> int:
    """Show the flows of files of MirrorMaker 2, also those that never ran."""
    brought = files.read(arguments.config)
    mirrors = chosen(brought, arguments.clusters)
    rows, newer = list[dict[str, Any]](), dict[str, LedgerNewer]()
    for name in dict.fromkeys(mirror.target for mirror in mirrors.values()):
        wanted = {mirror.name: flow for flow, mirror in mirrors.items() if mirror.target == name}
        found = dict[str, dict[str, Any]]()
        error: str | None = None
        try:
            with ClusterAdmin(ClientConfig(brought.connections[name], "target")) as target:
                view = View(target, arguments.clock)
                found = {row["mirror"]: row for row in view.settled()}
                newer |= view.newer
        except LedgerMissing:
            pass  # nothing ever ran there
        except MirrorError as e:
            error = str(e)
        never = {"topics": 0, "in_production": 0, "plan": None, "tail": "unknown" if error else "never started"}
        nothing = dict.fromkeys(("host", "phase", "lag", "records_per_s", "copy"))
        never |= nothing | {"said": error, "fences": [], "refused": []}
        for one, flow in wanted.items():
            row = found.get(one, {"mirror": one} | never)
            here = dict[str, Any]()
            if row["tail"] in ("none", "never started"):
                here = _of_this_host((arguments.home or own_home()) / one)
            rows.append({"flow": "->".join(flow)} | row | here)
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        Console().print(_shown(rows, newer))
    return int(bool(newer) or any(row["tail"] != RUNNING.lower() for row in rows))


def _of_this_host(home: Path) -> dict[str, Any]:
    """Return what became of a tail that ``run`` has started here and that did not get as far as the target's ledger."""
    runner = LocalRunner(home)
    handle = runner.find(TAIL)
    if handle is None:
        return {}
    said = runner.progress(handle).get("error")
    return {"tail": runner.status(handle).lower(), "host": handle["host"], "said": said}


def _look_at(source: ClusterAdmin, target: ClusterAdmin, rows: list[dict[str, Any]], values: Values) -> None:
    """Add to rows of mirrors of a source which of its rules no record explains, and which fence is gone.

    Of retired mirrors it is said.
    """

    def aside(text: str, *of: object) -> None:
        print(text % of, file=sys.stderr)

    on = Platform.of(source, target)
    by_name = {row["mirror"]: row for row in rows}
    try:
        its_id = source.cluster_id()
    except MirrorError as e:
        aside("rules of the source that no record explains were not looked for: %s", e)
        return
    for name in [*by_name, *(one for one in FENCE.under(values) if one not in by_name)]:
        row = by_name.get(name, {})
        try:
            found = _found(on, name, row, values, its_id, aside)
        except MirrorError as e:  # a plan that was lost, a newer version's fence: the others' rules are looked for
            aside("rules of mirror %r that no record explains were not looked for: %s", name, e)
            continue
        if row:
            row["said"] = "\n".join(filter(None, [row["said"], *found])) or None
        for line in [] if row else found:
            aside("mirror %r, retired: %s", name, line)


def _found(
    on: Platform, name: str, row: Mapping[str, Any], values: Values, its_id: str, aside: Callable[..., None]
) -> list[str]:
    """Return what is wrong at the source with a mirror's rules; nothing, if it is another cluster than the mirror's."""
    fence = fence_state(values, name)
    plan = row.get("plan") or (fence and fence.plan)  # of one that is retired its last fence's is left
    if not plan or on.target.plan(name, plan).source_cluster_id != its_id:
        return []
    facts = Facts(unexplained=told_unexplained(on, name, aside), fences_gone=told_gone(on, name, aside))
    return [str(one) for one in judge(facts, Limits(), ["fence", "fence_gone"])]


class View:
    """Looks at a target again and again. Belongs to one thread.

    :param clock: by which it waits for signs of life.
    :ivar newer: what the last look could not read, by the keys of decisions and state.
    :ivar tails: what the last look knew of each mirror's tail. :ivar copies: and of its bulk copy, where no tail runs.
    :ivar values: what was decided then.
    """

    def __init__(self, target: ClusterAdmin, clock: Clock = SYSTEM) -> None:
        self._clock, self._ledger = clock, Ledger(target)
        self._state = state_of(target, *(kind.below() for kind in (SIGN, DRILL, WISH, REFUSED)))
        self._watches: dict[str, Watch] = {}
        self.newer: dict[str, LedgerNewer] = {}
        self.tails: dict[str, TailFacts] = {}
        self.copies: dict[str, BulkCopy | None] = {}
        self.values: Values = {}

    def settled(self) -> list[dict[str, Any]]:
        """Return the mirrors once it is known which of their tails and bulk copies live."""
        rows = self.rows()
        while any(LISTENING in (row["tail"], row["copy"]) for row in rows):
            self._clock.sleep(1.0)
            rows = self.rows()
        return rows

    def rows(self) -> list[dict[str, Any]]:
        """Return the mirrors by name, as far as is known by now."""
        self.values = values = self._ledger.values()
        known, newer = owners(values)
        self.newer = {TOPIC.key(topic): e for topic, e in newer.items()}
        owned = [one for _, one in shares(known)]
        topics = Counter(one.mirror for one in owned)
        opened = Counter(one.mirror for one in owned if one.opened_by)
        said = self._state.read()
        known_fences = {n: self._known(FENCE.key(n), partial(fence_state, values, n), None) for n in FENCE.under(values)}
        fences = {name: fence for name, fence in known_fences.items() if fence is not None and not fence.is_over}
        names = sorted({*topics, *ACTIVE.under(values), *fences})
        done = {name for name, number in opened.items() if number == topics[name]}
        wished = {n: self._known(f"{WISH.below()}{n}", partial(Wishes.of, said, n), Wishes()) for n in names}
        return [
            {"mirror": name, "topics": topics[name], "in_production": opened[name]}
            | {"plan": self._known(LAST_PLAN.key(name), partial(last_hash, values, name), None)}
            | self._tail(
                name,
                self._known(ACTIVE.key(name), partial(active_tail, values, name), None),
                wished[name],
                "unreadable" if ACTIVE.key(name) in self.newer else "none",
                self._known(DRILL.key(name, ""), partial(_ended, values, said, name), ""),
            )
            | self._copy(name, wished[name], name in done)
            | {"fences": [_fence(fences[name], since_ms(self._ledger, name))] if name in fences else []}
            | {"refused": self._refused(name, said, done=name in done)}
            for name in names
        ]

    def _refused(self, name: str, said: Mapping[str, bytes], *, done: bool) -> list[dict[str, Any]]:
        """Return what refused the mirror, and still counts. :param done: it is in production: no cutover is to come."""
        found = self._known(REFUSED.key(name, ""), partial(refusals, said, name), dict[str, Refusal]())
        planned_s = (self._ledger.time_ms(LAST_PLAN.key(name)) or 0) / 1000  # also by hand, which removes no record
        counts = {kind: one for kind, one in found.items() if (one.at > planned_s if kind == PLANNING else not done)}
        return [{"kind": kind, **asdict(one)} for kind, one in counts.items()]

    def _known(self, key: str, read: Callable[[], T], otherwise: T) -> T:
        """Return what is read, or note that a newer version of the package wrote it."""
        try:
            return read()
        except LedgerNewer as e:
            self.newer[key] = e
            return otherwise

    def _copy(self, name: str, wishes: Wishes, done: bool) -> dict[str, Any]:
        """Return how a mirror's bulk copy is, and what a person should know of the mirror, as its tail is known to be.

        :param done: it is in production: nobody will copy.
        """
        jobs = list[JobId]()
        if not self.tails[name].runs and not done:
            jobs = self._known(BULK.below(name), lambda: active.said(BULK, self._state.read(), name), jobs)
        self.copies[name] = copy = bulk_copy(jobs, lambda job: self._watch(job.job))
        said = [*(map(str, copy.findings) if copy is not None else ()), _said(self.tails[name], wishes)]
        return {"copy": None if copy is None else copy.state, "said": "\n".join(filter(None, said)) or None}

    def _watch(self, of: str) -> Watch:
        return self._watches.setdefault(of, Watch(self._state, self._clock.monotonic, self._clock.sleep, decides=False))

    def _tail(
        self, name: str, tail: ActiveTail | None, wishes: Wishes, without: str, ended: str
    ) -> dict[str, Any]:  # fmt: skip
        wished = asdict(wishes)
        if tail is None:
            self.tails[name] = TailFacts(pause=wishes.pause)
            nothing = dict.fromkeys(("host", "phase", "lag", "records_per_s"))
            return {"tail": without, **nothing, **wished}
        watch = self._watch(f"tail of {name}")
        status, sign = watch.status(tail), watch.sign(tail) or Sign(number=0, state=RUNNING)
        self.tails[name] = TailFacts(active=tail, status=status, sign=sign, pause=wishes.pause, ended=ended)
        runs = status == RUNNING
        return {
            "tail": LISTENING if runs and not watch.is_sure(tail) else status.lower() if runs or not ended else ended,
            "host": tail.host,
            "phase": sign.phase if runs else None,
            "lag": sign.summary.get("lag") if runs else None,
            "records_per_s": sign.summary.get("records_per_s") if runs else None,
            **wished,
        }


def _ended(values: Values, said: Mapping[str, bytes], mirror: str) -> str:
    """Return what has ended a mirror's tail for good, in the table's words; empty: nothing has."""
    return ended_by(values, mirror) or ("drill over" if is_over(said, mirror) else "")


def _fence(fence: FenceState, since_ms: int) -> dict[str, Any]:
    """Return what JSON says of a fence that is, or may be, up. :param since_ms: when that was decided."""
    return {
        "run": fence.run, "attempt": fence.attempt, "host": fence.process.get("host", "unknown"), "phase": fence.phase,
        "kind": fence.kind, "name": fence.name, "kept": fence.phase == OPENED, "text": fence.text,
        "since": datetime.fromtimestamp(since_ms / 1000, UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def _fence_line(fence: Mapping[str, Any]) -> str:
    """Return what people read of it."""
    what = f"the fence of cutover {fence['run']} {fence['text']}"
    return f"by the ledger the source is fenced ({fence['name']}): {what}, since {fence['since']}"


def _refused_line(one: Mapping[str, Any]) -> str:
    """Return what people read of what refused a mirror."""
    at = datetime.fromtimestamp(one["at"], UTC).isoformat(timespec="seconds")
    lines = [str(Finding(**found)) for found in one["findings"]]
    more = f"\n  and {one['left']:,} more" if one["left"] else ""
    return f"its {one['kind']} was refused at {at} ({one['by']}):\n  " + "\n  ".join(lines) + more


def judged(tail: TailFacts) -> list[Finding]:
    """Return what is wrong with a tail, in the words of the health check."""
    return judge_seen(Facts(tail=tail), Limits(), OF_THE_TAIL)


def _said(tail: TailFacts, wishes: Wishes) -> str | None:
    """Return what a person should know."""
    slowed = throttled(tail.said.summary)
    return "\n".join(filter(None, [*map(str, judged(tail)), slowed, *replace(wishes, pause=None).lines()])) or None


def _newer_lines(newer: Mapping[str, LedgerNewer]) -> list[str]:
    return [
        f"{key}: written by a newer version of airflow-mirror (version {e.version}); install the one of the other workers"
        for key, e in sorted(newer.items())
    ]


def _shown(rows: list[dict[str, Any]], newer: Mapping[str, LedgerNewer]) -> Group:
    """Return a table that fits into 80 columns, and below it what the tails say, and what could not be read."""
    table = Table(box=box.SIMPLE_HEAD)
    for title in ("mirror", "topics", "tail", "phase", "behind", "records/s"):
        table.add_column(title, overflow="fold", justify="right" if title in ("behind", "records/s") else "left")
    for row in rows:
        topics = f"{row['topics']:,}" + (f", {row['in_production']:,} in production" if row["in_production"] else "")
        tail = row["tail"] + (f" on {row['host']}" if row["host"] else "")
        if row["copy"]:
            tail = f"bulk copy {row['copy']}" if row["tail"] == "none" else f"{tail}; bulk copy {row['copy']}"
        table.add_row(row["mirror"], topics, tail, row["phase"], _number(row["lag"]), _number(row["records_per_s"]))
    said = [f"{row['mirror']}: {_fence_line(fence)}" for row in rows for fence in row["fences"]]
    said += [f"{row['mirror']}: {_refused_line(one)}" for row in rows for one in row["refused"]]
    said += [f"{row['mirror']}: {row['said'][:_LONGEST]}" for row in rows if row["said"]]
    lines = (Text(line) for line in [*said, *_newer_lines(newer)])
    return Group(table if rows else "this target has no mirror", *lines)


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
