"""``python -m demo``: migrate a cluster to another one, and have it proven. ``make demo`` calls it.

Exit status: 0 when everything holds, 1 when something differs, 2 for bad arguments, 3 when the migration did not get to
its end. Everything that was started is stopped, also by Ctrl-C; with ``--keep`` the files stay.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from demo import faults
from demo.clients import Settings, group_positions
from demo.console import Console
from demo.dataset import LIVE, LIVE_GROUP, Dataset, Size, fill
from demo.migration import Migration, MigrationFailed, migrate
from demo.referee import compare_groups, compare_topics
from demo.table import print_verdict
from demo.traffic import LiveTraffic
from demo.verdict import GroupResult, Verdict
from sandbox import Cluster
from sandbox.airflow import AirflowError, AirflowStandalone
from sandbox.cluster import start_all, stop_all
from sandbox.versions import DEFAULT_VERSION

FAULT_TOPIC = "orders.none"
LIVE_AFTER_S = 3.0
"""The live traffic continues on the target for at least this long (seconds)."""


@dataclass
class Clusters:
    """How the parts of the demo reach the two clusters. Only the mirror and the dataset are super users."""

    source: Settings
    target: Settings
    app: Settings
    """An application's user on the source; the fence is for users like this one."""


def main(argv: list[str] | None = None) -> int:
    """Run the demo; return the exit status."""
    args = _arguments(argv)
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGINT, _terminated)  # a shell starts background jobs with SIGINT ignored
    console = Console()
    try:
        with ExitStack() as stack:
            return _demo(args, console, stack)
    except (Exception, KeyboardInterrupt) as e:
        if _asked_to_stop.is_set():  # C code that was interrupted may report an error of its own instead
            console.say("stopped" if isinstance(e, KeyboardInterrupt) else f"stopped ({e!r})")
            return 130
        if not isinstance(e, MigrationFailed | AirflowError):
            raise
        console.say(f"✗ {e}")
        return 3


_asked_to_stop = threading.Event()


def _terminated(*_: object) -> NoReturn:
    _asked_to_stop.set()
    raise KeyboardInterrupt


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description="Migrate a Kafka cluster and prove it.")
    parser.add_argument("--ui", action="store_true", help="leave Airflow and both clusters up until Ctrl-C")
    parser.add_argument("--keep", action="store_true", help="do not delete the work directory")
    parser.add_argument("--work-dir", type=Path, help="where Airflow's and the clusters' files go; implies --keep")
    parser.add_argument("--fault", choices=faults.KINDS, help="damage the target before it is compared")
    parser.add_argument("--bulk-mb", type=int, default=400, help="size of the bulk topic (default: %(default)s)")
    return parser.parse_args(argv)


def _demo(args: argparse.Namespace, console: Console, stack: ExitStack) -> int:
    started = time.monotonic()
    work = _work_dir(args, console, stack)
    clusters = _start_clusters(work if args.keep or args.work_dir else None, console, stack)
    airflow = AirflowStandalone(
        work / "airflow", connections={"kafka_source": clusters.source, "kafka_target": clusters.target}
    )
    dataset = _fill_and_start(args, console, stack, clusters.source, airflow)
    traffic = LiveTraffic(LIVE, LIVE_GROUP)
    traffic.start(clusters.app)
    stack.callback(traffic.stop)
    console.say(f"✓ live: a producer and the group {LIVE_GROUP!r} on {LIVE}")
    if args.ui:
        _say_where(console, airflow)
    verdict = _migrate_and_judge(args, console, clusters, airflow, dataset, traffic)
    verdict.seconds["the whole demo"] = time.monotonic() - started
    status = print_verdict(verdict, console.rich)
    if args.ui:
        _say_where(console, airflow)
        console.say("Airflow and both clusters stay up. Ctrl-C stops them.")
        try:
            signal.pause()
        except KeyboardInterrupt:
            console.say("stopping")
    return status


def _fill_and_start(
    args: argparse.Namespace, console: Console, stack: ExitStack, source: Settings, airflow: AirflowStandalone
) -> Dataset:
    """Fill the source while Airflow comes up."""
    pool = ThreadPoolExecutor(1)
    stack.callback(pool.shutdown, wait=False)
    stack.callback(airflow.stop)
    ready = pool.submit(airflow.start)
    dataset = fill(source, console, Size(bulk_records=args.bulk_mb * 1_000_000 // 1024))
    with console.step("Airflow") as step:
        while not ready.done():
            step.note("not healthy yet")
            time.sleep(0.2)
        ready.result()
    return dataset


def _work_dir(args: argparse.Namespace, console: Console, stack: ExitStack) -> Path:
    if args.work_dir:
        work = Path(args.work_dir).resolve()
        work.mkdir(parents=True, exist_ok=True)
    else:
        work = Path(tempfile.mkdtemp(prefix="airflow-mirror-demo-"))
    if args.keep or args.work_dir:
        console.say(f"files: {work}")
    else:
        stack.callback(shutil.rmtree, work, ignore_errors=True)
    return work


def _start_clusters(data_dir: Path | None, console: Console, stack: ExitStack) -> Clusters:
    source = Cluster("source", authorizer=True, data_dir=data_dir and data_dir / "source")
    target = Cluster("target", data_dir=data_dir and data_dir / "target")
    with console.step(f"two Kafka {DEFAULT_VERSION} clusters") as step:
        stack.callback(stop_all, [source, target])
        start_all([source, target])
        step.summary = f"{source.bootstrap} and {target.bootstrap}"
    return Clusters(source.admin_properties(), target.admin_properties(), source.properties("alice"))


def _say_where(console: Console, airflow: AirflowStandalone) -> None:
    console.say(f"Airflow: {airflow.address}  user {airflow.user}  password {airflow.password}")


def _migrate_and_judge(
    args: argparse.Namespace,
    console: Console,
    clusters: Clusters,
    airflow: AirflowStandalone,
    dataset: Dataset,
    traffic: LiveTraffic,
) -> Verdict:
    live: list[GroupResult] = []

    def moved(task: str) -> None:
        """When the target is open, the applications continue there; the mirror's remaining tasks don't concern them."""
        if task == "cutover":
            position = group_positions(clusters.source, LIVE_GROUP)
            live.extend(compare_groups(clusters.target, {LIVE_GROUP: position}))
            traffic.go_on(clusters.target)
            console.say(f"  live traffic continues on the target, after {traffic.silent_s:.1f} s")

    conf = {
        "source": "kafka_source",
        "target": "kafka_target",
        "topics": [".*"],
        "offsets": "identical",
        "approval": False,
        "open_by_default": "yes",  # as the sandbox sets up its brokers
        "accept_ledger_writers": ["User:*"],  # likewise: nobody else is there
        "watch_s": 0,
        "way_back": False,  # the referee compares with what the source held when it was cut over
    }
    migration = migrate(airflow, conf, console, moved)
    if not live:
        raise MigrationFailed("the migration ended without a cutover")
    with console.step("live traffic on the target"):
        time.sleep(LIVE_AFTER_S)
        result = traffic.finish()
    if args.fault:
        place = faults.inflict(args.fault, clusters.target, FAULT_TOPIC, ["reporting", *sorted(dataset.groups)])
        console.say(f"! fault {args.fault!r} at {place}")
    with console.step("referee") as step:
        topics = compare_topics(
            clusters.source,
            clusters.target,
            dataset.topics,
            {LIVE: traffic.values_on_target()},
            lambda where, done, total: step.note(f"{where} {done:,} of {total:,}"),
        )
        groups = [*compare_groups(clusters.target, dataset.groups), *live]
    return Verdict(topics, groups, result, _figures(migration), _seconds(console, dataset, migration))


def _figures(migration: Migration) -> dict[str, str]:
    cutover, bulk = _of(migration, "cutover"), _of(migration, "bulk_copy")
    figures: dict[str, str] = {}
    if isinstance(fence := cutover.get("fence_seconds"), float):
        figures["length of the fence (nobody could write anywhere)"] = f"{fence:.1f} s"
    if (records := bulk.get("records")) and (seconds := bulk.get("transfer_seconds")):
        copied_mb = bulk.get("bytes", 0) / 1e6
        figures["bulk copy"] = f"{records:,} records in {seconds:.1f} s: {records / seconds:,.0f}/s"
        figures["... in batches as they are stored"] = f"{copied_mb:,.0f} MB: {copied_mb / seconds:,.0f} MB/s"
        figures["... with the start of Spark"] = f"{bulk.get('seconds', 0):.1f} s"
    return figures


def _seconds(console: Console, dataset: Dataset, migration: Migration) -> dict[str, float]:
    tasks = {f"  task {task}": seconds for task, seconds in migration.seconds.items() if seconds >= 0.5}
    steps = console.seconds
    return {"filling the source": dataset.seconds, "migration": steps["migration"], **tasks, "referee": steps["referee"]}


def _of(migration: Migration, task: str) -> dict[str, Any]:
    result = migration.results.get(task)
    return result if isinstance(result, dict) else {}


if __name__ == "__main__":
    sys.exit(main())
