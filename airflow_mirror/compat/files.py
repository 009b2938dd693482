"""Files of MirrorMaker 2, as a whole: Mirrors, connections, and a line about every key."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_mirror.compat import connectors, driver, properties
from airflow_mirror.compat.declared import Declared
from airflow_mirror.compat.flows import Flow, become
from airflow_mirror.compat.providers import Providers
from airflow_mirror.compat.rows import Fate, Noticed
from airflow_mirror.errors import InputError
from airflow_mirror.wording import listed

_ID_PREFIX = "kafka_"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")
_NOT_IN_IDS = re.compile(r"\W", re.ASCII)  # AIRFLOW_CONN_ and the id must be a name that a shell can set


@dataclass(frozen=True)
class Brought:
    """What becomes of files.

    :param mirrors: the fields of a Mirror each, by flow: source and target alias.
    :param connections: settings by connection id, secrets included; empty if they were not asked for.
    :param noticed: what became of each key, in the files' order.
    """

    mirrors: Mapping[tuple[str, str], Mapping[str, Any]]
    connections: Mapping[str, Mapping[str, str]] = field(repr=False)
    noticed: tuple[Noticed, ...]

    def into(self, clusters: Collection[str]) -> Mapping[tuple[str, str], Mapping[str, Any]]:
        """Return the mirrors of the flows into some clusters, by their aliases; into all without any.

        :raises InputError: no flow leads into one of them.
        """
        targets = {target for _, target in self.mirrors}
        if wrong := sorted(set(clusters) - targets):
            raise InputError(
                f"clusters {' '.join(wrong)}",
                "no enabled flow leads there",
                f"Name some of these: {', '.join(sorted(targets))}.",
            )
        return {flow: fields for flow, fields in self.mirrors.items() if not clusters or flow[1] in clusters}


def read(paths: Sequence[Path], *, secrets: bool = True) -> Brought:
    """Read one file of the driver, or the files of connectors.

    :param secrets: False: files and variables that hold secrets need not be here.
    :raises InputError: with every key that can't be kept, and the remedy for each.
    :raises InputError: a file can't be read, or a reference leads nowhere.
    """
    declared = declare(paths)
    providers, problems = Providers.declared(declared.providers)
    flows = [become(keys, *pair, providers, secrets=secrets) for pair, keys in declared.flows.items()]
    problems = [*declared.problems, *problems, *(problem for flow in flows for problem in flow.problems)]
    if not flows and not problems:
        problems.append("no flow is enabled. Add A->B.enabled = true, with the aliases of two clusters.")
    named = _connections(flows)
    mirrors = {
        (flow.source, flow.target): {
            "name": _NOT_IN_NAMES.sub("_", f"{flow.source}-to-{flow.target}"),
            "source": named[id(flow.settings["source"])],
            "target": named[id(flow.settings["target"])],
            **flow.fields,
        }
        for flow in flows
    }
    problems += _twice(mirrors)
    if problems:
        found = list(dict.fromkeys(problems))
        cause = f"{len(found)} finding(s); nothing was written:\n{listed(found)}\n"
        raise InputError(", ".join(map(str, paths)), cause)
    settings = {named[id(one)]: one for flow in flows for one in flow.settings.values()}
    noticed = [*map(_unused, declared.noticed), *(one for flow in flows for one in flow.noticed)]
    return Brought(mirrors, settings if secrets else {}, tuple(dict.fromkeys(noticed)))  # a key may be of several flows


def declare(paths: Sequence[Path]) -> Declared:
    """Return what files declare. Arguments and :class:`InputError` as for :func:`read`."""
    configs, drivers = list[Mapping[str, str]](), list[Declared]()
    for path in paths:
        if path.suffix == ".json":
            configs += connectors.of_json(path)
            continue
        entries = properties.read(path)
        if any(entry.key == "connector.class" for entry in entries):
            configs.append({entry.key: entry.value for entry in entries})
        else:
            drivers.append(driver.read(entries))
    if len(drivers) + bool(configs) != 1:
        raise InputError(
            ", ".join(map(str, paths)),
            "one connect-mirror-maker.properties is read at a time, or the files of connectors: two would each have "
            "their own idea of a cluster",
            "Give one of them.",
        )
    return connectors.read(configs) if configs else drivers[0]


def _connections(flows: Iterable[Flow]) -> dict[int, str]:
    """Return the connection id of each of the flows' settings: one for a cluster, unless its flows differ."""
    uses = [(getattr(flow, role), role, flow) for flow in flows for role in ("source", "target")]
    by_alias: dict[str, list[tuple[str, Flow]]] = {}
    for alias, role, flow in uses:
        by_alias.setdefault(alias, []).append((role, flow))
    named = {}
    for alias, of_alias in by_alias.items():
        base = _ID_PREFIX + _NOT_IN_IDS.sub("_", alias)
        alike = len({flow.told_apart_by[role] for role, flow in of_alias}) == 1
        for role, flow in of_alias:
            in_role = {other.told_apart_by[role] for of, other in of_alias if of == role}
            peer = flow.target if role == "source" else flow.source
            more = "" if alike else f"_{role}" if len(in_role) == 1 else f"_{role}_{_NOT_IN_IDS.sub('_', peer)}"
            named[id(flow.settings[role])] = base + more
    return named


def _twice(mirrors: Mapping[tuple[str, str], Mapping[str, Any]]) -> list[str]:
    """Return what must not be: two flows of one name, or two clusters with one connection."""
    names = [("->".join(pair), one["name"]) for pair, one in mirrors.items()]
    clusters = [(pair[at], one[role]) for pair, one in mirrors.items() for at, role in enumerate(("source", "target"))]
    problems = list[str]()
    for several in (names, clusters):
        found: dict[str, str] = {}
        for alias, called in several:
            if found.setdefault(called, alias) != alias:
                problems.append(f"clusters: {alias!r} and {found[called]!r} would both be called {called!r}. Rename one.")
    return problems


def _unused(noticed: Noticed) -> Noticed:
    """Return the line about a key of a file that can be kept as a whole."""
    if noticed.fate is not Fate.REFUSED:
        return noticed
    return replace(noticed, fate=Fate.WITHOUT_EFFECT, text=f"no enabled flow uses it; refused otherwise: {noticed.text}")
