"""A network that misbehaves on request: a TCP proxy in front of a broker. ``python -m sandbox.proxy`` only delays.

The proxy knows nothing of Kafka. What it can do to the connections through it: delay, a limit of bytes per second, cut
all, cut after so many bytes (in the middle of a frame), and hold: take what is sent and deliver it late, or never. Held
bytes arrive after the client gave the connection up and asked again on another one; that is how a request lands late.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, Self

logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each write to a connection that was cut on purpose
_CHUNK = 1 << 16
# What may be on its way in one direction of a connection: as much as Linux lets a TCP connection have by itself.
_WINDOW = 4 << 20
# Closing with this linger time sends RST: the other side sees a connection that broke, not one that ended.
_RESET = struct.pack("ii", 1, 0)


class _Flight:
    """Bytes that are on their way in one direction, each piece with the time at which it is due."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._bytes = 0
        self._landed = asyncio.Event()

    async def put(self, due: float, data: bytes) -> None:
        """Take a piece, as soon as the window is open."""
        while self._bytes >= _WINDOW:
            self._landed.clear()
            await self._landed.wait()
        self._bytes += len(data)
        self._pieces.put_nowait((due, data))

    async def get(self) -> tuple[float, bytes]:
        """Return the next piece, which stays under way."""
        return await self._pieces.get()

    def land(self, count: int) -> None:
        """Open the window by so many bytes."""
        self._bytes -= count
        self._landed.set()


class Link:
    """One connection through the proxy: two sockets, two directions.

    :ivar noted: of requests that were not answered yet, by correlation id, for a proxy that knows Kafka.
    """

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server
        self.open = asyncio.Event()  # cleared: bytes are taken and kept
        self.open.set()
        self.noted: dict[int, int] = {}

    def reset(self, *writers: asyncio.StreamWriter) -> None:
        """Break both sides of it, or the given ones."""
        for writer in writers or (self.client, self.server):
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


class FaultProxy:
    """Listens on a port of its own and forwards to ``upstream``; threads of a test may change it at any time.

    :ivar upstream: (host, port) of the broker; may be set after the start, and is asked for each new connection.
    :ivar delay_s: what each direction adds to each piece of data, in seconds; at most 4 MB are on their way meanwhile.
    :ivar bytes_per_s: what each direction of a connection lets through; None: everything.
    """

    def __init__(self) -> None:
        self.upstream: tuple[str, int] | None = None
        self.delay_s, self.bytes_per_s = 0.0, None  # type: tuple[float, int | None]
        self.port = 0
        self._links: set[Link] = set()
        self._cut_in: int | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._server: asyncio.Server | None = None

    def start(self, port: int = 0) -> Self:
        """Begin to listen, on a free port when it is 0; :attr:`address` is known from then on."""
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._serve, "127.0.0.1", port))
        assert self._server is not None
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def close(self) -> None:
        """Cut everything and stop listening."""
        if self._server is not None:
            self._loop.call_soon_threadsafe(self._server.close)
            self.cut()
            self._call(lambda: [task.cancel() for task in asyncio.all_tasks(self._loop) if task.get_name() != "call"])
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
            self._loop.close()

    @property
    def address(self) -> str:
        """``127.0.0.1:port``, for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def links(self) -> int:
        """How many connections are open."""
        return len(self._links)

    # --- faults -------------------------------------------------------------------------------------------------------

    def cut(self) -> int:
        """Reset all connections, on both sides; return how many. New ones are let through."""
        return int(self._call(self._cut_now))

    def cut_after(self, count: int) -> None:
        """Reset all connections when ``count`` more bytes went through, both directions together: inside a frame."""
        self._call(lambda: setattr(self, "_cut_in", count))

    def hold(self) -> int:
        """Go silent on the connections of now: what is sent is taken and kept. New ones are let through."""
        return int(self._call(self._hold_now))

    def release(self) -> None:
        """Deliver what was held."""
        self._call(self._release_now)

    def cut_clients(self) -> int:
        """Reset the clients' side only; what they sent before, and is held, still arrives on :meth:`release`."""

        def do() -> int:
            links = list(self._links)
            for link in links:
                link.reset(link.client)
            return len(links)

        return int(self._call(do))

    def heal(self) -> None:
        """Take every fault back; held bytes are delivered."""
        self.delay_s, self.bytes_per_s = 0.0, None
        self._call(lambda: setattr(self, "_cut_in", None))
        self.release()

    # --- inside: all of this runs in the loop's thread ----------------------------------------------------------------

    def _hold_now(self) -> int:
        for link in self._links:
            link.open.clear()
        return len(self._links)

    def _release_now(self) -> None:
        for link in self._links:
            link.open.set()

    def _cut_now(self) -> int:
        links = list(self._links)
        for link in links:
            link.open.set()
            link.reset()
        return len(links)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.upstream is None:
                raise ConnectionRefusedError
            up_reader, up_writer = await asyncio.open_connection(*self.upstream)
        except (OSError, asyncio.CancelledError) as e:
            Link(writer, writer).reset(writer)  # the broker is down, and the client shall see that; or the proxy ends
            if isinstance(e, OSError):
                return
            raise
        for one in (writer, up_writer):
            one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(writer, up_writer)
        self._links.add(link)
        try:
            await asyncio.gather(self._pump(link, reader, up_writer), self._pump(link, up_reader, writer))
        finally:
            self._links.discard(link)
            link.reset()

    async def _pump(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction."""
        flight = _Flight()
        sender = asyncio.ensure_future(self._send(link, flight, writer))
        try:
            while data := await reader.read(_CHUNK):
                await flight.put(self._loop.time() + self.delay_s, data)
        except OSError:
            pass  # reset by that side; what it sent before is still delivered
        await flight.put(0.0, b"")
        await sender

    async def _send(self, link: Link, flight: _Flight, writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await flight.get()
            if (early := due - self._loop.time()) > 0:
                await asyncio.sleep(early)
            await link.open.wait()
            if not data:
                with contextlib.suppress(OSError, RuntimeError):
                    writer.write_eof()
                return
            passed = self._count(data)
            with contextlib.suppress(OSError):  # that side is gone; the other one is told when its own read ends
                writer.write(passed)
                await writer.drain()
            flight.land(len(data))
            if self.bytes_per_s is not None:
                await asyncio.sleep(len(passed) / self.bytes_per_s)

    def _count(self, data: bytes) -> bytes:
        """Return what may still go through; the cut itself follows at once."""
        if self._cut_in is None:
            return data
        passed, self._cut_in = data[: self._cut_in], self._cut_in - len(data)
        if self._cut_in <= 0:
            self._cut_in = None
            self._loop.call_later(0.001, self._cut_now)  # after what passed has left
        return passed

    # --- from other threads -------------------------------------------------------------------------------------------

    def _do(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(240)

    def _call(self, function: Callable[[], Any]) -> Any:
        async def run() -> Any:
            task = asyncio.current_task()
            assert task is not None
            task.set_name("call")
            return function()

        return self._do(run())


def main() -> None:
    """Run a proxy in front of one address until a signal ends it."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.proxy", description="A TCP proxy that delays.")
    parser.add_argument("upstream", metavar="HOST:PORT", help="where it forwards to")
    parser.add_argument("--port", type=int, default=0, help="that it listens on (default: a free one)")
    parser.add_argument("--delay-ms", type=float, default=40.0, help="of each direction (default: 40)")
    args = parser.parse_args()
    host, _, port = args.upstream.rpartition(":")
    proxy = FaultProxy()
    proxy.upstream, proxy.delay_s = (host, int(port)), args.delay_ms / 1000
    print(proxy.start(args.port).address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
