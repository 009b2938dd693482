"""MirrorMaker 2's own file: the Mirror of a flow, its clusters, and what it calls its topics and its group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_mirror.compat import files
from airflow_mirror.compat.declared import Declared
from airflow_mirror.compat.flows import internal_separator
from airflow_mirror.compat.providers import Providers
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InputError
from airflow_mirror.extras.adopt.mirrormaker import Flow
from airflow_mirror.mirror import Mirror


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
        raise InputError(
            f"{', '.join(map(str, paths))}: {asked}",
            f"enabled are {', '.join(sorted(flows))}",
            "Name one of these (--flow).",
        )
    pair = flows[name.replace(" ", "")] if name else next(iter(flows.values()))
    mirror = Mirror.from_dict(dict(found.mirrors[pair]))
    source = ClientConfig(found.connections[mirror.source], "source")
    target = ClientConfig(found.connections[mirror.target], "target")
    return Brought(mirror, source, target, flow_of(files.declare(paths), pair, mirror.separator))


def flow_of(declared: Declared, pair: tuple[str, str], separator: str) -> Flow:
    """Return what MirrorMaker calls its own of a flow: by its connectors' keys, and by those of its driver's workers.

    :param pair: aliases of source and target. :param separator: of its policy.
    """
    providers, _ = Providers.declared(declared.providers)  # what can't be kept of them is refused with the flow's keys
    of_workers = declared.workers.get(pair, {})

    def value(name: str) -> str:
        one = of_workers.get(name)
        return "" if one is None else providers.resolve(one.key, one.value).strip()

    location = declared.flows[pair].get("offset-syncs.topic.location")
    at = "source" if location is None else providers.resolve(location.key, location.value).strip().lower()
    return Flow(
        source=pair[0], target=pair[1], syncs_at=at,
        separator=internal_separator(declared.flows[pair], separator, providers),
        group=value("group.id"), offset_topic=value("offset.storage.topic"),
        config_topic=value("config.storage.topic"), status_topic=value("status.storage.topic"),
    )  # fmt: skip
