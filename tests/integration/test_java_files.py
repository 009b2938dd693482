"""What Kafka's own Java classes say of keys, and of files in Java's syntax; and commands of Java's tools."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from airflow_mirror.compat import stores
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.runner.java import find_java
from sandbox.jars import classpath
from sandbox.versions import TOOLS_VERSION
from tests.unit.compat.test_client_keys import GOLDEN
from tests.unit.compat.test_driver import FLOWS, LEVELS
from tests.unit.compat.test_properties import KEPT, ODD
from tests.unit.jobs.test_monitoring import OLDER

pytestmark = pytest.mark.parity

CONNECT = OLDER["Kafka Connect, under MirrorMaker 2"]
JAVA = Path(__file__).parents[1] / "java"


def run_java(source: str, *arguments: str) -> str:
    """Return what a program of one source file prints, with the classes of the broker and of MirrorMaker 2 at hand."""
    jars = classpath("broker", "tools", version=TOOLS_VERSION)
    command = [str(find_java().executable), "-cp", jars, str(JAVA / source), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def test_the_keys_of_the_clients_and_of_mirrormaker_are_those_of_the_recorded_list() -> None:
    """Re-made by UPDATE_GOLDEN=1. A key that is new there has no row: the unit tests then say so."""
    printed = run_java("KeyLists.java")
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(printed, encoding="utf-8")
    assert printed.splitlines() == GOLDEN.read_text(encoding="utf-8").splitlines()


def test_every_metric_of_connect_is_one_that_the_page_must_have() -> None:
    """But a sink's, of which a mirror has none, and what is no figure: names, classes and versions of something."""
    printed = [line.split("\t") for line in run_java("MetricLists.java").splitlines()]
    no_figure = re.compile(r".*-(class|version|type)|leader-name|connect-protocol")
    figures = {name for group, name in printed if not group.startswith("sink-") and not no_figure.fullmatch(name)}
    assert figures == CONNECT


def test_java_reads_every_form_of_its_syntax_as_we_do(tmp_path: Path) -> None:
    file = tmp_path / "odd.properties"
    file.write_text(ODD, encoding="latin-1")
    printed = run_java("Properties.java", str(file))
    assert dict(line.split("\1") for line in printed.splitlines()) == KEPT


@pytest.mark.parametrize("kind", ["", "-J-Dkeystore.pkcs12.legacy=true", "-storetype JKS"], ids=["17", "8", "jks"])
def test_stores_of_keytool_are_read(kind: str, tmp_path: Path) -> None:
    """As Java writes them now, in the old algorithms of Java 8, and Java's own after the command that we name."""
    java = find_java().executable.resolve().parent

    def run(command: str, typed: str = "") -> None:
        # Without a terminal, as with a pipe, keytool reads what it asks for from standard input.
        done = subprocess.run(
            ["bash", "-c", command], input=typed, cwd=tmp_path, env={"PATH": f"{java}{os.pathsep}{os.environ['PATH']}"},
            start_new_session=True, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout

    files = {"keystore": tmp_path / "my store.jks", "truststore": tmp_path / "trusted.jks"}
    store = f"-keystore 'my store.jks' {kind} -storepass secret1"
    run(f"keytool -genkeypair {store} -alias mirror -keyalg RSA -dname CN=mirror -ext bc:c")
    run(f"keytool -exportcert {store} -alias mirror -rfc -file cert.pem")
    for alias in ("one", "two"):
        trusted = f"-keystore trusted.jks {kind} -storepass secret1 -noprompt"
        run(f"keytool -importcert {trusted} -alias {alias} -file cert.pem")
    if "JKS" in kind:
        for name, path in files.items():
            with pytest.raises(InvalidField, match="only Java reads a JKS store"):
                stores.trusted(str(path), "secret1")
            run(stores.command(name, str(path)), "secret1\n" * 3)  # the new store's password, twice, and the old one's
        files = {name: tmp_path / f"{name}.p12" for name in files}
    password = "secret1"
    key, chain = stores.identity(str(files["keystore"]), password)
    (tmp_path / "client.pem").write_text(key + chain)
    context = ssl.create_default_context(cadata=stores.trusted(str(files["truststore"]), password))
    assert [dict(pair[0] for pair in one["subject"])["commonName"] for one in context.get_ca_certs()] == ["mirror"]
    context.load_cert_chain(tmp_path / "client.pem")
    mine = {f"ssl.{name}.{what}": value for name, path in files.items() for what, value in
            (("location", str(path)), ("password", password))}  # fmt: skip
    config = ClientConfig({"bootstrap.servers": "localhost:1", "security.protocol": "SSL", **mine})
    assert (config.common()["ssl.key.pem"], "ssl.keystore.location" in config.common()) == (key, False)
    AdminClient(config.common())  # raises where librdkafka can't use them


def test_mirrormaker_makes_of_a_file_what_is_recorded() -> None:
    """Re-made by UPDATE_GOLDEN=1; the unit tests hold our reading of the same file against it."""
    printed = run_java("MirrorMakerFile.java", str(LEVELS))
    if os.environ.get("UPDATE_GOLDEN"):
        FLOWS.write_text(printed, encoding="utf-8")
    assert printed.splitlines() == FLOWS.read_text(encoding="utf-8").splitlines()
