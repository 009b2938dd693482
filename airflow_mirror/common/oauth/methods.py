"""Where a cluster's tokens come from: what its settings name, else what its addresses say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow_mirror.common.oauth import callback, gcp, msk, unsecured
from airflow_mirror.common.oauth.tokens import Get, Maker, Tokens, shared
from airflow_mirror.errors import InvalidField

METHOD = "sasl.oauthbearer.method"
MSK, GCP = "msk", "gcp"
SETTINGS = frozenset(
    {msk.REGION, msk.PROFILE, msk.ROLE, msk.SESSION, msk.EXTERNAL_ID, msk.STS_REGION, gcp.KEY, gcp.CONTENT}
)
_OWN = {"sasl.aws.": MSK, "sasl.gcp.": GCP}  # what settings begin with that one method alone reads


def _of_client(get: Get, role: str, bootstrap: str) -> Maker:
    from airflow_mirror.common.oauth import oidc  # whose import of HTTP takes 20 ms, wherever settings are read

    return oidc.maker(get, role, bootstrap)


_MAKERS: Mapping[str, Callable[[Get, str, str], Maker]] = {
    "oidc": _of_client,
    "default": unsecured.maker,
    MSK: msk.maker,
    GCP: gcp.maker,
    callback.NAME: callback.maker,
}


def mechanism_of(settings: Mapping[str, str]) -> str:
    """Return the SASL mechanism of a client's settings, such as ``SCRAM-SHA-512``; librdkafka's default is GSSAPI."""
    return (settings.get("sasl.mechanisms") or settings.get("sasl.mechanism") or "GSSAPI").upper()


def method_of(settings: Mapping[str, str]) -> str:
    """Return how tokens are made: as is named; by a function that is; else as the addresses of a cloud want it."""
    named = settings.get(METHOD, "").lower()
    if named not in ("", "default"):
        return named
    if settings.get(callback.NAME):
        return callback.NAME
    if settings.get("enable.sasl.oauthbearer.unsecure.jwt", "").lower() == "true":
        return "default"
    bootstrap = settings.get("bootstrap.servers", "")
    return MSK if msk.region_of(bootstrap) else GCP if gcp.is_there(bootstrap) else "default"


def tokens_of(settings: Mapping[str, str], role: str) -> Tokens:
    """Return the tokens of a cluster, without making one yet. All that ask for the same ones share them.

    :param settings: by librdkafka's names. :param role: names the cluster in errors.
    :raises InvalidField: a method or grant is not supported, a setting is missing or has no effect.
    :raises InputError: a library is not installed.
    """

    def get(key: str, default: str = "") -> str:
        return settings.get(key, default)

    method = method_of(settings)
    if method not in _MAKERS:
        raise InvalidField(METHOD, method, "not supported", f"Use oidc, {MSK}, {GCP}, or {callback.NAME} in its place.")
    for key in settings:
        if (of := next((of for begin, of in _OWN.items() if key.startswith(begin)), method)) != method:
            cause = f"has no effect: tokens of the {role} cluster come by {method}"
            raise InvalidField(key, "(set)", cause, f"Remove it, or set {METHOD}={of}.")
    of_login = ("sasl.", "bootstrap.", "https.", callback.NAME)
    same = role, *sorted(one for one in settings.items() if one[0].startswith(of_login))
    return shared(same, lambda: _MAKERS[method](get, role, get("bootstrap.servers")))


def librdkafkas(settings: Mapping[str, str], role: str) -> dict[str, Any]:
    """Return what a client of librdkafka gets in place of a method that is unknown to it; nothing for its own ones.

    Errors as :func:`tokens_of`.
    """
    known = method_of(settings) in ("oidc", "default")
    return {} if known else {METHOD: "default", callback.NAME: tokens_of(settings, role).callback}
