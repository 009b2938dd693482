"""A door before a broker that lets some requests through and others not, as a cluster does that doesn't serve them.

They are missing in what the broker says that it serves, and who sends one all the same is cut off, as Kafka does with a
request that it doesn't know.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Collection

from airflow_mirror.wire.varint import read_unsigned, unsigned
from sandbox.proxy import FaultProxy, Link

_API_VERSIONS = 18
_REQUEST = struct.Struct(">hhi")  # API key, version, correlation id


class Gate(FaultProxy):
    """Forwards frame by frame; delays and faults of a :class:`FaultProxy` it has none but :meth:`cut`.

    :ivar closed: keys of the requests that don't go through; asked for each frame.
    """

    closed: Collection[int] = ()

    async def _pump(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                if writer is link.client:
                    frame = self._answer(link, frame)
                elif not self._lets(link, frame):
                    link.reset()
                    return
                writer.write(len(frame).to_bytes(4) + frame)
                await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()

    def _lets(self, link: Link, frame: bytes) -> bool:
        key, version, correlation_id = _REQUEST.unpack_from(frame)
        if key == _API_VERSIONS:
            link.noted[correlation_id] = version
        return key not in self.closed

    def _answer(self, link: Link, frame: bytes) -> bytes:
        version = link.noted.pop(int.from_bytes(frame[:4]), None)
        return frame if version is None else without(frame, version, self.closed)


def without(frame: bytes, version: int, keys: Collection[int]) -> bytes:
    """Return an answer to ApiVersions that doesn't name some requests."""
    if int.from_bytes(frame[4:6]):  # of an error; a broker that doesn't know the version answers in version 0
        return frame
    if version < 3:
        count, at, size = int.from_bytes(frame[6:10]), 10, 6
    else:  # compact: one more than there are; each entry ends with its tagged fields, of which there are none
        count, at = read_unsigned(frame, 6)
        count, size = count - 1, 7
    entries = [frame[at + i * size : at + (i + 1) * size] for i in range(count)]
    left = [one for one in entries if int.from_bytes(one[:2]) not in keys]
    head = len(left).to_bytes(4) if version < 3 else unsigned(len(left) + 1)
    return frame[:6] + head + b"".join(left) + frame[at + count * size :]
