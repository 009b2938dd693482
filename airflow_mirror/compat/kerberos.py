"""``Krb5LoginModule``: how a Java client logs in by Kerberos, as settings of a connection.

Rule: the options of ``com.sun.security.auth.module.Krb5LoginModule`` of JDK 17, and ``serviceName``, which Kafka adds.
What Java's module refuses to start with is named here as well: a login must not become another one on its way.
"""

from __future__ import annotations

from collections.abc import Mapping

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SERVICE = "sasl.kerberos.service.name"
_NAME = MODULE.rpartition(".")[2]
_USED = frozenset({"useKeyTab", "keyTab", "principal", "useTicketCache", "ticketCache", "serviceName"})
# Nothing prompts here, keys are read from the keytab, and krb5.conf by each login.
_WITHOUT_EFFECT = frozenset({"storeKey", "doNotPrompt", "debug", "refreshKrb5Config", "clearPass"})
# What IBM's module knows.
_OTHERS = frozenset({"credsType", "useCcache", "useDefaultCcache", "useDefaultKeytab"})
_PASSWORD = "no password of another module is taken. Remove it, and log in by a keytab"
_REFUSED = {  # with this value; the other one is the default
    "renewTGT": (
        "true",
        "nothing here renews a ticket cache. Remove it, and let k5start or krenew do so, or use a keytab",
    ),
    "isInitiator": ("false", "it would get no ticket for the brokers. Remove it"),
    "useFirstPass": ("true", _PASSWORD),
    "tryFirstPass": ("true", _PASSWORD),
    "storePass": ("true", _PASSWORD),
}
_ELSEWHERE = (
    ": GSSAPI{default} needs sasl.jaas.config, which is missing. Where the old tool's JVM had "
    "-Djava.security.auth.login.config, set sasl.jaas.config to what stands in that file's section KafkaClient."
)


def settings_of(options: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the settings that the module's options become, and what can't be kept, one line each."""
    problems = [
        f"{key}={value} of {_NAME}: {why}."
        for key, (refused, why) in _REFUSED.items()
        if (value := options.get(key, "")).lower() == refused
    ]
    left = sorted(options.keys() - _USED - _WITHOUT_EFFECT - _REFUSED.keys())
    known = ", ".join(one for one in left if one in _OTHERS) or "an option"  # else the rest of a value without quotes?
    problems += [f"{known} of {_NAME} can't be kept. Remove it."] if left else []
    settings, problem = _proof(options)
    for key, name in (("principal", "sasl.kerberos.principal"), ("serviceName", SERVICE)):
        if key in options:
            settings[name] = options[key]
    return settings, [*problems, *problem]


def missing(given: Mapping[str, str]) -> str | None:
    """Return what to say, behind ``security.protocol``, of a client whose login is in a file of its JVM; else None."""
    protocol, mechanism = (given.get(key, "").strip().upper() for key in ("security.protocol", "sasl.mechanism"))
    logs_in = protocol in ("SASL_PLAINTEXT", "SASL_SSL")
    if "sasl.jaas.config" in given or not logs_in or mechanism not in ("", "GSSAPI"):
        return None
    return f"={protocol}" + _ELSEWHERE.format(default="" if mechanism else ", Java's default mechanism,")


def _proof(options: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the settings of keytab or ticket cache. With both, Java asks the cache first, for the same principal."""
    by_keytab, by_cache = (options.get(key, "").lower() == "true" for key in ("useKeyTab", "useTicketCache"))
    keytab, cache = options.get("keyTab", ""), options.get("ticketCache", "")
    problems = [
        f"{name} of {_NAME} without {switch}=true: Java refuses it. Add that, or remove {name}."
        for name, value, switch, on in (
            ("keyTab", keytab, "useKeyTab", by_keytab), ("ticketCache", cache, "useTicketCache", by_cache),
        )
        if value and not on
    ]  # fmt: skip
    if by_keytab:
        problems += [
            f"{name} of {_NAME} is missing. Name it: {why}."
            for name, why in (("keyTab", "no default one is looked for"), ("principal", "a keytab may hold several"))
            if not options.get(name)
        ]
        return {"sasl.kerberos.keytab": keytab} if keytab else {}, problems
    if not by_cache and not problems:
        problems.append(f"{_NAME} would ask for a password. Set useKeyTab=true with keyTab and principal.")
    return {"sasl.kerberos.ccache": cache} if cache else {}, problems
