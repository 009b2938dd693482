"""Client settings, read from files that somebody may just be writing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_mirror.common.addresses import parse_bootstrap
from airflow_mirror.compat import known_settings
from airflow_mirror.compat.client_keys import is_secret
from airflow_mirror.compat.rows import Range
from airflow_mirror.config import ClientConfig, Handover, is_read_again, load
from airflow_mirror.errors import InputError, InvalidSetting, MissingSetting
from airflow_mirror.wire.settings import WireSettings

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


def named_as_secrets() -> list[str]:
    ours = {
        "basic.auth.user.info", "bearer.auth.token", "schema.registry.basic.auth.user.info",
        "sasl.oauthbearer.assertion.private.key.pem", "ssl.key.pem", "sasl.gcp.key.base64",
        "schema.registry.ssl.keystore.password",
    }  # fmt: skip
    return sorted(ours.union(filter(is_secret, known_settings._KNOWN)) - {"sasl.jaas.config"})  # its parts have own names


@pytest.mark.parametrize("key", named_as_secrets())
def test_every_setting_that_is_named_as_a_secret_is_masked(key: str) -> None:
    """In the logs of Airflow and of a job, also one that only newer clients have."""
    config = ClientConfig({"bootstrap.servers": "a:1", key: "hush"})
    assert config.secrets() == ["hush"] and "hush" not in repr(config)
    assert Handover({"env:A": config.properties}).secrets() == ["hush"]


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
        ("bootstrap.servers", InputError, "line 1: it is no 'key=value'"),
        ("bootstrap.servers= , ", MissingSetting, "'bootstrap.servers' is not set"),
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
        ("s3cr3t" * 9 + "==", "line 2: what stands there is no setting of a Kafka client. Correct"),
    ],
)  # fmt: skip
def test_a_key_that_no_client_has_is_refused_with_its_line_and_never_shows_a_value(
    tmp_path: Path, meanwhile: Callable[..., list[float]], line: str, says: str
) -> None:
    meanwhile(lambda: None)
    file = tmp_path / "src.properties"
    file.write_text(f"bootstrap.servers=a:1\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load(str(file), "source")
    assert says in str(caught.value) and f"{str(file)!r} line 2" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


JAVA = "This is librdkafka's format, not Java's: write "


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("security.protocol: SSL", f"line 2: security.protocol is not followed by '='. {JAVA}security.protocol=VALUE."),
        ("sasl.password: s3cr3t=abc", f"line 2: sasl.password is not followed by '='. {JAVA}sasl.password=VALUE."),
        ("sasl.password s3cr3t", f"{JAVA}sasl.password=VALUE."),
        ("ssl.cipher.suites=A,\\\n  s3cr3t", f"line 3: it goes on a line that ends in a backslash. {JAVA}all of a value"),
        ('sasl.jaas.config=X required \\\n username="s3cr3t" \\\n password="s3cr3t";', "line 3: it goes on a line"),
        ("bootstrap.servers=s3cr3t\\:9092", "line 2: bootstrap.servers has a backslash as Java writes one."),
        ("bootstrap.servers=a:1,\\", "line 2: bootstrap.servers address 2 has a backslash. This is librdkafka's"),
        ("ssl.ca.location=C\\:\\\\s3cr3t", f"has a backslash as Java writes one. {JAVA}the value as it is; if"),
        ("client.id=\\u0041", "line 2: client.id has a backslash as Java writes one"),
        ("sasl.password=s3cr3t ", "line 2: sasl.password ends in a blank, which librdkafka keeps and Java's"),
        ("sasl.username=s3cr3t\t", "line 2: sasl.username ends in a blank"),
        ("sasl.oauthbearer.client.id=s3cr3t ", "line 2: sasl.oauthbearer.client.id ends in a blank"),
        ("ssl.key.password=s3cr3t\u00a0", "line 2: ssl.key.password ends in a blank"),
        ("security.protocol=s3cr3t", "line 2: security.protocol is none of those that a mirror can use. Give one of"),
        ("socket.timeout.ms=s3cr3t", "line 2: socket.timeout.ms is no whole number"),
        ("socket.timeout.ms=\u00b2", "line 2: socket.timeout.ms is no whole number"),
        ("socket.timeout.ms=0", "line 2: socket.timeout.ms is no whole number from 1 to 2147483647. Correct it."),
        ("socket.send.buffer.bytes=1000000000000", "is no whole number from 0 to 2147483647"),
        ("session.timeout.ms=-5", "line 2: session.timeout.ms is no whole number from 1 to 2147483647"),
        ("queued.min.messages=0", "line 2: queued.min.messages is no whole number from 1 to 10000000"),
        ("socket.keepalive.enable=s3cr3t", "Give one of true, false"),
        ("bootstrap.servers=s3cr3t;b", "Separate addresses by commas: broker1:9092,broker2:9092."),
        ("bootstrap.servers=s3cr3t:1 b:1", "Separate addresses by commas"),
        ("bootstrap.servers=::1:9092", "An IPv6 address stands in brackets: write [::1]:9092."),
        ("admin.bootstrap.servers=s3cr3t@b:1", "line 2: admin.bootstrap.servers address 1 has a user before it"),
        ("sasl.password=s3cr3t\0", "line 2: sasl.password holds a character that stands for none"),
    ],
)  # fmt: skip
def test_what_java_would_read_otherwise_and_what_is_of_no_type_is_named_by_line_and_key_alone(
    tmp_path: Path, meanwhile: Callable[..., list[float]], lines: str, says: str
) -> None:
    meanwhile(lambda: None)
    file = tmp_path / "src.properties"
    file.write_text(f"bootstrap.servers=a:1\n{lines}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load(str(file), "source")
    assert says in str(caught.value) and str(file) in str(caught.value) and "s3cr3t" not in str(caught.value)


def test_an_address_that_asks_for_another_protocol_than_the_settings_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="security.protocol is not what stands before an address"):
        ClientConfig({"bootstrap.servers": "SSL://a:1", "security.protocol": "PLAINTEXT"})
    with pytest.raises(InvalidSetting, match="security.protocol is not what stands before an address"):
        ClientConfig({"bootstrap.servers": "SSL://a:1"})
    assert ClientConfig({"bootstrap.servers": "ssl://a:1", "security.protocol": "SSL"}).bootstrap == "ssl://a:1"


@pytest.mark.parametrize("password", ["a\\", "a\\:b", "\\u0041", "#", "a=b", "a b", '"a"', "\\n", "a\\\\"], ids=repr)
def test_a_backslash_of_a_secret_is_a_backslash(tmp_path: Path, password: str) -> None:
    file = tmp_path / "src.properties"
    file.write_text(f"sasl.password = {password}\nbootstrap.servers=a:1\n")
    assert load(str(file)).properties["sasl.password"] == password


def test_a_file_with_a_brace_is_json_whatever_its_name_and_a_pem_text_of_one_line_is_one_of_many(tmp_path: Path) -> None:
    file = tmp_path / "src.properties"
    file.write_text('\n {"bootstrap.servers": "a:1", "socket.keepalive.enable": true, "socket.timeout.ms": 9}')
    assert load(str(file)).properties == {
        "bootstrap.servers": "a:1", "socket.keepalive.enable": "true", "socket.timeout.ms": "9",
    }  # fmt: skip
    file.write_text("bootstrap.servers=a:1\nssl.ca.pem=-----BEGIN\\nabc\\n")
    assert load(str(file)).properties["ssl.ca.pem"] == "-----BEGIN\nabc\n"


_KEYS = st.sampled_from([*sorted(known_settings.EVERY_CLIENT), "linger.ms", "no.such", "sasl.jaas.config", "", "a b"])
_SECRET = "Zq9xZq9xZq9x"
_VALUES = st.sampled_from(
    ["", "SSL", "a:1", "9", "true", _SECRET, f"{_SECRET}:1", f"[{_SECRET}]", "::1:9", "\\", " "]
) | st.text(st.characters(codec="utf-8"), max_size=9)
_LINES = st.tuples(
    st.sampled_from(["", " ", "#", "\ufeff"]), _KEYS, st.sampled_from(["=", " = ", ":", " ", "", "\\="]),
    st.lists(_VALUES, max_size=3).map("".join), st.sampled_from(["\n", "\\\n", "\r\n", " \n", "\r"]),
).map("".join)  # fmt: skip


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_LINES).map("".join).map(str.encode) | st.binary(), st.booleans())
@example(f"security.protocol={_SECRET}".encode(), True)
@example(f"bootstrap.servers=a,{_SECRET}:x".encode(), False)
def test_any_file_is_settings_or_an_error_in_a_sentence_that_quotes_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, has_addresses: bool
) -> None:
    monkeypatch.setattr("airflow_mirror.config.time.sleep", lambda _: None)
    file = tmp_path / "src.properties"
    file.write_bytes(b"bootstrap.servers=a:1\n" * has_addresses + content)
    _settings_or_a_sentence(str(file))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | _VALUES,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(_KEYS, some, max_size=4),
)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_JSON | st.dictionaries(_KEYS, _JSON).map(lambda one: {"bootstrap.servers": "a:1"} | one))
@example([[]] * 9)
@example({"bootstrap.servers": "a:1", "sasl.password": None})
def test_any_json_of_a_variable_is_settings_or_an_error_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    monkeypatch.setenv("SRC", json.dumps(given))
    _settings_or_a_sentence("env:SRC")


def _settings_or_a_sentence(reference: str) -> None:
    """Fail if it is neither; what is taken can be used as far as that can be told without a cluster."""
    try:
        config = load(reference, "source")
        WireSettings.from_config(config)
        parse_bootstrap(config.bootstrap)
    except InputError as e:
        assert _SECRET not in str(e) and str(e).endswith(".")


def test_json_that_is_nested_without_end_is_no_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRC", "[" * 100_000)
    with pytest.raises(InputError, match="holds no JSON object"):
        load("env:SRC")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"bootstrap.servers": "a:1", "sasl.password": null}', "sasl.password has no text as its value. Give"),
        ('{"bootstrap.servers": ["s3cr3t:1"]}', "bootstrap.servers has no text as its value"),
        ('{"bootstrap.servers": "a:1", "sasl.password": "s3cr3t\\ud800"}', "sasl.password holds a character"),
        ('{"bootstrap.servers": "a:1", "socket.timeout.ms": 1.5}', "socket.timeout.ms is no whole number"),
    ],
)  # fmt: skip
def test_a_value_of_json_that_is_no_text_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.setenv("SRC", text)
    with pytest.raises(InvalidSetting) as caught:
        load("env:SRC", "source")
    assert str(caught.value).startswith(f"source settings: environment variable SRC: {says}")
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("number", ["1.10", "1e400", "-0", "9" * 5000])
def test_a_number_of_json_is_what_is_written(number: str) -> None:
    assert known_settings.of_json(f'{{"sasl.password": {number}}}', "source") == {"sasl.password": number}


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
    with pytest.raises(InputError, match="source settings: environment variable SRC: 'security.protocoll' is"):
        load("env:SRC", "source")
    with pytest.raises(InputError, match="source settings: 'security.protocoll' is .*'security.protocol'"):
        ClientConfig(wrong, "source")


def test_keys_of_a_java_client_and_of_a_schema_registry_pass_and_no_client_of_librdkafka_gets_them() -> None:
    """Confluent Cloud offers such files for download; the clients of the drill and of the spot check read them, too."""
    both = {"bootstrap.servers": "a:1", "client.id": "mirror", "ssl.ca.location": "/ca.pem"}
    java = {
        "client.dns.lookup": "use_all_dns_ips",
        "socket.timeout.ms": "9",
        "acks": "all",
        "session.timeout.ms": "45000",
        "max.request.size": "1",
        "config.providers.file.class": "x",
    }
    ours = {"schema.registry.url": "https://r", "basic.auth.user.info": "x:y", "admin.bootstrap.servers": "c:1"}
    assert ClientConfig(both | java | ours).common() == both


def test_librdkafka_takes_every_number_and_choice_that_is_taken_for_its_own_and_nothing_else() -> None:
    def takes(name: str, value: str) -> bool:
        with pytest.raises(KafkaException) as caught:
            AdminClient({name: value, "no.such": ""})
        return 'No such configuration property: "no.such"' in str(caught.value)

    typed = known_settings._CHOICES.items() - {("client.dns.lookup", known_settings._CHOICES["client.dns.lookup"])}
    ours = [("sasl.oauthbearer.method", "msk"), ("sasl.oauthbearer.method", "gcp")]
    assert [(name, one) for name, some in typed for one in some if not takes(name, one)] == ours
    spans = [known_settings._OF_EVERY["numbers"], known_settings._FILE["others"]["numbers"]]
    numbers = {name: one for each in spans for name, one in Range.each(each).items()}
    java = {
        "socket.timeout.ms",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
    }  # its range: it may become one
    for name, span in numbers.items():
        inside, outside = [span.least, span.most], [span.least - 1, min(span.most + 1, 2**31 - 1)]
        assert name in java or all(takes(name, str(one)) for one in inside), name
        assert name in java or not any(takes(name, str(one)) for one in outside if one != span.most), name
    decimals = Range.each(known_settings._FILE["others"]["decimals"], decimals=True)
    for name, span in decimals.items():
        most = min(span.most, 900_000)
        assert all(takes(name, one) for one in (f"{span.least}", "0.25", f"{most}"))
        assert not any(takes(name, one) for one in (f"{span.least - 1}", f"{most}.5", "no"))
    typed_names = {*numbers, *known_settings._CHOICES}
    free = {name for name in known_settings.EVERY_CLIENT if takes(name, "?")}
    assert typed_names & free == {"sasl.mechanism", "sasl.mechanisms"}  # the mirror's own client has fewer
    assert known_settings.EVERY_CLIENT - typed_names - free == {
        "builtin.features", "debug", "plugin.library.paths", "ssl.ca.certificate.stores", "topic.blacklist",
    }  # fmt: skip


def test_every_number_that_librdkafka_bounds_is_checked() -> None:
    """It tells the range of a number that is far out of it."""
    bounded = set()
    for name in known_settings._KNOWN - {"oauth_cb"}:
        with pytest.raises(KafkaException) as caught:
            AdminClient({name: "-99999999999", "no.such": ""})
        bounded |= {name} if "outside allowed range" in str(caught.value) else set()
    assert len(bounded) > 60
    assert bounded - known_settings._NUMBERS.keys() == {"acks", "request.required.acks"}, "these may be words, too"


@pytest.mark.parametrize("value", ["-1", "soon", "5 s", "1e3", "0.", ".5", "9223372036854775807.5"])
def test_delay_that_no_client_takes_is_refused_and_half_a_millisecond_is_taken(value: str) -> None:
    with pytest.raises(InvalidSetting, match="linger.ms is no number from 0 to"):
        ClientConfig({"bootstrap.servers": "b:1", "linger.ms": value})
    assert ClientConfig({"bootstrap.servers": "b:1", "linger.ms": "0.5", "queue.buffering.max.ms": "0"})


def test_librdkafka_knows_every_setting_that_is_taken_for_its_own() -> None:
    unknown = []
    for name in [*known_settings.EVERY_CLIENT, *known_settings._FILE["others"]["one"], "no.such"]:
        with pytest.raises(KafkaException) as caught:
            AdminClient({name: "?", "no.such": ""})
        unknown += [name] * (f'No such configuration property: "{name}"' in str(caught.value))
    assert unknown == ["no.such"]


def test_settings_of_a_file_are_read_again_but_for_its_addresses(tmp_path: Path) -> None:
    file = tmp_path / "dst.properties"
    file.write_text("bootstrap.servers=b:1\nadmin.bootstrap.servers=a:1\nsasl.password=old\nsasl.mechanism=PLAIN\n")
    before = load(str(file), "target")
    file.write_text("bootstrap.servers=c:1\nsasl.password=new\nsasl.mechanism=PLAIN\n")
    for config in (before, before.for_admin()):
        now = config.as_now()
        assert (now.properties["sasl.password"], now.bootstrap, now.role) == ("new", config.bootstrap, "target")
    made = ClientConfig({"bootstrap.servers": "b:1"})
    assert made.as_now() is made
    file.unlink()
    with pytest.raises(InputError):
        before.as_now()


@pytest.mark.parametrize(
    "key", ["ssl.certificate.location", "ssl.key.location", "ssl.ca.location", "ssl.keystore.location"]
)
def test_stamp_is_another_one_once_a_file_was_renewed_in_place(key: str, tmp_path: Path) -> None:
    """Tasks went on with a certificate that was over: its path stays the same."""
    named = tmp_path / "one.pem"
    config = ClientConfig({"bootstrap.servers": "b:1", key: str(named)})
    absent = config.stamp()
    named.write_text("a")
    first = config.stamp()
    assert config.stamp() == first != absent and str(named) not in first
    named.write_text("b")
    assert config.stamp() != first
    assert ClientConfig({"bootstrap.servers": "b:1", "ssl.ca.location": str(tmp_path)}).stamp(), "a directory"


def test_references_that_lead_to_files_are_told_apart() -> None:
    assert is_read_again("dst.properties") and is_read_again("/etc/x.json")
    assert not is_read_again("env:X") and not is_read_again("hadoop:X")
