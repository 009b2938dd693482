"""References to secrets that a file holds in their place: ``${provider:path:key}``, as Connect resolves them.

Kafka's own three providers are read: a properties file, a directory of one file per key, environment variables. They are
read where the connections are made, once; what they hold goes nowhere else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from airflow_mirror.common.text_files import read_text
from airflow_mirror.compat import properties
from airflow_mirror.errors import InputError

# ConfigTransformer.DEFAULT_PATTERN; a provider of variables has no path.
_REFERENCE = re.compile(r"\$\{([^}:]*?):(([^}]*?):)?([^}]*?)\}")
_PACKAGE = "org.apache.kafka.common.config.provider"
_Limit = Callable[[str, str], bool]  # of a path and a key


class Providers:
    """The providers that a file declares.

    :param classes: the class of each, by its name in references.
    :param limits: whether each may be asked for a path and a key; one without may be asked for all.
    """

    def __init__(self, classes: Mapping[str, str], limits: Mapping[str, _Limit]) -> None:
        self._classes, self._limits = classes, limits

    @classmethod
    def declared(cls, given: Mapping[str, str]) -> tuple[Providers, list[str]]:
        """Return those of a file's keys ``config.providers`` and below it, and what can't be kept, one line each."""
        classes, problems, limits = dict[str, str](), list[str](), dict[str, _Limit]()
        for name in (one.strip() for one in given.get("config.providers", "").split(",")):
            if not name:
                continue
            class_name = given.get(f"config.providers.{name}.class", "").strip()
            params = {key: value for key, value in given.items() if key.startswith(f"config.providers.{name}.param.")}
            if class_name in _READ:
                classes[name] = class_name
                for key, value in params.items():
                    limit = _limit(class_name, key.rpartition(".param.")[2], value.strip())
                    if isinstance(limit, str):
                        problems.append(f"{key}: {limit}")
                    else:
                        limits[name] = limit
            else:
                # A name that nobody gave a class is a value, and nothing else.
                what = (
                    f"config.providers.{name}.class is code of Java"
                    if class_name
                    else "config.providers: one has no class"
                )
                use = "Use Kafka's FileConfigProvider, DirectoryConfigProvider or EnvVarConfigProvider."
                problems.append(f"{what}. {use}")
        return cls(classes, limits), problems

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
            if match[1] in self._limits and not self._limits[match[1]](path, wanted):
                raise InputError(where, f"config.providers.{match[1]}.param keeps it out", "Correct one of them.")
            found = _READ[class_name](path, wanted, where)
            if found is None:
                raise InputError(
                    where, f"{wanted!r} is not there", "Correct the reference, or provide it on this machine."
                )
            return found

        return _REFERENCE.sub(replaced, value)


def references(value: str) -> list[str]:
    """Return what in ``value`` has the form of a reference, to whatever provider."""
    return [match[0] for match in _REFERENCE.finditer(value)]


def _limit(class_name: str, parameter: str, value: str) -> _Limit | str:
    """Return what a provider's parameter allows, or what is wrong with it.

    Rule: EnvVarConfigProvider (3.5) matches the whole name; AllowedPaths (3.6) takes what lies below a directory.
    """
    if (class_name, parameter) == (_VARIABLES, "allowlist.pattern"):
        try:
            allowed = re.compile(value)
        except re.error:
            return "no regular expression. Correct it."
        return lambda _, wanted: allowed.fullmatch(wanted) is not None
    if class_name != _VARIABLES and parameter == "allowed.paths":
        roots = [Path(os.path.normpath(one.strip())) for one in value.split(",") if one.strip()]
        return lambda path, _: any(Path(os.path.normpath(path)).is_relative_to(root) for root in roots)
    return "Kafka's provider has no such parameter. Correct or remove it."


def _of_file(path: str, wanted: str, where: str) -> str | None:
    try:
        # FileConfigProvider reads UTF-8, unlike Java elsewhere. Where it replaces bytes that are none, this is an error:
        # no broker takes such a password, and nothing would say that the file is at fault.
        return properties.as_java_keeps(Path(path), "utf-8").get(wanted)
    except InputError as e:
        raise InputError(f"{where}: {e.what}", e.cause, e.remedy) from None


def _of_directory(path: str, wanted: str, where: str) -> str | None:
    file = Path(path, wanted)
    if file.parent != Path(path):  # DirectoryConfigProvider reads regular files of that directory alone
        raise InputError(where, f"{wanted!r} is no file of {path!r}", "Correct the reference.")
    return read_text(file, f"{where}: {file}") if file.exists() else None


def _of_environment(path: str, wanted: str, where: str) -> str | None:
    del path, where
    return os.environ.get(wanted)


_VARIABLES = f"{_PACKAGE}.EnvVarConfigProvider"
_READ: Mapping[str, Callable[[str, str, str], str | None]] = {
    f"{_PACKAGE}.FileConfigProvider": _of_file,
    f"{_PACKAGE}.DirectoryConfigProvider": _of_directory,
    _VARIABLES: _of_environment,
}
