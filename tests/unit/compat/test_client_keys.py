"""Every key of a Java client has a row. The list is what the clients' own classes of 4.3.1 print."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from airflow_mirror.compat import client_keys
from airflow_mirror.compat.rows import NUMBERS, Fate, Row, Table

GOLDEN = Path(__file__).parents[2] / "golden" / "java_keys.tsv"
TABLES = {"consumer": client_keys.CONSUMER, "producer": client_keys.PRODUCER, "admin": client_keys.ADMIN}
# Of releases before 4.3.1, or of another one of the clients only.
ELSEWHERE = {
    "auto.include.jmx.reporter", "block.on.buffer.full", "bootstrap.controllers", "default.api.timeout.ms",
    "interceptor.classes", "internal.auto.downgrade.txn.commit", "internal.leave.group.on.close",
    "metadata.fetch.timeout.ms", "metadata.max.idle.ms", "metrics.context.*", "metrics.jmx.*", "retries", "timeout.ms",
    "config.providers.*",
}  # fmt: skip


def keys_of_java() -> dict[str, dict[str, str]]:
    """The keys and their defaults, by what they are of."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        of, key, default, *_ = line.split("\t")
        found[of][key] = default
    return found


@pytest.mark.parametrize("client", TABLES)
def test_every_key_of_a_java_client_has_a_row_of_its_own(client: str) -> None:
    wanted = keys_of_java()[client]
    assert len(wanted) > 90
    assert sorted(wanted.keys() - set(TABLES[client].keys)) == []


@pytest.mark.parametrize("client", TABLES)
def test_every_row_is_of_a_key_that_java_has(client: str) -> None:
    known = keys_of_java()[client].keys() | ELSEWHERE
    assert sorted({row.key for row in TABLES[client].rows} - known) == []


# Nothing is sent within no time; of the others the classes have no least.
OUR_OWN = {
    "request.timeout.ms": (1, 2**31 - 1), "delivery.timeout.ms": (1, 2**31 - 1),
    "heartbeat.interval.ms": (1, 2**31 - 1), "session.timeout.ms": (1, 2**31 - 1),
    "transaction.timeout.ms": (1, 2**31 - 1), "connections.max.idle.ms": (-1, 2**63 - 1),
    "socket.connection.setup.timeout.ms": (0, 2**63 - 1),
}  # fmt: skip
NOT_ASKED = {f"sasl.oauthbearer.assertion.claim.{one}.seconds" for one in ("exp", "nbf")}


def test_the_ranges_of_numbers_are_those_of_javas_classes() -> None:
    most, found = {"INT": 2**31 - 1, "LONG": 2**63 - 1}, dict[str, tuple[int, int]]()
    for of, key, _, *limits in (line.split("\t") for line in GOLDEN.read_text(encoding="utf-8").splitlines()):
        if of in TABLES and limits and (span := re.fullmatch(r"\[(-?\d+),\.\.\.,?(\d*)\]", limits[1])):
            found[key] = int(span[1]), int(span[2] or most[limits[0]])
    assert len(found) > 30
    ours = {key: (span.least, span.most) for key, span in NUMBERS.items()}
    assert ours == {key: span for key, span in found.items() if key not in NOT_ASKED} | OUR_OWN


def every_row() -> list[Row]:
    return list({row.key: row for table in TABLES.values() for row in table.rows}.values())


@pytest.mark.parametrize("row", every_row(), ids=lambda row: row.key)
def test_every_row_says_what_becomes_of_its_key(row: Row) -> None:
    assert row.becomes or row.why
    assert not row.why.endswith(".")
    if row.fate is Fate.REFUSED:  # the cause and what to do
        assert len(row.why.split(". ")) > 1, row.why


def test_a_row_of_one_key_wins_over_one_of_many() -> None:
    table = Table(*(Row(key, Fate.WITHOUT_EFFECT, why="open") for key in ("a.*", "a.b.*", "a.b.c", "b")))
    assert [found and found.key for found in map(table.find, ("a.b.c", "a.b.d", "a.d", "b", "b.c"))] == [
        "a.b.c", "a.b.*", "a.*", "b", None,
    ]  # fmt: skip


def test_a_key_has_one_row() -> None:
    with pytest.raises(ValueError, match="two rows"):
        Table(Row("a", Fate.HONOURED), Row("a", Fate.MAPPED))


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("sasl.jaas.config", True), ("ssl.keystore.password", True), ("ssl.keystore.key", True),
        ("sasl.oauthbearer.client.credentials.client.secret", True), ("config.providers.vault.param.token", True),
        ("sasl.oauthbearer.assertion.private.key.passphrase", True), ("basic.auth.user.password", True),
        ("ssl.keystore.location", False), ("sasl.oauthbearer.token.endpoint.url", False), ("key.converter", False),
    ],
)  # fmt: skip
def test_secrets_are_known_by_their_names(key: str, secret: bool) -> None:
    assert client_keys.is_secret(key) is secret
