"""Tokens by an OIDC client-credentials grant, and librdkafka's unsecured JWT for test brokers."""

from __future__ import annotations

import base64
import ipaddress
import json
import shlex
import time
import urllib.error
import urllib.parse
import urllib.request

from airflow_mirror.common.oauth.tokens import Get, Maker, Token
from airflow_mirror.errors import ClusterUnreachable, InvalidField

_TIMEOUT_S = 20.0
_URL = "sasl.oauthbearer.token.endpoint.url"


def by_client(get: Get, role: str, bootstrap: str) -> Maker:
    """Return what asks an OIDC token endpoint, as a client with a secret.

    :raises InvalidField: a grant is not supported, or a setting is missing.
    """
    grant = get("sasl.oauthbearer.grant.type", "client_credentials")
    if grant != "client_credentials":
        raise InvalidField("sasl.oauthbearer.grant.type", grant, "not supported", "Use client_credentials.")
    for key in ("token.endpoint.url", "client.id", "client.secret"):
        if not get(f"sasl.oauthbearer.{key}"):
            raise InvalidField(f"sasl.oauthbearer.{key}", "", "method oidc needs it", "Set it in the connection.")
    url = get(_URL)
    there = urllib.parse.urlsplit(url)
    host = there.hostname or ""
    if not host or not (there.scheme == "https" or (there.scheme == "http" and _is_this_host(host))):
        cause = "the client's secret would go there unencrypted, or nowhere"
        raise InvalidField(_URL, url, cause, "Give a full https:// URL; http:// only leads to this host, for tests.")
    opener, extensions = urllib.request.build_opener(_Stay), _extensions(get)

    def make() -> Token:
        client, secret = get("sasl.oauthbearer.client.id"), get("sasl.oauthbearer.client.secret")
        form = {"grant_type": "client_credentials"}
        if scope := get("sasl.oauthbearer.scope"):
            form["scope"] = scope
        request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), method="POST")
        request.add_header("Authorization", "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode())
        request.add_header("Accept", "application/json")
        try:
            with opener.open(request, timeout=_TIMEOUT_S) as response:
                answer = json.load(response)
            return Token(str(answer["access_token"]), float(answer.get("expires_in", 300)), extensions)
        except (OSError, ValueError, KeyError) as e:  # never log the body: it may hold a token
            if isinstance(e, urllib.error.HTTPError):
                e.close()  # an error response holds a connection of its own
                if to := 300 <= e.code < 400 and urllib.parse.urlsplit(e.headers.get("Location", "")).hostname:
                    cause = f"it sends clients on to host {to} (HTTP {e.code}), and a secret is not sent on"
                    raise InvalidField(_URL, url, cause, "Give the address that it sends to, if that is yours.") from None
            cause = f"the token endpoint {url} returned no token: {type(e).__name__} {getattr(e, 'code', '')}"
            raise ClusterUnreachable(role, bootstrap, cause.strip()) from None

    return Maker(make)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: urllib would take the Authorization header along, with the client's secret, to any host."""

    def redirect_request(self, *_: object) -> None:
        """Refuse it; the answer is an error then."""


def _is_this_host(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def unsecured(get: Get, _role: str, _bootstrap: str) -> Maker:
    """Return librdkafka's unsecured JWT, which test brokers accept: ``principal=admin scope=all lifeSeconds=60``."""
    if get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() != "true":
        raise InvalidField(
            "sasl.oauthbearer.method", "default", "names no source of tokens", "Set sasl.oauthbearer.method=oidc."
        )
    config = dict(pair.partition("=")[::2] for pair in shlex.split(get("sasl.oauthbearer.config")))
    lifetime_s = float(config.get("lifeSeconds", 3600))

    def make() -> Token:
        now = int(time.time())
        claims = {"sub": config.get("principal", ""), "iat": now, "exp": now + int(lifetime_s)}
        if "scope" in config:
            claims["scope"] = config["scope"].split(",")
        return Token(f"{_base64({'alg': 'none'})}.{_base64(claims)}.", lifetime_s, _extensions(get))

    return Maker(make)


def _base64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _extensions(get: Get) -> dict[str, str]:
    pairs = (one.strip() for one in get("sasl.oauthbearer.extensions").split(","))
    return dict(pair.partition("=")[::2] for pair in pairs if pair)
