"""Settings of a Java client become those of a connection; what can't be kept is named, and no secret is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from airflow_mirror.compat.client_keys import ADMIN, CONSUMER, PRODUCER
from airflow_mirror.compat.clients import Settings, convert
from airflow_mirror.compat.rows import Fate
from airflow_mirror.config import ClientConfig
from airflow_mirror.wire.settings import WireSettings

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECRET = "s3cr;t\"'x"


def converted(given: Mapping[str, str]) -> Settings:
    return convert({"bootstrap.servers": "b:9092"} | dict(given), CONSUMER)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("security.protocol", "SASL", "unknown. Use one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("sasl.mechanism", "NTLM", "unknown. Use one of PLAIN, SCRAM-SHA-256"),
        ("request.timeout.ms", "abc", "no whole number from 1 to 2147483647. Correct it."),
        ("request.timeout.ms", "-1", "no whole number from 1 to 2147483647"),
        ("send.buffer.bytes", "lots", "no whole number"),
        ("receive.buffer.bytes", "1000000000000", "no whole number from -1 to 2147483647"),
        ("session.timeout.ms", "-5", "no whole number from 1 to 2147483647"),
        ("bootstrap.servers", "b", "an address has no port. Give each its own"),
        ("bootstrap.servers", "b:1;c:1", "address 1 holds several. Separate addresses by commas"),
        (
            "bootstrap.servers",
            "::1:9092",
            "address 1 has several colons. An IPv6 address stands in brackets: write [::1]:",
        ),
    ],
)
def test_a_value_with_which_javas_client_would_not_start_is_named(key: str, value: str, said: str) -> None:
    (problem,) = converted({key: value}).problems
    assert problem.startswith(f"{key}: {said}")


def test_a_consumer_that_logs_in_over_tls_becomes_a_connection_that_the_mirror_reads() -> None:
    found = converted(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{SCRAM} required username="mirror" password="s3cr;t\\"\'x";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/etc/ca.pem",
            "ssl.keystore.type": " pem ",
            "ssl.keystore.location": "/etc/client.pem",
            "ssl.key.password": "k",
            "ssl.endpoint.identification.algorithm": "",
            "request.timeout.ms": "45000 ",
            "receive.buffer.bytes": "-1",
            "send.buffer.bytes": "65536",
            "client.id": "mm",
            "isolation.level": "read_committed",
            "auto.offset.reset": "latest",
            "group.id": "old",
        }
    )
    assert found.problems == []
    assert found.properties == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "mirror",
        "sasl.password": SECRET,
        "ssl.ca.location": "/etc/ca.pem",
        "ssl.certificate.location": "/etc/client.pem",
        "ssl.key.location": "/etc/client.pem",
        "ssl.key.password": "k",
        "ssl.endpoint.identification.algorithm": "none",
        "socket.timeout.ms": "45000",
        "socket.receive.buffer.bytes": "0",
        "socket.send.buffer.bytes": "65536",
        "client.id": "mm",
    }
    assert found.fields == {"isolation": "read_committed", "start": "latest"}
    wire = WireSettings.from_config(ClientConfig(found.properties))
    assert (wire.principal, wire.client_id, wire.socket_timeout_s) == ("User:mirror", "mm", 45.0)
    assert not wire.verify_hostname


def test_blanks_around_a_value_mean_nothing_but_between_quotes() -> None:
    """As Java's own classes read it (ConfigDef and JaasContext, tried on 2.1.1 and 4.3.1): a user may end in a blank."""
    jaas = f'{SCRAM} required username="mirror " password=" p";  '
    found = converted({"ssl.key.password": "k \t", "client.id": "me ", "sasl.jaas.config": jaas})
    assert found.problems == []
    assert (found.properties["sasl.username"], found.properties["sasl.password"]) == ("mirror ", " p")
    assert (found.properties["ssl.key.password"], found.properties["client.id"]) == ("k", "me")


def test_a_token_by_clients_credentials_becomes_oidc() -> None:
    url = "https://login.example/token"
    found = converted(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class":
                "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                                "clientId='me' clientSecret=s3 scope=all;",
        }
    )  # fmt: skip
    assert found.problems == []
    assert found.properties == {
        "bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "s3", "sasl.oauthbearer.scope": "all",
    }  # fmt: skip
    WireSettings.from_config(ClientConfig(found.properties))


def test_login_of_msk_becomes_its_tokens_and_another_one_beside_it_is_a_problem() -> None:
    iam = "software.amazon.msk.auth.iam"
    given = {
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f'{iam}.IAMLoginModule required awsProfileName="night" awsStsRegion="eu-west-1";',
        "sasl.client.callback.handler.class": f"{iam}.IAMClientCallbackHandler",
    }
    found = converted(given)
    assert (found.problems, found.properties) == ([], {
        "bootstrap.servers": "b:9092", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "msk",
        "sasl.aws.profile": "night", "sasl.aws.sts.region": "eu-west-1",
    })  # fmt: skip
    own = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    assert converted(given | {"sasl.login.callback.handler.class": own}).problems == [
        "sasl.login.callback.handler.class: it says another sasl.oauthbearer.method than a setting before it. "
        "Remove one of the two."
    ]


def test_every_key_is_noticed_with_its_fate_and_no_value_is() -> None:
    given = {"sasl.jaas.config": "?", "check.crcs": "false", "client.rack": "a", "interceptor.classes": "x.Y"}
    found = converted(given)
    assert {one.key: one.fate for one in found.noticed} == {
        "bootstrap.servers": Fate.HONOURED, "sasl.jaas.config": Fate.MAPPED, "check.crcs": Fate.WITHOUT_EFFECT,
        "client.rack": Fate.WITHOUT_EFFECT, "interceptor.classes": Fate.REFUSED,
    }  # fmt: skip
    assert all(one.text for one in found.noticed)


def test_an_unknown_key_is_named_with_the_nearest_known() -> None:
    (problem,) = convert({"isolation_level": "read_committed"}, CONSUMER, "A.consumer.").problems
    assert problem == (
        "A.consumer.isolation_level: no key of a Java client. The nearest known is 'isolation.level'. "
        "Correct or remove it."
    )
    (problem,) = converted({"zzz": "1"}).problems
    assert problem == "zzz: no key of a Java client. Correct or remove it."


def test_what_another_clients_key_means_is_not_guessed() -> None:
    assert len(convert({"isolation.level": "read_committed"}, PRODUCER).problems) == 1
    assert len(convert({"compression.type": "gzip"}, CONSUMER).problems) == 1
    assert len(convert({"acks": "1"}, ADMIN).problems) == 1


def test_compression_passes_and_is_told_with_what_does_it_here() -> None:
    found = convert({"compression.type": "gzip"}, PRODUCER, "us-east.producer.")
    (told,) = found.noticed
    assert (found.problems, told.key, told.fate) == ([], "us-east.producer.compression.type", Fate.WITHOUT_EFFECT)
    assert "a compression.type of the target's own topic" in told.text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssl.cipher.suites", ""), ("interceptor.classes", ""), ("sasl.oauthbearer.header.urlencode", "false"),
        ("sasl.oauthbearer.jwt.retriever.class", "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"),
    ],
)  # fmt: skip
def test_a_refused_key_passes_with_the_value_that_changes_nothing(key: str, value: str) -> None:
    assert converted({key: value}).problems == []
    assert len(converted({key: "x.Other"}).problems) == 1


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("sasl.jaas.config", f'{SCRAM} required username="u" password="hidden"', "the closing semicolon"),
        ("sasl.jaas.config", f'{SCRAM} required username="u" password="hidden;', "the options of ScramLoginModule"),
        ("sasl.jaas.config", f"{SCRAM} required password=hidden tokenauth=true;", "tokenauth of ScramLoginModule"),
        ("sasl.jaas.config", "com.example.MyLoginModule required password=hidden;", "its module is code of Java"),
        ("sasl.login.callback.handler.class", "com.example.Mine", "code of Java"),
        ("sasl.oauthbearer.assertion.private.key.passphrase", "hidden", "no login by assertion"),
        ("isolation.level", "serializable", "read_committed or read_uncommitted"),
        ("auto.offset.reset", "none", "starts at earliest, latest or an ISO 8601 time"),
        ("auto.offset.reset", "by_duration:PT1H", "starts at earliest, latest or an ISO 8601 time"),
    ],
)
def test_what_cant_be_kept_is_named_without_a_secret(key: str, value: str, says: str) -> None:
    found = converted({key: value})
    (problem,) = found.problems
    assert problem.startswith(key)
    assert says in problem
    assert "hidden" not in problem + repr(found)


@pytest.mark.parametrize("kind", [{}, {"ssl.truststore.type": "PKCS12"}, {"ssl.truststore.type": "JKS"}])
def test_a_store_is_what_its_first_bytes_say(tmp_path: Path, kind: dict[str, str]) -> None:
    """keytool writes PKCS12 into a file that is called .jks, and Java reads that where JKS is declared."""
    store = tmp_path / "my certs.jks"
    given = {"ssl.truststore.location": str(store), "ssl.truststore.password": "hidden", **kind}
    read = {"ssl.truststore.location": str(store), "ssl.truststore.password": "hidden"}
    for content in (b"0\x82\x09\xf2", None):  # one that is not here may be where it is used
        if content:
            store.write_bytes(content)
        else:
            store.unlink()
        found = converted(given)
        assert found.problems == [] and found.properties == {"bootstrap.servers": "b:9092"} | read
        assert "hidden" not in repr(found)
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    assert converted(given).problems == [
        f"ssl.truststore.location={store}: only Java reads a JKS store. Make PKCS12 of it: keytool -importkeystore "
        f"-srckeystore '{store}' -destkeystore truststore.p12 -deststoretype PKCS12. Then give that file."
    ]


def test_pem_texts_keep_their_line_breaks() -> None:
    pem = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----"
    found = converted({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": pem})
    assert (found.problems, found.properties["ssl.ca.pem"]) == ([], pem)
