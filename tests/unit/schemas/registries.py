"""A registry that answers as Confluent's API is documented, in this process.

Ids are one context's. A version that the default context lacks is looked for in the others, and the answer names the
subject that has it. Versions may be deleted softly; an id and a version that are sent count in mode IMPORT alone, in
which nobody registers without them, and in which a version is written over. In mode READONLY nothing changes but modes.
What a live version refers to is not deleted, and with its last version a subject loses its settings and its mode.
Compatibility is not looked at. Where ``normalize`` is set, the imports of a Protobuf schema are sorted, in any mode.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests import loopback

NONE = (404, {"error_code": 40401, "message": "not found"})


def guid_of(text: str) -> str:
    """Return the GUID of a schema: of its content, so that it is the same in every registry."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, text))


@dataclass
class DrivenRegistry:
    """Schemas by id: type, text, references; ``subjects``: (subject, version) -> id.

    :ivar schemas: of the default context; of another one by (context, id). :ivar deleted: softly.
    :ivar settings: compatibility by subject or context, "" for all; ``modes`` likewise.
    :ivar normalizes: subjects and contexts for which that is set, "" for all.
    :ivar asked: paths, with the Authorization header. :ivar wrote: what changed something.
    :ivar status: of every answer, which is ``page`` then; 0: as it is. :ivar refuses: a schema with this text.
    :ivar limit: of lists of subjects and contexts, which go on at an offset then; 0: all, whatever the offset.
    :ivar ignores_ids: that are sent. :ivar has_modes: and contexts.
    :ivar one_mode: that of the whole registry, which is told of each subject, and no contexts, as Karapace has it.
    :ivar guids: of a schema, by its content; empty
        unless ``gives_guids``, or somebody fills it.
    """

    schemas: dict[Any, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[tuple[str, int], int] = field(default_factory=dict)
    guids: dict[str, int] = field(default_factory=dict)
    deleted: set[tuple[str, int]] = field(default_factory=set)
    settings: dict[str, str] = field(default_factory=lambda: {"": "BACKWARD"})
    modes: dict[str, str] = field(default_factory=lambda: {"": "READWRITE"})
    normalizes: set[str] = field(default_factory=set)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    wrote: list[str] = field(default_factory=list)
    status: int = 0
    page: Any = field(default_factory=dict)
    limit: int = 0
    ignores_ids: bool = False
    has_modes: bool = True
    one_mode: bool = False
    gives_guids: bool = False
    refuses: str = ""
    url: str = ""

    def register(
        self, schema_id: int, text: str, subject: str = "s-value", version: int = 1, kind: str = "AVRO", **more: Any
    ) -> None:
        self.schemas[self.key(subject, schema_id)] = {
            "schema": text, **({} if kind == "AVRO" else {"schemaType": kind}), **more,
        }  # fmt: skip
        self.subjects[subject, version] = schema_id
        if self.gives_guids:
            self.guids[guid_of(text)] = schema_id

    @staticmethod
    def key(subject: str, schema_id: int) -> Any:
        context = subject[1:].partition(":")[0] if subject.startswith(":.") else ""
        return (context, schema_id) if context else schema_id

    def holds(self) -> dict[str, Any]:
        """All of it, to compare two registries by; the registry's own mode is left out."""
        versions = {place: (its, self.schemas[self.key(place[0], its)]) for place, its in self.subjects.items()}
        return {
            "versions": versions, "deleted": self.deleted, "settings": self.settings, "normalizes": self.normalizes,
            "modes": {name: mode for name, mode in self.modes.items() if name},
        }  # fmt: skip

    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        if self.status:
            return self.status, self.page
        kind, *names = [unquote(part) for part in path.strip("/").split("/")]
        if method != "GET" and kind != "mode" and self.mode_in((names or [""])[0]) == "READONLY":
            return 422, {"error_code": 42205, "message": "Subject is in read-only mode"}
        return self._answer(method, path, query, body)

    def _answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        every = query.get("deleted") == "true"
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["schemas", "ids", one, *rest]:
                wanted = self.key(query.get("subject", ""), int(one))
                found = self.schemas.get(wanted)
                if found is not None and rest == ["versions"]:
                    its = [place for place, n in self.subjects.items() if self.key(place[0], n) == wanted]
                    its = [place for place in its if every or place not in self.deleted]
                    return 200, [{"subject": s, "version": v} for s, v in its]
                return (200, found) if found is not None else (404, {"error_code": 40403, "message": "Schema not found"})
            case ["schemas", "guids", one]:
                return self._answer(method, f"schemas/ids/{self.guids.get(one, -1)}", {}, {})
            case ["schemas", "guids", one, "ids"]:
                same = [
                    key for key, its in self.schemas.items() if one in self.guids and its == self.schemas[self.guids[one]]
                ]
                every_one = [key if isinstance(key, tuple) else (".", key) for key in same]
                return 200, [{"context": context, "id": n} for context, n in every_one]
            case ["contexts"] if self.has_modes and not self.one_mode:
                known = {s[1:].partition(":")[0] for s, _ in self.subjects if s.startswith(":.")}
                return 200, self._page([".", *sorted(known)], query)
            case ["subjects"]:
                prefix = query.get("subjectPrefix", "")
                names = {s for s, v in self.subjects if every or (s, v) not in self.deleted}
                return 200, self._page(sorted(s for s in names if s.startswith(prefix)), query)
            case ["subjects", subject, "versions"] if method == "POST":
                return self._register(subject, body)
            case ["subjects", subject, "versions"]:
                numbers = [v for s, v in sorted(self.subjects) if s == subject and (every or (s, v) not in self.deleted)]
                return (200, numbers) if numbers else NONE
            case ["subjects", subject, "versions", version]:
                return self._version(method, subject, int(version), every)
            case ["config", *name]:
                return self._settings(method, "".join(name), body)
            case ["mode", *name] if self.has_modes:
                return self._mode(method, "".join(name), body.get("mode"), query)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _page(self, names: list[str], query: dict[str, str]) -> list[str]:
        begin = int(query.get("offset", "0"))
        return names[begin : begin + self.limit] if self.limit else names

    def _settings(self, method: str, name: str, body: dict[str, Any]) -> tuple[int, Any]:
        status, found = self._own(method, self.settings, name, body.get("compatibility"), "compatibilityLevel")
        if body.get("normalize"):
            self.normalizes.add(name)
        return status, found | ({"normalize": True} if status == 200 and name in self.normalizes else {})

    def _mode(self, method: str, name: str, mode: str | None, query: dict[str, str]) -> tuple[int, Any]:
        if self.one_mode and name and method == "GET":
            return (200, {"mode": self.modes[""]}) if any(one == name for one, _ in self.subjects) else NONE
        if mode == "IMPORT" and query.get("force") != "true" and any(one == name for one, _ in self.subjects):
            return 422, {"error_code": 42205, "message": "Cannot import since found existing subjects"}
        return self._own(method, self.modes, name, mode, "mode")

    def mode_in(self, name: str) -> str:
        return next(self.modes[one] for one in self.scope(name) if one in self.modes)

    @staticmethod
    def scope(name: str) -> tuple[str, str, str]:
        return name, f":{name[1:].partition(':')[0]}:" if name.startswith(":.") else "", ""

    def _version(self, method: str, subject: str, version: int, every: bool) -> tuple[int, Any]:
        there = {s for s, v in self.subjects if v == version and (every or (s, v) not in self.deleted)}
        if method == "GET" and subject not in there:
            others = sorted(s for s in there if s.startswith(":.") and s[1:].partition(":")[2] == subject)
            subject = next(iter(others), subject)
        if subject not in there:
            return 404, {"error_code": 40402, "message": "Version not found."}
        if method == "DELETE":
            return self._delete(subject, version)
        its = self.subjects[subject, version]
        return 200, {"subject": subject, "version": version, "id": its, **self.schemas[self.key(subject, its)]}

    def _delete(self, subject: str, version: int) -> tuple[int, Any]:
        live = [one for one in self.subjects if one not in self.deleted]
        refers = (r for one in live for r in self.schemas[self.key(one[0], self.subjects[one])].get("references", ()))
        if any((r["subject"], r["version"]) == (subject, version) for r in refers):
            return 422, {"error_code": 42206, "message": "One or more references exist to the schema"}
        self.wrote.append(f"delete {subject} {version}")
        self.deleted.add((subject, version))
        if not [one for one in live if one[0] == subject and one[1] != version]:
            self.modes.pop(subject, None)
            self.settings.pop(subject, None)
            self.normalizes.discard(subject)
        return 200, version

    def _register(self, subject: str, body: dict[str, Any]) -> tuple[int, Any]:
        imports = self.mode_in(subject) == "IMPORT" and not self.ignores_ids
        if "id" in body and not imports and not self.ignores_ids:
            return 422, {"error_code": 42205, "message": f"Subject {subject} is not in import mode"}
        if imports and "id" not in body:
            return 422, {"error_code": 42205, "message": f"Subject {subject} is in import mode"}
        if body.get("schemaType") == "PROTOBUF" and not self.normalizes.isdisjoint(self.scope(subject)):
            lines = body["schema"].split("\n")
            in_order = iter(sorted(one for one in lines if one.startswith("import ")))
            body["schema"] = "\n".join(next(in_order) if one.startswith("import ") else one for one in lines)
        taken = self.schemas.get(self.key(subject, body.get("id")), {}).get("schema", body["schema"])
        if imports and taken != body["schema"]:
            return 422, {"error_code": 42205, "message": f"Overwrite new schema with id {body['id']} is not permitted."}
        if body["schema"] == self.refuses:
            return 422, {"error_code": 42201, "message": "Invalid schema"}
        number = max((v for s, v in self.subjects if s == subject), default=0) + 1
        its, number = (
            (body["id"], body["version"])
            if imports
            else (max((n for n in self.schemas if isinstance(n, int)), default=0) + 1, number)
        )
        self.wrote.append(f"register {subject} {number} {its}")
        kept = {name: value for name, value in body.items() if name not in ("id", "version")}
        for one in kept.get("references", ()):
            assert (one["subject"], one["version"]) in self.subjects, "what it refers to comes first"
        self.register(its, kept.pop("schema"), subject, number, kept.pop("schemaType", "AVRO"), **kept)
        return 200, {"id": its, **({"guid": guid_of(body["schema"])} if self.gives_guids else {})}

    def _own(self, method: str, of: dict[str, str], name: str, value: str | None, word: str) -> tuple[int, Any]:
        if method != "GET":
            self.wrote.append(f"{method} {word} {name} {value or ''}".strip())
        if method == "PUT":
            of[name] = str(value)
        elif name not in of:
            return 404, {"error_code": 40409 if word == "mode" else 40408, "message": "not configured"}
        found = of.pop(name) if method == "DELETE" else of[name]
        return 200, {word: found}


@contextmanager
def driven() -> Iterator[DrivenRegistry]:
    made = DrivenRegistry()

    class Handler(loopback.Quiet):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            made.asked.append((self.path, self.headers.get("Authorization")))
            asked, length = urlsplit(self.path), int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            query = {name: values[-1] for name, values in parse_qs(asked.query).items()}
            status, told = made.answer(self.command, asked.path, query, body)
            data = told.encode() if isinstance(told, str) else json.dumps(told).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PUT = do_DELETE = do_GET

    with loopback.serving(Handler) as made.url:
        yield made
