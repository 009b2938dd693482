"""What it takes to adopt a target: ``python -m benchmarks.adopt [--records 1000000] [--partitions 4]``.

Starts two clusters of one node each. Transactions fill the source; some of them are aborted. A real MirrorMaker 2 copies
with its defaults: killed (SIGKILL) in the middle, started again, so that it sends again what it had not committed, and
stopped. Then the source gets some more. ``airflow-mirror adopt --yes`` takes all this over by MirrorMaker's own file, in
a process of its own, in which the parts of the work are timed.

The referee reads both logs as plain consumers do. It counts what was repeated and aborted, and searches where a reader of
random source offsets goes on. Prints one JSON object. Exit status 1 when the command, the stored map and the referee
don't all say the same.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from airflow_mirror.console.main import main as airflow_mirror
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.extras.adopt import examine, matching
from airflow_mirror.sync.maps import mapped_range
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import UnknownTopic
from benchmarks import mirrormaker
from benchmarks.planning import Clock
from benchmarks.processes import cpu_of, peak_mb_of
from benchmarks.referee import Answers, Disagrees, check_offsets, contents
from benchmarks.worlds import Endpoint
from sandbox import Cluster, clusters
from sandbox.process import Child

_ALIAS, _TOPIC, _MIRROR = "first", "orders", "adopt-bench"
_THERE = f"{_ALIAS}.{_TOPIC}"
_A_TRANSACTION = 1_000  # records
_ABORTED = 0.1
_LATER = 0.1  # of the records come when MirrorMaker 2 is gone
_KILLED_AT = 0.3  # of the records are on the target when it is killed
_RESTS_S = 5.0  # MirrorMaker 2 has copied everything when its target has not grown for so long
_PATIENCE_S = 600.0


def fill(source: Endpoint, partitions: int, numbers: range) -> None:
    """Write numbered records in transactions, of which some are aborted. Number and partition follow from each other."""
    rng = random.Random(numbers.start)
    producer = Producer({**source.properties, "transactional.id": f"bench-{numbers.start}", "linger.ms": 5})
    producer.init_transactions(60)
    for first in range(numbers.start, numbers.stop, _A_TRANSACTION):
        producer.begin_transaction()
        for number in range(first, min(first + _A_TRANSACTION, numbers.stop)):
            value = rng.randbytes(rng.randint(1, 300))
            producer.produce(_TOPIC, value, b"%d" % number, partition=number % partitions)
        producer.flush(60)  # what is aborted is in the log, too
        producer.abort_transaction(60) if rng.random() < _ABORTED else producer.commit_transaction(60)


def half_fill(target: Endpoint, partitions: int, records: int, file: Path) -> None:
    """Let MirrorMaker 2 copy in two lives: the first ends by SIGKILL, the second when it has copied everything."""
    with WireCluster(target.plain) as wire:

        def copied() -> int:
            try:
                return sum(target.ends(wire, _THERE, partitions))
            except UnknownTopic:
                return 0

        lives: tuple[tuple[Callable[[], bool], Callable[[Child], None]], ...] = (
            (lambda: copied() >= records * _KILLED_AT, Child.kill),
            (lambda: _rests(copied, records), lambda child: child.terminate(60)),
        )
        for is_over, end in lives:
            child = Child(mirrormaker.command(file, file.parent), file.parent / "mirrormaker.log", file.parent)
            try:
                _await(is_over, child)
                end(child)
            finally:
                child.kill()
            _say(f"MirrorMaker 2 has written {copied():,} records")


def _rests(count: Callable[[], int], least: int) -> bool:
    before = count()
    time.sleep(_RESTS_S if before >= least else 0)
    return before >= least and count() == before


def _await(is_over: Callable[[], bool], child: Child) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_over():
        if not child.alive() or time.monotonic() > deadline:
            raise RuntimeError(f"MirrorMaker 2 {'did not come so far' if child.alive() else 'ended'}")
        time.sleep(0.05)


# --- the adoption -----------------------------------------------------------------------------------------------------


class Clocks:
    """Seconds spent in functions, by what they do."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def watch(self, owner: Any, name: str, what: str) -> None:
        """Time all calls of a function from now on."""
        function = getattr(owner, name)

        def timed(*given: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                self.seconds[what] += time.perf_counter() - begun

        setattr(owner, name, timed)


def adopt(arguments: Sequence[str]) -> int:
    """Run the command in this process, and print what it says and what it took; return its exit status."""
    clocks, said = Clocks(), io.StringIO()
    clocks.watch(examine, "read_log", "read_s")
    clocks.watch(examine, "match", "match_s")
    clocks.watch(matching, "map_of", "build_s")
    clocks.watch(MapStore, "adopt", "store_s")
    clocks.watch(sys.modules[__name__], "airflow_mirror", "whole_s")
    with redirect_stdout(said):
        status = airflow_mirror(["adopt", *arguments, "--yes", "--json"])
    seconds = {what: round(took, 2) for what, took in clocks.seconds.items()}
    took = {**seconds, "cpu_s": round(cpu_of([os.getpid()]), 2), "peak_mb": round(peak_mb_of(os.getpid()))}
    print(json.dumps({"said": json.loads(said.getvalue() or "null"), "took": took}))
    return status


def adopted(file: Path) -> dict[str, Any]:
    """Adopt in a process of its own; return what that printed.

    :raises CalledProcessError: it refused.
    """
    command = [
        sys.executable, "-m", "benchmarks.adopt", "--as", "adopt", "--config", str(file), "--name", _MIRROR,
        "--isolation", "read_committed",
    ]  # fmt: skip
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


# --- the referee ------------------------------------------------------------------------------------------------------

Numbered = Sequence[tuple[int, int]]  # offset and number


def counted(everything: Numbered, committed: Numbered, copies: Numbered) -> dict[str, int]:
    """Return what the command has to say of a partition, all of whose copies are the source's.

    :param everything, committed: what consumers of the source get. :param copies: what those of the target get.
    """
    numbers = [number for _, number in copies]
    aborted = {number for _, number in everything} - {number for _, number in committed}
    return {
        "records": len(numbers), "copies": len(numbers), "repeated": len(numbers) - len(set(numbers)),
        "aborted": sum(number in aborted for number in numbers),
        **dict.fromkeys(("missing", "unknown", "ambiguous", "older", "disordered", "undecided"), 0),
    }  # fmt: skip


def differences(said: dict[str, int], partitions: Sequence[dict[str, int]]) -> list[str]:
    """Return each kind of record of which the command says another number than the referee has counted."""
    sums = {kind: sum(one[kind] for one in partitions) for kind in partitions[0]}
    return [f"{kind}: adopt says {said[kind]}, the referee {n}" for kind, n in sums.items() if said[kind] != n]


def shares(count: int, partitions: int) -> Iterator[int]:
    """Yield how many of ``count`` offsets are checked in each partition."""
    yield from (count // partitions + (number < count % partitions) for number in range(partitions))


def _by(stored: OffsetMap) -> Callable[[int], int]:
    return lambda offset: stored.to_target(offset).offset


def checked(source: Cluster, target: Cluster, given: argparse.Namespace, said: dict[str, int]) -> tuple[int, list[str]]:
    """Return how many offsets were equal to the referee's, and what was not."""
    found, wrong, counts = 0, list[str](), list[dict[str, int]]()
    store = MapStore(_MIRROR)
    for partition, share in enumerate(shares(given.offsets, given.partitions)):
        everything = contents(source, _TOPIC, "read_uncommitted", partition)
        committed = contents(source, _TOPIC, "read_committed", partition)
        copies = contents(target, _THERE, "read_committed", partition)
        counts.append(counted(everything, committed, copies))
        with WireCluster(Endpoint(target).plain) as wire:
            stored = store.load(wire, mapped_range(_TOPIC, _THERE, partition))
        assert stored is not None, f"no map of partition {partition}"
        answers = Answers(committed, copies)
        try:
            found += check_offsets(_by(stored), answers, share, everything[0][0], partition)
        except Disagrees as e:
            wrong.append(f"partition {partition}: {e}")
        _say(f"partition {partition}: {counts[-1]}")
    return found, wrong + differences(said, counts)


def measure(source: Cluster, target: Cluster, given: argparse.Namespace, work: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the figures, and what is wrong with them."""
    here, there = Endpoint(source), Endpoint(target)
    here.create(_TOPIC, given.partitions)
    file, of_target = work / "connect-mirror-maker.properties", work / "target.properties"
    settings = mirrormaker.settings(_ALIAS, _TOPIC, here.java, there.java, (1, 1))
    file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    of_target.write_text(f"bootstrap.servers = {target.bootstrap}\n")
    with redirect_stdout(sys.stderr):
        assert airflow_mirror(["ledger", "init", "--target", str(of_target)]) == 0
    clock = Clock()
    later = given.records + max(1, int(given.records * _LATER))
    clock("fill the source", lambda: fill(here, given.partitions, range(given.records)))
    clock("MirrorMaker 2", lambda: half_fill(there, given.partitions, given.records, file))
    clock("fill it further", lambda: fill(here, given.partitions, range(given.records, later)))
    found = clock("adopt", lambda: adopted(file))
    said = found["said"]["sum"]
    equal, wrong = clock("check", lambda: checked(source, target, given, said))
    maps = sum(one["map"]["segments"] for one in found["said"]["partitions"])
    return {"partitions": given.partitions, **said, "runs_of_maps": maps, **found["took"], "offsets_equal": equal}, wrong


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str]) -> int:
    """Measure and print one JSON object; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adopt", description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="of the source, when MirrorMaker 2 begins")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--offsets", type=int, default=10_000, help="so many random ones are checked")
    parser.add_argument("--as", dest="role", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.role:
        return adopt(given.role[1:])
    with (
        clusters("source", "target", heap_mb=1024) as (source, target),
        tempfile.TemporaryDirectory(prefix="airflow-mirror-adopt-") as work,
    ):
        figures, wrong = measure(source, target, given, Path(work))
    print(json.dumps(figures), flush=True)
    for one in wrong:
        print(f"benchmarks.adopt: {one}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
