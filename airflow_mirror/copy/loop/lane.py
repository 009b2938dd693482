"""A connection to one leader with at most one request in flight: its setup, its replacement and its traffic.

Nothing here blocks. The rest of a request or a response is transferred when the selector reports the socket ready. A
session that is about to expire is replaced, not renewed: a thread logs in on another connection meanwhile.
"""

from __future__ import annotations

import logging
import selectors
from functools import partial

from airflow_mirror.copy.loop.crew import Dialler
from airflow_mirror.copy.loop.leaders import Connect
from airflow_mirror.errors import MirrorError
from airflow_mirror.wire.connection import Check, Connection
from airflow_mirror.wire.error_codes import error_name
from airflow_mirror.wire.errors import is_denied, meaning, refusal

log = logging.getLogger(__name__)

_DIAL_AGAIN_S = 5.0  # after a failed login for a replacement session


class Lane:
    """One connection.

    :ivar heard_at: when its last request was sent, or when any byte of that request or its response last moved.
    :ivar not_before: the broker asked us to pause until then (throttle_time_ms).
    :ivar successor: the connection to switch to once nothing is in flight on this one.
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
        """True while its first connection is being set up."""
        return self.dialling and self.connection is None

    def cause(self, what: str, code: int, operation: str, name: str, message: str = "") -> str:
        """Return what a broker's code in a response means; a missing right with the ACL to add.

        :param operation: the ACL operation that is needed; ``name``: its resource.
        """
        if is_denied(code) and self.connection is not None:
            return str(refusal(what, code, operation, name, self.connection.settings.principal))
        if (more := meaning(code, message)) != message and self.connection is not None:
            what = f"{what}, broker {self.connection.address}"
        return f"{what}: {error_name(code)} {more}".strip()


class Lines:
    """Connects the lanes of one side, in threads, disconnects them, and receives their responses."""

    def __init__(self, dialler: Dialler, selector: selectors.BaseSelector) -> None:
        self._dialler, self._selector = dialler, selector

    def is_up(self, lane: Lane, connect: Connect) -> bool:
        """Return whether a request can be sent now. If not, the connection is being set up. Nothing may be in flight.

        :raises MirrorError: the connection failed; the next call tries again.
        """
        # Only here, with nothing in flight: an answer that is still due would be lost with the old connection.
        if (successor := lane.successor) is not None:
            lane.successor = None
            # It may have idled for minutes, in no selector that would have told of its end.
            if successor.gone:
                successor.close()
            else:
                self.hang_up(lane)
                self._take_up(lane, successor)
        # A lane that rested while its session ended: the broker closes on the next request, whose batches would have to
        # be looked for on the target.
        if lane.connection is not None and lane.connection.is_over:
            self.hang_up(lane)
        if lane.connection is not None:
            # The session that ends is used until there is another one: a login takes round trips, and may fail.
            if lane.connection.ends_soon:
                self._dial(lane, connect)
            return True
        failure, lane.failure = lane.failure, None
        if failure is not None:
            raise failure
        self._dial(lane, connect)
        return False

    def sent(self, lane: Lane, correlation_id: int) -> None:
        """Record that a request was sent, perhaps in part."""
        lane.correlation = correlation_id
        self._attend(lane)

    def take(self, lane: Lane, check: Check | None = None) -> memoryview | None:
        """Send what is left of the request, and return the response, or None while it is incomplete.

        :param check: called first; if it raises, no more of the request is sent.
        :raises ConnectionLost: the connection is gone.
        """
        connection = lane.connection
        assert connection is not None
        # The rest of the request first: a broker answers nothing before it has all of it.
        connection.flush(check)
        self._attend(lane)
        return connection.receive(lane.correlation) if connection.arrived(lane.correlation) else None

    def has_more(self, lane: Lane) -> bool:
        """Return whether part of a response waits that the selector does not report: a large one wakes it rarely."""
        return lane.connection is not None and lane.connection.has_bytes

    def hang_up(self, lane: Lane) -> None:
        """Disconnect; a request in flight may or may not have been executed."""
        if lane.connection is not None:
            # Before it is closed: afterwards its descriptor's number may be another connection's, which the selector
            # would then lose.
            self._selector.unregister(lane.connection)
            lane.connection.close()
            lane.connection = None
        lane.writing = False

    def abandon(self, lane: Lane) -> None:
        """Disconnect for good, and close a connection that is still being set up as soon as it is there."""
        # First: a thread may be about to deliver a connection, which `_connected` then closes.
        lane.abandoned = True
        self.hang_up(lane)
        if lane.successor is not None:
            lane.successor.close()

    def _attend(self, lane: Lane) -> None:
        """Have the selector report writability while part of the request is unsent."""
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
            else:  # the old session is still valid for a while
                log.warning("no new session in place of one that ends soon: %s", found)
                lane.connection.put_off(_DIAL_AGAIN_S)
        # Nobody else would ever close it: a socket with a login on it would stay for as long as the process.
        elif lane.abandoned:
            found.close()
        elif lane.connection is not None:
            lane.successor = found
        else:
            self._take_up(lane, found)

    def _take_up(self, lane: Lane, connection: Connection) -> None:
        lane.connection = connection
        # By the loop's thread, to which the mailbox has brought it: a selector has one user.
        self._selector.register(connection, selectors.EVENT_READ, lane)
