"""Kerberos of the sandbox, without a KDC: which settings brokers get, where programs come from, how gssapi is built."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from airflow_mirror.errors import InputError
from sandbox import Cluster, gssapi, krb5
from sandbox.errors import KerberosUnavailable
from sandbox.kdc import Realm
from sandbox.krb5 import PROGRAMS, Krb5
from sandbox.settings import BrokerLogin, NodeAddresses, jaas, node_settings
from sandbox.versions import release

LOGIN = BrokerLogin("kafka/127.0.0.1@ONE.TEST", Path("/r/broker.keytab"), Path("/r/krb5.conf"))
ADDRESS = [NodeAddresses("h:1", "h:2", "h:3")]


def test_the_listener_for_users_alone_takes_kerberos() -> None:
    settings = node_settings(1, ADDRESS, Path("/d"), {}, True, kerberos=LOGIN)
    listener = "listener.name.sasl_plaintext"
    assert settings[f"{listener}.sasl.enabled.mechanisms"] == "PLAIN,GSSAPI"
    assert settings["sasl.enabled.mechanisms"] == settings["sasl.mechanism.controller.protocol"] == "PLAIN"
    assert 'keyTab="/r/broker.keytab"' in settings[f"{listener}.gssapi.sasl.jaas.config"]
    assert 'principal="kafka/127.0.0.1@ONE.TEST"' in settings[f"{listener}.gssapi.sasl.jaas.config"]
    assert settings["sasl.kerberos.service.name"] == "kafka"
    assert jaas(release("4.3.1"), LOGIN) is None


def test_old_brokers_have_both_logins_in_a_file() -> None:
    old = release("0.11.0.3")
    settings = node_settings(1, ADDRESS, Path("/d"), {}, True, release=old, zookeeper="h:4", kerberos=LOGIN)
    assert settings["sasl.enabled.mechanisms"] == "PLAIN,GSSAPI"
    assert not [key for key in settings if key.endswith("jaas.config")]
    file = jaas(old, LOGIN) or ""
    assert "PlainLoginModule required" in file and "Krb5LoginModule required" in file


def test_wrong_realms_and_clusters_are_refused() -> None:
    with pytest.raises(InputError, match="realm 'one test'"):
        Realm("one test")
    with pytest.raises(InputError, match="authorizer=True"):
        Cluster("a", kerberos=Realm("ONE.TEST"))
    with pytest.raises(InputError, match="not started"):
        _ = Realm("ONE.TEST").config


def test_installed_programs_come_before_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(krb5, "_INSTALLED", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(krb5, "unpacked", lambda _: Krb5({}, Path("/unpacked")))
    assert krb5.krb5().root == Path("/unpacked")
    for name in PROGRAMS:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    found = krb5.krb5()
    assert found == Krb5({name: tmp_path / name for name in PROGRAMS}) and found.environment == {}


def test_a_machine_without_apt_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(KerberosUnavailable, match=r"no apt-get, apt-cache, dpkg.*krb5-kdc .*libkrb5-dev"):
        krb5.unpacked(sys.stderr)
    assert [path.name for path in (tmp_path / "cache").rglob("*") if not path.name.endswith(".lock")] == [
        "airflow_mirror"
    ]


def test_a_package_that_apt_cant_fetch_is_told_without_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("apt-cache", "dpkg", "apt-get"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'Err:1 http://user:token@mirror/debian' >&2\nexit 100\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(KerberosUnavailable, match="'apt-get' failed with status 100") as caught:
        krb5.unpacked(sys.stderr)
    assert "token" not in str(caught.value) and "Err:1 <address>" in str(caught.value)


def test_gssapi_is_built_against_unpacked_headers_and_finds_its_libraries(tmp_path: Path) -> None:
    (tmp_path / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    found = gssapi.build_environment(Krb5({}, tmp_path))
    assert f"-I{tmp_path}/usr/include" in found["GSSAPI_COMPILER_ARGS"]
    assert f"-Wl,-rpath,{tmp_path}/usr/lib/x86_64-linux-gnu" in found["GSSAPI_LINKER_ARGS"]
    assert gssapi.build_environment(Krb5({})) == {}


def test_a_build_that_fails_or_does_not_work_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gssapi, "unpacked", lambda: Krb5({}))
    assert gssapi.main([sys.executable, "-c", "raise SystemExit(7)"]) == 7
    monkeypatch.setattr(gssapi, "_TRY", "raise SystemExit(3)")
    assert gssapi.main([sys.executable, "-c", ""]) == 3

    def none() -> Krb5:
        raise KerberosUnavailable("there is nothing")

    monkeypatch.setattr(gssapi, "unpacked", none)
    monkeypatch.setenv("PATH", "/nowhere")
    assert gssapi.main([sys.executable, "-c", ""]) == 1
    assert "there is nothing" in capsys.readouterr().err
