"""Which bytes of a record are ids of schemas."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from airflow_mirror.extras.schemas.ids import Carried, carried
from airflow_mirror.wire.records import Record

GUID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


def record(key: bytes | None = None, value: bytes | None = None, *headers: Any) -> Record:
    return Record(7, 0, key, value, list(headers))


@pytest.mark.parametrize(
    ("one", "ids"),
    [
        (record(b"k", b"v"), []),
        (record(None, None), []),
        (record(b"", b"\0\0\0\1"), []),  # a byte too short
        (record(b"\0\0\0\1\2x", b"\0\0\0\0\x09"), [Carried("key", 258), Carried("value", 9)]),
        (record(b"\0\x7f\xff\xff\xff", b"\0\x80\0\0\0x"), [Carried("key", 2**31 - 1)]),  # no id is larger
        (record(b"k", b"\0\0\0\0\6", (b"__value_schema_id", b"\0\xff\0\0\0")), [Carried("value", 6)]),
        (record(b"k", b"v", (b"__value_schema_id", b"\0\0\0\0\5")), [Carried("value", 5)]),
        (record(b"k", b"\0\0\0\0\6", (b"__value_schema_id", b"\0\0\0\0\5")), [Carried("value", 5)]),
        (record(b"k", b"v", (b"__key_schema_id", b"\1" + GUID.bytes)), [Carried("key", str(GUID))]),
        (record(b"k", b"\1" + GUID.bytes), []),  # a GUID stands in a header only
        (record(b"k", b"v", (b"__value_schema_id", None), (b"other", b"\0\0\0\0\5")), []),
    ],
)
def test_ids_of_a_record(one: Record, ids: list[Carried]) -> None:
    assert list(carried([one])) == ids
