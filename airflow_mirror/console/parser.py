"""The parser of one command: a word that it does not have is answered in two lines, with the nearest that it has."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from airflow_mirror.common.nearest import nearest


class CommandParser(argparse.ArgumentParser):
    """Answers wrong words as the rest of the command answers wrong input: no usage of twenty lines stands before it."""

    _words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Keep the words, for :meth:`error`: where a required one is misspelt, argparse only says what it lacks."""
        self._words = () if args is None else args
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and what was meant; end the process with status 2."""
        unknown = [
            f"there is no option {word!r}.{nearest(word, self._option_string_actions)}" for word in self._unknown()
        ]
        said = [f"error: {line}" for line in (unknown or [f"{message}."])]
        self.exit(2, "\n".join([*said, f"'{self.prog} --help' explains each; nothing was done.", ""]))

    def _unknown(self) -> Iterator[str]:
        """Yield the options that there are not. Of what is in short for several argparse itself says that."""
        for word in self._words:
            if word == "--" or (self._subparsers and not word.startswith("-")):  # what follows is the verb's
                return
            name = word.partition("=")[0]
            if name.startswith("--") and not any(known.startswith(name) for known in self._option_string_actions):
                yield name


class VerbParser(CommandParser):
    """Of what a command is to do, ``show`` in ``ledger show``: argparse would have the command answer for its words."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what the verb does not have."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown
