"""Ports that stay ours, also while the node behind them is down.

A port is reserved by a socket that is bound but never listens. The kernel then refuses the port to everybody, except
to a listener that says SO_REUSEADDR while ours says so too: Java's server sockets do. A client that comes while the
node is down gets "connection refused", as from a real dead broker. A node that was killed finds its port free again.
"""

from __future__ import annotations

import random
import socket

from sandbox.errors import PortInUse

HOST = "127.0.0.1"
# Below 32768, where Linux begins to choose ports for outgoing connections: one of these could hold a port for a minute
# (TIME_WAIT) exactly when a killed node wants it back.
_RANGE = range(20_000, 32_000)


class ReservedPort:
    """One port on 127.0.0.1, ours until :meth:`release`."""

    def __init__(self, number: int) -> None:
        """Take port ``number``.

        :raises OSError: when somebody has it.
        """
        self.number = number
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.bind((HOST, number))  # without SO_REUSEADDR: any other owner, listening or not, is an error
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # now the node may join us
        except OSError:
            self._socket.close()
            raise

    @property
    def address(self) -> str:
        """``127.0.0.1:port``."""
        return f"{HOST}:{self.number}"

    def release(self) -> None:
        """Give the port back."""
        self._socket.close()


def reserve(cluster: str, wanted: int | None = None) -> ReservedPort:
    """Reserve port ``wanted``, or any free one.

    :raises PortInUse: when ``wanted`` is taken.
    """
    if wanted is not None:
        try:
            return ReservedPort(wanted)
        except OSError:
            raise PortInUse(wanted, cluster) from None
    for number in random.sample(_RANGE, 200):
        try:
            return ReservedPort(number)
        except OSError:
            continue
    raise PortInUse(number, cluster)
