"""Settings are honoured or refused by name; none is ignored where it changes whom we trust or who we are."""

from __future__ import annotations

import base64
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_mirror.common.addresses import Address, parse_bootstrap
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import ClusterUnreachable, InvalidField
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
        (sasl() | {"sasl.mechanism": "AWS_MSK_IAM"}, "sasl.mechanism"),
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


COMMAS, BRACKETS, FORM = "Separate addresses by commas", r"write \[::1\]:9092", "is no host:port"


@pytest.mark.parametrize(
    ("servers", "says"),
    [
        *((one, FORM) for one in ("a:port", ":9092", "a:70000", "a:0", "a:²", "a..b:1", "a" * 64, "[a]:1", "u@a:1")),
        *((one, COMMAS) for one in ("a;b", "a:1;b:2", "a:1 b:2", "a|b")),
        *((one, BRACKETS) for one in ("::1:9092", "[::1", "2001:db8::1:9092", "1:2:3:4:5:6:7:8:9092", "a:b:1")),
        (r"a\:1", "librdkafka's format, not Java's"),
    ],
)  # fmt: skip
def test_a_bootstrap_server_that_is_none_is_refused_with_what_to_write(servers: str, says: str) -> None:
    with pytest.raises(InvalidField, match=says) as caught:
        parse_bootstrap(f"a:1,{servers}")
    assert caught.value.field == "bootstrap.servers" and "address 2 " in str(caught.value)


# --- OAUTHBEARER -----------------------------------------------------------------------------------------------------


@pytest.fixture
def token_endpoint() -> Iterator[tuple[str, list[dict[str, Any]], list[tuple[int, object]]]]:
    """Yield (address, requests seen, answers to give)."""
    seen: list[dict[str, Any]] = []
    answers: list[tuple[int, object]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
            seen.append({"authorization": self.headers["Authorization"], **dict(urllib.parse.parse_qsl(body))})
            status, answer = answers.pop(0)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", str(answer))
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_GET = do_POST  # what urllib makes of a redirected POST

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/token", seen, answers
    server.shutdown()
    server.server_close()


def oidc(url: str) -> WireSettings:
    return built(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "mirror",
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
            "sasl.oauthbearer.token.endpoint.url": url,
        }
    )


def test_one_token_serves_all_connections_until_it_is_old(token_endpoint: Any) -> None:
    url, seen, answers = token_endpoint
    answers += [(200, {"access_token": "one", "expires_in": 3600}), (200, {"access_token": "two", "expires_in": 0})]
    settings = oidc(url)
    first = _mechanism(settings, "b1").auth_bytes()
    assert first == b"n,,\x01auth=Bearer one\x01logicalCluster=lkc-1\x01identityPoolId=pool-2\x01\x01"
    assert _mechanism(settings, "b2").auth_bytes() == first
    expected = "Basic " + base64.b64encode(f"mirror:{SECRET}".encode()).decode()
    assert seen == [{"authorization": expected, "grant_type": "client_credentials", "scope": "kafka"}]
    settings.oauth_tokens._renew_at = 0  # type: ignore[attr-defined]
    assert b"Bearer two" in _mechanism(settings, "b1").auth_bytes()


def test_a_token_endpoint_that_refuses_is_named_without_its_answer(token_endpoint: Any) -> None:
    url, _seen, answers = token_endpoint
    answers.append((401, {"error": SECRET}))
    with pytest.raises(ClusterUnreachable, match="token endpoint .* returned no token: HTTPError 401") as caught:
        _mechanism(oidc(url), "b1").auth_bytes()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_secret_is_not_sent_on_to_where_a_token_endpoint_redirects(token_endpoint: Any, status: int) -> None:
    url, seen, answers = token_endpoint
    elsewhere = url.replace("127.0.0.1", "localhost")
    answers += [(status, elsewhere), (200, {"access_token": "stolen"})]
    with pytest.raises(InvalidField, match=rf"on to host localhost \(HTTP {status}\), and a secret is not") as caught:
        _mechanism(oidc(url), "b1").auth_bytes()
    assert len(seen) == 1 and SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://idp.example.com/token", "http://10.0.0.1/", "ftp://localhost/", "idp", "https:/x"]
)
def test_token_endpoint_without_encryption_is_refused(url: str) -> None:
    with pytest.raises(InvalidField, match=r"token\.endpoint\.url.*unencrypted.*https://"):
        oidc(url)


@pytest.mark.parametrize("url", ["https://idp.example.com/token", "http://localhost:1/", "http://[::1]:1/"])
def test_token_endpoint_of_this_host_needs_no_encryption(url: str) -> None:
    oidc(url)


def test_unsecured_tokens_say_who_and_for_how_long() -> None:
    """librdkafka makes the same for test brokers, from the same settings."""
    settings = built(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=admin scope=a,b lifeSeconds=60",
        }
    )
    token = _mechanism(settings, "b1").auth_bytes().removeprefix(b"n,,\x01auth=Bearer ").rstrip(b"\x01").decode()
    header, claims, signature = (part + "=" * (-len(part) % 4) for part in token.split("."))
    said = json.loads(base64.urlsafe_b64decode(claims))
    assert (json.loads(base64.urlsafe_b64decode(header)), signature) == ({"alg": "none"}, "")
    assert (said["sub"], said["scope"], said["exp"] - said["iat"]) == ("admin", ["a", "b"], 60)
