"""Tokens: what is asked for, what is sent, when a new one is made, and what an error says."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.oauth.tokens import Maker, Token, Tokens
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.loop.retries import Verdict, verdict
from airflow_mirror.errors import AuthenticationFailed, ClusterUnreachable, InvalidField, TryAgain
from airflow_mirror.wire.login import _mechanism
from airflow_mirror.wire.settings import WireSettings
from sandbox.certificates import Authority
from tests import loopback

SECRET = "s3cr3t-value"


def built(properties: dict[str, str]) -> WireSettings:
    return WireSettings.from_config(ClientConfig({"bootstrap.servers": "b:1"} | properties, "target"))


@pytest.fixture
def token_endpoint() -> Iterator[tuple[str, list[dict[str, Any]], list[tuple[int, object]]]]:
    """Yield (address, requests seen, answers to give)."""
    seen: list[dict[str, Any]] = []
    answers: list[tuple[int, object]] = []

    class Handler(loopback.Quiet):
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

    with loopback.serving(Handler) as url:
        yield f"{url}/token", seen, answers


def oidc(url: str, **more: str) -> WireSettings:
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
        | {name.replace("_", "."): value for name, value in more.items()}
    )


@pytest.fixture
def encrypted_endpoint(tmp_path: Path) -> Iterator[tuple[str, Authority]]:
    """Yield the address of a token endpoint, and the authority of its certificate, which stands in ``ca.pem``."""

    class Handler(loopback.Quiet):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"access_token": "one", "expires_in": 3600}')

    authority = Authority("of the site")
    authority.broker_settings(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "broker.pem")
    with loopback.serving(Handler, context) as url:
        yield f"{url}/token", authority


def test_one_token_serves_all_connections_while_it_is_fresh(token_endpoint: Any) -> None:
    url, seen, answers = token_endpoint
    answers.append((200, {"access_token": "one", "expires_in": 3600}))
    settings = oidc(url)
    first = _mechanism(settings, "b1").auth_bytes()
    assert first == b"n,,\x01auth=Bearer one\x01logicalCluster=lkc-1\x01identityPoolId=pool-2\x01\x01"
    assert _mechanism(oidc(url), "b2").auth_bytes() == first
    expected = "Basic " + base64.b64encode(f"mirror:{SECRET}".encode()).decode()
    assert seen == [{"authorization": expected, "grant_type": "client_credentials", "scope": "kafka"}]


class Source:
    """Makes tokens ``1``, ``2``, ... of a life; waits, or raises, if it is told to."""

    def __init__(self, life_s: float) -> None:
        self.life_s, self.made, self.gate, self.error = life_s, 0, threading.Event(), Exception()
        self.gate.set()

    def make(self) -> Token:
        self.gate.wait(30)
        if isinstance(self.error, TryAgain):
            raise self.error
        self.made += 1
        return Token(str(self.made), self.life_s)


def age(tokens: Tokens, *, over: bool) -> None:
    """Make the token stale; ``over``: make it end as well."""
    tokens._stale_at = 0.0
    if over:
        tokens._ends_at = 0.0


def test_stale_token_is_used_on_while_its_source_hangs_and_new_one_afterwards() -> None:
    source = Source(900)
    tokens = Tokens(Maker(source.make), patience_s=0.05)
    assert tokens.token() == "1"
    assert tokens._ends_at - tokens._stale_at == pytest.approx(135)
    age(tokens, over=False)
    source.gate.clear()
    assert (tokens.token(), tokens.token(), source.made) == ("1", "1", 1)
    source.gate.set()
    while tokens.token() == "1":
        time.sleep(0.01)
    assert (tokens.token(), tokens.token(), source.made) == ("2", "2", 2)  # one renewal, however many asked


def test_token_that_ends_within_the_wait_for_a_new_one_is_not_sent() -> None:
    source = Source(900)
    tokens = Tokens(Maker(source.make), patience_s=0.3)
    tokens.token()
    age(tokens, over=False)
    tokens._ends_at = time.monotonic() + 0.1
    source.gate.clear()
    threading.Timer(0.8, source.gate.set).start()
    assert tokens.token() == "2"


def test_failed_renewal_ends_no_login_before_the_old_token_does(caplog: pytest.LogCaptureFixture) -> None:
    source = Source(900)
    tokens = Tokens(Maker(source.make))
    tokens.token()
    source.error = TryAgain("the identity provider is down")
    age(tokens, over=False)
    assert tokens.token() == "1" and "no new token yet" in caplog.text
    age(tokens, over=True)
    with pytest.raises(TryAgain, match="provider is down"):
        tokens.token()
    source.error = Exception()
    assert tokens.token() == "2"


def test_function_for_librdkafka_tells_when_the_token_ends() -> None:
    token, end_s, principal, extensions = Tokens(Maker(lambda: Token("t", 900, {"a": "b"}))).callback("")
    assert (token, principal, extensions) == ("t", "", {"a": "b"}) and 850 < end_s - time.time() <= 855


def test_a_token_endpoint_that_refuses_is_named_without_its_answer(token_endpoint: Any) -> None:
    url, _seen, answers = token_endpoint
    answers.append((401, {"error": SECRET}))
    with pytest.raises(ClusterUnreachable, match="token endpoint .* returned no token: HTTPError 401") as caught:
        _mechanism(oidc(url), "b1").auth_bytes()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "more", "says"),
    [
        (
            401,
            "invalid_client",
            "AADSTS7000215: Invalid client secret",
            r"^target cluster: the token endpoint http.*invalid_client \(AADSTS7000215\).*expired",
        ),
        (400, "invalid_scope", "AADSTS1002012: The provided value", r"\(AADSTS1002012\).*ends in /\.default"),
        (400, "unauthorized_client", "", "refuses this client: unauthorized_client. Allow .*client_credentials"),
    ],
)
def test_refusal_for_good_says_what_to_correct_and_only_codes_of_the_answer(
    token_endpoint: Any, status: int, code: str, more: str, says: str
) -> None:
    url, _seen, answers = token_endpoint
    answers.append((status, {"error": code, "error_description": f"{more} {SECRET}"}))
    with pytest.raises(AuthenticationFailed, match=says) as caught:
        _mechanism(oidc(url), "b1").auth_bytes()
    assert SECRET not in str(caught.value)
    assert verdict(caught.value) is Verdict.STOP
    assert verdict(caught.value, opened=True) is Verdict.RETRY  # a secret that is being replaced


def test_scope_of_entra_is_sent_as_it_is(token_endpoint: Any) -> None:
    url, seen, answers = token_endpoint
    answers.append((200, {"token_type": "Bearer", "expires_in": 3599, "access_token": "e"}))
    scope = "https://ns.servicebus.windows.net/.default"
    own = dict(oidc(url).properties) | {"sasl.oauthbearer.scope": scope}
    _mechanism(built(own), "b1").auth_bytes()
    assert seen[0]["scope"] == scope and seen[0]["grant_type"] == "client_credentials"


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


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"https://mirror:{SECRET}@idp.example.com/token", "a user, and perhaps a password, before its host"),
        (f"https://mirror:{SECRET}@idp.example.com:8443/token", "client.id and .client.secret"),
        (f"http://mirror:{SECRET}@idp.example.com/token", "a user, and perhaps a password, before its host"),
        (f"mirror:{SECRET}@idp.example.com/token", "a user, and perhaps a password, before its host"),
        (f"https://mirror:{SECRET}/1@idp.example.com/token", "its host or its port is none"),
        (f"https://mirror:{SECRET}@[idp/token", "its host or its port is none"),
        ("https://[idp/token", "its host or its port is none"),
        ("https://idp.example.com:65536/token", "its host or its port is none"),
    ],
)
def test_token_endpoint_with_a_password_in_its_address_is_refused_and_not_shown(url: str, says: str) -> None:
    """Errors about it show the address: in logs, in status.json and on the page. HTTP took the password for a port."""
    with pytest.raises(InvalidField, match=rf"token\.endpoint\.url='\(not shown\)'.*{says}") as caught:
        oidc(url)
    assert SECRET not in str(caught.value)


def test_certificate_of_a_token_endpoint_is_trusted_by_the_settings(
    encrypted_endpoint: tuple[str, Authority], tmp_path: Path
) -> None:
    """They were taken, and without effect. Who corrects them in a process gets a token: it is another login."""
    url, authority = encrypted_endpoint
    for more in ({}, {"https_ca_location": "probe"}, {"https_ca_pem": Authority("another").certificate}):
        with pytest.raises(InvalidField, match=r"its certificate is refused: .*certificate.*https\.ca\.location") as e:
            _mechanism(oidc(url, **more), "b1").auth_bytes()
        assert SECRET not in str(e.value)
    named = "# Főtanúsítvány\n" + authority.certificate
    for more in ({"https_ca_location": str(tmp_path / "ca.pem")}, {"https_ca_pem": named}):
        assert b"Bearer one" in _mechanism(oidc(url, **more), "b1").auth_bytes()


def test_certificate_that_is_replaced_in_its_file_counts_for_the_next_token(
    encrypted_endpoint: tuple[str, Authority], tmp_path: Path
) -> None:
    """A process runs for months, and what gives the tokens gets a certificate of another CA meanwhile."""
    url, authority = encrypted_endpoint
    file = tmp_path / "replaced.pem"
    file.write_text(Authority("before").certificate)
    settings = oidc(url, https_ca_location=str(file))
    with pytest.raises(InvalidField, match="its certificate is refused"):
        _mechanism(settings, "b1").auth_bytes()
    file.write_text(authority.certificate)
    assert b"Bearer one" in _mechanism(settings, "b1").auth_bytes()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"https_ca_location": "/nowhere/ca.pem"}, "https.ca.location='/nowhere/ca.pem'.*No such file"),
        ({"https_ca_pem": "none"}, r"https.ca.pem='\(text\)'.*no usable PEM"),
    ],
)
def test_certificates_that_are_none_are_named(more: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidField, match=says):
        oidc("https://idp.example.com/token", **more)


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


@pytest.mark.parametrize("config", ["principal='a", *(f"lifeSeconds={one}" for one in ("long", "", "nan", "inf", "0"))])
def test_claims_of_unsecured_tokens_that_can_not_be_read_are_wrong_input(config: str) -> None:
    """They were a ValueError, and a traceback, wherever settings are read."""
    with pytest.raises(InvalidField, match=r"sasl\.oauthbearer\.config='\(set\)'.*lifeSeconds=60"):
        built(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": config,
            }
        )
