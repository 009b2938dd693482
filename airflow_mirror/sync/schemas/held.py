"""All that a registry holds, as values; asked for by Confluent's API. Only reads.

A subject may be of a context, as ``:.context:subject``; ids are one context's. A context's own settings are under
``:.context:``, those of all subjects under "".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from airflow_mirror.errors import BrokerError
from airflow_mirror.sync.schemas.registry import Registry, plain

Place = tuple[str, int]  # a subject and a version
IMPORT, READONLY, READWRITE = "IMPORT", "READONLY", "READWRITE"
_BODY = ("schema", "schemaType", "references", "metadata", "ruleSet")


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a subject. :param body: what registers it, in the API's fields. :param deleted: softly."""

    subject: str
    number: int
    id: int
    body: Mapping[str, Any]
    deleted: bool = False

    @property
    def place(self) -> Place:
        """Where it is."""
        return self.subject, self.number

    @property
    def known_as(self) -> tuple[str, int]:
        """Its id, with its context."""
        return context_of(self.subject), self.id

    @property
    def refers_to(self) -> list[Place]:
        """The versions that it refers to."""
        return [(one["subject"], int(one["version"])) for one in self.body.get("references") or ()]

    @property
    def content(self) -> tuple[Any, ...]:
        """What it says, comparable between registries."""
        kind = self.body.get("schemaType") or "AVRO"
        refers = sorted((r["name"], r["subject"], int(r["version"])) for r in self.body.get("references") or ())
        rest = [self.body.get(name) or None for name in ("metadata", "ruleSet")]
        return kind, plain(kind, self.body["schema"]), refers, rest

    def __str__(self) -> str:
        return f"{self.subject} version {self.number}"


@dataclass(frozen=True, kw_only=True)
class Held:
    """All that a registry holds.

    :param settings: compatibility and what else a subject, a context or all of them ("") have of their own.
    :param modes: of subjects and contexts. The mode of the whole registry is not among them: it says who may register
        now; see :mod:`.hold`. :param left_out: what can't be moved, as lines.
    """

    versions: Mapping[Place, Version]
    settings: Mapping[str, Mapping[str, Any]]
    modes: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()


def context_of(subject: str) -> str:
    """Return the context of a subject, "" for the default one."""
    return subject[1:].partition(":")[0] if subject.startswith(":.") else ""


def is_context(name: str) -> bool:
    """Return whether a name is a context's own, and no subject's."""
    return name.startswith(":.") and name.count(":") == 2 and name.endswith(":")


def path_of(subject: str, *more: object) -> str:
    """Return a path below a subject; that of the settings of all for ""."""
    return "".join(f"/{quote(str(one), safe='')}" for one in (subject, *more) if one != "")


def read(registry: Registry, also: Held | None = None, only: Collection[str] | None = None) -> Held:
    """Ask a registry for all that it holds. Errors as :meth:`.Registry.ask`.

    :param also: of another one: what may have settings and modes here before it has a version.
    :param only: these subjects, and what they refer to; neither contexts nor what is set for all.
    """
    contexts, subjects = _contents(registry) if only is None else (set[str](), {*only})
    # Karapace, which has no contexts, answers for each subject with the mode of the whole registry. Of a target that says
    # who may register there; of a source, set on a subject, it would outlast what it was.
    of_all = registry.mode("") if contexts is None and also is None else ""
    versions, waiting = dict[Place, Version](), sorted(subjects, reverse=True)
    while waiting:
        found = _versions(registry, waiting.pop())
        versions |= {one.place: one for one in found}
        if only is not None and (more := {name for one in found for name, _ in one.refers_to} - subjects):
            subjects |= more
            waiting += sorted(more)
    settings, modes = dict[str, Mapping[str, Any]](), dict[str, str]()
    others = {*also.settings, *also.modes, *(subject for subject, _ in also.versions)} if also else set[str]()
    for name in sorted({*([""] if only is None else []), *(contexts or ()), *subjects, *others}):
        if its := settings_of(registry, name):
            settings[name] = its
        if name and (mode := registry.mode(name)) and mode != of_all:
            modes[name] = mode
    return Held(versions=versions, settings=settings, modes=modes)


def part(whole: Held, subjects: Collection[str]) -> Held:
    """Return these subjects, and what they refer to, without what is set for all."""
    wanted, waiting = set[str](), [*subjects]
    while waiting:
        wanted.add(name := waiting.pop())
        refers = {other for one in whole.versions.values() if one.subject == name for other, _ in one.refers_to}
        waiting += refers - wanted
    return Held(
        versions={place: one for place, one in whole.versions.items() if place[0] in wanted},
        settings={name: its for name, its in whole.settings.items() if name in wanted},
        modes={name: mode for name, mode in whole.modes.items() if name in wanted},
    )  # fmt: skip


def version_at(
    registry: Registry, subject: str, number: int, *, deleted: bool = False, none: bool = False
) -> Version | None:  # fmt: skip
    """Return the version at a place; None: there is none. Errors as :meth:`.Registry.ask`, as is ``none``.

    :param deleted: also one that is deleted softly; the answer does not say which it is.
    """
    path = f"/subjects{path_of(subject)}/versions/{number}"
    found = registry.ask("GET", f"{path}?deleted=true" if deleted else path, none=none)
    # What the default context lacks, Confluent's looks for in all others, and answers with that one's.
    if found is None or _plain(found.get("subject", subject)) != _plain(subject):
        return None
    body = {name: found[name] for name in _BODY if found.get(name)}
    return Version(subject=subject, number=number, id=int(found["id"]), body=body)


def settings_of(registry: Registry, name: str) -> Mapping[str, Any] | None:
    """Return what a subject, a context or all of them ("") have set, as it is sent; None: nothing of their own."""
    if not (its := registry.ask("GET", f"/config{path_of(name)}", none=True)):
        return None
    level = its.get("compatibilityLevel") or its.get("compatibility")
    return {key: value for key, value in its.items() if key != "compatibilityLevel"} | {"compatibility": level}


def _plain(subject: str) -> str:
    """Return a subject without the name of the default context, which it may have and registries leave out."""
    return subject.removeprefix(":.:")


def _contents(registry: Registry) -> tuple[set[str] | None, set[str]]:
    """Return the names of contexts, None: it knows of none, and of subjects."""
    listed = _listed(registry, "/contexts", none=True)
    contexts = {f":{one.strip(':')}:" for one in listed or () if one.strip(":.")}
    if (names := _listed(registry, path := "/subjects?deleted=true")) is None:  # it would pass for an empty one
        raise BrokerError(f"ask the {registry.role}'s schema registry for {path}", 404, "not found")
    subjects = set(names)
    for context in contexts:  # a registry without contexts would take a prefix for that of a name
        subjects.update(_listed(registry, f"{path}&subjectPrefix={quote(context, safe='')}") or ())
    return None if listed is None else contexts, subjects


def _versions(registry: Registry, subject: str) -> list[Version]:
    path, versions = f"/subjects{path_of(subject)}/versions", list[Version]()
    numbers = registry.ask("GET", f"{path}?deleted=true") or ()
    # Behind the list of all: what is registered in between is in none, and not taken for deleted.
    live = set(registry.ask("GET", path) or ())
    for number in numbers:
        if (found := version_at(registry, subject, int(number), deleted=True)) is not None:  # None: gone meanwhile
            versions.append(replace(found, deleted=number not in live))
    return versions


def _listed(registry: Registry, path: str, *, none: bool = False) -> list[str] | None:
    """Return all names of a list; None: there is none. Errors as :meth:`.Registry.ask`, as is ``none``."""
    # Confluent's ends a list at a limit (20,000 by default, since 7.9) without a word. One that knows no offset answers
    # with the same list again.
    if (page := registry.ask("GET", path, none=none)) is None:
        return None
    found = dict.fromkeys(page)
    while page:
        more = registry.ask("GET", f"{path}{'&' if '?' in path else '?'}offset={len(found)}", none=none) or ()
        page = [one for one in more if one not in found]
        found |= dict.fromkeys(page)
    return list(found)
