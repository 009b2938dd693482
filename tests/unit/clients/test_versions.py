"""What a broker's request log and its metrics say of clients that Kafka 4 refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.errors import InputError
from airflow_mirror.extras.clients.versions import told

METRICS = """\
# TYPE kafka_network_requestmetrics_deprecatedrequestspersec_total counter
kafka_network_requestmetrics_deprecatedrequestspersec_total{request="Produce",version="2",clientSoftwareName="unknown",clientSoftwareVersion="unknown"} 12
kafka_network_requestmetrics_deprecatedrequestspersec_total{request="Fetch",version="3",clientSoftwareName="librdkafka",clientSoftwareVersion="1.0.0"} 4
kafka_network_requestmetrics_deprecatedrequestspersec_total{request="Fetch",version="4",clientSoftwareName="x",clientSoftwareVersion="1"} 0
# TYPE kafka_server_socket_server_metrics_failed_authentication_total gauge
kafka_server_socket_server_metrics_failed_authentication_total{listener="SASL_SSL"} 3
up 1
"""  # noqa: E501


def line(deprecated: bool = True, **more: Any) -> str:
    header = {"clientId": "p-1", "requestApiKeyName": "PRODUCE", "requestApiVersion": 2}
    header |= {"requestApiVersionDeprecated": True} if deprecated else {}
    request = {
        "requestHeader": header, "connection": "10.0.0.1:9092-10.0.0.7:51234-3", "principal": "User:shop",
        "clientInformation": {"softwareName": "unknown", "softwareVersion": "unknown"}, **more,
    }  # fmt: skip
    return f"[2026-11-27 20:00:00,123] DEBUG Completed request:{json.dumps(request)} (kafka.request.logger)\n"


def test_metrics_tell_versions_and_failed_logins(tmp_path: Path) -> None:
    (tmp_path / "m").write_text(METRICS)
    assert told(tmp_path / "m") == [
        "3 failed authentication(s) at listener SASL_SSL",
        "a client that does not say what it is: Produce v2",
        "librdkafka 1.0.0: Fetch v3",
    ]


def test_request_log_names_client_address_and_principal_once(tmp_path: Path) -> None:
    (tmp_path / "l").write_text(
        line()
        + line(connection="10.0.0.1:9092-10.0.0.7:51235-9")
        + line(deprecated=False, principal="User:new")
        + line()[:90]
    )
    assert told(tmp_path / "l") == [
        "client 'p-1' at 10.0.0.7, User:shop (a client that does not say what it is): PRODUCE v2"
    ]


@pytest.mark.parametrize(("text", "cause"), [("up 1\n", "neither Deprecated"), ("{nonsense", "neither a request log")])
def test_file_that_tells_nothing_is_no_all_clear(tmp_path: Path, text: str, cause: str) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(InputError, match=cause):
        told(tmp_path / "f")
    with pytest.raises(InputError, match="can't be read"):
        told(tmp_path / "nowhere")
