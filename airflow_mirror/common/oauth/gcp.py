"""Tokens for Google's Managed Service for Apache Kafka: an access token of a service account, in the form of a JWT.

The account is that of a key in the settings, else of this host (Google's application default credentials).
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import time
from typing import Any

from airflow_mirror.common.addresses import parse_bootstrap
from airflow_mirror.common.oauth.extra import library
from airflow_mirror.common.oauth.tokens import Get, Maker, Token
from airflow_mirror.errors import AuthenticationFailed, ClusterUnreachable, InputError, InvalidField

KEY, CONTENT = "sasl.gcp.key", "sasl.gcp.key.base64"
_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
_HEADER = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
_RIGHTS = "Give the service account roles/managedkafka.client on the project of the cluster, and check this host's clock."


def is_there(bootstrap: str) -> bool:
    """Return whether addresses are of Google's Managed Kafka."""
    return any(".managedkafka." in host and "cloud.goog" in host for host, _ in parse_bootstrap(bootstrap))


def maker(get: Get, role: str, bootstrap: str) -> Maker:
    """Return what asks Google for tokens.

    :param role: names the cluster in errors.
    :raises InputError: the extra ``gcp`` is not installed. :raises InvalidField: the key can't be read.
    """
    auth = library("google.auth", "google-auth", "gcp", "Google's Managed Kafka")
    transport = library("google.auth.transport.requests", "requests", "gcp", "Google's Managed Kafka")
    _account(get, role)  # what can't be read is told before anybody waits for a token
    of_host: list[Any] = []

    def make() -> Token:
        # A key is read each time: a process runs for months, and its file is replaced in place.
        account = _account(get, role)
        try:
            if account is None:
                if not of_host:
                    of_host.append(_of_no_person(auth.default(scopes=_SCOPES)[0], role))
                (account,) = of_host
            account.refresh(transport.Request())
        except auth.exceptions.GoogleAuthError as e:
            if _passes(e, auth.exceptions.TransportError):
                raise ClusterUnreachable(role, bootstrap, f"Google gave no token: {e}") from None
            refused = f"Google gives no token on host {os.uname().nodename}"
            remedy = (
                f"Give this host a service account, or set {KEY} in the connection to the file of a key; check its clock."
            )
            raise AuthenticationFailed(role, bootstrap, str(e), remedy, refused) from None
        return _token(account)

    return Maker(make, lambda said: _RIGHTS)


def _account(get: Get, role: str) -> Any:
    """Return the service account whose key settings have, if they have one; a file on this host comes first."""
    from google.oauth2.service_account import Credentials

    path, content = get(KEY), get(CONTENT)
    if not path and not content:
        return None
    try:
        if path and (os.access(path, os.R_OK) or not content):
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
        else:
            found = json.loads(base64.b64decode(content, validate=True))
        return Credentials.from_service_account_info(found, scopes=_SCOPES)
    except OSError as e:
        cause = f"can't be read: {e.strerror} ({role}, host {os.uname().nodename})"
        raise InvalidField(KEY, path, cause, f"Put it there, or set {CONTENT} to its content.") from None
    except (ValueError, TypeError):  # of base64 and Google's library as well; no words of theirs, which may quote it
        cause = f"is no key of a service account ({role})"
        raise InvalidField(KEY, path or "(set)", cause, "Give the JSON that Google made.") from None


def _passes(error: Any, unreachable: type[Exception]) -> bool:
    """Return whether the same request may be answered in a moment.

    :param error: of Google's library. :param unreachable: its class for a request that came to nothing.
    """
    # A metadata server that is away is the cause of a failed renewal. One that refuses, as on a host without a service
    # account, is so too, and that error has its answer.
    away = next((one for one in (error, error.__cause__) if isinstance(one, unreachable)), None)
    refused = away is not None and any(getattr(answer, "status", 500) < 500 for answer in away.args[1:])
    return error.retryable or (away is not None and not refused)


def _of_no_person(credentials: Any, role: str) -> Any:
    if getattr(credentials, "service_account_email", None):
        return credentials
    what, cause = f"{role} cluster: no service account", "this host's Google credentials are a person's"
    raise InputError(what, cause, f"Give this host a service account, or set {KEY} in the connection.")


def _token(credentials: Any) -> Token:
    end_s = credentials.expiry.replace(tzinfo=datetime.UTC).timestamp()
    claims = {
        "exp": end_s,
        "iat": time.time(),
        "iss": "Google",
        "scope": "kafka",
        "sub": credentials.service_account_email,
    }
    parts = (json.dumps(_HEADER), json.dumps(claims), credentials.token)
    value = ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
    return Token(value, end_s - time.time())
