"""Java's properties files, as ``java.util.Properties.load`` reads them, with the line of each key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import javaproperties

from airflow_mirror.common.text_files import read_text
from airflow_mirror.errors import InputError

_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Entry:
    """One key of a file.

    :param line: its number, from 1; of the first one where it goes on over several.
    :param value: never shown: it may be a secret.
    """

    line: int
    key: str
    value: str = field(repr=False)


def read(path: Path, encoding: str = "latin-1") -> list[Entry]:
    """Return the keys of a file, in its order. A key that is given twice is there twice; for Java the last one counts.

    What an editor for UTF-8 puts before them is left out: to Java it is part of the first key, which it then ignores.

    :param encoding: what Java reads the bytes as: Latin-1, unless it is told otherwise; anything else is an escape then.
    :raises InputError: the file can't be read, or holds an escape that Java refuses, too.
    :raises InputError: the bytes are no text in that encoding.
    """
    return parse(read_text(path, f"properties file {str(path)!r}", encoding=encoding), str(path))


def parse(text: str, name: str = "the text") -> list[Entry]:
    """Return the keys of a text. Errors as :func:`read`.

    :param name: what to call it in an error.
    """
    entries, line = list[Entry](), 1
    try:
        for one in javaproperties.parse(text):
            if isinstance(one, javaproperties.KeyValue):
                entries.append(Entry(line, one.key, one.value))
            line += len(_LINE_END.findall(one.source))
    except ValueError:  # it quotes the text
        cause = r"\u is not followed by four hexadecimal digits"
        raise InputError(f"{name}, line {line}", cause, "Write a backslash as two.") from None
    return entries


def as_java_keeps(path: Path, encoding: str = "latin-1") -> Mapping[str, str]:
    """Return a file's values by key: of one that is given twice the last. Encoding and errors as of :func:`read`."""
    return {entry.key: entry.value for entry in read(path, encoding)}
