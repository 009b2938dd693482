"""What Kafka's own Java classes say of keys, and of files in Java's syntax; and commands of Java's tools."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
from pathlib import Path

import pytest

from airflow_mirror.compat.stores import commands
from airflow_mirror.jobs.runner.java import find_java
from sandbox.jars import classpath
from tests.unit.compat.test_client_keys import GOLDEN
from tests.unit.compat.test_driver import FLOWS, LEVELS
from tests.unit.compat.test_properties import KEPT, ODD
from tests.unit.jobs.test_monitoring import OLDER

pytestmark = pytest.mark.parity

CONNECT = OLDER["Kafka Connect, under MirrorMaker 2"]
JAVA = Path(__file__).parents[1] / "java"


def run_java(source: str, *arguments: str) -> str:
    """Return what a program of one source file prints, with the classes of the broker and of MirrorMaker 2 at hand."""
    command = [str(find_java().executable), "-cp", classpath("broker", "tools"), str(JAVA / source), *arguments]
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


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_the_commands_that_we_name_make_pem_of_javas_stores(kind: str, tmp_path: Path) -> None:
    """Both stores are made by keytool; then the commands are run as they are shown, with the passwords typed in."""
    java = find_java().executable.resolve().parent
    path = f"{java}{os.pathsep}{os.environ['PATH']}"

    def run(command: str, typed: str = "") -> str:
        # Without a terminal, as with a pipe, both tools read what they ask for from standard input.
        done = subprocess.run(
            ["bash", "-c", command], input=typed, cwd=tmp_path, env={"PATH": path}, start_new_session=True,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    store = f"-keystore 'my store' -storetype {kind} -storepass secret1"
    run(f"keytool -genkeypair {store} -alias mirror -keyalg RSA -dname CN=mirror -ext bc:c")
    run(f"keytool -exportcert {store} -alias mirror -rfc -file cert.pem")
    trusted = f"-keystore trusted -storetype {kind} -storepass secret1 -noprompt"
    run(f"keytool -importcert {trusted} -alias one -file cert.pem")
    first = "secret1\n" * 3 if kind == "JKS" else ""  # the new store's password, twice, and the old one's
    *to_p12, to_pem = commands("keystore", kind, "my store")
    for command in to_p12:
        run(command, first)
    run(to_pem, "secret1\nphrase1\nphrase1\n")
    *to_p12, to_pem = commands("truststore", kind, "trusted")
    for command in to_p12:
        run(command, first)
    run(to_pem, "secret1\n")
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    assert [dict(pair[0] for pair in one["subject"])["commonName"] for one in context.get_ca_certs()] == ["mirror"]
    # One file for ssl.certificate.location and ssl.key.location, with ssl.key.password.
    context.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.pem", "phrase1")


def test_mirrormaker_makes_of_a_file_what_is_recorded() -> None:
    """Re-made by UPDATE_GOLDEN=1; the unit tests hold our reading of the same file against it."""
    printed = run_java("MirrorMakerFile.java", str(LEVELS))
    if os.environ.get("UPDATE_GOLDEN"):
        FLOWS.write_text(printed, encoding="utf-8")
    assert printed.splitlines() == FLOWS.read_text(encoding="utf-8").splitlines()
