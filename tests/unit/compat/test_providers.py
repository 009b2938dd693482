"""References to secrets are resolved as Connect resolves them, by Kafka's own three providers."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mirror.compat.providers import Providers
from airflow_mirror.errors import InputError

PACKAGE = "org.apache.kafka.common.config.provider"
DECLARED = {
    "config.providers": "file, dir,env",
    "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}.DirectoryConfigProvider",
    "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
}


@pytest.fixture
def providers() -> Providers:
    found, problems = Providers.declared(DECLARED)
    assert problems == []
    return found


def test_the_three_providers_fill_in_what_they_hold(
    providers: Providers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secrets.properties").write_text("user = mirror\npassword = p:w\\\\d")
    (tmp_path / "token").write_text("t0k3n")
    monkeypatch.setenv("MIRROR_PASSWORD", "from env")
    file = f"${{file:{tmp_path}/secrets.properties"
    assert providers.resolve("k", f'u="{file}:user}}" p="{file}:password}}"') == 'u="mirror" p="p:w\\d"'
    assert providers.resolve("k", f"${{dir:{tmp_path}:token}}") == "t0k3n"
    assert providers.resolve("k", "${env:MIRROR_PASSWORD}") == "from env"


def test_a_file_of_secrets_is_utf_8_as_kafka_reads_it(providers: Providers, tmp_path: Path) -> None:
    """Java reads other properties files as Latin-1."""
    file = tmp_path / "s"
    file.write_text("password = grün€\\u00e9", encoding="utf-8")
    assert providers.resolve("k", f"${{file:{file}:password}}") == "grün€é"
    file.write_bytes(b"password = gr\xfcn")
    with pytest.raises(InputError, match=r"k=\$\{file:.*is no text in UTF-8\. Save it as UTF-8") as e:
        providers.resolve("k", f"${{file:{file}:password}}")
    assert "gr" not in str(e.value).replace(str(tmp_path), "")


def test_a_reference_to_a_provider_that_nobody_declared_stays(providers: Providers) -> None:
    assert providers.resolve("k", "${vault:a:b} ${x} $1") == "${vault:a:b} ${x} $1"


def test_what_a_reference_names_must_be_there(providers: Providers, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("other = hidden")
    with pytest.raises(InputError, match=r"A\.sasl\.jaas\.config=\$\{file:.*:password\}: 'password' is not there") as e:
        providers.resolve("A.sasl.jaas.config", f"${{file:{tmp_path}/s:password}}")
    assert "hidden" not in str(e.value)
    with pytest.raises(InputError, match="'NOT_SET' is not there"):
        providers.resolve("k", "${env:NOT_SET}")
    with pytest.raises(InputError, match="can't be read"):
        providers.resolve("k", "${file:/no/such/file:x}")
    with pytest.raises(InputError, match="'absent' is not there"):
        providers.resolve("k", f"${{dir:{tmp_path}:absent}}")


def test_a_directory_gives_its_own_files_alone(providers: Providers, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "outside").write_text("hidden")
    with pytest.raises(InputError, match="is no file of"):
        providers.resolve("k", f"${{dir:{tmp_path}/d:../outside}}")


def test_limits_of_a_provider_hold_here_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRROR_PASSWORD", "p")
    monkeypatch.setenv("HOME_OF_MIRROR_PASSWORD", "q")
    (tmp_path / "in").mkdir()
    for place in (tmp_path / "in" / "s", tmp_path / "s"):
        place.write_text("password = p")
    limits = {
        "config.providers.env.param.allowlist.pattern": "MIRROR_.*",
        "config.providers.file.param.allowed.paths": f"/no/such, {tmp_path}/in",
    }
    limited, problems = Providers.declared(DECLARED | limits)
    assert problems == []
    for allowed in ("${env:MIRROR_PASSWORD}", f"${{file:{tmp_path}/in/s:password}}"):
        assert limited.resolve("k", allowed) == "p"
    out = ("${env:HOME_OF_MIRROR_PASSWORD}", f"${{file:{tmp_path}/s:password}}", f"${{file:{tmp_path}/in/../s:password}}")
    for wanted in out:
        with pytest.raises(InputError, match="param keeps it out"):
            limited.resolve("k", wanted)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("env.param.allowed.paths", "/x", "no such parameter"),
        ("file.param.allowlist.pattern", ".*", "no such parameter"),
        ("env.param.allowlist.pattern", "[", "no regular expression"),
    ],
)
def test_a_parameter_that_can_not_be_kept_is_named(key: str, value: str, said: str) -> None:
    _, problems = Providers.declared(DECLARED | {f"config.providers.{key}": value})
    assert len(problems) == 1 and problems[0].startswith(f"config.providers.{key}: ") and said in problems[0]


@pytest.mark.parametrize("more", [{"config.providers.vault.class": "com.example.Vault"}, {}])
def test_another_class_is_named(more: dict[str, str]) -> None:
    _, problems = Providers.declared({"config.providers": "vault"} | more)
    assert len(problems) == 1
    assert problems[0].startswith(
        "config.providers.vault.class is code" if more else "config.providers: one has no class"
    )
