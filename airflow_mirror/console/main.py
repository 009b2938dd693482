"""The command ``airflow-mirror``: what people ask, and what they have to do by hand.

Exit status: 0 done; 1 failed, may be tried again or needs a look; 2 wrong input, nothing was changed.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from airflow_mirror import __version__
from airflow_mirror.common.clock import SYSTEM, Clock
from airflow_mirror.common.nearest import nearest
from airflow_mirror.console import output
from airflow_mirror.console.commands import COMMANDS, GROUPS
from airflow_mirror.console.parser import CommandParser
from airflow_mirror.errors import InputError, MirrorError

_PROG = "airflow-mirror"


class Parsers(dict[str, argparse.ArgumentParser]):
    """The parsers of commands by their names: what a command's module adds to."""

    def add_parser(self, name: str, **how: object) -> argparse.ArgumentParser:
        """Return the parser of a new command."""
        self[name] = CommandParser(prog=f"{_PROG} {name}", **how)  # type: ignore[arg-type]
        return self[name]


def parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of a command; only its module is imported."""
    parsers = Parsers()
    importlib.import_module(f"airflow_mirror.console.{COMMANDS[name][0]}").add(parsers)
    return parsers[name]


def every() -> argparse.ArgumentParser:
    """Return a parser of all commands: for who has to know them all, because it imports all modules."""
    whole = argparse.ArgumentParser(prog=_PROG)
    commands = whole.add_subparsers()
    add = commands.add_parser
    commands.add_parser = lambda name, **how: add(name, help=COMMANDS[name][1], **how)  # type: ignore[method-assign]
    for module in dict.fromkeys(module for module, _ in COMMANDS.values()):
        importlib.import_module(f"airflow_mirror.console.{module}").add(commands)
    return whole


def listing() -> str:
    """Return what there is, for ``--help``."""
    lines = [f"usage: {_PROG} [-h] [--version] COMMAND ...", "", "Kafka clusters that are moved and protected.", ""]
    for group, commands in GROUPS.items():
        lines += [f"{group}:", *(f"  {name:<15} {short}" for name, (_, short) in commands.items())]
    return "\n".join([*lines, "", f"'{_PROG} COMMAND --help' explains a command, with examples."])


def _called(words: Sequence[str]) -> str:
    """Return the command that is called; answer, and end the process, where it is none."""
    if words[:1] in (["-h"], ["--help"]):
        print(listing())
        sys.exit(0)
    if words[:1] == ["--version"]:
        print(__version__)
        sys.exit(0)
    return words[0] if words and words[0] in COMMANDS else _refuse(words)


def _refuse(words: Sequence[str]) -> NoReturn:
    if words:
        print(f"error: there is no command {words[0]!r}.{nearest(words[0], COMMANDS)}", file=sys.stderr)
    else:
        print("error: which command?", file=sys.stderr)
    print(f"'{_PROG} --help' lists them.", file=sys.stderr)
    sys.exit(2)


def main(argv: Sequence[str] | None = None, clock: Clock = SYSTEM) -> int:
    """Run the command; see the module's text. :param clock: by which commands wait."""
    words = sys.argv[1:] if argv is None else list(argv)
    output.tolerate()
    name = _called(words)
    if name == "follow":
        from airflow_mirror.compat import flags

        if flags.is_old(words[1:]):
            from airflow_mirror.console.copies import follow_older

            return follow_older(words[1:])
    try:
        arguments = parser(name).parse_args(words[1:], argparse.Namespace(clock=clock))
        status: int = arguments.run(arguments) or 0
        sys.stdout.flush()
        return status
    except MirrorError as e:
        print(f"error: {e.lines}", file=sys.stderr)
        return 2 if isinstance(e, InputError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # its reader has gone, perhaps before it was done: not a success, as of any program
        output.give_up()
        return 128 + signal.SIGPIPE
    except OSError as e:  # a file that can't be written, mostly; what concerns a cluster has an error of its own
        where = f"{e.filename}: " if e.filename else ""
        print(f"error: {where}{e.strerror or e}. Correct the path, or make room there.", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
