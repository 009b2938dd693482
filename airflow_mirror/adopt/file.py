"""MirrorMaker 2's own file: the Mirror of a flow, its clusters, and what it calls its topics and its group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_mirror.adopt.mirrormaker import Flow
from airflow_mirror.compat import files, properties
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InputError
from airflow_mirror.mirror import Mirror

_POLICY = "replication.policy"


@dataclass(frozen=True)
class Brought:
    """One flow of a file.

    :param source, target: settings of the clusters, secrets included.
    """

    mirror: Mirror
    source: ClientConfig
    target: ClientConfig
    flow: Flow


def read(paths: Sequence[Path], name: str = "") -> Brought:
    """Return what a file says about one flow.

    :param paths: the driver's file, or those of its connectors, which don't have the worker's topics and group.
    :param name: ``A->B``; may be left out where only one flow is enabled.
    :raises InputError: a file can't be read, has keys that can't be kept, or does not enable this flow.
    """
    found = files.read(paths)
    flows = {"->".join(pair): pair for pair in found.mirrors}
    if name.replace(" ", "") not in flows and (name or len(flows) != 1):
        asked = f"--flow {name}: no such flow" if name else "several flows: name one (--flow)"
        raise InputError(f"{', '.join(map(str, paths))}: {asked}. Enabled are {', '.join(sorted(flows))}.")
    pair = flows[name.replace(" ", "")] if name else next(iter(flows.values()))
    mirror = Mirror.from_dict(dict(found.mirrors[pair]))
    driver = [path for path in paths if path.suffix != ".json"]
    keys = properties.as_java_keeps(driver[0]) if driver else {}
    source = ClientConfig(found.connections[mirror.source], "source")
    target = ClientConfig(found.connections[mirror.target], "target")
    return Brought(mirror, source, target, flow_of(keys, *pair, mirror.separator))


def flow_of(keys: Mapping[str, str], source: str, target: str, separator: str = ".") -> Flow:
    """Return what a flow of MirrorMaker's driver calls its own.

    Storage topics are of the top level, or the target's; the group is the target's. Rule: MirrorMakerConfig.workerConfig.

    :param keys: of its file. :param source, target: aliases. :param separator: of its policy.
    """

    def value(*names: str) -> str:
        return next(_given(keys, names), "")

    own = f"{_POLICY}.internal.topic.separator.enabled"
    follows = value(f"{source}->{target}.{own}", own).lower() != "false"

    def stored(kind: str) -> str:
        return value(f"{kind}.storage.topic", f"{target}.{kind}.storage.topic")

    return Flow(
        source=source, target=target, separator=separator if follows else ".", offset_topic=stored("offset"),
        config_topic=stored("config"), status_topic=stored("status"), group=value(f"{target}.group.id"),
    )  # fmt: skip


def _given(keys: Mapping[str, str], names: Sequence[str]) -> Iterator[str]:
    return (keys[name].strip() for name in names if name in keys)
