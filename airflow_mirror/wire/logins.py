"""Log in by the settings of the start, and, where they are refused, by those that their file has by now."""

from __future__ import annotations

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InputError
from airflow_mirror.wire.connection import Connection, WireSettings


class Logins:
    """Opens a cluster's connections. Any thread may use it.

    A process that runs for months has the settings of its start. Since then a password may have been changed, or a
    certificate renewed.

    :ivar settings: what the next connection is opened with.
    """

    def __init__(self, config: ClientConfig, client_id: str) -> None:
        self.settings = WireSettings.from_config(config, client_id)
        self._config, self._stamp = config, config.stamp()

    def connect(self, host: str, port: int, timeout_s: float | None = None) -> Connection:
        """Open a connection. Errors as :meth:`.Connection.open`, also where newer settings are refused."""
        used = self.settings
        try:
            return Connection.open(host, port, used, timeout_s)
        except InputError:  # the login, or TLS: its files are read once
            if not self._has_newer(used):
                raise
        return Connection.open(host, port, self.settings, timeout_s)

    def _has_newer(self, used: WireSettings) -> bool:
        if self.settings is used:
            try:
                config = self._config.as_now()
                settings = WireSettings.from_config(config, used.client_id)
            except InputError:  # somebody may be writing them
                return False
            if (stamp := config.stamp()) != self._stamp:
                self._stamp, self.settings = stamp, settings
        return self.settings is not used
