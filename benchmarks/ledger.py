"""What a ledger costs: ``python -m benchmarks.ledger [--topics 1000] [--partitions 10] [--busy 1000] [--groups 1000]``.

First a table, by `ledger_model`: what is written a day, and how large it becomes. Then a real ledger on a broker of one
node, with the broker's own cleaner: all that stays after a year of operation, and traffic until just before a segment of
the state rolls. It is read by the package's own readers. Exit status 1 when something exceeds what was promised.
"""

from __future__ import annotations

import argparse
import base64
import sys
import time
from collections.abc import Sequence

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import STATE
from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.export import restore
from airflow_mirror.ledger.records import REPORT, SIGN
from airflow_mirror.ledger.state import WISHED, State, state_of
from benchmarks.ledger_model import (
    DAY_S,
    DECISION_KINDS,
    STATE_KINDS,
    Batch,
    Decided,
    Kind,
    Shape,
    World,
    Written,
    costs,
    worst_bytes,
)
from sandbox import Cluster

READ_S, A_DAY_BYTES = 5.0, 2_000_000_000
_SEGMENT = int(WISHED["segment.bytes"])
_ALMOST = 0.97  # of a segment: what follows must not roll it
_STEP_S = 5.0  # of the traffic before the read
_MADE = 3  # writings of a kind; the others have the same values, because to make one takes up to a second
_CLEANED_S = 60.0  # the cleaner looks every 15 s


def model(shape: Shape) -> bool:
    """Print what a shape costs; return whether that is little enough."""
    found = sorted(costs(shape), key=lambda one: -one.a_day)
    print("| records | MB a day | MB that stay |\n| --- | --- | --- |")
    for kind, a_day, stays in found:
        print(f"| {kind.what} | {a_day / 1e6:,.1f} | {stays / 1e6:,.1f} |")
    a_day = sum(one.a_day for one in found)
    stays = sum(one.stays for one in found if one.kind in STATE_KINDS)
    print(f"\nwritten a day: {a_day / 1e9:.2f} GB; the state is at most {worst_bytes(stays) / 1e6:,.0f} MB", flush=True)
    return a_day < A_DAY_BYTES


def fill(target: ClusterAdmin, shape: Shape) -> None:
    """Write the ledger of a year, as it is just before a segment of the state rolls."""
    state = state_of(target, "", keys_only=True)
    made = {kind: [_one(shape, kind, n) for n in range(_MADE)] for kind in STATE_KINDS}
    for kind, several in made.items():
        for n in range(kind.kept):
            values = several[n % _MADE]
            state.write(values if n < _MADE else {f"{key}~{n}": value for key, value in values.items()})
        _say(f"{kind.what}: {kind.kept} writings, {_size(target):,} bytes")
    decisions(target, shape)
    time.sleep(_CLEANED_S)
    clean = _size(target)
    # As much as the cleaner leaves alone, and a segment.
    until, passed_s = clean + 0.9 * (worst_bytes(clean) - clean - _SEGMENT) + _ALMOST * _SEGMENT, 0.0
    while _size(target) < until:
        for kind, several in made.items():
            every_s = DAY_S / kind.a_day(shape)
            for n in range(int(passed_s / every_s), int((passed_s + _STEP_S) / every_s)):
                state.write(several[n % _MADE])
        passed_s += _STEP_S
    _say(f"{clean:,} bytes when cleaned; with {passed_s / 60:.0f} minutes of traffic {_size(target):,}")


def _one(shape: Shape, kind: Kind, n: int) -> Batch:
    state = Written()
    kind.write(World(shape, state, Decided(), seed=n), n)
    return state.last


def decisions(target: ClusterAdmin, shape: Shape) -> None:
    """Write the decisions of a year: made in memory, and restored like an export."""
    made = Decided()
    world = World(shape, Written(), made)
    small = World(
        Shape(topics=1, partitions=1, busy=1, groups=1), Written(), made
    )  # the plan itself is not in a decision
    for kind in DECISION_KINDS:
        for n in range(max(1, round(kind.a_day(shape) * 365))):
            kind.write(world if kind.keys == "topic/" else small, n)
    records = [base64.b64encode(value).decode() for value in made.records]
    restore(target, {"v": 1, "records": records})
    _say(f"{len(records)} decisions")


def read(config: ClientConfig) -> bool:
    """Read everything, and print how long that takes; return whether it is short enough."""
    total_s = 0.0
    for what, one in (("decisions", _decisions), ("state", _state)):
        with ClusterAdmin(config) as target:
            target.cluster_id()
            begun, cpu = time.perf_counter(), time.process_time()
            count = one(target)
            took_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
        print(f"{what}: {count:,} values read in {took_s:.2f} s, {cpu_s:.2f} s of them processor time", flush=True)
        total_s += took_s
    return total_s < READ_S


def _decisions(target: ClusterAdmin) -> int:
    return len(Ledger(target).values())


def _state(target: ClusterAdmin) -> int:
    state: State = state_of(target, SIGN.below(), REPORT.below())  # as `airflow-mirror status` does
    return len(state.read())


def _size(target: ClusterAdmin) -> int:
    tp = TopicPartition(STATE, 0)
    target.wire.refresh([STATE])
    return target.wire.log_sizes([tp])[tp]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str]) -> int:
    """Print what a ledger costs; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger", description=__doc__.partition("\n")[0])
    defaults = Shape()
    for name in ("topics", "partitions", "busy", "groups"):
        parser.add_argument(f"--{name}", type=int, default=getattr(defaults, name))
    parser.add_argument("--model", action="store_true", help="no broker, only the table")
    given = parser.parse_args(argv)
    shape = Shape(topics=given.topics, partitions=given.partitions, busy=given.busy, groups=given.groups)
    kept = [model(shape)]
    if not given.model:
        with Cluster("ledger", heap_mb=1024) as cluster:
            config = ClientConfig(cluster.admin_properties(), "target")
            with ClusterAdmin(config) as target:
                fill(target, shape)
            kept.append(read(config))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
