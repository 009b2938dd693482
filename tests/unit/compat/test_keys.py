"""Every key of MirrorMaker 2 and of its Connect worker has a row, and an absent one its default: those of 4.3.1."""

from __future__ import annotations

import pytest

from airflow_mirror.compat.client_keys import COMMON, is_basic
from airflow_mirror.compat.keys import DEFAULTS, DRIVER, FLOW, WORKER
from airflow_mirror.compat.rows import Fate, Row
from tests.unit.compat.test_client_keys import keys_of_java

OF_FLOWS = ("source", "checkpoint", "heartbeat", "connector", "topic filter", "group filter", "property filter")


@pytest.mark.parametrize("of", OF_FLOWS)
def test_every_key_of_a_connector_has_a_row(of: str) -> None:
    # Each of Java's classes has the keys of encryption and login, which say nothing about a flow.
    wanted = [key for key in keys_of_java()[of] if not is_basic(key)]
    assert [key for key in wanted if not FLOW.find(key) and not WORKER.find(key) and key != "config.providers"] == []


def test_every_key_of_the_driver_and_of_a_worker_has_a_row() -> None:
    known = (DRIVER, FLOW, WORKER, COMMON)
    wanted = [*keys_of_java()["driver"], *keys_of_java()["worker"]]
    assert [key for key in wanted if not any(table.find(key) for table in known)] == []


def test_what_every_client_needs_is_what_mirrormakers_clients_have_in_common() -> None:
    wanted = {key for key in keys_of_java()["client"] if not key.startswith(("replication.policy", "forwarding"))}
    assert {key for key in COMMON.keys if is_basic(key)} == wanted


@pytest.mark.parametrize("key", DEFAULTS)
def test_an_absent_key_has_mirrormakers_default(key: str) -> None:
    java = keys_of_java()
    if key.startswith("consumer."):
        default = java["consumer"][key.removeprefix("consumer.")]
        # What MirrorMaker sets where nobody does: MirrorConnectorConfig.sourceConsumerConfig.
        assert DEFAULTS[key] == {"consumer.auto.offset.reset": "earliest"}.get(key, default)
    elif key != "enabled":  # true for a connector, false for a flow of the driver: KIP-382
        default = next(java[of][key] for of in OF_FLOWS if key in java[of])
        assert DEFAULTS[key].split(",") == default.strip("[]").split(", ")


@pytest.mark.parametrize("row", [*FLOW.rows, *WORKER.rows, *DRIVER.rows], ids=lambda row: row.key)
def test_every_row_says_what_becomes_of_its_key(row: Row) -> None:
    assert row.becomes or row.why
    if row.fate is Fate.REFUSED:
        assert len(row.why.split(". ")) > 1, row.why
