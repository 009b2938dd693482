"""``airflow-mirror`` on a host of Airflow: connections are found by their ids, also those of the database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nights

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an Airflow with a database, in which a connection is."""
    home = tmp_path_factory.mktemp("airflow")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "_AIRFLOW"))}
    environment = kept | {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    extra = '{"bootstrap.servers": "127.0.0.1:2"}'
    add = ["connections", "add", "kafka_target", "--conn-type", "kafka", "--conn-extra", extra]
    for words in (["db", "migrate"], add):
        done = subprocess.run([BIN / "airflow", *words], env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    return environment


def said(environment: dict[str, str], target: str) -> str:
    done = subprocess.run(
        [BIN / "airflow-mirror", "status", "--target", target], env=environment, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode != 0 and done.stdout == ""
    return done.stderr


def test_a_connection_of_the_database_is_found(airflow: dict[str, str]) -> None:
    """It was said to be neither a file nor a connection: outside of a task the SDK asks no database by itself."""
    assert "no broker at 127.0.0.1:2" in said(airflow, "kafka_target")


def test_one_of_the_environment_is_found_and_what_is_nowhere_says_where_was_looked(airflow: dict[str, str]) -> None:
    told = {**airflow, "AIRFLOW_CONN_OTHER": '{"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:3"}}'}
    assert "no broker at 127.0.0.1:3" in said(told, "other")
    error = said(airflow, "kafka_targte")
    assert "'kafka_targte' is neither a file here nor the id of an Airflow connection" in error
    assert "set AIRFLOW_CONN_KAFKA_TARGTE" in error


def test_in_a_task_connections_of_the_environment_are_found_and_others_say_that_there_is_no_database(
    airflow: dict[str, str],
) -> None:
    """A worker gives its tasks the address of a database that can't be parsed: a traceback of fifty lines."""
    told = {**airflow, "AIRFLOW_CONN_OTHER": '{"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:3"}}'}
    told["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = "airflow-db-not-allowed:///"
    assert "no broker at 127.0.0.1:3" in said(told, "other")
    assert "Hosts of workers have no database" in said(told, "kafka_target")


def test_an_airflow_that_can_not_be_loaded_is_told_from_none(airflow: dict[str, str]) -> None:
    """It was said not to be installed: the driver of its database was missing."""
    error = said({**airflow, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "nothing://a/b"}, "kafka_target")
    assert error.startswith("error: Airflow can't be loaded on this host\n  why: NoSuchModuleError: "), error
    assert "not installed" not in error
