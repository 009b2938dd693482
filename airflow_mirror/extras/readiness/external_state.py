"""Offsets and state that applications keep elsewhere than in groups: found by the names of internal topics.

Names are what people chose, so what is found is a hint, and what is not found proves nothing. No cluster is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.kafka.model import CONNECT, STREAMS

REGISTRY, REGISTRY_TOPIC = "Schema Registry", "_schemas"

_STREAMS = re.compile(r"(.+)-(?:.+-(?:changelog|repartition)|KTABLE-FK-JOIN-SUBSCRIPTION-.+-topic)")
# Kind, the whole name of a topic, what to do.
_KINDS = (
    (
        CONNECT,
        re.compile(r"(?:.*[._-])?connect(?:[._-].*)?[._-](?:offsets?|configs?|status(?:es)?)(?:[._-].*)?"),
        "Connectors, and the positions of source connectors in what they read. Stop the workers, let the mirror copy "
        "these topics, and start the workers on the target with the same group.id and topic names. Positions of sinks "
        "are in groups named connect-<name>, which a Mirror leaves out unless exclude_groups says otherwise.",
    ),
    (
        REGISTRY,
        re.compile(rf"{REGISTRY_TOPIC}(?:[._-].*)?"),
        "Schemas by id, and modes. Set mode READONLY before the cutover, so that nobody registers a schema meanwhile; "
        "let a mirror copy the topic, and start a registry on the target once its cutover has opened it: a registry "
        "writes at its start. The mode comes along: set READWRITE there. A registry without such a topic is filled by "
        "API: airflow-mirror move-schemas keeps ids.",
    ),
    (
        "MirrorMaker 2",
        re.compile(r"mm2-.*|heartbeats|.*checkpoints[._-]internal"),
        "Another tool copies from or to this cluster. End it, or leave out what it writes.",
    ),
)
_STATE = (
    "State stores, and records between parts of the application. Mirror these topics with those that it reads, and stop "
    "it before the fence. With mapped offsets remove its local state (state.dir), which holds offsets of the source."
)
UNSEEN = (
    "offsets in checkpoints of Spark, in savepoints of Flink and in databases: Kafka knows nothing of them. Identical "
    "offsets stay valid; mapped ones are translated by their owners (python -m airflow_mirror.jobs.translate)"
)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What one application keeps in topics of its own.

    :param owner: the id of a Streams application; "" for others. :param missing: those that the mirror does not select.
    :param modes: of a Schema Registry, by subject, "" for all; empty: not read.
    """

    kind: str
    owner: str
    topics: Sequence[str]
    missing: Sequence[str]
    to_do: str
    modes: Mapping[str, str] = field(default_factory=dict)

    @property
    def note(self) -> str:
        """What else there is to know of it."""
        said = ", ".join(f"{subject or 'all subjects'} {mode}" for subject, mode in self.modes.items())
        return f", modes: {said}" if said else ""


def elsewhere(
    topics: Iterable[str], mirrored: Collection[str], groups: Collection[str], modes: Mapping[str, str]
) -> list[Kept]:
    """Return what is found among the names of a cluster's topics.

    :param groups: known groups; a Streams application is the longest one with which a topic's name begins.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for topic in topics:
        for kind, name, to_do in _KINDS:
            if name.fullmatch(topic):
                found.setdefault((kind, "", to_do), []).append(topic)
        if _STREAMS.fullmatch(topic):
            owners = [group for group in groups if topic.startswith(f"{group}-")]
            found.setdefault((STREAMS, max(owners, key=len, default=""), _STATE), []).append(topic)
    return [
        Kept(
            kind=kind, owner=owner, topics=its, missing=[t for t in its if t not in mirrored], to_do=to_do,
            modes=modes if REGISTRY_TOPIC in its else {},
        )
        for (kind, owner, to_do), its in sorted(found.items())
    ]  # fmt: skip


def streams(kept: Iterable[Kept]) -> dict[str, Sequence[str]]:
    """Return the internal topics of each Streams application whose id is known."""
    return {one.owner: one.topics for one in kept if one.owner}


def modes(records: Iterable[tuple[bytes | None, bytes | None]]) -> Mapping[str, str]:
    """Return the modes of a Schema Registry by subject, "" for all: the default is READWRITE.

    :param records: keys and values of its topic.
    """
    found: dict[str, str] = {}
    for key, value in records:
        about = _json(key)
        if about.get("keytype") == "MODE":
            subject = about.get("subject") or ""
            found[subject] = str(_json(value).get("mode") or "")
    return {"": "READWRITE"} | {subject: mode for subject, mode in sorted(found.items()) if mode}


def _json(text: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(text or b"{}")
    except ValueError:  # somebody else's record
        return {}
    return value if isinstance(value, dict) else {}
