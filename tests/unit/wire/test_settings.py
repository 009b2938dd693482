"""Settings are honoured or refused by name; none is ignored where it changes whom we trust or who we are."""

from __future__ import annotations

import pytest

from airflow_mirror.common.addresses import Address, parse_bootstrap
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InvalidField
from airflow_mirror.wire.login import _mechanism
from airflow_mirror.wire.settings import WireSettings

SECRET = "s3cr3t-value"


def built(properties: dict[str, str]) -> WireSettings:
    return WireSettings.from_config(ClientConfig({"bootstrap.servers": "b:1"} | properties, "target"))


def sasl(**extra: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": SECRET,
    } | extra


def kerberos(**extra: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.principal": "mirror/host@EXAMPLE.COM",
        "sasl.kerberos.keytab": "/nowhere.keytab",
    } | extra


@pytest.mark.parametrize(
    ("properties", "field"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"sasl.username": "alice", "sasl.password": SECRET}, "security.protocol"),
        ({"ssl.ca.pem": SECRET}, "security.protocol"),
        (sasl() | {"sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        (kerberos(**{"sasl.kerberos.kinit.cmd": "kinit -k"}), "sasl.kerberos.kinit.cmd"),
        (kerberos(**{"sasl.kerberos.min.time.before.relogin": "60000"}), "sasl.kerberos.min.time.before.relogin"),
        (kerberos(**{"sasl.kerberos.ticket.renew.jitter": "0.05"}), "sasl.kerberos.ticket.renew.jitter"),
        (kerberos(**{"sasl.kerberos.principal": ""}), "sasl.kerberos.principal"),
        (kerberos(), "sasl.kerberos.keytab"),
        (
            kerberos(**{"sasl.kerberos.keytab": "", "sasl.kerberos.keytab.base64": f"{SECRET}!"}),
            "sasl.kerberos.keytab.base64",
        ),
        (sasl() | {"sasl.mechanism": "AWS_MSK_IAM"}, "sasl.aws.region"),
        (sasl() | {"sasl.aws.role.arn": "arn:aws:iam::1:role/r"} | {"sasl.mechanism": "GSSAPI"}, "sasl.aws.role.arn"),
        ({"security.protocol": "SASL_SSL", "sasl.username": "a", "sasl.password": SECRET}, "sasl.mechanism"),
        (sasl() | {"sasl.mechanisms": "DIGEST-MD5"}, "sasl.mechanisms"),
        ({"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "a"}, "sasl.password"),
        ({"ssl.keystore.location": "/k.p12", "ssl.keystore.password": SECRET}, "security.protocol"),
        ({"ssl.crl.location": "/crl"}, "ssl.crl.location"),
        (sasl() | {"sasl.jaas.config": SECRET}, "sasl.jaas.config"),
        ({"ssl.endpoint.identification.algorithm": "maybe"}, "ssl.endpoint.identification.algorithm"),
        ({"socket.timeout.ms": "soon"}, "socket.timeout.ms"),
        (sasl() | {"sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.method"),
        (
            sasl() | {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"},
            "sasl.oauthbearer.token.endpoint.url",
        ),
        (sasl() | {"sasl.oauthbearer.assertion.file": "/x"}, "sasl.oauthbearer.assertion.file"),
    ],
)
def test_refused_setting_is_named_without_its_secret(properties: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        built(properties)
    assert caught.value.field == field
    assert SECRET not in str(caught.value)


def test_settings_never_show_a_secret() -> None:
    assert SECRET not in repr(built(sasl()))


@pytest.mark.parametrize(
    ("properties", "principal"),
    [
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL"}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL", "ssl.certificate.location": "/me.pem"}, None),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "me"}, "User:me"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.client.id": "me"}, None),
        (kerberos(), None),
    ],
)
def test_principal_is_known_only_where_brokers_can_make_no_other(
    properties: dict[str, str], principal: str | None
) -> None:
    assert WireSettings({"bootstrap.servers": "b:9092", **properties}).known_principal == principal


def test_librdkafkas_defaults_and_spellings() -> None:
    plain = built({"sasl.kerberos.service.name": "kafka", "linger.ms": "5", "acks": "all"})
    assert (plain.uses_tls, plain.uses_sasl, plain.socket_timeout_s) == (False, False, 30.0)
    assert plain.principal == "User:ANONYMOUS"
    secured = built(sasl() | {"security.protocol": "sasl_ssl", "sasl.mechanisms": "plain"})
    assert (secured.uses_tls, secured.sasl_mechanism, secured.principal) == (True, "PLAIN", "User:alice")
    assert secured.verify_hostname
    assert not built(sasl() | {"ssl.endpoint.identification.algorithm": "none"}).verify_hostname
    lax = built(sasl() | {"enable.ssl.certificate.verification": "false"})
    assert not lax.verify_hostname and lax.ssl_context.verify_mode == 0


@pytest.mark.parametrize(
    ("properties", "field"),
    [
        ({"ssl.ca.location": "/nowhere.pem"}, "ssl.ca.location"),
        ({"ssl.ca.pem": "no certificate"}, "ssl.ca.pem"),
        ({"ssl.certificate.location": "/nowhere.pem"}, "ssl.certificate.location / ssl.key.location"),
        ({"ssl.certificate.pem": "x", "ssl.key.pem": SECRET}, "ssl.certificate.location / ssl.key.location"),
        ({"ssl.cipher.suites": "NO-SUCH-CIPHER"}, "ssl.cipher.suites"),
    ],
)
def test_a_file_or_text_that_is_no_certificate_is_named(properties: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        _ = built({"security.protocol": "ssl"} | properties).ssl_context
    assert caught.value.field == field
    assert SECRET not in str(caught.value)


def test_kerberos_settings_matter_with_kerberos_alone() -> None:
    """Clients set some of them whatever the mechanism."""
    built(sasl() | {"sasl.kerberos.kinit.cmd": "kinit", "sasl.kerberos.keytab": "/nowhere"})


def test_errors_name_a_kerberos_principal_as_brokers_without_rules_do() -> None:
    assert WireSettings({"bootstrap.servers": "b:9092", **kerberos()}).principal == "User:mirror"
    of_cache = kerberos() | {"sasl.kerberos.principal": ""}
    assert WireSettings({"bootstrap.servers": "b:9092", **of_cache}).principal == "User:<the owner of the ticket cache>"


def test_pem_from_properties_file_regains_its_line_breaks() -> None:
    assert (
        built({"security.protocol": "PLAINTEXT", "ssl.ca.pem": "-----BEGIN\\nabc\\n"}).get("ssl.ca.pem")
        == "-----BEGIN\nabc\n"
    )


def test_a_scram_user_with_separators_in_its_name_is_escaped() -> None:
    mechanism = _mechanism(built(sasl() | {"sasl.username": "a=b,c"}), "host")
    assert mechanism.auth_bytes().startswith(b"n,,n=a=3Db=2Cc,r=")


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("a:1, b:2 ,", [("a", 1), ("b", 2)]),
        ("a", [("a", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
        ("[::1]:5", [("::1", 5)]),
        ("::1", [("::1", 9092)]),
        ("[::1]", [("::1", 9092)]),
        ("a_b.c-d.:1,büro:2", [("a_b.c-d.", 1), ("büro", 2)]),
    ],
)
def test_bootstrap_servers_as_librdkafka_reads_them(servers: str, expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(servers) == [Address(*e) for e in expected]


COMMAS, BRACKETS, FORM = "holds several. Separate addresses by commas", r"write \[::1\]:9092", "is no host:port"
QUOTES, URL, PATH, USER = (
    "quotes or braces",
    "is a URL of no protocol of Kafka's. Give host and port",
    "a path behind",
    "a user",
)
BLANK, PORT, COLON = "a blank beside its colon", "has no port from 1 to 65535", "has no colon before its port"


@pytest.mark.parametrize(
    ("servers", "says"),
    [
        *((one, FORM) for one in ("a:port", ":9092", "a:²", "a..b:1", "a" * 64, "[a]:1")),
        *((one, COMMAS) for one in ("a;b", "a:1;b:2", "a:1 b:2", "a|b", "a:1\nb:2", "h:1/i:1", "h:1:i:1", "a\uff0cb")),
        *((one, QUOTES) for one in ('["a:1", "b:1"]', "'a:1'", '"a:1,b:1"', "{a:1}")),
        *((one, URL) for one in ("kafka://a:1", "http://a", "kafka+ssl://a:1", "EXTERNAL://a:1")),
        *((one, PATH) for one in ("a:1/", "zk:2181/kafka", "1.2.3.4:1/24", "SSL://a:1/")),
        *((one, USER) for one in ("u@a:1", "u:p@a:1")),
        *((one, BLANK) for one in ("a: 1", "a :1")),
        *((one, PORT) for one in ("a:70000", "a:0", "a:", "a:+")),
        *((one, COLON) for one in ("10.0.0.1.9092", "9092")),
        *((one, BRACKETS) for one in ("::1:9092", "[::1", "2001:db8::1:9092", "1:2:3:4:5:6:7:8:9092", "a:b:1")),
        (r"a\:1", "librdkafka's format, not Java's"),
    ],
)  # fmt: skip
def test_a_bootstrap_server_that_is_none_is_refused_with_what_to_write(servers: str, says: str) -> None:
    with pytest.raises(InvalidField, match=says) as caught:
        parse_bootstrap(f"a:1,{servers}")
    assert caught.value.field == "bootstrap.servers" and "address 2 " in str(caught.value)
