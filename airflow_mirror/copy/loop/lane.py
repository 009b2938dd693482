"""A connection to one leader with at most one request under way, and how it comes up and goes down."""

from __future__ import annotations

import selectors
from functools import partial

from airflow_mirror.copy.loop.crew import Dialler
from airflow_mirror.copy.loop.leaders import Connect
from airflow_mirror.errors import MirrorError
from airflow_mirror.wire.connection import Connection


class Lane:
    """One connection.

    :ivar sent_at: when its last request was sent.
    :ivar not_before: the broker asked us to pause until then (throttle_time_ms).
    """

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.connection: Connection | None = None
        self.correlation = 0
        self.sent_at = self.not_before = 0.0
        self.dialling = self.abandoned = False
        self.failure: MirrorError | None = None


class Lines:
    """Connects the lanes of one side, in threads, and disconnects them."""

    def __init__(self, dialler: Dialler, selector: selectors.BaseSelector) -> None:
        self._dialler, self._selector = dialler, selector

    def is_up(self, lane: Lane, connect: Connect) -> bool:
        """Say whether a request can be sent now; if not, it can once the broker has answered.

        :raises MirrorError: it can't be connected to; asking once more tries again.
        """
        if lane.connection is not None:
            return True
        failure, lane.failure = lane.failure, None
        if failure is not None:
            raise failure
        if not lane.dialling:
            lane.dialling = True
            self._dialler.dial(connect, partial(self._connected, lane))
        return False

    def hang_up(self, lane: Lane) -> None:
        """Disconnect; what was asked may or may not be done."""
        if lane.connection is not None:
            self._selector.unregister(lane.connection)
            lane.connection.close()
            lane.connection = None

    def abandon(self, lane: Lane) -> None:
        """Disconnect for good, also if the broker answers only later."""
        lane.abandoned = True
        self.hang_up(lane)

    def _connected(self, lane: Lane, found: Connection | MirrorError) -> None:
        lane.dialling = False
        if isinstance(found, MirrorError):
            lane.failure = found
        elif lane.abandoned:
            found.close()
        else:
            lane.connection = found
            self._selector.register(found, selectors.EVENT_READ, lane)
