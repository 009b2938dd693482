"""The command ``airflow-mirror``: what people ask, and what they have to do by hand.

Exit status: 0 done; 1 failed, may be tried again or needs a look; 2 wrong input, nothing was changed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import ModuleType

from airflow_mirror import __version__
from airflow_mirror.compat import flags
from airflow_mirror.console import (
    adopt,
    arm_reverse,
    audit_reports,
    configs,
    copies,
    cutover,
    drills,
    failback,
    failover,
    fence_on_return,
    import_mm2,
    ledger,
    lift_fence,
    plan,
    preview,
    readiness,
    report,
    retire,
    rights,
    run,
    split,
    status,
    swap_fence,
    translate,
    verify,
    wishes,
)
from airflow_mirror.console.command import SHORT
from airflow_mirror.errors import InputError, MirrorError

# In the order in which somebody meets them.
GROUPS: dict[str, tuple[ModuleType, ...]] = {
    "a mirror": (rights, plan, copies, verify, status, configs, translate, wishes, split, retire),
    "a cutover and its way back": (
        readiness, preview, cutover, lift_fence, report, audit_reports, swap_fence, arm_reverse
    ),
    "disaster recovery": (failover, fence_on_return, failback, drills),
    "older tools": (run, import_mm2, adopt),
    "the target's memory": (ledger,),
}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    p = argparse.ArgumentParser(
        prog="airflow-mirror", usage="airflow-mirror [-h] [--version] COMMAND ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.add_argument("--version", action="version", version=__version__)
    commands = p.add_subparsers(prog=p.prog, metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    lines = ["Kafka clusters that are moved and protected: what people ask, or do by hand.", ""]
    for group, modules in GROUPS.items():
        lines.append(f"{group}:")
        for module in modules:
            known = {*commands.choices}
            module.add(commands)
            lines += [f"  {name:<15} {SHORT[name]}" for name in commands.choices if name not in known]
    p.description = "\n".join([*lines, "", "'airflow-mirror COMMAND --help' explains a command, with examples."])
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
        print(f"error: {e.lines}", file=sys.stderr)
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
