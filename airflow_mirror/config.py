"""Client settings of one cluster, as named by librdkafka, with secrets kept out of sight.

A :class:`ClientConfig` never shows a secret in ``repr`` or in an error. Wherever something is written down (argv,
Spark's settings and plans, checkpoints, logs) it is named by a *reference* (:func:`load`): ``env:NAME``,
``hadoop:NAME`` or a path.
Executors may have neither the variable nor the file, so they get the values in memory only (:class:`Handover`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_mirror.common import tokens
from airflow_mirror.common.oauth import methods
from airflow_mirror.common.text_files import read_text
from airflow_mirror.compat import login, stores
from airflow_mirror.compat.client_keys import is_secret
from airflow_mirror.compat.known_settings import EVERY_CLIENT, of_json, of_properties, settled
from airflow_mirror.errors import InputError, InvalidSetting, MissingSetting

# Keys whose values are never shown, and whose names don't say so (`client_keys.is_secret`). librdkafka has no list.
_SECRET_KEYS = frozenset(
    {
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.config",
        "ssl.key.pem",
        "sasl.kerberos.keytab.base64",
        "sasl.kerberos.ccache.base64",
        "sasl.gcp.key.base64",
    }
)
# Files that a login reads, and the settings that hold their bytes for processes that have no such file. The path of one
# is no secret, its content is. Other files (ssl.ca.location, ...) have settings of librdkafka's own for that.
_FILES = {
    "sasl.kerberos.keytab": "sasl.kerberos.keytab.base64",
    "sasl.kerberos.ccache": "sasl.kerberos.ccache.base64",
    "sasl.gcp.key": "sasl.gcp.key.base64",
}
# Files that are renewed in place, under the same name. A ticket cache is not among them: it is renewed all the time.
_RENEWED = (
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location", "ssl.truststore.location",
    "sasl.kerberos.keytab", "sasl.gcp.key", "https.ca.location",
)  # fmt: skip
# How the settings of a cluster's schema registry begin among its own; of Confluent's own files both forms. No task needs
# them.
OF_REGISTRY = "schema.registry."
OF_A_REGISTRY = (OF_REGISTRY, "basic.auth.", "bearer.auth.")
_TO_REACH = ("bootstrap.", "broker.address.family", "client.id", "enable.ssl.", "https.", "sasl.", "security.", "ssl.")
_HOST_NAMES = "ssl.endpoint.identification.algorithm"
_READ_AGAIN, _READ_AGAIN_S = 2, 0.25


@dataclass(frozen=True)
class ClientConfig:
    """Settings to reach one cluster.

    :param properties: librdkafka settings; ``bootstrap.servers`` is required.
    :param role: the cluster's role for the user: ``source``, ``target`` or a connection id. Used in errors.
    :param where: what holds the settings, as errors about them name it, with the role; empty: the role alone.
    :param reference: the file that they were read from; empty: they come from elsewhere, and stay what they are.
    :raises MissingSetting: ``bootstrap.servers`` is missing.
    :raises InputError, InvalidSetting: no client has a setting of this name, or none with such a value.
    """

    properties: Mapping[str, str] = field(repr=False)
    role: str = "cluster"
    where: str = field(default="", compare=False)
    reference: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        where = self.where or f"{self.role} settings"
        properties = login.as_settings(settled(self.properties, where), where)
        if not properties.get("bootstrap.servers", "").strip(" ,"):
            raise MissingSetting(self.where or f"{self.role} cluster", "bootstrap.servers")
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        if {one.upper() for one in re.findall(r"(\w+)://", properties["bootstrap.servers"])} - {protocol}:
            cause = "is not what stands before an address (PLAINTEXT if it is not set)"
            raise InvalidSetting(where, "security.protocol", cause, "Give addresses without ...://")
        object.__setattr__(self, "properties", properties)

    @property
    def bootstrap(self) -> str:
        """The comma-separated ``host:port`` list."""
        return self.properties["bootstrap.servers"]

    def for_admin(self) -> ClientConfig:
        """Return the settings of administrative calls, which may have addresses of their own: what MirrorMaker 2 calls
        ``A.admin.bootstrap.servers`` is ``admin.bootstrap.servers`` here.
        """
        own = self.properties.get("admin.bootstrap.servers", "").strip()
        return replace(self, properties={**self.properties, "bootstrap.servers": own}) if own else self

    def as_now(self) -> ClientConfig:
        """Return the settings as their file has them now, but for the addresses: who is connected knows newer ones.

        Errors as :func:`load`.
        """
        if not self.reference:
            return self
        now = load(self.reference, self.role)
        return replace(now, properties={**now.properties, "bootstrap.servers": self.bootstrap})

    def stamp(self) -> str:
        """Return a digest of the settings, and of what the files hold that they name: another one, another login.

        For comparisons in memory. Shown to nobody: who had it could try out short passwords.
        """
        digest = hashlib.sha256(json.dumps(sorted(self.properties.items())).encode())
        for key in (one for one in _RENEWED if one in self.properties):
            with suppress(OSError):  # one that is not here is read elsewhere, or being replaced
                digest.update(key.encode() + Path(self.properties[key].removeprefix("FILE:")).read_bytes())
        return digest.hexdigest()

    def secrets(self) -> list[str]:
        """Return the secret values, for masking."""
        return _secrets(self.properties)

    def common(self) -> dict[str, Any]:
        """Return the settings by which librdkafka's clients find, trust and log in to brokers.

        Tokens that only we can make come by a function (``oauth_cb``).

        Others are left to its defaults: a value for a Java client, such as a timeout of ten minutes, may be none for it.

        :raises InvalidField: a store can't be read. :raises InputError: a library that makes tokens is not installed.
        """
        given: dict[str, Any] = {
            k: v for k, v in self.properties.items() if k in EVERY_CLIENT and k.startswith(_TO_REACH)
        }
        if not given.get(_HOST_NAMES, "none"):
            given[_HOST_NAMES] = "none"  # what the empty text means in Java
        # It knows no truststore, and can't read a keystore as Java 8 writes it (RC2).
        if store := self.properties.get("ssl.truststore.location"):
            given["ssl.ca.pem"] = stores.trusted(store, self.properties.get("ssl.truststore.password", ""))
        if store := given.pop("ssl.keystore.location", ""):
            found = stores.identity(store, given.pop("ssl.keystore.password", ""))
            given["ssl.key.pem"], given["ssl.certificate.pem"] = found
        if methods.mechanism_of(self.properties) == "OAUTHBEARER":
            given |= methods.librdkafkas(self.properties, self.role)
        return {k: v for k, v in given.items() if v}

    def with_files(self) -> ClientConfig:
        """Return the settings with the content of the files that they name and that are here, for another host.

        A ticket cache is handed over as it is now: nobody renews it there.
        """
        more = {}
        for key, content in _FILES.items():
            path = Path(self.properties.get(key, "").removeprefix("FILE:"))
            if self.properties.get(key) and not self.properties.get(content) and os.access(path, os.R_OK):
                more[content] = base64.b64encode(path.read_bytes()).decode()
        return replace(self, properties={**self.properties, **more})

    def dump(self) -> str:
        """Return the settings as JSON **with secrets**, for the environment of a child process or a token file only."""
        return json.dumps(dict(self.properties))


@dataclass(frozen=True)
class Handover:
    """Settings that a job's driver passes to its tasks: pickled with what a task is to do, and never written down.

    :param settings: reference -> librdkafka settings, secrets included; empty: tasks read their references themselves.
    """

    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, *references: str) -> Handover:
        """Read the references here in the driver, where they are valid, and the files that they name."""
        settings = {reference: load(reference).with_files().properties for reference in references}
        return cls(
            {name: {k: v for k, v in its.items() if not k.startswith(OF_A_REGISTRY)} for name, its in settings.items()}
        )

    def secrets(self) -> list[str]:
        """Return the secret values that are handed over."""
        return [secret for its in self.settings.values() for secret in _secrets(its)]

    def accept(self) -> None:
        """Make :func:`load` in this process resolve these references from memory."""
        _handed.update(self.settings)


_handed: dict[str, Mapping[str, str]] = {}


def _secrets(properties: Mapping[str, str]) -> list[str]:
    return [value for key, value in properties.items() if value and (key in _SECRET_KEYS or is_secret(key))]


def load(reference: str, role: str = "cluster") -> ClientConfig:
    """Read settings from a reference.

    ``env:NAME`` is an environment variable and ``hadoop:NAME`` a secret of this container's Hadoop credentials
    (:mod:`.tokens`), both with a JSON object. Else it is a file: a JSON object if its name ends in ``.json`` or it begins
    with a brace, else properties (``key=value`` per line, ``#`` comments; :func:`.known_settings.of_properties`).
    Settings that a driver handed over to this process take precedence.

    A file is read again for a moment before it counts as missing or malformed: processes that follow a source for months
    read theirs whenever their share of the work changes, and somebody may just be writing it.

    :raises InputError: the variable, secret or file is missing or malformed; the error never quotes values.
    :raises MissingSetting: ``bootstrap.servers`` is missing.
    """
    if reference in _handed:
        return ClientConfig(_handed[reference], role)
    if reference.startswith("env:"):
        name = reference.removeprefix("env:")
        if name not in os.environ:
            raise InputError(
                f"{role} settings",
                f"environment variable {name} is not set",
                'Set it where this runs, as {"bootstrap.servers": "broker1:9092", ...}.',
            )
        return ClientConfig(of_json(os.environ[name], f"{role} settings: environment variable {name}"), role)
    if reference.startswith("hadoop:"):
        return ClientConfig(_of_container(reference.removeprefix("hadoop:"), role), role)
    for _ in range(_READ_AGAIN):
        try:
            return _of_file(reference, role)
        except InputError:
            time.sleep(_READ_AGAIN_S)
    return _of_file(reference, role)


def is_read_again(reference: str) -> bool:
    """Return whether a reference leads to a file: :func:`load` may find another password there than before."""
    return not reference.startswith(("env:", "hadoop:"))


def _of_file(reference: str, role: str) -> ClientConfig:
    where = f"{role} settings: file {reference!r}"
    text = read_text(Path(reference), where)
    is_json = reference.endswith(".json") or text.lstrip().startswith("{")  # as no line of properties begins
    properties = of_json(text, where) if is_json else of_properties(text, where)
    return ClientConfig(properties, role, where, reference)


def _of_container(name: str, role: str) -> dict[str, str]:
    where = f"{role} settings: the Hadoop credentials of this container"
    try:
        secret = tokens.secret_here(name)
    except KeyError:
        raise InputError(
            f"{where} are not there",
            f"{tokens.FILE_VARIABLE} is not set, and only YARN sets it",
            "Submit the job through its operator.",
        ) from None
    except (OSError, ValueError) as e:
        raise InputError(f"{where} can't be read", str(e)) from None
    if secret is None:
        raise InputError(where, f"they hold no secret {name!r}", "Submit the job through its operator.")
    return of_json(secret, f"{where}: {name!r}")
