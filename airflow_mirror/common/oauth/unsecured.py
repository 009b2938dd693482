"""librdkafka's unsecured JWT, for test brokers: no secret proves who it names."""

from __future__ import annotations

import base64
import json
import math
import shlex
import time

from airflow_mirror.common.oauth.tokens import Get, Maker, Token, extensions_of
from airflow_mirror.errors import InvalidField

_CONFIG = "sasl.oauthbearer.config"


def maker(get: Get, _role: str, _bootstrap: str) -> Maker:
    """Return librdkafka's unsecured JWT, which test brokers accept: ``principal=admin scope=all lifeSeconds=60``.

    :raises InvalidField: it is not asked for, or its claims can't be read.
    """
    if get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() != "true":
        raise InvalidField(
            "sasl.oauthbearer.method",
            "default",
            "names no source of tokens",
            "Set oidc, msk or gcp, or name an oauth_cb.",
        )
    config = _config(get)
    lifetime_s = float(config.get("lifeSeconds", 3600))

    def make() -> Token:
        now = int(time.time())
        claims = {"sub": config.get("principal", ""), "iat": now, "exp": now + int(lifetime_s)}
        if "scope" in config:
            claims["scope"] = config["scope"].split(",")
        return Token(f"{_base64({'alg': 'none'})}.{_base64(claims)}.", lifetime_s, extensions_of(get))

    return Maker(make)


def _config(get: Get) -> dict[str, str]:
    try:
        config = dict(pair.partition("=")[::2] for pair in shlex.split(get(_CONFIG)))
        if not 0 < float(config.get("lifeSeconds", 3600)) < math.inf:  # nor is it true of nan
            raise ValueError
    except ValueError:
        cause = "not pairs with their quotes closed, or lifeSeconds is no number above 0"
        raise InvalidField(_CONFIG, "(set)", cause, "Write principal=admin scope=all lifeSeconds=60.") from None
    return config


def _base64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
