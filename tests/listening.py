"""Where processes listen."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Listener:
    """A TCP socket that takes connections, or a UDP socket that takes packets from anybody."""

    ip: str
    port: int
    program: str

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        address = ipaddress.ip_address(self.ip)
        mapped = getattr(address, "ipv4_mapped", None)  # a Java listens on ::ffff:127.0.0.1
        return (mapped or address).is_loopback


def listeners(pids: Iterable[int]) -> list[Listener]:
    """Return the open listeners of some processes; those that have ended have none."""
    found = []
    for pid in pids:
        try:
            process = psutil.Process(pid)
            program = " ".join(process.cmdline())[:120]
            connections = process.net_connections("inet")
        except psutil.NoSuchProcess:
            continue
        found += [
            Listener(c.laddr.ip, c.laddr.port, program)
            for c in connections
            if c.status == psutil.CONN_LISTEN or (c.type == socket.SOCK_DGRAM and c.laddr and not c.raddr)
        ]
    return found
