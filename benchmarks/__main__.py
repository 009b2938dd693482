"""``python -m benchmarks``: MirrorMaker 2 and this engine, side by side. ``make bench`` calls it.

Exit status: 0 when every run did its work and no target was missed, 1 otherwise, 2 for bad arguments, 130 after Ctrl-C.
What was measured is stored either way. Everything that was started is stopped, and what it wrote is deleted; with
``--keep`` the logs and settings of the runs stay.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from airflow_mirror.errors import MirrorError
from benchmarks import document, plot, table, targets, tuning
from benchmarks.bench import ON_REQUEST, SYSTEMS, Bench, Wanted
from benchmarks.cases import CASES, TAILS
from benchmarks.results import LATEST, PARTIAL, Results
from benchmarks.systems import CANDIDATES
from benchmarks.tuning import Tunings

ALL = (*(case.name for case in CASES), *(tail.name for tail in TAILS))
TINY = 0.01
_QUICK = ("big", "small-batches", "latency")
_QUICK_SCALE, _QUICK_S = 0.1, 10.0
_TUNING_S = 20.0
_EPILOG = f"""
examples:
  python -m benchmarks                            everything, two hours; stores {LATEST.name}, docs and plot
  python -m benchmarks --cases big,latency        two cases; stores {PARTIAL.name}
  python -m benchmarks --cases tls --add          a full run in parts: adds to {PARTIAL.name}
  python -m benchmarks --systems ours,limit --rounds 1 --cases small-batches
  python -m benchmarks --systems ours,ours-plain  the bulk copy on Spark, and in plain processes
  python -m benchmarks --quick                    a look, below five minutes; no target is judged
  python -m benchmarks --scale tiny --rounds 1    does it work? (its figures mean nothing, no target is judged)
  python -m benchmarks --tune                     find MirrorMaker 2's tunings, 40 minutes; stores {tuning.FILE.name}
  python -m benchmarks --judge                    which targets do the stored results reach?

Leave the machine alone while it runs: both systems and all brokers share its cores. Progress goes to stderr, tables to
stdout.
docs/benchmarks.md says what is measured, and how to read it.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for; return the exit status."""
    args = _arguments(argv)
    if args.list:
        for name, title in [*((case.name, case.title) for case in CASES), *((tail.name, tail.title) for tail in TAILS)]:
            print(f"{name:19}{title}")
        return 0
    if args.doc:
        document.write()
        return 0
    if args.judge:
        return _judge_stored()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _terminated)  # a shell starts background jobs with SIGINT ignored
    work = Path(tempfile.mkdtemp(prefix="airflow-mirror-bench-"))
    try:
        return _bench(args, work)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    except (MirrorError, ValueError) as e:
        print(f"\nbenchmarks: {e}", file=sys.stderr)
        return 1
    finally:
        if args.keep:
            print(f"logs and settings of the runs: {work}", file=sys.stderr)
        else:
            shutil.rmtree(work, ignore_errors=True)


def _bench(args: argparse.Namespace, work: Path) -> int:
    bench = Bench(_wanted(args), work)
    earlier = Results.load(PARTIAL.read_text(encoding="utf-8")) if args.add and PARTIAL.exists() else None
    if earlier is not None:
        earlier.with_those_of(bench.results)  # whether it can be, before anything is measured
    try:
        results = bench.run()
    except BaseException:
        if bench.results.cases:  # what was found so far is not thrown away; but it is not stored
            print(f"\n{table.as_text(bench.results)}", flush=True)
        raise
    print(table.as_text(results))
    if args.tune:
        Tunings.load().with_those_of(results).store(args.out or tuning.FILE)
        return 1 if results.failures else 0
    if earlier is not None:
        results = earlier.with_those_of(results)
    everything = results.names == set(ALL) if args.add else set(args.cases) == set(ALL)
    complete = everything and set(args.systems) == set(SYSTEMS) and args.scale == 1 and not args.quick
    _store(results, args.out or (LATEST if complete and not results.failures else PARTIAL))
    return _judge(results, complete)


def _wanted(args: argparse.Namespace) -> Wanted:
    everything = args.cases == list(ALL)
    if args.quick:
        scale = min(args.scale, _QUICK_SCALE)
        return Wanted(_QUICK if everything else args.cases, args.systems, 1, scale, 0.0, _QUICK_S)
    if args.tune:
        cases = tuning.CLASSES if everything else args.cases
        return Wanted(cases, CANDIDATES, 1, args.scale, length_s=_TUNING_S)
    return Wanted(args.cases, args.systems, args.rounds, args.scale)


def _judge(results: Results, complete: bool) -> int:
    """Print which targets were reached; return the exit status."""
    verdicts = targets.judge(results, complete)
    if verdicts:
        print(f"\n{table.targets_as_text(verdicts)}", flush=True)
    else:
        why = f"at scale {results.settings['scale']:g}" if results.settings["scale"] < 1 else "for what was run"
        print(f"no targets {why}", file=sys.stderr)
    return 1 if results.failures or not all(v.reached for v in verdicts) else 0


def _judge_stored() -> int:
    results = document.stored()
    if results is None:
        print(f"benchmarks: {LATEST} holds no results of this version; `make bench` makes them", file=sys.stderr)
        return 1
    print(f"{LATEST}, of {results.made}", file=sys.stderr)
    return _judge(results, complete=True)


def _store(results: Results, path: Path) -> None:
    """Write the results. Those of a full run, and no others, become the ones that the docs show."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(results.dump(), encoding="utf-8")
    print(f"stored: {path}", file=sys.stderr)
    if path == LATEST:
        document.write()
        print(f"made anew: {document.PAGE}, {plot.PLOT}", file=sys.stderr)


def _terminated(*_: object) -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # cleaning up is not interrupted by a second Ctrl-C
    raise KeyboardInterrupt


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Copy the same topics with MirrorMaker 2 and with this engine, in turn, and compare.",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    parser.add_argument("--cases", type=_names(ALL), default=list(ALL), metavar="A,B", help="some cases only")
    parser.add_argument(
        "--systems",
        type=_names((*SYSTEMS, *ON_REQUEST)),
        default=list(SYSTEMS),
        metavar="A,B",
        help=f"some only: {', '.join(SYSTEMS)}; on request: {', '.join(ON_REQUEST)}",
    )
    parser.add_argument("--rounds", type=_rounds, default=3, metavar="N", help="of each case (default: 3)")
    parser.add_argument(
        "--scale", type=_scale, default=1.0, metavar="X", help=f"times as many records (default: 1); tiny: {TINY}"
    )
    parser.add_argument(
        "--add", action="store_true", help=f"to the part in {PARTIAL.name}; when all cases are there, they are a full run"
    )
    parser.add_argument("--quick", action="store_true", help="a few cases, few records, one round, nobody is warm")
    parser.add_argument("--tune", action="store_true", help="find and store the best of MirrorMaker 2's tunings")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to store the results")
    parser.add_argument("--keep", action="store_true", help="do not delete logs and settings of the runs")
    parser.add_argument("--doc", action="store_true", help="run nothing; make docs and plot from the stored results")
    parser.add_argument("--judge", action="store_true", help="run nothing; judge the stored results by the targets")
    return parser.parse_args(argv)


class _names:  # noqa: N801  # a type of argparse, named in its messages
    """Comma separated names out of a list."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known

    def __call__(self, text: str) -> list[str]:
        """Return the names.

        :raises argparse.ArgumentTypeError: for one that does not exist.
        """
        names = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in names if name not in self._known]
        if unknown or not names:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown) or text!r}: there are {', '.join(self._known)}")
        return names


def _rounds(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 to 100")
    return int(text)


def _scale(text: str) -> float:
    if text == "tiny":
        return TINY
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not 0 < scale <= 100:
        raise argparse.ArgumentTypeError(f"{text!r}: 'tiny' or a number above 0, up to 100")
    return scale


if __name__ == "__main__":
    sys.exit(main())
