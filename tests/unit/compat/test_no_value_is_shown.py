"""Whatever is wrong with a file of MirrorMaker 2: what is said of it quotes no value, as that may be a secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_mirror.compat import files
from airflow_mirror.compat.client_keys import CONSUMER
from airflow_mirror.compat.keys import DRIVER, FLOW, WORKER
from airflow_mirror.errors import InputError

SECRET = "Zq9xZq9xZq9x"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
CLUSTERS = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
CONNECTOR = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector", "source.cluster.alias": "A",
    "target.cluster.alias": "B", "source.cluster.bootstrap.servers": "a:1", "target.cluster.bootstrap.servers": "b:1",
}  # fmt: skip
FROM_VARIABLES = {
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}
_ALIASES = ("clusters", "source.cluster.alias", "target.cluster.alias")  # names, which are said everywhere
_KNOWN = [key for table in (FLOW, WORKER, DRIVER, CONSUMER) for key in table.keys if key not in _ALIASES]
_KEYS = st.builds(
    "{}{}".format,
    st.sampled_from(["", "A.", "A->B.", "A->X.", "A.consumer.", "source.cluster.", "target.producer.", "X."]),
    st.sampled_from([*_KNOWN, "sasl.pasword", "ssl.keystore.pwd", "sasl.jass.config", "no.such"]),
)
_VALUES = st.lists(
    st.sampled_from([SECRET, " # x", f"{PLAIN} ", f"password=\"{SECRET}\"", ";", "\n", "\\", "\"", "${env:V}", "(?P<"])
    | st.characters(codec="latin-1"),
    max_size=4,
).map("".join)  # fmt: skip


def said(path: Path) -> str:
    """What is said of a file: what is refused, or what becomes of each key."""
    try:
        return repr(files.read([path]).noticed)
    except InputError as e:
        return str(e)


def of_driver(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mm2.properties"
    path.write_bytes((CLUSTERS + text).encode("latin-1"))
    return said(path)


def of_connector(tmp_path: Path, keys: Mapping[str, str]) -> str:
    (tmp_path / "c.json").write_text(json.dumps([{**CONNECTOR, **keys}]), encoding="utf-8")
    text = "".join(f"{key}={value}\n" for key, value in {**CONNECTOR, **keys}.items())
    (tmp_path / "c.properties").write_bytes(text.encode("latin-1", "ignore"))
    return said(tmp_path / "c.json") + said(tmp_path / "c.properties")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (f"A.sasl.pasword = {SECRET} # prod", "line 5"),
        (f"A.ssl.keystore.pwd = {SECRET} # prod", "A.ssl.keystore.pwd"),
        (f"A.ssl.key.pass = {SECRET} # prod", "A.ssl.key.pass"),
        (f"A.sasl.jass.config = {SECRET} # prod", "A.sasl.jass.config"),
        (f'A.sasl.jaas.config = {PLAIN}\n   username="u" password="{SECRET}"; # x', "line 6: "),
        (f"A.sasl.jaas.config = {PLAIN}\n   {SECRET}", "line 6: what stands there"),
        (f"A.sasl.jaas.config = {SECRET} required;", "A.sasl.jaas.config: its module is code of Java"),
        (f"A.sasl.jaas.config = {PLAIN} username=u password=a {SECRET}=b;", "an option of PlainLoginModule"),
        (f"A->B.enabled = {SECRET}", "A->B.enabled: neither true nor false"),
        (f"key.converter = {SECRET}", "key.converter: records pass as bytes"),
        (f"topics = {SECRET} # all", "line 5: topics: Java knows no comment"),
        (f"A->B.topics = (?P<{SECRET}!>x)", "A->B.topics: not a valid regular expression"),
        (f"A->B.replication.factor = {SECRET}", "A->B.replication.factor: no number of replicas"),
        (f"A.security.protocol = SASL_{SECRET}", "security.protocol: unknown"),
        (f"{SECRET}->{SECRET}", "line 5: what stands there"),
    ],
)  # fmt: skip
def test_a_file_of_the_driver_is_refused_by_line_and_key_alone(tmp_path: Path, text: str, where: str) -> None:
    shown = of_driver(tmp_path, text)
    assert where in shown and SECRET not in shown and SECRET.upper() not in shown


@pytest.mark.parametrize(
    "key", ["topics", "enabled", "replication.factor", "transforms", "refresh.topics.interval.seconds"]
)
def test_what_a_reference_stands_for_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("V", f"[a-z&&[^{SECRET}]]")
    keys = {**FROM_VARIABLES, f"A->B.{key}": "${env:V}"}
    shown = of_driver(tmp_path, "".join(f"{one}={value}\n" for one, value in keys.items()))
    assert f"A->B.{key}: " in shown and SECRET not in shown


@pytest.mark.parametrize(
    ("key", "value", "where"),
    [
        ("connector.class", SECRET, "connector 1: connector.class: no connector of MirrorMaker 2"),
        ("key.converter", SECRET, "MirrorSourceConnector: key.converter: records pass as bytes"),
        ("topics", f"[a&&{SECRET}", "the intersection of classes"),
        (SECRET, "", "what stands there: nobody knows it"),
    ],
)
def test_a_connector_is_refused_by_its_key_alone(tmp_path: Path, key: str, value: str, where: str) -> None:
    shown = of_connector(tmp_path, {key: value})
    assert where in shown and SECRET not in shown


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(_KEYS, st.sampled_from("=: "), _VALUES), max_size=5))
@example([("A.sasl.kerberos.service.name", "=", SECRET), ("A.consumer.sasl.kerberos.service.name", "=", "b")])
@example([("topics.exclude", "=", "\\")])
@example([("topics", "=", f"\n{SECRET}\\"), ("refresh.groups.interval.seconds", "=", "")])
@example([("topics", "=", f"\n{SECRET}\\"), ("B.bootstrap.servers", "=", "b:1")])
@example([("topics", "=", f"\n{SECRET}\\"), ("A.security.protocol", "=", "SSL")])
@example([("topics", "=", f"\n{SECRET}\\"), ("A->B.topics", "=", "x")])
def test_no_error_of_any_file_quotes_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[tuple[str, str, str]]
) -> None:
    monkeypatch.setenv("V", SECRET)
    text = "".join(f"{''.join(line)}\n" for line in lines)
    declares = "".join(f"{key}={value}\n" for key, value in FROM_VARIABLES.items())
    shown = of_driver(tmp_path, declares + text)
    with suppress(ValueError):  # a lone surrogate
        shown += of_connector(tmp_path, FROM_VARIABLES | {key: value for key, _, value in lines})
    assert SECRET not in shown and SECRET.lower() not in shown.lower()
