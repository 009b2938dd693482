"""Tokens for Amazon MSK with IAM: a URL of ``kafka-cluster:Connect``, signed here for 900 s. No server is asked for one.

What signs them is found as any program of AWS finds it: environment, profile, web identity, container, instance. It is
looked for once a process, and kept: a role that is assumed anew gets another session name, thus is another principal,
and brokers end a connection whose principal changes when it logs in again (KIP-368).
"""

from __future__ import annotations

import base64
import os
import re
import threading
import time
import urllib.parse
from functools import partial
from typing import Any

from airflow_mirror.common.addresses import parse_bootstrap
from airflow_mirror.common.oauth.extra import library
from airflow_mirror.common.oauth.tokens import Get, Maker, Token
from airflow_mirror.errors import AuthenticationFailed, ClusterUnreachable, InputError, InvalidField, MirrorError

REGION, PROFILE, ROLE = "sasl.aws.region", "sasl.aws.profile", "sasl.aws.role.arn"
SESSION, EXTERNAL_ID, STS_REGION = "sasl.aws.role.session.name", "sasl.aws.role.external.id", "sasl.aws.sts.region"
_OWN_SESSION = "airflow-mirror"
_ADDRESS = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?\.?$", re.IGNORECASE)
# botocore renews temporary credentials ten minutes before they end, at the latest; what they have signed ends with them.
_TEMPORARY_S = 600.0
_RENEW = "Renew them (aws sso login, or whatever wrote the profile), or give this host a role of its own."
_CLOCK = "Set this host's clock (timedatectl, chronyc tracking): what is signed counts from it, for 900 s."
# Substrings of error codes of AWS that pass, beside all that come as HTTP 5xx: its load, and an identity provider's.
_PASSING = ("throttl", "requestlimitexceeded", "toomanyrequests", "slowdown", "requesttimeout", "idpcommunication")
# Substrings of error codes and words, without blanks, in this order -> what to do.
_STS = {
    "signature": f"{_CLOCK} Then check the secret key.",
    "requestexpired": _CLOCK,
    "expired": _RENEW,
    "clienttoken": "The access key does not exist, or is of another partition. Correct the credentials.",
    "accessdenied": f"Let who is named there assume it (sts:AssumeRole, and the role's trust policy), or correct {ROLE}.",
}
_BROKER = {
    "tooshort": f"The credentials that signed it end within minutes. {_RENEW}",
    "expired": f"{_CLOCK} Or its credentials have expired. {_RENEW}",
    "notyet": _CLOCK,
    "region": f"Set {REGION} to the region of the cluster.",
    "principal": f"Who logs in again must be who logged in. Name {SESSION}, or AWS_ROLE_SESSION_NAME for a web identity.",
}
_ANY = (
    "MSK says no more, whatever is wrong: check that policies allow kafka-cluster:Connect on this cluster, that the "
    "credentials are valid (aws sts get-caller-identity), the region, and this host's clock."
)


def region_of(bootstrap: str) -> str:
    """Return the region that addresses of MSK name; "" if they are no such addresses.

    :raises InvalidField: they name several.
    """
    found = {m[1].lower() for host, _ in parse_bootstrap(bootstrap) if (m := _ADDRESS.search(host))}
    if len(found) > 1:
        cause = f"has brokers of several regions: {', '.join(sorted(found))}"
        raise InvalidField("bootstrap.servers", bootstrap, cause, "Give those of one cluster.")
    return found.pop() if found else ""


def maker(get: Get, role: str, bootstrap: str) -> Maker:
    """Return what signs tokens for the brokers at ``bootstrap``.

    :param role: names the cluster in errors.
    :raises InputError: the extra ``msk`` is not installed.
    :raises InvalidField: nothing says the region, or two things say different ones; a profile does not exist.
    """
    signer = library(
        "aws_msk_iam_sasl_signer.MSKAuthTokenProvider", "aws-msk-iam-sasl-signer-python", "msk", "IAM of MSK"
    )
    for key in (SESSION, EXTERNAL_ID):
        if get(key) and not get(ROLE):
            cause = f"has no effect: the {role} cluster has no {ROLE}"
            raise InvalidField(key, get(key), cause, f"Set {ROLE}; or AWS_ROLE_SESSION_NAME for a web identity.")
    session = _session(get, role)
    region, credentials = _region(get, role, bootstrap, session), _Credentials(get, role, bootstrap, session)
    credentials.region = get(STS_REGION) or region
    last = [""]

    def make() -> Token:
        frozen = credentials.frozen()
        token, end_ms = signer.generate_auth_token_from_credentials_provider(region, _holding(frozen))
        last[0] = _signed(token, credentials.who)
        life_s = end_ms / 1000 - time.time()
        return Token(token, min(life_s, _TEMPORARY_S) if frozen.token else life_s)

    def advise(said: str) -> str:
        return f"{last[0]} {_told(said, _BROKER) or _ANY}".strip()

    return Maker(make, advise)


def _session(get: Get, role: str) -> Any:
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    profile = get(PROFILE)
    try:
        session = Session(profile=profile or None)
        session.get_scoped_config()  # reads the files
    except BotoCoreError as e:
        remedy = "Correct it, or ~/.aws/config (AWS_CONFIG_FILE), on every host that logs in."
        raise InvalidField(PROFILE, profile, f"{e} ({role} cluster)", remedy) from None
    return session


def _region(get: Get, role: str, bootstrap: str, session: Any) -> str:
    named, told = region_of(bootstrap), get(REGION)
    if named and told and named != told:
        cause = f"the addresses of the {role} cluster are in {named}: brokers there refuse what is signed for {told}"
        raise InvalidField(REGION, told, cause, "Remove or correct it.")
    region = told or named or session.get_config_variable("region")
    if not region:
        cause = f"can't be told: the addresses of the {role} cluster are no names of MSK, and nothing else says it"
        raise InvalidField(REGION, "", cause, f"Set {REGION}, such as eu-central-1, in the connection.")
    return str(region)


class _Credentials:
    """What signs: found at the first token, then kept and renewed by botocore as long as this process lives."""

    region = ""

    def __init__(self, get: Get, role: str, bootstrap: str, session: Any) -> None:
        self._get, self._role, self._bootstrap, self._session = get, role, bootstrap, session
        self._lock = threading.Lock()
        self._found: Any = None

    @property
    def who(self) -> str:
        """Who it is, as far as that is known without asking AWS."""
        named = self._get(ROLE) or (f"profile {self._get(PROFILE)}" if self._get(PROFILE) else "")
        return named or f"credentials by {self._found.method}"

    def frozen(self) -> Any:
        """Return a key, its secret and the session's token that belong together.

        :raises InputError: there are none. :raises AuthenticationFailed: AWS gives none, or a person has to renew them.
        :raises ClusterUnreachable: AWS can't be asked.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            with self._lock:
                self._found = self._found or self._find()
            return self._found.get_frozen_credentials()
        except ClientError as e:
            raise self._answered(e.response) from None
        except BotoCoreError as e:
            raise self._failed(e) from None

    def _find(self) -> Any:
        from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

        base = self._session.get_credentials()
        if base is None:
            raise InputError(
                f"{self._role} cluster: no AWS credentials were found on host {os.uname().nodename}",
                "environment, profile, web identity, container and instance have none",
                f"Give this host a role, or set AWS_PROFILE, or {PROFILE} in the connection, for this process's user.",
            )
        if not (arn := self._get(ROLE)):
            return base
        more = {"RoleSessionName": self._get(SESSION, _OWN_SESSION)}
        if self._get(EXTERNAL_ID):
            more["ExternalId"] = self._get(EXTERNAL_ID)
        creator = partial(self._session.create_client, region_name=self.region)
        fetcher = AssumeRoleCredentialFetcher(creator, base, arn, more)
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")

    def _answered(self, response: dict[str, Any]) -> MirrorError:
        error, status = response.get("Error", {}), response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code = str(error.get("Code", ""))
        said = f"{code}: {error.get('Message', '')}"
        if status >= 500 or any(word in code.lower() for word in _PASSING):
            return ClusterUnreachable(self._role, self._bootstrap, f"AWS gave no credentials: {said}")
        return self._refused(said)

    def _refused(self, said: str) -> AuthenticationFailed:
        refused = f"AWS gives no credentials for {self._get(ROLE) or 'this host'}"
        remedy = _told(said, _STS) or "Ask whoever owns the role."
        return AuthenticationFailed(self._role, self._bootstrap, said, remedy, refused)

    def _failed(self, error: Exception) -> MirrorError:
        name = type(error).__name__
        if "SSO" in name or "TokenRetrieval" in name or "Partial" in name:
            return self._refused(f"{name}: {error} (expired)")
        return ClusterUnreachable(self._role, self._bootstrap, f"AWS gave no credentials: {name}: {error}")


def _holding(frozen: Any) -> Any:
    """Return credentials in the form that the signer takes them in."""
    from botocore.credentials import CredentialProvider

    class Held(CredentialProvider):  # type: ignore[misc]  # botocore ships no types
        def load(self) -> Any:
            return frozen

    return Held()


def _signed(token: str, who: str) -> str:
    """Return what a token says of itself; neither secret nor signature."""
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    said = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
    key, _, region, *_ = said["X-Amz-Credential"].split("/")
    return f"The token was signed by {who} (access key {key}) for {region} at {said['X-Amz-Date']} by this host's clock."


def _told(said: str, remedies: dict[str, str]) -> str:
    plain = said.lower().replace(" ", "")
    return next((remedy for word, remedy in remedies.items() if word in plain), "")
