"""librdkafka's unsecured JWT, for test brokers: no secret proves who it names."""

from __future__ import annotations

import base64
import json
import shlex
import time

from airflow_mirror.common.oauth.tokens import Get, Maker, Token, extensions_of
from airflow_mirror.errors import InvalidField


def maker(get: Get, _role: str, _bootstrap: str) -> Maker:
    """Return librdkafka's unsecured JWT, which test brokers accept: ``principal=admin scope=all lifeSeconds=60``."""
    if get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() != "true":
        raise InvalidField(
            "sasl.oauthbearer.method",
            "default",
            "names no source of tokens",
            "Set oidc, msk or gcp, or name an oauth_cb.",
        )
    config = dict(pair.partition("=")[::2] for pair in shlex.split(get("sasl.oauthbearer.config")))
    lifetime_s = float(config.get("lifeSeconds", 3600))

    def make() -> Token:
        now = int(time.time())
        claims = {"sub": config.get("principal", ""), "iat": now, "exp": now + int(lifetime_s)}
        if "scope" in config:
            claims["scope"] = config["scope"].split(",")
        return Token(f"{_base64({'alg': 'none'})}.{_base64(claims)}.", lifetime_s, extensions_of(get))

    return Maker(make)


def _base64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
