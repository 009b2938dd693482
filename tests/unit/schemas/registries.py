"""A registry that answers as Confluent's API is documented, in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


@dataclass
class DrivenRegistry:
    """Schemas by id: type, text, references; ``subjects``: (subject, version) -> id.

    :ivar asked: paths, with the Authorization header. :ivar status: of every answer; 0: as it is.
    """

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[tuple[str, int], int] = field(default_factory=dict)
    guids: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    status: int = 0
    url: str = ""

    def register(
        self, schema_id: int, text: str, subject: str = "s-value", version: int = 1, kind: str = "AVRO", **more: Any
    ) -> None:
        self.schemas[schema_id] = {"schema": text, **({} if kind == "AVRO" else {"schemaType": kind}), **more}
        self.subjects[subject, version] = schema_id

    def answer(self, path: str) -> tuple[int, Any]:
        if self.status:
            return self.status, {}
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match parts:
            case ["schemas", "ids", one, *rest]:
                found = self.schemas.get(int(one))
                if found is not None and rest == ["versions"]:
                    return 200, [{"subject": s, "version": v} for (s, v), its in self.subjects.items() if its == int(one)]
                return (200, found) if found is not None else (404, {"error_code": 40403, "message": "Schema not found"})
            case ["schemas", "guids", one]:
                return self.answer(f"schemas/ids/{self.guids.get(one, -1)}")
            case ["subjects", subject, "versions", version]:
                return self.answer(f"schemas/ids/{self.subjects.get((subject, int(version)), -1)}")
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def driven() -> Iterator[DrivenRegistry]:
    made = DrivenRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append((self.path, self.headers.get("Authorization")))
            status, body = made.answer(self.path)
            data = json.dumps(body).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
