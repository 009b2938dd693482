"""Java's syntax, as ``java.util.Properties.load`` reads it. A test with the real class has the same text."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mirror.compat.properties import Entry, as_java_keeps, parse, read
from airflow_mirror.errors import InputError

# Each form of the syntax: separators, blanks, comments, continuations, escapes, keys without value, the same key twice.
ODD = r"""# a comment that does not go on \
! another one
   indented = after blanks
equals=1
colon:2
blank 3
tab	4
both  =   5
= without a key
alone
empty =
url = http://host:8083?a=b#c
trailing = kept   # of the value
goes = on \
       the next \
   line
even\\
odd\\\
  third
key\ with\ blanks\:and\=signs = x
\#not.a.comment = y
unicode = \u00e9\t\u20AC|\uD83D\uDE00|\z|\"
A->B.topics = foo\\..*, bar
twice = first
twice = last
"""
KEPT = {
    "indented": "after blanks",
    "equals": "1",
    "colon": "2",
    "blank": "3",
    "tab": "4",
    "both": "5",
    "": "without a key",
    "alone": "",
    "empty": "",
    "url": "http://host:8083?a=b#c",
    "trailing": "kept   # of the value",
    "goes": "on the next line",
    "even\\": "",
    "odd\\third": "",
    "key with blanks:and=signs": "x",
    "#not.a.comment": "y",
    "unicode": 'é\t€|😀|z|"',
    "A->B.topics": "foo\\..*, bar",
    "twice": "last",
}


def test_every_form_of_javas_syntax_is_read(tmp_path: Path) -> None:
    file = tmp_path / "odd.properties"
    file.write_text(ODD)
    assert dict(as_java_keeps(file)) == KEPT


def test_a_key_that_is_given_twice_is_there_twice_with_its_lines() -> None:
    entries = parse("a = 1\n# b\nc = 2 \\\n  3\r\na = 4\rd = 5")
    assert entries == [Entry(1, "a", "1"), Entry(3, "c", "2 3"), Entry(5, "a", "4"), Entry(6, "d", "5")]


def test_bytes_are_latin_1(tmp_path: Path) -> None:
    file = tmp_path / "latin.properties"
    file.write_bytes(b"name = caf\xe9\x85x")
    assert read(file) == [Entry(1, "name", "caf\xe9\x85x")]


def test_an_escape_that_java_refuses_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.properties"
    file.write_text("a = 1\nssl.key.password = hidden\\u12\n")
    with pytest.raises(InputError, match="bad.properties', line 2|bad.properties, line 2") as e:
        read(file)
    assert "hidden" not in str(e.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="'/no/such.properties' can't be read: No such file or directory"):
        read(Path("/no/such.properties"))


def test_a_value_is_never_shown() -> None:
    assert repr(Entry(1, "k", "hidden")) == "Entry(line=1, key='k')"
