"""Apicurio, which keeps ids by its own export and import: its Confluent API ignores an id that is sent with a schema.

An import adds rows and checks nothing: a new version of a subject that is there already would not become its latest one
(seen with 3.0.9). So nothing but *contents*, each with its id, is imported; registering such a content then finds it, and
its id. What belongs to other groups than the default one has no subject, and is left out.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from zipfile import BadZipFile, ZipFile

from airflow_mirror.errors import AnswerTooLarge, BrokerError
from airflow_mirror.sync.schemas.held import Held, Place, Version
from airflow_mirror.sync.schemas.registry import Registry
from airflow_mirror.wording import count

_KINDS = ("AVRO", "JSON", "PROTOBUF")
_CONTENT = ".Content.json"
MOST_BYTES = 512 << 20  # of an export, packed and unpacked: all schemas that there are


@dataclass(frozen=True, kw_only=True)
class Export:
    """What an Apicurio exports.

    :param contents: by id: the hash of one, and its files. :param manifest: of the export, which an import begins with.
    """

    held: Held
    contents: Mapping[int, tuple[str, Mapping[str, bytes]]]
    manifest: Mapping[str, bytes]


def export(registry: Registry) -> Export:
    """Return all that an Apicurio holds. Errors as :meth:`.Registry.ask`."""
    url = f"{registry.native}/admin/export"
    answer = registry.send("GET", url, headers={"Accept": "application/zip"}, most_bytes=MOST_BYTES)
    registry.require(answer, "its export")
    asked = f"ask the {registry.role}'s schema registry for its export"
    try:
        with ZipFile(io.BytesIO(answer.content)) as archive:
            if sum(one.file_size for one in archive.infolist()) > MOST_BYTES:  # no file gives more than it says
                raise AnswerTooLarge(registry.role, "its export", MOST_BYTES)
            return _read(archive)
    except BadZipFile:
        raise BrokerError(asked, 200, "no archive") from None
    except (LookupError, ValueError, TypeError, AttributeError, StopIteration) as e:
        raise BrokerError(asked, 200, f"not an export as Apicurio 3 writes it ({type(e).__name__}: {e})") from e


def _read(archive: ZipFile) -> Export:
    files = {name: archive.read(name) for name in archive.namelist()}
    contents = dict[int, tuple[str, Mapping[str, bytes]]]()
    told = {name: json.loads(data) for name, data in files.items() if name.endswith(".json")}
    for name, one in told.items():
        if name.endswith(_CONTENT):
            data = f"{name.removesuffix('json')}data"
            contents[int(one["contentId"])] = (one["contentHash"], {name: files[name], data: files[data]})
    manifest = {name: files[name] for name in files if name.endswith(".Manifest.json")}
    return Export(held=_held(told, contents), contents=contents, manifest=manifest)


def _held(told: Mapping[str, Any], contents: Mapping[int, tuple[str, Mapping[str, bytes]]]) -> Held:
    artifacts = [one for name, one in told.items() if name.endswith(".Artifact.json") and not one["groupId"]]
    kinds = {one["artifactId"]: one["artifactType"] for one in artifacts}
    versions, settings, others = dict[Place, Version](), dict[str, Mapping[str, Any]](), set[str]()
    for name, one in told.items():
        rule = {"compatibility": one.get("configuration")}
        if name.endswith(".GlobalRule.json") and one["ruleType"] == "COMPATIBILITY":
            settings[""] = rule
        elif name.endswith(".ArtifactRule.json") and one["type"] == "COMPATIBILITY" and not one["groupId"]:
            settings[one["artifactId"]] = rule
        elif name.endswith(".ArtifactVersion.json"):
            subject, number = one["artifactId"], str(one["version"])
            if one["groupId"] or kinds.get(subject) not in _KINDS or not number.isdigit():
                others.add(f"{one['groupId'] or 'default'}/{subject}")
                continue
            _, files = contents[one["contentId"]]
            (about,) = (json.loads(data) for path, data in files.items() if path.endswith(_CONTENT))
            text = next(data for path, data in files.items() if not path.endswith(_CONTENT)).decode()
            body: dict[str, Any] = {"schema": text, "schemaType": kinds[subject]}
            if refers := json.loads(about.get("serializedReferences") or "[]"):
                body["references"] = [
                    {"name": r["name"], "subject": r["artifactId"], "version": int(r["version"])} for r in refers
                ]
            versions[subject, int(number)] = Version(
                subject=subject, number=int(number), id=one["contentId"], body=body, deleted=one["state"] == "DISABLED"
            )
    lines = [f"{count(len(others), 'artifact')} without a subject: {', '.join(sorted(others)[:5])}"] if others else []
    return Held(versions=versions, settings=settings, left_out=lines)


def keeper(source: Export, target: Export) -> Callable[[Version], str]:
    """Return what says why the target would give a version another id or number; "": it would not.

    Versions are counted by the target, and a content has one id. Ask in the order of the registrations.
    """
    known = {its[0]: content_id for content_id, its in target.contents.items()}
    last = dict[str, int]()
    for subject, number in target.held.versions:
        last[subject] = max(number, last.get(subject, 0))

    def keeps(one: Version) -> str:
        number = last.get(one.subject, 0) + 1
        wanted = source.contents[one.id][0]
        if number != one.number:
            return f"not registered: the target would call it version {number}"
        if known.get(wanted, one.id) != one.id:
            return f"id {one.id} on the source, and its content is id {known[wanted]} on the target"
        if one.id in target.contents and wanted not in known:
            return f"id {one.id}, which is another content on the target"
        last[one.subject] = number
        return ""

    return keeps


def bring(registry: Registry, source: Export, content_id: int) -> None:
    """Import one content with its id, unless it is there; the target has nothing else under either.

    Errors as :meth:`.Registry.ask`.
    """
    _, files = source.contents[content_id]
    packed = io.BytesIO()
    with ZipFile(packed, "w") as archive:
        for name, data in {**source.manifest, **files}.items():
            archive.writestr(name, data)
    headers = {"Content-Type": "application/zip", "X-Registry-Preserve-ContentId": "true"}
    url = f"{registry.native}/admin/import?requireEmptyRegistry=false"
    registry.require(registry.send("POST", url, packed.getvalue(), headers), f"its import of id {content_id}")
