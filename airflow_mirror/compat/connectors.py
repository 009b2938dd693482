"""MirrorMaker 2 on a Connect cluster: the configurations of its three connectors, a flow for each pair of clusters.

MirrorSourceConnector copies, MirrorCheckpointConnector moves groups, MirrorHeartbeatConnector gives signs of life. Each
has all keys; of the second and third one those count that are theirs alone. They must agree on names of topics; groups
move in every topic that is copied.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow_mirror.common.nearest import nearest_key
from airflow_mirror.common.text_files import read_text
from airflow_mirror.compat.declared import Declared, Given
from airflow_mirror.compat.driver import row_in_flow
from airflow_mirror.compat.json_text import parsed
from airflow_mirror.compat.keys import DEFAULTS, DRIVER, FLOW, WORKER
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
_EXCLUDED = "topics.exclude"
# Its default before 4.0 (KAFKA-17200). Many files spell it out, by which nothing was chosen; releases that had it copied
# no topic whose name ends like that.
_EXCLUDED_BEFORE = {r".*[\-\.]internal", r".*\.replica", "__.*"}
_AGREED = ("replication.policy.class", "replication.policy.separator")


def of_json(path: Path) -> list[Mapping[str, str]]:
    """Return the connectors of a JSON file: one, a list, or all of a worker, as ``GET /connectors?expand=info`` has them.

    Each is as ``POST /connectors`` takes it, or its config alone.

    :raises InputError: the file can't be read, or holds something else.
    :raises InvalidSetting: a key has a list or nothing as its value, which would be taken for a text.
    """
    where = f"connector file {str(path)!r}"
    try:
        found = parsed(read_text(path, where))
    except ValueError as e:
        raise InputError(f"{where} holds no JSON", str(e), "Export the connector's config again.") from e
    each = found if isinstance(found, list) else _expanded(found)
    configs = [one.get("config", one) if isinstance(one, dict) else None for one in each]
    if not all(isinstance(config, dict) for config in configs):
        raise InputError(where, "it holds something else than a connector, or a list of them", "Export its config.")
    return [{key: _text(where, key, value) for key, value in config.items()} for config in configs if config is not None]


def _expanded(found: Any) -> list[Any]:
    """Return the connectors of ``GET /connectors?expand=info``, by name each with its ``info``; else what was given."""
    values = list(found.values()) if isinstance(found, dict) else []
    infos = [one.get("info") for one in values if isinstance(one, dict)]
    return infos if infos and len(infos) == len(values) and all(infos) else [found]


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
        kind = _kind_of(config.get("connector.class", ""))
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
        elif _is_enabled(connectors[SOURCE]):
            flows[pair] = _one_flow(connectors, problems)
    return Declared(flows=flows, providers=providers, noticed=tuple(noticed), problems=tuple(dict.fromkeys(problems)))


def _kind_of(name: str) -> str:
    """Return the connector's class without its package. Connect also takes its alias: without ``Connector``."""
    kind = name.strip().removeprefix(_PACKAGE)
    return f"{kind}Connector" if f"{kind}Connector" in (SOURCE, CHECKPOINT, HEARTBEAT) else kind


def _noticed(
    kind: str, config: Mapping[str, str], providers: Container[str], problems: list[str]
) -> Iterable[Noticed]:  # fmt: skip
    for key, value in config.items():
        row = _row(kind, key, is_enabled=_is_enabled(config))
        if row is None:
            meant = nearest_key(key, FLOW.keys)
            shown = key if meant else "what stands there"  # perhaps the rest of a secret
            problems.append(f"{kind}: {shown}: nobody knows it.{meant} Correct or remove it.")
            continue
        # A filter of the checkpoint connector chooses the topics in which groups move.
        if row.refuses(value) and (row.key in WORKER.keys or (kind, key) == (CHECKPOINT, "topic.filter.class")):
            problems.append(f"{kind}: {key}: {row.why}.")
        for reference in references(value):
            if reference[2:].partition(":")[0] not in providers:
                problems.append(
                    f"{kind}: {key}: Connect's worker replaces {reference}, and its file says how. Add config.providers "
                    "and what is below it from there to the connector."
                )
        yield Noticed.by(row, f"{kind}: {key}", value)


def _row(kind: str, key: str, *, is_enabled: bool) -> Row | None:
    """Return the row of a connector's key; None: nobody knows it."""
    if key.startswith(_PROVIDERS):  # its worker's, brought along; they serve all of them
        return DRIVER.find(key)
    row = WORKER.find(key) or row_in_flow(key)  # Connect lets a connector have converters of its own
    if key in DRIVER.keys:
        return Row(key, Fate.WITHOUT_EFFECT, why="a connector goes by its aliases")
    if row is None or row.fate not in (Fate.HONOURED, Fate.MAPPED) or key == "enabled":
        return row
    if not is_enabled:
        return Row(key, Fate.WITHOUT_EFFECT, why="the connector is not enabled")
    if (whose := _whose(key)) != kind and key not in _AGREED:
        return Row(key, Fate.WITHOUT_EFFECT, why=f"only what {whose} has of it counts")
    return row


def _one_flow(connectors: Mapping[str, Mapping[str, str]], problems: list[str]) -> Mapping[str, Given]:
    found = {key: Given(value, f"{SOURCE}: {key}") for key, value in connectors[SOURCE].items() if _whose(key) == SOURCE}
    for kind, prefixes in _THEIRS.items():
        config = connectors.get(kind)
        if config is None or not _is_enabled(config):
            found[_WITHOUT[kind]] = Given("false", _WITHOUT[kind])
            continue
        found |= {key: Given(value, f"{kind}: {key}") for key, value in config.items() if key.startswith(prefixes)}
        for key in _AGREED:
            if config.get(key) != connectors[SOURCE].get(key):
                problems.append(
                    f"{kind}: {key}: it differs from {SOURCE}'s. Topics would have two names; give both the same."
                )
    problems += [
        f"{CHECKPOINT}: {key}: it leaves out topics that {SOURCE} copies. Groups move with all of these: give both the "
        "same, and choose groups by groups and groups.exclude."
        for key in _choosing_fewer(connectors)
    ]
    return found


def _choosing_fewer(connectors: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the keys by which a checkpoint connector moves positions in fewer topics than are copied.

    Rule: MirrorCheckpointTask.shouldCheckpointTopic. What is not copied has no positions there, so it may choose more.
    """
    checkpoint, source = connectors.get(CHECKPOINT, {}), connectors[SOURCE]
    if not _is_enabled(checkpoint) or checkpoint.get("sync.group.offsets.enabled", "false").strip().lower() == "false":
        return
    topics, copied = _items(checkpoint, "topics"), _items(source, "topics")
    if ".*" not in topics and not copied <= topics:
        yield "topics"
    given = checkpoint.keys() & {_EXCLUDED, _older(_EXCLUDED)}
    if given and not _items(checkpoint, _EXCLUDED) <= _items(source, _EXCLUDED):
        yield from sorted(given)


def _items(config: Mapping[str, str], key: str) -> set[str]:
    value = config.get(key, config.get(_older(key), DEFAULTS[key]))
    found = {item.strip() for item in value.split(",")} - {""}
    return _items({}, key) if found == _EXCLUDED_BEFORE else found


def _older(key: str) -> str:
    return key.replace(".exclude", ".blacklist")


def _is_enabled(config: Mapping[str, str]) -> bool:
    return config.get("enabled", "true").strip().lower() == "true"


def _whose(key: str) -> str:
    """Return the connector whose value of a key counts."""
    return next((kind for kind, prefixes in _THEIRS.items() if key.startswith(prefixes)), SOURCE)
