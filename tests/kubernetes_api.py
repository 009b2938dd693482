"""A stand-in for the API server of Kubernetes: it keeps what it is sent, and starts nothing.

It answers what ``spark-submit`` asks of it, seen with Spark 4.2.0: objects are created, applied, read, watched, deleted.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests import loopback

Key = tuple[str, str, str]  # namespace, plural of the kind, name


class Api:
    """What is there. :ivar objects: as they were sent, with their ids. :ivar asked: method and path of each request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.objects: dict[Key, dict[str, Any]] = {}
        self.asked: list[str] = []

    def of(self, plural: str) -> dict[str, dict[str, Any]]:
        """Return the objects of a kind by name."""
        return {name: one for (_, kind, name), one in self.objects.items() if kind == plural}

    def answer(self, method: str, address: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return a status and an object."""
        path = urlsplit(address).path
        self.asked.append(f"{method} {path}")
        match path.partition("/namespaces/")[2].split("/"):
            case [namespace, plural]:
                return self._of_kind(method, (namespace, plural), body)
            case [namespace, plural, name]:
                return self._of_one(method, (namespace, plural, name), body)
        return 404, _status(404, f"no such path {path}")

    def _of_kind(self, method: str, place: tuple[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if method == "POST":
            return 201, self._kept((*place, body["metadata"]["name"]), body)
        items = [one for (namespace, plural, _), one in self.objects.items() if (namespace, plural) == place]
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}

    def _of_one(self, method: str, key: Key, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if method in ("PATCH", "PUT"):
            return 200, self._kept(key, body)
        if key not in self.objects:
            return 404, _status(404, f"{key[1]} {key[2]!r} not found")
        return 200, self.objects.pop(key) if method == "DELETE" else self.objects[key]

    def _kept(self, key: Key, body: dict[str, Any]) -> dict[str, Any]:
        before = self.objects.get(key, {"metadata": {"uid": str(uuid.uuid4())}})
        own = {"uid": before["metadata"]["uid"], "resourceVersion": "1", "namespace": key[0]}
        status = {"status": {"phase": "Pending"}} if key[1] == "pods" else {}  # without one Spark can't say it
        self.objects[key] = {**status, **body, "metadata": {**body.get("metadata", {}), **own}}
        return self.objects[key]


def _status(code: int, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "message": message,
        "reason": "NotFound",
    }


@contextmanager
def kubernetes() -> Iterator[Api]:
    """Yield an API server on loopback that runs for the block."""

    class Handler(loopback.Quiet):
        protocol_version = "HTTP/1.1"

        def answered(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"] or 0))
            watches = parse_qs(urlsplit(self.path).query).get("watch") == ["true"]
            if watches:  # nothing changes: the stream ends, and who watches asks again
                status, told = 200, b""
            else:
                status, found = api.answer(self.command, self.path, yaml.safe_load(data or b"{}"))
                told = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answered

    with loopback.serving(Handler) as url:
        api = Api(url)
        yield api
