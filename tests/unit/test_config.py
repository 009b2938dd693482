"""Client settings, read from files that somebody may just be writing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from airflow_mirror import known_settings
from airflow_mirror.config import ClientConfig, Handover, load
from airflow_mirror.errors import InputError, MissingSetting, UnknownSetting

WRITTEN = {"dst.properties": "bootstrap.servers=a:1\n", "dst.json": '{"bootstrap.servers": "a:1"}'}


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[float]]:
    """Let something happen while a file is waited for; return the seconds of each pause."""

    def set_up(what: Callable[[], object]) -> list[float]:
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            what()

        monkeypatch.setattr("airflow_mirror.config.time.sleep", pause)
        return pauses

    return set_up


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("half", [None, 0, 5], ids=["absent", "empty", "cut"])
def test_a_file_that_is_just_written_counts_when_it_is(
    tmp_path: Path, meanwhile: Callable[..., list[float]], name: str, half: int | None
) -> None:
    """What follows for months reads it at any moment: an editor empties a file before it writes it."""
    file = tmp_path / name
    if half is not None:
        file.write_text(WRITTEN[name][:half])
    pauses = meanwhile(lambda: file.write_text(WRITTEN[name]))
    assert Handover.of(str(file)).settings == {str(file): {"bootstrap.servers": "a:1"}}
    assert len(pauses) == 1


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        (None, InputError, "can't be read: No such file"),
        ("", MissingSetting, "'bootstrap.servers' is not set"),
        ("bootstrap.servers", InputError, "line 1 is no 'key=value'"),
    ],
)
def test_one_that_stays_wrong_is_named_within_a_second(
    tmp_path: Path, meanwhile: Callable[..., list[float]], text: str | None, error: type[InputError], says: str
) -> None:
    file = tmp_path / "dst.properties"
    if text is not None:
        file.write_text(text)
    pauses = meanwhile(lambda: None)
    with pytest.raises(error, match=says) as caught:
        load(str(file), "target")
    assert str(caught.value).startswith("target settings: ") and str(file) in str(caught.value)
    assert 0 < sum(pauses) < 1


SECURE = "bootstrap.servers=a:1\nsecurity.protocol=SSL\n"


@pytest.mark.parametrize("name", ["dst.properties", "dst.json"])
def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    first, _, second = SECURE.partition("\n")
    text = '{"security.protocol": "SSL", "bootstrap.servers": "a:1"}' if name.endswith("json") else second + first
    file.write_text(text, encoding="utf-8-sig")
    assert load(str(file)).properties == {"security.protocol": "SSL", "bootstrap.servers": "a:1"}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=repr)
def test_a_line_ends_as_any_editor_ends_it(tmp_path: Path, end: str) -> None:
    file = tmp_path / "dst.properties"
    file.write_bytes(f"bootstrap.servers=a:1{end}# TLS{end}security.protocol=SSL{end}".encode())
    assert load(str(file)).properties["security.protocol"] == "SSL"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("security.protocoll=s3cr3t", "'security.protocoll' is no setting of a Kafka client. The nearest known is "
         "'security.protocol'"),
        ("Security.Protocol=s3cr3t", "The nearest known is 'security.protocol'"),
        ("security.protocol\u200b=s3cr3t", "line 2: what stands there is no setting"),
        ("\u00a0security.protocol\ufeff=s3cr3t", "The nearest known is 'security.protocol'"),
        ("security protocol=s3cr3t", "The nearest known is 'security.protocol'"),
        ("sasl.password: s3cr3t=abc", "line 2: what stands there is no setting"),
        ("s3cr3t" * 9 + "==", "line 2: what stands there is no setting of a Kafka client. Correct"),
    ],
)  # fmt: skip
def test_a_key_that_no_client_has_is_refused_with_its_line_and_never_shows_a_value(
    tmp_path: Path, meanwhile: Callable[..., list[float]], line: str, says: str
) -> None:
    meanwhile(lambda: None)
    file = tmp_path / "src.properties"
    file.write_text(f"bootstrap.servers=a:1\n{line}\n", encoding="utf-8")
    with pytest.raises(UnknownSetting) as caught:
        load(str(file), "source")
    assert says in str(caught.value) and f"{str(file)!r} line 2" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("text", ["[]", '"a"', "null", "3", "{"])
@pytest.mark.parametrize("where", ["env:SRC", "src.json"])
def test_what_is_no_json_object_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[..., list[float]], where: str, text: str
) -> None:
    meanwhile(lambda: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SRC", text)
    (tmp_path / "src.json").write_text(text)
    with pytest.raises(InputError, match="holds no JSON object"):
        load(where, "source")


def test_a_wrong_key_of_a_variable_or_a_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"bootstrap.servers": "a:1", "security.protocoll": "SSL"}
    monkeypatch.setenv("SRC", json.dumps(wrong))
    with pytest.raises(UnknownSetting, match="source settings: environment variable SRC: 'security.protocoll' is"):
        load("env:SRC", "source")
    with pytest.raises(UnknownSetting, match="source settings: 'security.protocoll' is .*'security.protocol'"):
        ClientConfig(wrong, "source")


def test_keys_of_a_java_client_and_of_a_schema_registry_pass_and_no_client_of_librdkafka_gets_them() -> None:
    """Confluent Cloud offers such files for download; the clients of the drill and of the spot check read them, too."""
    both = {"bootstrap.servers": "a:1", "client.dns.lookup": "use_all_dns_ips", "socket.timeout.ms": "9"}
    java = {"acks": "all", "session.timeout.ms": "45000", "max.request.size": "1", "config.providers.file.class": "x"}
    ours = {"schema.registry.url": "https://r", "basic.auth.user.info": "x:y", "admin.bootstrap.servers": "c:1"}
    assert ClientConfig(both | java | ours).common() == both


def test_librdkafka_knows_every_setting_that_is_taken_for_its_own() -> None:
    unknown = []
    for name in [*known_settings.EVERY_CLIENT, *known_settings._ONE.split(), "no.such"]:
        with pytest.raises(KafkaException) as caught:
            AdminClient({name: "?", "no.such": ""})
        unknown += [name] * (f'No such configuration property: "{name}"' in str(caught.value))
    assert unknown == ["no.such"]
