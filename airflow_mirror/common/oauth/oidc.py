"""Tokens by an OIDC client-credentials grant."""

from __future__ import annotations

import base64
import ipaddress
import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request

from airflow_mirror.common.certificates import trust
from airflow_mirror.common.oauth.tokens import Get, Maker, Token, extensions_of
from airflow_mirror.errors import AuthenticationFailed, ClusterUnreachable, InvalidField

_TIMEOUT_S = 20.0
_URL = "sasl.oauthbearer.token.endpoint.url"
_CA = "https.ca"
_MOST_BYTES = 65_536
_SCOPE = "Correct sasl.oauthbearer.scope. Entra's ends in /.default, such as https://NAMESPACE.servicebus.windows.net/.default."
_REFUSALS = {  # of RFC 6749, and Entra's for an application that is not there -> what to do
    "invalid_client": "Correct sasl.oauthbearer.client.id and .client.secret; or the secret has expired.",
    "unauthorized_client": "Allow this client the grant client_credentials, at who gives the tokens.",
    "unsupported_grant_type": "Who gives the tokens must allow the grant client_credentials; or give another address.",
    "invalid_scope": _SCOPE,
    "invalid_resource": _SCOPE,
}


def maker(get: Get, role: str, bootstrap: str) -> Maker:
    """Return what asks an OIDC token endpoint, as a client with a secret.

    :raises InvalidField: a grant is not supported, a setting is missing, or certificates can't be read.
    """
    grant = get("sasl.oauthbearer.grant.type", "client_credentials")
    if grant != "client_credentials":
        raise InvalidField("sasl.oauthbearer.grant.type", grant, "not supported", "Use client_credentials.")
    for key in ("token.endpoint.url", "client.id", "client.secret"):
        if not get(f"sasl.oauthbearer.{key}"):
            raise InvalidField(f"sasl.oauthbearer.{key}", "", "method oidc needs it", "Set it in the connection.")
    url = get(_URL)
    _check(url)
    _context(get)  # what can't be read is told before anybody waits for a token
    extensions = extensions_of(get)

    def make() -> Token:
        client, secret = get("sasl.oauthbearer.client.id"), get("sasl.oauthbearer.client.secret")
        form = {"grant_type": "client_credentials"}
        if scope := get("sasl.oauthbearer.scope"):
            form["scope"] = scope
        request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), method="POST")
        request.add_header("Authorization", "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode())
        request.add_header("Accept", "application/json")
        try:
            # Certificates are read each time: a process runs for months, and their files are replaced in place.
            opener = urllib.request.build_opener(_Stay, urllib.request.HTTPSHandler(context=_context(get)))
            with opener.open(request, timeout=_TIMEOUT_S) as response:
                answer = json.load(response)
            return Token(str(answer["access_token"]), float(answer.get("expires_in", 300)), extensions)
        except (OSError, ValueError, KeyError) as e:  # never log the body: it may hold a token
            if isinstance(e, urllib.error.HTTPError):
                with e:  # an error response holds a connection of its own
                    _raise_if_redirected(e, url)
                    if refused := _refusal(e):
                        told = f"the token endpoint {url} refuses this client"
                        raise AuthenticationFailed(role, bootstrap, *refused, told) from None
            if isinstance(why := getattr(e, "reason", None), ssl.SSLCertVerificationError):
                remedy = f"Give the certificate of its CA: {_CA}.location, or {_CA}.pem. Or correct the address."
                raise InvalidField(_URL, url, f"its certificate is refused: {why.verify_message}", remedy) from None
            cause = f"the token endpoint {url} returned no token: {type(e).__name__} {getattr(e, 'code', '')}"
            raise ClusterUnreachable(role, bootstrap, cause.strip()) from None

    return Maker(make)


def _check(url: str) -> None:
    """Raise InvalidField unless a client's secret may go to ``url``."""
    try:
        there = urllib.parse.urlsplit(url)
        _ = there.port  # parsed only now
    except ValueError:  # whose words quote what may be a password
        cause = "its host or its port is none"
        raise InvalidField(
            _URL, "(not shown)", cause, "Give https://HOST:PORT/PATH; an IPv6 address in brackets."
        ) from None
    if "@" in (there.netloc or url):
        remedy = "Give it without; the client is sasl.oauthbearer.client.id and .client.secret."
        raise InvalidField(_URL, "(not shown)", "it has a user, and perhaps a password, before its host", remedy)
    host = there.hostname or ""
    if not host or not (there.scheme == "https" or (there.scheme == "http" and _is_this_host(host))):
        cause = "the client's secret would go there unencrypted, or nowhere"
        raise InvalidField(_URL, url, cause, "Give a full https:// URL; http:// only leads to this host, for tests.")


def _context(get: Get) -> ssl.SSLContext:
    """Return what verifies the endpoint's certificate: by the settings, else by what the host trusts."""
    # As librdkafka's, by libcurl: an issuing CA is enough, without its root. `create_default_context` is so from Python
    # 3.13 on, and stricter with certificates.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trust(context, _CA, get)
    return context


def _raise_if_redirected(answer: urllib.error.HTTPError, url: str) -> None:
    if to := 300 <= answer.code < 400 and urllib.parse.urlsplit(answer.headers.get("Location", "")).hostname:
        cause = f"it sends clients on to host {to} (HTTP {answer.code}), and a secret is not sent on"
        raise InvalidField(_URL, url, cause, "Give the address that it sends to, if that is yours.") from None


def _refusal(answer: urllib.error.HTTPError) -> tuple[str, str] | None:
    """Return why this client is refused, and what to do; None: a later request may be answered.

    Of what a server says only its codes are shown.
    """
    body = answer.read(_MOST_BYTES).decode(errors="replace")
    code = next((code for code in _REFUSALS if f'"{code}"' in body), None)
    if code is None:
        return None
    more = re.search(r"AADSTS\d+", body)  # Entra's own code, which its documentation explains
    return f"{code}{f' ({more[0]})' if more else ''}", _REFUSALS[code]


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: urllib would take the Authorization header along, with the client's secret, to any host."""

    def redirect_request(self, *_: object) -> None:
        """Refuse it; the answer is an error then."""


def _is_this_host(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
