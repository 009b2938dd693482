"""Schema registries of a mirror, by what it names: an address, a file of properties, or an Airflow connection."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from airflow_mirror.config import OF_A_REGISTRY
from airflow_mirror.errors import InputError
from airflow_mirror.hooks.extra import extra_of
from airflow_mirror.sync.schemas.registry import Registry, is_named_here

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mirror.config import ClientConfig
    from airflow_mirror.mirror import Mirror

_SECRETS = ("basic.auth.user.info", "bearer.auth.token")


def registry_of(role: str, name: str) -> Registry:
    """Return the registry of a role, ``source`` or ``target``.

    A connection of type ``http`` has address, login and password in its own fields. Of any type, its extra may have the
    settings that a file has.

    :raises InputError: there is no such connection, or its extra is no JSON object; errors as :meth:`.Registry.by`.
    """
    if is_named_here(name):
        return Registry.of(role, name)
    what = f"connection {name!r} ({role} registry)"
    try:
        settings = _settings(name, what)
    except AirflowNotFoundException:
        raise InputError(
            f"{role} registry {name!r}", "neither an address, a file of properties nor the id of an Airflow connection",
            "Correct it, or create the connection: type http, with the registry's address.",
        ) from None  # fmt: skip
    for key in _SECRETS:
        for secret in filter(None, (settings.get(key, ""), settings.get(key, "").partition(":")[2])):
            mask_secret(secret)
    return Registry.by(role, settings, what)


def with_registries(configs: dict[str, ClientConfig], mirror: Mirror) -> dict[str, ClientConfig]:
    """Return the settings of both clusters with those of the registries that follow, where they are in connections.

    :param configs: by role. :raises InputError: as of :func:`registry_of`.
    """
    if not mirror.sync_schemas:
        return configs
    names = {"source": mirror.source_registry or "", "target": mirror.target_registry or ""}
    found = dict(configs)
    for role, name in names.items():
        if not is_named_here(name):
            # Not those of another one that the cluster's own settings name: a login would go to the wrong registry.
            own = {key: value for key, value in configs[role].properties.items() if not key.startswith(OF_A_REGISTRY)}
            found[role] = replace(configs[role], properties=own | registry_of(role, name).handed())
    return found


def _settings(name: str, what: str) -> Mapping[str, str]:
    connection = BaseHook.get_connection(name)
    settings = {str(key): str(value) for key, value in extra_of(connection, what).items()}
    if connection.host and not settings.keys() & {"schema.registry.url", "url"}:
        host = connection.host if "://" in connection.host else f"{connection.schema or 'http'}://{connection.host}"
        settings["schema.registry.url"] = f"{host}:{connection.port}" if connection.port else host
    if connection.login:
        settings["basic.auth.user.info"] = f"{connection.login}:{connection.password or ''}"
    return settings
