"""Requests and answers as kafka-python's schema classes, found by their number."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, NamedTuple

from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.consumer import group

_HEADER = struct.Struct(">hhih")
API_VERSIONS = 18


class Frame(NamedTuple):
    """A request's header and its body, undecoded. ``too_new``: to be answered in version 0, with that error."""

    key: int
    version: int
    correlation_id: int
    client_id: str
    body: memoryview
    too_new: bool = False


def parse(frame: bytes) -> Frame:
    """Split a request. The header of flexible versions has tagged fields, of which there never are any."""
    key, version, correlation_id, length = _HEADER.unpack_from(frame)
    at = _HEADER.size + max(length, 0)
    client_id = frame[_HEADER.size : at].decode()
    known = request_class(key)
    flexible = known is not None and known.flexible_version_q(version)
    return Frame(key, version, correlation_id, client_id, memoryview(frame)[at + flexible :])


@cache
def request_class(key: int) -> Any:
    """Return the class of a request, None for a number that no class has."""
    for module in (metadata, consumer, group, producer, admin, sasl):
        for name in module.__all__:
            found = getattr(module, name)
            if name.endswith("Request") and key == found.API_KEY:
                return found
    return None


def api_name(key: int) -> str:
    """Return Kafka's name: ``Produce``."""
    known = request_class(key)
    return f"request {key}" if known is None else str(known.name).removesuffix("Request")


def answer_frame(frame: Frame, response: Any) -> bytes:
    """Encode an answer with its size and header."""
    flexible = type(response).flexible_version_q(frame.version) and frame.key != API_VERSIONS
    body = bytes(response.encode(version=frame.version))
    head = struct.pack(">i", frame.correlation_id) + b"\0" * flexible
    return struct.pack(">i", len(head) + len(body)) + head + body
