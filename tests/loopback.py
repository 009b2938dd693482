"""HTTP servers of tests, on loopback."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Quiet(http.server.BaseHTTPRequestHandler):
    """What all handlers have: requests are no lines on the terminal."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(handler: type[Quiet]) -> Iterator[str]:
    """Yield the address of a server that runs for the block, without a path."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
