"""References to secrets that a file holds in their place: ``${provider:path:key}``, as Connect resolves them.

Kafka's own three providers are read: a properties file, a directory of one file per key, environment variables. They are
read where the connections are made, once; what they hold goes nowhere else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from airflow_mirror.compat import properties
from airflow_mirror.errors import InputError

# ConfigTransformer.DEFAULT_PATTERN; a provider of variables has no path.
_REFERENCE = re.compile(r"\$\{([^}:]*?):(([^}]*?):)?([^}]*?)\}")
_PACKAGE = "org.apache.kafka.common.config.provider"


class Providers:
    """The providers that a file declares.

    :param classes: the class of each, by its name in references.
    """

    def __init__(self, classes: Mapping[str, str]) -> None:
        self._classes = classes

    @classmethod
    def declared(cls, given: Mapping[str, str]) -> tuple[Providers, list[str]]:
        """Return those of a file's keys ``config.providers`` and below it, and what can't be kept, one line each."""
        classes, problems = dict[str, str](), list[str]()
        for name in (one.strip() for one in given.get("config.providers", "").split(",")):
            if not name:
                continue
            class_name = given.get(f"config.providers.{name}.class", "").strip()
            if class_name in _READ:
                classes[name] = class_name
            else:
                problems.append(
                    f"config.providers: {name!r} is {class_name or 'no class'!r}, which is code of Java. Use Kafka's "
                    "FileConfigProvider, DirectoryConfigProvider or EnvVarConfigProvider."
                )
        return cls(classes), problems

    def has_reference(self, value: str) -> bool:
        """Return whether ``value`` has a reference that :meth:`resolve` replaces."""
        return any(match[1] in self._classes for match in _REFERENCE.finditer(value))

    def resolve(self, key: str, value: str) -> str:
        """Return ``value`` with its references replaced. One of a provider that nobody declared stays, as in Connect.

        :raises InputError: what a reference names is not there. The error names the reference, never a value.
        """

        def replaced(match: re.Match[str]) -> str:
            class_name = self._classes.get(match[1])
            if class_name is None:
                return match[0]
            path, wanted, where = match[3] or "", match[4], f"{key}={match[0]}"
            found = _READ[class_name](path, wanted, where)
            if found is None:
                raise InputError(
                    f"{where}: {wanted!r} is not there. Correct the reference, or provide it on this machine."
                )
            return found

        return _REFERENCE.sub(replaced, value)


def _of_file(path: str, wanted: str, where: str) -> str | None:
    try:
        return properties.as_java_keeps(Path(path)).get(wanted)
    except InputError as e:
        raise InputError(f"{where}: {e}") from None


def _of_directory(path: str, wanted: str, where: str) -> str | None:
    file = Path(path, wanted)
    if file.parent != Path(path):  # DirectoryConfigProvider reads regular files of that directory alone
        raise InputError(f"{where}: {wanted!r} is no file of {path!r}.")
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as e:
        raise InputError(f"{where}: {file} can't be read: {e.strerror or e}.") from None


def _of_environment(path: str, wanted: str, where: str) -> str | None:
    del path, where
    return os.environ.get(wanted)


_READ: Mapping[str, Callable[[str, str, str], str | None]] = {
    f"{_PACKAGE}.FileConfigProvider": _of_file,
    f"{_PACKAGE}.DirectoryConfigProvider": _of_directory,
    f"{_PACKAGE}.EnvVarConfigProvider": _of_environment,
}
