"""What a broker's request log and its metrics say of clients that Kafka 4 refuses, and that it refuses itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.errors import InputError
from airflow_mirror.extras.clients.broker_files import told

METRICS = """\
# TYPE kafka_network_requestmetrics_deprecatedrequestspersec_total counter
kafka_network_requestmetrics_deprecatedrequestspersec_total{request="Produce",version="2",clientSoftwareName="unknown",clientSoftwareVersion="unknown"} 12
kafka_network_requestmetrics_deprecatedrequestspersec_total{request="Fetch",version="3",clientSoftwareName="librdkafka",clientSoftwareVersion="1.0.0"} 4
kafka_network_requestmetrics_deprecatedrequestspersec_total{request="Fetch",version="4",clientSoftwareName="x",clientSoftwareVersion="1"} 0
# TYPE kafka_server_socket_server_metrics_failed_authentication_total gauge
kafka_server_socket_server_metrics_failed_authentication_total{listener="SASL_SSL"} 3
# TYPE kafka_network_requestmetrics_errorspersec_total counter
kafka_network_requestmetrics_errorspersec_total{request="Produce",error="TOPIC_AUTHORIZATION_FAILED"} 4
kafka_network_requestmetrics_errorspersec_total{request="Fetch",error="TOPIC_AUTHORIZATION_FAILED"} 0
kafka_network_requestmetrics_errorspersec_total{request="Fetch",error="NONE"} 9000
# TYPE kafka_server_authorizer_metrics_authorization_denied_rate_per_minute gauge
kafka_server_authorizer_metrics_authorization_denied_rate_per_minute 2.25
up 1
"""  # noqa: E501


def line(deprecated: bool = True, marked: bool = True, **more: Any) -> str:
    header = {"clientId": "p-1", "requestApiKeyName": "PRODUCE", "requestApiVersion": 2 if deprecated else 3}
    header |= {"requestApiVersionDeprecated": True} if deprecated and marked else {}
    request = {
        "requestHeader": header, "connection": "10.0.0.1:9092-10.0.0.7:51234-3", "principal": "User:shop",
        "clientInformation": {"softwareName": "unknown", "softwareVersion": "unknown"}, **more,
    }  # fmt: skip
    return f"[2026-11-27 20:00:00,123] DEBUG Completed request:{json.dumps(request)} (kafka.request.logger)\n"


def test_metrics_tell_versions_failed_logins_and_refusals(tmp_path: Path) -> None:
    (tmp_path / "m").write_text(METRICS)
    found = told([tmp_path / "m"])
    assert found.too_old == {"a client that does not say what it is: Produce v2", "librdkafka 1.0.0: Fetch v3"}
    assert found.refused == {
        "3 failed authentication(s) at listener SASL_SSL", "Produce: TOPIC_AUTHORIZATION_FAILED",
        "its authorizer denies requests: 2.2 a minute",
    }  # fmt: skip


def test_request_log_names_who_may_not_and_what(tmp_path: Path) -> None:
    """The answers are those of a broker of 4.3.1."""
    metadata = {"topics": [{"errorCode": 29, "name": "orders", "partitions": []}, {"errorCode": 0, "name": "users"}]}
    coordinator = {"throttleTimeMs": 0, "errorCode": 30, "errorMessage": "Group authorization failed."}
    (tmp_path / "l").write_text(
        line(False, response=metadata)
        + line(False, response=metadata)
        + line(False, response=coordinator, principal="User:other")
    )
    (tmp_path / "m").write_text(METRICS)
    who = "(a client that does not say what it is): PRODUCE"
    found = told([tmp_path / "l"])
    assert found.too_old == set() and found.refused == {
        f"client 'p-1' at 10.0.0.7, User:shop {who}, TOPIC_AUTHORIZATION_FAILED for 'orders'",
        f"client 'p-1' at 10.0.0.7, User:other {who}, GROUP_AUTHORIZATION_FAILED",
    }
    both = told([tmp_path / "l", tmp_path / "m"])
    assert found.refused < both.refused and len(both.too_old) == 2


def test_request_log_names_client_address_and_principal_once(tmp_path: Path) -> None:
    (tmp_path / "l").write_text(
        line()
        + line(connection="10.0.0.1:9092-10.0.0.7:51235-9")
        + line(deprecated=False, principal="User:new")
        + line()[:90]
    )
    assert told([tmp_path / "l"]).too_old == {
        "client 'p-1' at 10.0.0.7, User:shop (a client that does not say what it is): PRODUCE v2"
    }


def test_request_log_of_brokers_that_mark_nothing_tells_by_the_version(tmp_path: Path) -> None:
    """Brokers from 2.7 to 3.6 log JSON, and no request as deprecated."""
    (tmp_path / "l").write_text("[2026-11-27 20:00:00,100] INFO started\n" + line(marked=False) + line(False))
    found = told([tmp_path / "l"])
    assert found.too_old == {
        "client 'p-1' at 10.0.0.7, User:shop (a client that does not say what it is): PRODUCE v2"
    } and not found.unseen  # fmt: skip


def test_metrics_without_deprecated_requests_do_not_say_that_nobody_is_too_old(tmp_path: Path) -> None:
    (tmp_path / "m").write_text('a_failed_authentication_total{listener="SASL_SSL"} 3\n')
    found = told([tmp_path / "m"])
    assert found.too_old == set() and found.refused == {"3 failed authentication(s) at listener SASL_SSL"}
    (unseen,) = found.unseen
    assert unseen.startswith("who is too old for Kafka 4, of --broker-file ") and "no DeprecatedRequestsPerSec" in unseen
    (tmp_path / "m").write_text(METRICS)
    assert told([tmp_path / "m"]).unseen == set()


def test_log_is_read_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At DEBUG it has gigabytes."""
    (tmp_path / "l").write_text(line() * 3)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: pytest.fail("it was read whole"))
    assert len(told([tmp_path / "l"]).too_old) == 1


OLD = (
    "[2020-11-27 20:00:00,123] DEBUG Completed request:RequestHeader(apiKey=PRODUCE, apiVersion=2, clientId=p-1, "
    "correlationId=4) -- {acks=1},response:{},from connection 10.0.0.1:9092-10.0.0.7:51234-3 (kafka.request.logger)\n"
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("up 1\n", "neither Deprecated"),
        ("{nonsense", "neither a request log"),
        (OLD * 3, "none of its requests is JSON"),
        (line()[:90], "none of its requests is JSON"),
    ],
)
def test_file_that_tells_nothing_is_no_all_clear(tmp_path: Path, text: str, cause: str) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(InputError, match=cause):
        told([tmp_path / "f"])
    with pytest.raises(InputError, match="can't be read"):
        told([tmp_path / "nowhere"])
