"""MirrorMaker 2 on a Connect cluster: the configurations of its three connectors, a flow for each pair of clusters.

MirrorSourceConnector copies, MirrorCheckpointConnector moves groups, MirrorHeartbeatConnector gives signs of life. Each
has all keys; of the second and third one those count that are theirs alone, and they must agree on names of topics.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from airflow_mirror.common.nearest import nearest
from airflow_mirror.common.text_files import read_text
from airflow_mirror.compat.declared import Declared, Given
from airflow_mirror.compat.driver import row_in_flow
from airflow_mirror.compat.json_text import parsed
from airflow_mirror.compat.keys import DRIVER, FLOW, WORKER
from airflow_mirror.compat.providers import references
from airflow_mirror.compat.rows import Fate, Noticed, Row
from airflow_mirror.errors import InputError, InvalidSetting

_PACKAGE = "org.apache.kafka.connect.mirror."
SOURCE, CHECKPOINT, HEARTBEAT = (f"Mirror{kind}Connector" for kind in ("Source", "Checkpoint", "Heartbeat"))
_THEIRS = {
    CHECKPOINT: ("groups", "group.", "emit.checkpoints.", "checkpoints.topic.", "refresh.groups.", "sync.group."),
    HEARTBEAT: ("emit.heartbeats.", "heartbeats.topic."),
}  # fmt: skip
_WITHOUT = {CHECKPOINT: "emit.checkpoints.enabled", HEARTBEAT: "emit.heartbeats.enabled"}
_PROVIDERS = "config.providers"
_CLUSTERS = Row("clusters", Fate.WITHOUT_EFFECT, why="a connector goes by source.cluster.alias and target.cluster.alias")
_AGREED = ("replication.policy.class", "replication.policy.separator")


def of_json(path: Path) -> list[Mapping[str, str]]:
    """Return the connectors of a JSON file: one, or a list; each as ``POST /connectors`` takes it, or its config alone.

    :raises InputError: the file can't be read, or holds something else.
    :raises InvalidSetting: a key has a list or nothing as its value, which would be taken for a text.
    """
    where = f"connector file {str(path)!r}"
    try:
        found = parsed(read_text(path, where))
    except ValueError as e:
        raise InputError(f"{where} holds no JSON: {e}.") from e
    each = found if isinstance(found, list) else [found]
    configs = [one.get("config", one) if isinstance(one, dict) else None for one in each]
    if not all(isinstance(config, dict) for config in configs):
        raise InputError(f"{where} must hold a connector, or a list of them. Export its config.")
    return [{key: _text(where, key, value) for key, value in config.items()} for config in configs if config is not None]


def _text(where: str, key: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        remedy = 'Write it as one text, such as "a,b", or leave the key out, which means its default'
        raise InvalidSetting(where, key, "has no text as its value", remedy)
    return value


def read(configs: Iterable[Mapping[str, str]]) -> Declared:
    """Return what connectors declare."""
    problems, noticed = list[str](), list[Noticed]()
    configs = list(configs)
    providers = {key: value for config in configs for key, value in config.items() if key.startswith(_PROVIDERS)}
    named = [name.strip() for name in providers.get(_PROVIDERS, "").split(",")]
    by_flow: dict[tuple[str, str], dict[str, Mapping[str, str]]] = {}
    for number, config in enumerate(configs, 1):
        kind = config.get("connector.class", "").strip().removeprefix(_PACKAGE)
        if kind not in (SOURCE, CHECKPOINT, HEARTBEAT):
            problems.append(f"connector {number}: connector.class: no connector of MirrorMaker 2. Leave it out.")
            continue
        noticed += _noticed(kind, config, named, problems)
        pair = config.get("source.cluster.alias", "").strip(), config.get("target.cluster.alias", "target").strip()
        if not pair[0]:
            problems.append(f"{kind}: source.cluster.alias: missing. Add it.")
        elif kind in by_flow.setdefault(pair, {}):
            problems.append(f"{kind}: there are two from {pair[0]} to {pair[1]}. Give one.")
        else:
            by_flow[pair][kind] = config
    flows = {}
    for pair, connectors in by_flow.items():
        if SOURCE not in connectors:
            problems.append(f"{SOURCE}: none from {pair[0]} to {pair[1]}: nothing would be copied. Give its file, too.")
        elif connectors[SOURCE].get("enabled", "true").strip().lower() == "true":
            flows[pair] = _one_flow(connectors, problems)
    return Declared(flows=flows, providers=providers, noticed=tuple(noticed), problems=tuple(dict.fromkeys(problems)))


def _noticed(
    kind: str, config: Mapping[str, str], providers: Container[str], problems: list[str]
) -> Iterable[Noticed]:  # fmt: skip
    for key, value in config.items():
        # Connect lets a connector have converters of its own; providers are its worker's, brought along.
        row = WORKER.find(key) or (DRIVER.find(key) if key.startswith(_PROVIDERS) else row_in_flow(key))
        row = _CLUSTERS if key == _CLUSTERS.key else row
        if row is None:
            meant = nearest(key, FLOW.keys)
            shown = key if meant else "what stands there"  # perhaps the rest of a secret
            problems.append(f"{kind}: {shown}: nobody knows it.{meant} Correct or remove it.")
            continue
        if row.key in WORKER.keys and row.refuses(value):
            problems.append(f"{kind}: {key}: {row.why}.")
        for reference in references(value):
            if reference[2:].partition(":")[0] not in providers:
                problems.append(
                    f"{kind}: {key}: Connect's worker replaces {reference}, and its file says how. Add config.providers "
                    "and what is below it from there to the connector."
                )
        yield Noticed.by(row, f"{kind}: {key}", value)


def _one_flow(connectors: Mapping[str, Mapping[str, str]], problems: list[str]) -> Mapping[str, Given]:
    found = {key: Given(value, f"{SOURCE}: {key}") for key, value in connectors[SOURCE].items() if not _is_of_others(key)}
    for kind, prefixes in _THEIRS.items():
        config = connectors.get(kind)
        if config is None or config.get("enabled", "true").strip().lower() != "true":
            found[_WITHOUT[kind]] = Given("false", _WITHOUT[kind])
            continue
        found |= {key: Given(value, f"{kind}: {key}") for key, value in config.items() if key.startswith(prefixes)}
        for key in _AGREED:
            if config.get(key) != connectors[SOURCE].get(key):
                problems.append(
                    f"{kind}: {key}: it differs from {SOURCE}'s. Topics would have two names; give both the same."
                )
    return found


def _is_of_others(key: str) -> bool:
    return any(key.startswith(prefixes) for prefixes in _THEIRS.values())
