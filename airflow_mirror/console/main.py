"""The command ``airflow-mirror``: what people ask, and what they have to do by hand.

Exit status: 0 done; 1 failed, may be tried again or needs a look; 2 wrong input, nothing was changed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from airflow_mirror import __version__
from airflow_mirror.compat import flags
from airflow_mirror.console import (
    adopt,
    arm_reverse,
    configs,
    copies,
    cutover,
    drills,
    failback,
    failover,
    fence_returned,
    from_properties,
    ledger,
    lift_fence,
    night_plan,
    plan,
    preview,
    report,
    retire,
    rights,
    run,
    split,
    status,
    swap_fence,
    translate,
    verify,
    verify_report,
    wishes,
)
from airflow_mirror.errors import InputError, MirrorError


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    p = argparse.ArgumentParser(
        prog="airflow-mirror", description="Kafka clusters that are moved and protected: what people ask, or do by hand.",
        epilog="'airflow-mirror COMMAND --help' explains a command, with examples.",
    )  # fmt: skip
    p.add_argument("--version", action="version", version=__version__)
    commands = p.add_subparsers(metavar="COMMAND", required=True)
    status.add(commands)
    copies.add(commands)
    rights.add(commands)
    plan.add(commands)
    night_plan.add(commands)
    configs.add(commands)
    translate.add(commands)
    adopt.add(commands)
    wishes.add(commands)
    from_properties.add(commands)
    run.add(commands)
    verify.add(commands)
    preview.add(commands)
    cutover.add(commands)
    lift_fence.add(commands)
    report.add(commands)
    verify_report.add(commands)
    swap_fence.add(commands)
    arm_reverse.add(commands)
    failover.add(commands)
    fence_returned.add(commands)
    failback.add(commands)
    drills.add(commands)
    split.add(commands)
    retire.add(commands)
    ledger.add(commands)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; see the module's text."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["follow"] and flags.is_old(words[1:]):
        return copies.follow_older(words[1:])
    try:
        arguments = parser().parse_args(words)
        status: int = arguments.run(arguments) or 0
        sys.stdout.flush()
        return status
    except MirrorError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2 if isinstance(e, InputError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # its reader has gone, perhaps before it was done: not a success, as of any program
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter would fail at its end
        return 128 + signal.SIGPIPE
    except OSError as e:  # a file that can't be written, mostly; what concerns a cluster has an error of its own
        where = f"{e.filename}: " if e.filename else ""
        print(f"error: {where}{e.strerror or e}. Correct the path, or make room there.", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
