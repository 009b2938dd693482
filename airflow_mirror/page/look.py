"""What all looks share: connections that are kept between two of them, and one sentence about what went wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from airflow_mirror.errors import MirrorError
from airflow_mirror.hooks.kafka import MirrorKafkaHook
from airflow_mirror.kafka.admin import ClusterAdmin

log = logging.getLogger(__name__)

ANSWER_S = 5.0  # a cluster that takes longer is away: somebody sits in front of the page


class Look:
    """Keeps connections between two looks. Belongs to one thread at a time."""

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self._open = ExitStack()
        self._config: Any = None

    def close(self) -> None:
        """Close the connections; the next look opens them again."""
        self._open.close()
        self._config = None

    def _admin(self, conn_id: str, role: str) -> ClusterAdmin:
        return self._open.enter_context(ClusterAdmin(MirrorKafkaHook(conn_id, role).config(), ANSWER_S))

    def _changed(self) -> bool:
        """Return whether the target's settings are others than those that are used; they are from now on."""
        before, self._config = self._config, MirrorKafkaHook(self.conn_id, "target").config()
        if before == self._config:
            return False
        self._open.close()
        return True

    def _told(self, look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what a look has found, or why nothing was: one target must not take the others' place on the page."""
        try:
            return look()
        except MirrorError as e:
            self.close()
            return {"error": str(e)}
        except Exception:
            self.close()
            log.exception("connection %s could not be looked at", self.conn_id)
            return {"error": "it could not be looked at: the API server's log says why"}
