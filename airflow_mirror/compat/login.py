"""How a Java client logs in, as settings of a connection: module (``sasl.jaas.config``), mechanism, callback handlers.

A class is Java's code. What Kafka's own, Amazon's and Google's do is done here by settings; others are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from airflow_mirror.compat import kerberos
from airflow_mirror.errors import InvalidSetting

_ENTRY = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);\s*", re.DOTALL | re.IGNORECASE)
_OPTION = re.compile(r"\s*([\w.$]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s\"';]+))")
_USER = {"username": "sasl.username", "password": "sasl.password"}
_SECURITY, _MSK = "org.apache.kafka.common.security", "software.amazon.msk.auth.iam"
_AWS = {
    "awsProfileName": "sasl.aws.profile",
    "awsRoleArn": "sasl.aws.role.arn",
    "awsRoleSessionName": "sasl.aws.role.session.name",
    "awsRoleExternalId": "sasl.aws.role.external.id",
    "awsStsRegion": "sasl.aws.sts.region",
}
_MODULES: Mapping[str, Mapping[str, str]] = {
    f"{_SECURITY}.plain.PlainLoginModule": _USER,
    f"{_SECURITY}.scram.ScramLoginModule": _USER,
    f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
        **_AWS,
    },
    f"{_MSK}.IAMLoginModule": _AWS,
}
# Options that change nothing here: botocore tries again by settings of its own.
_WITHOUT_EFFECT = frozenset({"awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"})
_KEYS = ("awsRoleAccessKeyId", "awsRoleSecretAccessKey", "awsRoleSessionToken")
_OTHERS = frozenset({*_KEYS, "tokenauth"})  # options that can't be kept, and are no secrets
_METHOD, _MECHANISM_OF_MSK = "sasl.oauthbearer.method", "AWS_MSK_IAM"
_HANDLERS = {
    f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler": "oidc",
    f"{_SECURITY}.oauthbearer.secured.OAuthBearerLoginCallbackHandler": "oidc",
    f"{_MSK}.IAMOAuthBearerLoginCallbackHandler": "msk",
    f"{_MSK}.IAMClientCallbackHandler": "msk",
    "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler": "gcp",
}
Found = tuple[dict[str, str], list[str]]


def as_settings(given: Mapping[str, str], where: str) -> dict[str, str]:
    """Return settings in which a Java client's login is by the names that are read here.

    :param where: they stand, as errors name it.
    :raises InvalidSetting: it can't be kept, or another setting says something else. No value is shown.
    """
    settings = dict(given)
    java = {key: settings.pop(key) for key in KEYS if settings.get(key) and key != "sasl.mechanism"}
    if given.get("sasl.mechanism", "").upper() == _MECHANISM_OF_MSK:
        java["sasl.mechanism"] = settings.pop("sasl.mechanism")
    for key, value in java.items():
        found, problems = KEYS[key](value)
        if problems:
            cause, _, remedy = problems[0].partition(". ")
            raise InvalidSetting(where, key, f"can't be kept: {cause}", remedy.removesuffix("."))
        for name, meant in found.items():
            if settings.setdefault(name, meant) != meant:
                raise InvalidSetting(where, name, f"is not what {key} says", "Remove one of the two")
    return settings


def mechanism(value: str) -> Found:
    """Return the settings of ``sasl.mechanism``: MSK's own one speaks of the same signature as its OAUTHBEARER does."""
    msk = value.strip().upper() == _MECHANISM_OF_MSK
    return ({"sasl.mechanism": "OAUTHBEARER", _METHOD: "msk"} if msk else {"sasl.mechanism": value}), []


def handler(value: str) -> Found:
    """Return the settings of a callback handler's class. Results as of :func:`settings_of`."""
    if value.strip() in _HANDLERS:
        return {_METHOD: _HANDLERS[value.strip()]}, []
    known = ", ".join(dict.fromkeys(one.rpartition(".")[2] for one in _HANDLERS))
    return {}, [f"it is code of Java, which can't run here. Known: {known}."]


def settings_of(entry: str) -> Found:
    """Return the settings of ``Module required name="value" ...;``, and what can't be kept, one line each, no secret.

    The lines begin where ``sasl.jaas.config`` would stand.
    """
    match = _ENTRY.fullmatch(entry)
    if match is None:
        return {}, ["not of the form 'Module required name=\"value\";'. Correct it; the closing semicolon belongs to it."]
    module, options = match[1], _options(match[2])
    name = module.rpartition(".")[2]
    if module not in (*_MODULES, kerberos.MODULE):
        known = ", ".join(one.rpartition(".")[2] for one in (*_MODULES, kerberos.MODULE))
        return {}, [f"its module is code of Java. Known: {known}."]
    if options is None:
        return {}, [f"the options of {name} can't be read. Put each value between double quotes."]
    if module == kerberos.MODULE:
        return kerberos.settings_of(options)
    names = _MODULES[module]
    left = sorted(options.keys() - names.keys() - _WITHOUT_EFFECT)
    shown = ", ".join(one for one in left if one in _OTHERS) or "an option"  # else the rest of a value without quotes?
    how = (
        "Give them to this host instead, by its environment or a profile." if left and left[0] in _KEYS else "Remove it."
    )
    problems = [f"{shown} of {name} can't be kept. {how}"] if left else []
    return {names[key]: value for key, value in options.items() if key in names}, problems


def _options(text: str) -> dict[str, str] | None:
    options, at = dict[str, str](), 0
    while match := _OPTION.match(text, at):
        quoted = match[2] if match[2] is not None else match[3]
        options[match[1]] = match[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = match.end()
    return None if text[at:].strip() else options


KEYS: Mapping[str, Callable[[str], Found]] = {
    "sasl.mechanism": mechanism,
    "sasl.jaas.config": settings_of,
    "sasl.login.callback.handler.class": handler,
    "sasl.client.callback.handler.class": handler,
}
"""What reads each key: its settings, and what can't be kept, one line each, no secret."""
