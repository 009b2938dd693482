"""Which clients are too old for a broker of Kafka 4, as what the old brokers write down tells.

Kafka 4.0 serves no protocol version of clients before 2.1 (KIP-896). Brokers from 3.7 on count requests of those versions
(``DeprecatedRequestsPerSec``), which a JMX exporter shows as text of Prometheus, under names that its rules choose; and
they mark them in the request log (``kafka.request.logger`` at DEBUG), which also tells client id, address and principal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow_mirror.errors import InputError

_COMPLETED = "Completed request:"
_DEPRECATED, _FAILED_LOGINS = "deprecatedrequests", "failedauthentication"


def told(file: Path) -> list[str]:
    """Return what a file of a broker says of clients that a 4.x broker refuses, a line each, sorted.

    :param file: a request log, or metrics as text of Prometheus.
    :raises InputError: it is neither, or holds neither of these metrics.
    """
    what = f"--broker-file {str(file)!r}"
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as e:
        raise InputError(what, f"it can't be read: {e}", "Correct the path.") from None
    return sorted(set(_of_log(text) if _COMPLETED in text else _of_metrics(text, what)))


def _of_log(text: str) -> Iterator[str]:
    for line in text.splitlines():
        _, _, record = line.partition(_COMPLETED)
        try:
            request, _ = json.JSONDecoder().raw_decode(record.lstrip())  # behind it stands the logger's name
        except ValueError:  # another line, or the last one of a log that is written to
            continue
        header = request.get("requestHeader") or {}
        if header.get("requestApiVersionDeprecated"):
            # "broker:9092-client:51234-3": each connection has a port of its own.
            address = str(request.get("connection", "")).rpartition(":")[0].rpartition("-")[2]
            by = _client(request.get("clientInformation") or {}, "softwareName", "softwareVersion")
            who = (
                f"client {header.get('clientId', '')!r} at {address or 'an unknown address'}, {request.get('principal')}"
            )
            yield f"{who} ({by}): {header.get('requestApiKeyName')} v{header.get('requestApiVersion')}"


def _of_metrics(text: str, what: str) -> Iterator[str]:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except ValueError as e:
        cause = f"neither a request log nor text of Prometheus: {e}"
        raise InputError(what, cause, "Save what the broker's JMX exporter answers, or its request log.") from None
    named = [(one.name.lower().replace("_", ""), one.labels, one.value) for one in samples]
    if not any(_DEPRECATED in name or _FAILED_LOGINS in name for name, _, _ in named):
        raise InputError(
            what, "it has neither DeprecatedRequestsPerSec (brokers from 3.7 on) nor a count of failed authentications",
            "Add kafka.network:type=RequestMetrics,name=DeprecatedRequestsPerSec,* to the rules of the JMX exporter.",
        )  # fmt: skip
    for name, labels, value in named:
        by = {key.lower().replace("_", ""): text for key, text in labels.items()}
        if value <= 0 or name.endswith("created"):
            continue
        if _DEPRECATED in name and "request" in by:
            client = _client(by, "clientsoftwarename", "clientsoftwareversion")
            yield f"{client}: {by['request']} v{by.get('version', '?')}"
        elif _FAILED_LOGINS in name and name.endswith("total"):
            listener = f" at listener {by['listener']}" if by.get("listener") else ""
            yield f"{value:,.0f} failed authentication(s){listener}"


def _client(labels: Mapping[str, Any], name: str, version: str) -> str:
    known = [str(labels[key]) for key in (name, version) if labels.get(key) not in (None, "", "unknown")]
    return " ".join(known) or "a client that does not say what it is"
