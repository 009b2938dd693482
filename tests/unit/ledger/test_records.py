"""The kinds of records of a ledger: what is stored does not change by chance."""

from __future__ import annotations

import json

from tests.unit.ledger.written import GOLDEN, written


def test_keys_and_bytes_of_every_kind_are_as_they_were() -> None:
    """A ledger outlives the package that wrote it: what differs here is another format, and needs another version."""
    assert written() == json.loads(GOLDEN.read_text())
