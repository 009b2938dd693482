"""A gate hides requests, and lets none of them through."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from kafka.protocol.metadata import ApiVersionsResponse

from airflow_mirror.wire.connection import Connection
from sandbox.gate import Gate, without
from tests.unit.kafka.world import DESCRIBE_ACLS, METADATA, World, world
from tests.unit.peer import settings

_ID = b"\0\0\0\7"


@pytest.mark.parametrize("version", range(5))
def test_answer_without_some_requests_is_whole(version: int) -> None:
    entry = ApiVersionsResponse.ApiVersion
    keys = [entry(api_key=key, min_version=0, max_version=key % 5) for key in range(80)]
    answer = ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=3, version=version)
    frame = without(_ID + answer.encode(version=version), version, {1, 27, 79, 99})
    found = ApiVersionsResponse.decode(frame[4:], version=version)
    assert frame[:4] == _ID and [k.api_key for k in found.api_keys] == sorted({*range(80)} - {1, 27, 79})
    assert [k.max_version for k in found.api_keys] == [k.api_key % 5 for k in found.api_keys]
    assert found.throttle_time_ms == (3 if version else 0)


def test_answer_that_is_an_error_stays_as_it_is() -> None:
    frame = _ID + b"\0\x23" + bytes(10)
    assert without(frame, 3, {1}) == frame


@pytest.fixture
def gated() -> Iterator[tuple[World, Gate]]:
    with world() as w:
        gate = Gate()
        gate.upstream, gate.closed = ("127.0.0.1", w.broker.port), {DESCRIBE_ACLS}
        yield w, gate.start()
        gate.close()


def test_client_hears_of_no_request_that_is_closed_and_is_cut_off_if_it_asks(gated: tuple[World, Gate]) -> None:
    w, gate = gated
    with Connection.open("127.0.0.1", gate.port, settings(), 60.0) as connection:
        assert connection.api_versions == {k: v for k, v in w.broker.served.items() if k != DESCRIBE_ACLS}
        assert len(connection.roundtrip(METADATA, 0, bytes(4))) > 4
    with socket.create_connection(("127.0.0.1", gate.port)) as raw:
        raw.sendall(b"\0\0\0\x0a" + DESCRIBE_ACLS.to_bytes(2) + bytes(8))
        with pytest.raises(ConnectionResetError):
            raw.recv(1)
