"""``sasl.jaas.config``: the module that logs a Java client in, as settings of a connection."""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_mirror.compat import kerberos

_ENTRY = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);\s*", re.DOTALL | re.IGNORECASE)
_OPTION = re.compile(r"\s*([\w.$]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s\"';]+))")
_USER = {"username": "sasl.username", "password": "sasl.password"}
_SECURITY = "org.apache.kafka.common.security"
_MODULES: Mapping[str, Mapping[str, str]] = {
    f"{_SECURITY}.plain.PlainLoginModule": _USER,
    f"{_SECURITY}.scram.ScramLoginModule": _USER,
    f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
}


def settings_of(entry: str) -> tuple[dict[str, str], list[str]]:
    """Return the settings of ``Module required name="value" ...;``, and what can't be kept, one line each, no secret.

    The lines begin where ``sasl.jaas.config`` would stand.
    """
    match = _ENTRY.fullmatch(entry)
    if match is None:
        return {}, ["not of the form 'Module required name=\"value\";'. Correct it; the closing semicolon belongs to it."]
    module, options = match[1], _options(match[2])
    name = module.rpartition(".")[2]
    if options is None:
        return {}, [f"the options of {name} can't be read. Put each value between double quotes."]
    if module == kerberos.MODULE:
        return kerberos.settings_of(options)
    if module not in _MODULES:
        known = ", ".join(one.rpartition(".")[2] for one in (*_MODULES, kerberos.MODULE))
        return {}, [f"{module} is code of Java. Known: {known}."]
    names = _MODULES[module]
    left = sorted(options.keys() - names.keys())
    problems = [f"{', '.join(left)} of {name} can't be kept. Remove it."] if left else []
    return {names[key]: value for key, value in options.items() if key in names}, problems


def _options(text: str) -> dict[str, str] | None:
    options, at = dict[str, str](), 0
    while match := _OPTION.match(text, at):
        quoted = match[2] if match[2] is not None else match[3]
        options[match[1]] = match[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = match.end()
    return None if text[at:].strip() else options
