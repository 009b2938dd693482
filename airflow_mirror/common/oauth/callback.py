"""Tokens by a function that a connection names: librdkafka's ``oauth_cb``, as Airflow's Kafka provider takes it."""

from __future__ import annotations

import time

from airflow_mirror.common.dotted import function_at
from airflow_mirror.common.oauth.tokens import Get, Maker, Token
from airflow_mirror.errors import InvalidField, TryAgain

NAME = "oauth_cb"


def maker(get: Get, role: str, _bootstrap: str) -> Maker:
    """Return what calls the function, with the value of ``sasl.oauthbearer.config``.

    :raises InvalidField: there is no such function here.
    """
    path = get(NAME)
    try:
        function = function_at(path)
    except ImportError as e:
        remedy = "Install its module where the mirror runs, and on executors."
        raise InvalidField(NAME, path, f"{e} ({role} cluster)", remedy) from None

    def make() -> Token:
        try:
            made = function(get("sasl.oauthbearer.config"))
        except Exception as e:  # somebody's function
            what = f"{role} cluster: {NAME}={path} failed"
            raise TryAgain(what, f"{type(e).__name__}: {e}", "Correct it, if this repeats.") from e
        try:
            token, end_s, _principal, extensions = (*made, "", {})[:4]
            return Token(str(token), float(end_s) - time.time(), dict(extensions))
        except (TypeError, ValueError):  # no value is shown: it may be the token
            remedy = "It takes a text, and returns the token and its end in seconds since 1970."
            raise InvalidField(NAME, path, f"returned something else ({role} cluster)", remedy) from None

    return Maker(make)
