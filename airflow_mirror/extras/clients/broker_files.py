"""Which clients are too old for a broker of Kafka 4, and which are refused, as what the old brokers write down tells.

Kafka 4.0 serves no protocol version of clients before 2.1 (KIP-896). Brokers from 3.7 on count requests of those versions
(``DeprecatedRequestsPerSec``), which a JMX exporter shows as text of Prometheus, under names that its rules choose. The
request log (``kafka.request.logger`` at DEBUG) has the version of each request, client id, address and principal.
Who may not do what he asks for stands in the same two: in the answers of the log, and as ``ErrorsPerSec`` by error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from airflow_mirror.errors import InputError
from airflow_mirror.wire.error_codes import ErrorCode, error_name

_COMPLETED = "Completed request:"
_DEPRECATED, _FAILED_LOGINS, _DENIED = "deprecatedrequests", "failedauthentication", "authorizationdenied"
_REFUSED = "AUTHORIZATION_FAILED"  # how the names of such errors end
_UNSEEN = "unseen"
_OLDEST = {  # that a broker of Kafka 4.3.1 serves of requests of clients, of which brokers before 3.7 mark nothing
    "PRODUCE": 3, "FETCH": 4, "LIST_OFFSETS": 1, "OFFSET_COMMIT": 2, "OFFSET_FETCH": 1, "CREATE_TOPICS": 2,
    "DELETE_TOPICS": 1, "OFFSET_FOR_LEADER_EPOCH": 2, "DESCRIBE_ACLS": 1, "CREATE_ACLS": 1, "DELETE_ACLS": 1,
    "DESCRIBE_CONFIGS": 1, "ALTER_REPLICA_LOG_DIRS": 1, "DESCRIBE_LOG_DIRS": 1, "CREATE_DELEGATION_TOKEN": 1,
    "RENEW_DELEGATION_TOKEN": 1, "EXPIRE_DELEGATION_TOKEN": 1, "DESCRIBE_DELEGATION_TOKEN": 1,
}  # fmt: skip
_REFUSALS = {code.value for code in ErrorCode if code.name.endswith(_REFUSED)}


class Told(NamedTuple):
    """What brokers have written down, in lines.

    :param too_old: for Kafka 4. :param refused: by rights, or at login. :param unseen: what a file does not tell.
    """

    too_old: set[str]
    refused: set[str]
    unseen: set[str]


def told(files: Iterable[Path]) -> Told:
    """Return what files of brokers say of clients. Errors as :func:`_told`."""
    found = {_DEPRECATED: set[str](), _REFUSED: set[str](), _UNSEEN: set[str]()}
    for file in files:
        for kind, line in _told(file):
            found[kind].add(line)
    return Told(*found.values())


def _told(file: Path) -> Iterator[tuple[str, str]]:
    """Yield what a file of a broker says, each with :data:`_DEPRECATED`, :data:`_REFUSED` or :data:`_UNSEEN`.

    :param file: a request log, which may have gigabytes, or metrics as text of Prometheus.
    :raises InputError: it is neither, or holds none of these metrics, or no request that can be read.
    """
    what = f"--broker-file {str(file)!r}"
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            other = list[str]()
            for line in lines:
                if _COMPLETED in line:
                    yield from _of_log(chain([line], lines), what)
                    return
                other.append(line)
            yield from _of_metrics("".join(other), what)
    except OSError as e:
        raise InputError(what, f"it can't be read: {e}", "Correct the path.") from None


def _of_log(lines: Iterable[str], what: str) -> Iterator[tuple[str, str]]:
    request = None
    for request in _requests(lines):
        header = request.get("requestHeader") or {}
        # "broker:9092-client:51234-3": each connection has a port of its own.
        address = str(request.get("connection", "")).rpartition(":")[0].rpartition("-")[2]
        by = _client(request.get("clientInformation") or {}, "softwareName", "softwareVersion")
        who = f"client {header.get('clientId', '')!r} at {address or 'an unknown address'}, {request.get('principal')}"
        asked = f"{who} ({by}): {header.get('requestApiKeyName')}"
        if header.get("requestApiVersionDeprecated") or _is_too_old(header):
            yield _DEPRECATED, f"{asked} v{header.get('requestApiVersion')}"
        for code, name in _refusals(request.get("response"), ""):
            yield _REFUSED, f"{asked}, {error_name(code)}{f' for {name!r}' if name else ''}"
    if request is None:
        raise InputError(
            what, "none of its requests is JSON, as brokers from 2.7 on log them: it does not tell who is too old",
            "Give the request log of such a broker, or metrics.",
        )  # fmt: skip


def _is_too_old(header: Mapping[str, Any]) -> bool:
    version = header.get("requestApiVersion")
    return isinstance(version, int) and version < _OLDEST.get(header.get("requestApiKeyName", ""), 0)


def _requests(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        _, _, record = line.partition(_COMPLETED)
        try:
            request, _ = json.JSONDecoder().raw_decode(record.lstrip())  # behind it stands the logger's name
        except ValueError:  # another line, or the last one of a log that is written to
            continue
        if isinstance(request, dict):
            yield request


def _refusals(answer: Any, name: str) -> Iterator[tuple[int, str]]:
    """Yield the refusals in an answer, each with the name around it, of a topic or a group; "" where there is none."""
    if isinstance(answer, list):
        for one in answer:
            yield from _refusals(one, name)
    elif isinstance(answer, dict):
        name = str(answer.get("name") or answer.get("groupId") or name)
        if answer.get("errorCode") in _REFUSALS:
            yield answer["errorCode"], name
        for one in answer.values():
            yield from _refusals(one, name)


def _of_metrics(text: str, what: str) -> Iterator[tuple[str, str]]:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except ValueError as e:
        cause = f"neither a request log nor text of Prometheus: {e}"
        raise InputError(what, cause, "Save what the broker's JMX exporter answers, or its request log.") from None
    named = [(one.name.lower().replace("_", ""), one.labels, one.value) for one in samples]
    if not any(one in name for name, _, _ in named for one in (_DEPRECATED, _FAILED_LOGINS, _DENIED)) and not any(
        "error" in labels and "request" in labels for _, labels, _ in named
    ):
        raise InputError(
            what, "it has neither DeprecatedRequestsPerSec (brokers from 3.7 on) nor counts of failed authentications, "
            "errors or denied requests",
            "Add kafka.network:type=RequestMetrics,name=DeprecatedRequestsPerSec,* to the rules of the JMX exporter.",
        )  # fmt: skip
    if not any(_DEPRECATED in name for name, _, _ in named):
        why = "Brokers before 3.7 have none, later ones from the first such request on"
        yield _UNSEEN, f"who is too old for Kafka 4, of {what}: it has no DeprecatedRequestsPerSec. {why}"
    for name, labels, value in named:
        by = {key.lower().replace("_", ""): text for key, text in labels.items()}
        if value <= 0 or name.endswith("created"):
            continue
        if _DEPRECATED in name and "request" in by:
            client = _client(by, "clientsoftwarename", "clientsoftwareversion")
            yield _DEPRECATED, f"{client}: {by['request']} v{by.get('version', '?')}"
        elif _FAILED_LOGINS in name and name.endswith("total"):
            listener = f" at listener {by['listener']}" if by.get("listener") else ""
            yield _REFUSED, f"{value:,.0f} failed authentication(s){listener}"
        elif by.get("error", "").endswith(_REFUSED) and "request" in by:
            yield _REFUSED, f"{by['request']}: {by['error']}"
        elif _DENIED in name:  # brokers with KRaft, with whatever unit the exporter gives it
            yield _REFUSED, f"its authorizer denies requests: {value:,.1f} a minute"


def _client(labels: Mapping[str, Any], name: str, version: str) -> str:
    known = [str(labels[key]) for key in (name, version) if labels.get(key) not in (None, "", "unknown")]
    return " ".join(known) or "a client that does not say what it is"
