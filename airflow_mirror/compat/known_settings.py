"""The settings of a client: their names, their types, and what a text of them says.

A name that nobody knows is refused: ignored, it may be the one that asks for TLS. No value is ever shown: whoever mixes
up two lines, or the format, has a secret where another value should be.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Container, Mapping
from contextlib import suppress
from importlib.resources import files

from airflow_mirror.common.addresses import parse_bootstrap
from airflow_mirror.common.nearest import nearest_key
from airflow_mirror.compat.client_keys import CONSUMER, PRODUCER, is_secret
from airflow_mirror.compat.json_text import parsed
from airflow_mirror.compat.rows import NUMBERS, Range
from airflow_mirror.errors import InputError, InvalidField, InvalidSetting

_FILE = tomllib.loads(files("airflow_mirror.compat").joinpath("librdkafka.toml").read_text("utf-8"))
_OF_EVERY = _FILE["every_client"]
_CHOICES: Mapping[str, tuple[str, ...]] = {
    **{name: tuple(values) for name, values in _OF_EVERY["choices"].items()},
    **dict.fromkeys(_OF_EVERY["switches"], ("true", "false", "t", "f", "1", "0")),
}
# In the file of a client that Confluent Cloud offers for download, beside the client's own.
_OF_A_REGISTRY = ("schema.registry.", "basic.auth.", "bearer.auth.")
REGISTRY = (
    "schema.registry.url", "url", "basic.auth.user.info", "basic.auth.credentials.source", "bearer.auth.token",
    "bearer.auth.credentials.source", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
)  # fmt: skip
# Java's range of a key that both have is the wider one; of such a key nothing reaches a client of librdkafka.
_NUMBERS = Range.each(_OF_EVERY["numbers"]) | Range.each(_FILE["others"]["numbers"]) | NUMBERS
_NUMBERS |= Range.each(_FILE["others"]["decimals"], decimals=True)
EVERY_CLIENT = frozenset[str](_OF_EVERY["texts"]).union(*_OF_EVERY["numbers"].values(), _CHOICES)
_KNOWN = EVERY_CLIENT.union(_FILE["others"]["one"], _FILE["others"]["ours"], _NUMBERS, CONSUMER.keys, PRODUCER.keys)
_MAY_BE_EMPTY = frozenset({"sasl.mechanism", "sasl.mechanisms", "ssl.endpoint.identification.algorithm"})
_USERS = ("sasl.username", "sasl.oauthbearer.client.id")
_JAVA = "This is librdkafka's format, not Java's: write"
_AS_JSON = "write the settings as JSON, in a file whose name ends in .json"
_LINE_OF_JAVA = re.compile(r"([A-Za-z0-9._-]+)(?:\s*:|\s)")
_ESCAPE_OF_JAVA = re.compile(r"\\(?:[:=#! \\]|u[0-9A-Fa-f]{4})")


def of_json(text: str, where: str) -> dict[str, str]:
    """Return the settings of a JSON object. Arguments and errors as for :func:`settled`."""
    settings = None
    with suppress(ValueError):
        settings = parsed(text)
    if not isinstance(settings, dict):
        raise InputError(where, "it holds no JSON object", 'Write it as {"bootstrap.servers": "broker1:9092", ...}.')
    return settled(settings, where)


def of_properties(text: str, where: str, others: Container[str] = ()) -> dict[str, str]:
    """Return the settings of librdkafka's ``key=value`` lines. Arguments and errors as for :func:`settled`.

    Blanks around key and value mean nothing, and a backslash is a backslash. What only Java reads otherwise is refused:
    another separator, a line that goes on in the next, an escape. So is a user or a secret that ends in a blank:
    librdkafka keeps it, Java's clients take it away, and a login fails with one of them.

    :param others: names that are known besides a client's.
    """
    properties, goes_on = dict[str, str](), False
    # Not splitlines: a value may hold what Unicode takes for the end of a line.
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        key, separator, value = line.partition("=")
        key, value, at = key.strip(), value.lstrip(" \t\f"), f"{where} line {number}"
        if not (separator and (_is_known(key) or key in others)):
            _refuse_java(line.strip(), goes_on, at)
        if not separator:
            raise InputError(at, "it is no 'key=value'", "Write it as one; a comment begins with '#'.")
        if (is_secret(key) or key in _USERS) and value != value.strip():
            cause = "ends in a blank, which librdkafka keeps and Java's clients don't"
            raise InvalidSetting(at, key, cause, f"Remove it; if it belongs to the value, {_AS_JSON}")
        if _ESCAPE_OF_JAVA.search(value) and not is_secret(key):
            remedy = f"{_JAVA} the value as it is; if that has a backslash here, {_AS_JSON}"
            raise InvalidSetting(at, key, "has a backslash as Java writes one", remedy)
        properties[key] = value.strip() if key in others else _text(key, value.strip(), at)
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
    return properties


def _refuse_java(line: str, goes_on: bool, where: str) -> None:
    """Raise if a line that says nothing to librdkafka says something to Java."""
    found = _LINE_OF_JAVA.match(line)
    if found is not None and _is_known(found[1]):
        raise InvalidSetting(where, found[1], "is not followed by '='", f"{_JAVA} {found[1]}=VALUE")
    if goes_on:
        raise InputError(where, "it goes on a line that ends in a backslash", f"{_JAVA} all of a value in its line.")


def settled(given: Mapping[str, object], where: str) -> dict[str, str]:
    """Return settings as text, each of which has a known name and a value of its type.

    :param where: where they stand, as errors name it.
    :raises InputError: nobody knows a name. :raises InvalidSetting: a value is of another type.
    """
    return {str(key): _text(str(key), value, where) for key, value in given.items()}


def _text(key: str, value: object, where: str) -> str:
    """Return a value as text; a PEM text that came in one line gets its line breaks back."""
    if not _is_known(key):
        meant = nearest_key(key, _KNOWN)
        shown = ascii(key) if meant and re.fullmatch(r"[A-Za-z0-9._-]+", key) else "what stands there"
        remedy = "Correct or remove it: ignored, it might be the one that asks for TLS."
        raise InputError(where, f"{shown} is no setting of a Kafka client.{meant}", remedy)  # its value is not shown
    if not isinstance(value, str | int | float):
        raise InvalidSetting(where, key, "has no text as its value", "Give one, or leave the setting out")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if re.search("[\0\ud800-\udfff]", text):
        raise InvalidSetting(where, key, "holds a character that stands for none", "Correct it")
    if key in _NUMBERS and _NUMBERS[key].refuses(text):
        raise InvalidSetting(where, key, f"is no {_NUMBERS[key]}", "Correct it")
    allowed = _CHOICES.get(key)
    if allowed and text.lower() not in map(str.lower, allowed) and not (key in _MAY_BE_EMPTY and not text):
        raise InvalidSetting(where, key, "is none of those that a mirror can use", f"Give one of {', '.join(allowed)}")
    if key.endswith("bootstrap.servers"):
        try:
            parse_bootstrap(text)
        except InvalidField as e:
            raise InvalidSetting(where, key, e.cause, e.remedy.rstrip(".")) from None
    return text.replace("\\n", "\n") if key.endswith(".pem") and "\n" not in text else text


def of_registry(given: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the settings of a schema registry; a client's of Kafka beside them, as Confluent's files have, are left out.

    :raises InputError: neither of them has a setting of such a name.
    """
    for key in given:
        if key in REGISTRY or (_is_known(key) and not key.startswith(_OF_A_REGISTRY)):
            continue
        meant = nearest_key(key, REGISTRY)
        shown = ascii(key) if meant else "what stands in one of its lines"  # perhaps the rest of a secret
        raise InputError(where, f"{shown} is no setting of a schema registry.{meant}", f"Known: {', '.join(REGISTRY)}.")
    return {key: value for key, value in given.items() if key in REGISTRY}


def _is_known(key: str) -> bool:
    """Return whether a client of librdkafka or Java, or the mirror itself, has a setting of this name."""
    return key in _KNOWN or key.startswith(_OF_A_REGISTRY) or CONSUMER.find(key) is not None
