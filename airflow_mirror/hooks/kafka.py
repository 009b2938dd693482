"""The settings of a cluster, from an Airflow connection of type ``kafka``, or ``kafka_cluster``."""

from __future__ import annotations

import base64
import json
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.kafka.hooks.base import CALLBACK_CONFIG_KEYS, KafkaBaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from airflow_mirror.common.oauth import gcp, methods
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InvalidField, MirrorError, MissingSetting, UnknownConnection
from airflow_mirror.hooks import form
from airflow_mirror.hooks.extra import extra_of
from airflow_mirror.kafka.admin import ClusterAdmin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_mirror.mirror import Mirror

__all__ = ["KafkaClusterHook", "MirrorKafkaHook"]

log = logging.getLogger(__name__)

_TEST_S = 10.0  # somebody sits in front of the form
_GOOGLE, _GOOGLE_PREFIX = "google_cloud_default", "extra__google_cloud_platform__"
_GOOGLE_OTHERS = {"key_secret_name", "credential_config_file", "impersonation_chain", "idp_issuer_url", "is_anonymous"}


class MirrorKafkaHook(KafkaBaseHook):  # type: ignore[misc]  # the Kafka provider ships no types
    """One cluster of a mirror, by a connection of the Kafka provider's type, or of :class:`KafkaClusterHook`'s.

    :param kafka_config_id: Airflow connection id.
    :param role: ``source`` or ``target``: the cluster's role in the mirror. Errors name it.
    """

    def __init__(self, kafka_config_id: str, role: str = "cluster") -> None:
        super().__init__(kafka_config_id=kafka_config_id)
        self.role = role

    def config(self) -> ClientConfig:
        """Return the connection's settings, and mask their secrets in this process's logs from now on.

        Airflow masks by key name and misses some of Kafka's keys (``ssl.key.pem``, ``sasl.jaas.config``).

        :raises UnknownConnection: there is no such connection.
        :raises MissingSetting: it has no ``bootstrap.servers``.
        :raises InputError: its extra, or that of Google's connection, is no JSON object.
        :raises InputError, InvalidSetting: no client has such a setting or value. The error names connection and role.
        :raises InvalidField: it names a function that Airflow's settings don't allow, or Google's login is another one.
        """
        conn_id = self.kafka_config_id
        try:
            found = self.get_connection(conn_id)
        except AirflowNotFoundException:
            raise UnknownConnection(conn_id, self.role) from None
        where = f"connection {conn_id!r} (the {self.role} cluster)"
        extra = extra_of(found, where)
        if found.conn_type == form.CONN_TYPE:
            extra = form.settings_of(conn_id, extra, found.login, found.password)
        if not extra.get("bootstrap.servers"):
            raise MissingSetting(where, "bootstrap.servers")
        config = ClientConfig(self._of_google(self._with_allowed_functions(extra)), self.role, where)
        for secret in config.secrets():
            mask_secret(secret)
        return config

    def _with_allowed_functions(self, extra: dict[str, Any]) -> dict[str, Any]:
        """Return the settings without functions that no mirror calls. ``oauth_cb`` stays a name: jobs call it too."""
        functions = {key: extra.pop(key) for key in CALLBACK_CONFIG_KEYS if key in extra}
        name = functions.pop("oauth_cb", None)
        if functions:
            log.info("connection %s: a mirror does not call %s", self.kafka_config_id, ", ".join(functions))
        if name is None:
            return extra
        try:
            self._resolve_callbacks({"oauth_cb": name})  # the provider's own rule of what may be called
        except (ValueError, ImportError, AttributeError) as e:
            remedy = "Name it in [apache_kafka] callback_allowlist of Airflow's settings, on every worker."
            raise InvalidField("oauth_cb", name, f"{e} (connection {self.kafka_config_id!r})", remedy) from None
        return {**extra, "oauth_cb": name}

    def _of_google(self, extra: dict[str, Any]) -> dict[str, Any]:
        """Return the settings with the account of the connection that the provider takes for Google's Managed Kafka."""
        login = {key: str(value) for key, value in extra.items()}
        if methods.mechanism_of(login) != "OAUTHBEARER":
            return extra
        if any(key.startswith("sasl.gcp.") for key in extra) or methods.method_of(login) != methods.GCP:
            return extra
        try:
            found = extra_of(self.get_connection(_GOOGLE), f"connection {_GOOGLE!r}")
        except AirflowNotFoundException:
            return extra
        given = {key.removeprefix(_GOOGLE_PREFIX): value for key, value in found.items() if value}
        for other in _GOOGLE_OTHERS & given.keys():
            remedy = (
                f"Give {_GOOGLE} a key_path or keyfile_dict, or nothing, so that workers log in as their own account."
            )
            raise InvalidField(other, "(set)", f"connection {_GOOGLE!r} logs in by it, and a mirror can't", remedy)
        if path := given.get("key_path"):
            return {**extra, gcp.KEY: path}
        key: object = given.get("keyfile_dict")
        text = key if isinstance(key, str) else json.dumps(key)
        return {**extra, gcp.CONTENT: base64.b64encode(text.encode()).decode()} if key else extra

    def admin(self) -> ClusterAdmin:
        """Return an admin facade of the cluster, for the caller to close; nothing is connected yet.

        Errors as :meth:`config`.
        """
        return ClusterAdmin(self.config())


class KafkaClusterHook(MirrorKafkaHook):
    """The form of Airflow's connections for a cluster: how it is reached, field by field (:mod:`.form`)."""

    conn_type = form.CONN_TYPE
    hook_name = "Kafka cluster"

    def test_connection(self) -> tuple[bool, str]:
        """Log in as tasks would, and return whether that works, and what to tell."""
        try:
            with ClusterAdmin(self.config(), _TEST_S) as cluster:
                return True, f"Logged in to cluster {cluster.cluster_id()}."
        except MirrorError as e:
            return False, str(e)


def configs_of(mirror: Mirror) -> dict[str, ClientConfig]:
    """Return the settings of both clusters of a mirror, by role. Errors as :meth:`MirrorKafkaHook.config`."""
    return {
        role: MirrorKafkaHook(conn_id, role).config()
        for role, conn_id in (("source", mirror.source), ("target", mirror.target))
    }


@contextmanager
def admins_of(mirror: Mirror) -> Iterator[tuple[ClusterAdmin, ClusterAdmin]]:
    """Yield admin facades of the source and the target, open for the block. Errors as :meth:`MirrorKafkaHook.config`."""
    configs = configs_of(mirror)
    with ClusterAdmin(configs["source"]) as source, ClusterAdmin(configs["target"]) as target:
        yield source, target
