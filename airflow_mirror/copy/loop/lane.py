"""A connection to one leader with at most one request under way: how it comes up and goes down, and what passes over it.

Nothing in here waits. What the kernel does not take of a request, and what is not there yet of an answer, comes when the
selector says so. A session that ends soon is not renewed but replaced: another connection logs in meanwhile, in a thread.
"""

from __future__ import annotations

import logging
import selectors
from functools import partial

from airflow_mirror.copy.loop.crew import Dialler
from airflow_mirror.copy.loop.leaders import Connect
from airflow_mirror.errors import MirrorError
from airflow_mirror.wire.connection import Check, Connection

log = logging.getLogger(__name__)

_DIAL_AGAIN_S = 5.0  # after a login that was to replace a session and failed


class Lane:
    """One connection.

    :ivar heard_at: when its last request was sent, or anything of it or of its answer last moved.
    :ivar not_before: the broker asked us to pause until then (throttle_time_ms).
    :ivar successor: a connection to go on with, once nothing is under way on this one.
    """

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.connection: Connection | None = None
        self.successor: Connection | None = None
        self.correlation = 0
        self.heard_at = self.not_before = 0.0
        self.dialling = self.abandoned = self.writing = False
        self.failure: MirrorError | None = None

    @property
    def comes_up(self) -> bool:
        """True while there is nothing to do but to wait for its first connection."""
        return self.dialling and self.connection is None


class Lines:
    """Connects the lanes of one side, in threads, and disconnects them; takes what arrives."""

    def __init__(self, dialler: Dialler, selector: selectors.BaseSelector) -> None:
        self._dialler, self._selector = dialler, selector

    def is_up(self, lane: Lane, connect: Connect) -> bool:
        """Say whether a request can be sent now; if not, it can once the broker has answered. Nothing may be under way.

        :raises MirrorError: it can't be connected to; asking once more tries again.
        """
        if (successor := lane.successor) is not None:
            lane.successor = None
            self.hang_up(lane)
            self._take_up(lane, successor)
        if lane.connection is not None:
            if lane.connection.ends_soon:
                self._dial(lane, connect)
            return True
        failure, lane.failure = lane.failure, None
        if failure is not None:
            raise failure
        self._dial(lane, connect)
        return False

    def sent(self, lane: Lane, correlation_id: int) -> None:
        """Take note that a request was sent, perhaps in part."""
        lane.correlation = correlation_id
        self._attend(lane)

    def take(self, lane: Lane, check: Check | None = None) -> memoryview | None:
        """Return the answer; None as long as it is not whole. What is left of the request goes first.

        :param check: called before; if it raises, nothing of the request goes.
        :raises ConnectionLost: the connection is gone.
        """
        connection = lane.connection
        assert connection is not None
        connection.flush(check)
        self._attend(lane)
        return connection.receive(lane.correlation) if connection.arrived(lane.correlation) else None

    def hang_up(self, lane: Lane) -> None:
        """Disconnect; what was asked may or may not be done."""
        if lane.connection is not None:
            self._selector.unregister(lane.connection)
            lane.connection.close()
            lane.connection = None
        lane.writing = False

    def abandon(self, lane: Lane) -> None:
        """Disconnect for good, also if the broker answers only later."""
        lane.abandoned = True
        self.hang_up(lane)
        if lane.successor is not None:
            lane.successor.close()

    def _attend(self, lane: Lane) -> None:
        """Have the selector look whether more of the request can be sent, as long as that is of interest."""
        assert lane.connection is not None
        if lane.writing != lane.connection.unsent:
            lane.writing = not lane.writing
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if lane.writing else 0)
            self._selector.modify(lane.connection, events, lane)

    def _dial(self, lane: Lane, connect: Connect) -> None:
        if not lane.dialling:
            lane.dialling = True
            self._dialler.dial(connect, partial(self._connected, lane))

    def _connected(self, lane: Lane, found: Connection | MirrorError) -> None:
        lane.dialling = False
        if isinstance(found, MirrorError):
            if lane.connection is None:
                lane.failure = found
            else:  # it is good for a while yet
                log.warning("no new session in place of one that ends soon: %s", found)
                lane.connection.put_off(_DIAL_AGAIN_S)
        elif lane.abandoned:
            found.close()
        elif lane.connection is not None:
            lane.successor = found
        else:
            self._take_up(lane, found)

    def _take_up(self, lane: Lane, connection: Connection) -> None:
        lane.connection = connection
        self._selector.register(connection, selectors.EVENT_READ, lane)
