"""Which schema ids records carry. No socket.

Serializers write a byte 0 and four bytes of an id before the payload (Confluent's wire format), or a header
``__key_schema_id`` or ``__value_schema_id`` with a byte 0 and the id, or a byte 1 and a GUID (Confluent Platform 8).
Binary data begins with a 0 as well, so what is found is an id only if the source's registry knows it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from airflow_mirror.wire.records import Record

_ID, _GUID = 0, 1
_HEADERS = {b"__key_schema_id": "key", b"__value_schema_id": "value"}


class Carried(NamedTuple):
    """An id of a record's key or value: a number, or a GUID as text."""

    part: str
    id: int | str


def carried(records: Iterable[Record]) -> Iterator[Carried]:
    """Yield what may be ids of schemas, of each record; a header's decides over what the payload begins with."""
    for record in records:
        found = {part: one for name, value in record.headers if (part := _HEADERS.get(name)) and (one := _id(value, 17))}
        for part, payload in (("key", record.key), ("value", record.value)):
            one = found.get(part) or _id(payload, 5)
            if one is not None:
                yield Carried(part, one)


def _id(data: bytes | None, guid_bytes: int) -> int | str | None:
    """Return the id that some bytes begin with; a GUID only where as many are left for one."""
    if not data:
        return None
    if data[0] == _ID and len(data) >= 5:
        # Java's int: of a number beyond it registries say that there is no such path, and not that there is no such id.
        found = int.from_bytes(data[1:5], "big", signed=True)
        return found if found >= 0 else None
    if data[0] == _GUID and guid_bytes == 17 and len(data) >= 17:
        return str(uuid.UUID(bytes=bytes(data[1:17])))
    return None
