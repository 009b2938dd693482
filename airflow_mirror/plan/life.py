"""Record which target topics a mirror has handed over to applications. From then on they are in production.

A task of a finished migration may be cleared at any time. It must then neither turn retention off on production topics
nor copy into them again. So the record is kept by target topic, not only by plan: a new plan of the same topics is
refused as well. A target topic that was deleted and re-created has another id and is free.

The cutover calls :func:`mark_cut_over` *before* it lets anybody write, and :func:`take_back` if it backs out: after a
crash between the two, tasks refuse to continue instead of overwriting data.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

from airflow_mirror.errors import InputError, MirrorCutOver
from airflow_mirror.files import lock, lock_of, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.plan.model import Plan

ACTIVE, CUT_OVER = "active", "cut over"
_VERSION = 1


@dataclass(frozen=True)
class Opened:
    """A target topic that was opened to applications.

    :param topic_id: its id at that time.
    :param cluster_id: the target cluster.
    :param plan_hash: the plan that was executed.
    :param at: ISO 8601.
    """

    topic_id: str
    cluster_id: str
    plan_hash: str
    at: str


class LifeStore(Protocol):
    """The store of opened topics, by target topic."""

    def read(self) -> dict[str, Opened]:
        """Return all opened topics."""

    def changing(self) -> AbstractContextManager[dict[str, Opened]]:
        """Yield all of them to be changed; their state at the end of the block is stored. One block at a time."""


class LifeFile:
    """One JSON file per mirror.

    :raises InputError: on reading, if the file is malformed: "nothing was opened" is not a safe assumption.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Opened]:
        """See :class:`LifeStore`."""
        try:
            values = json.loads(self._path.read_text(encoding="utf-8"))
            if values["version"] != _VERSION:
                raise ValueError(f"version {values['version']}")
            return {topic: Opened(**row) for topic, row in values["opened"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, KeyError, TypeError, ValueError) as e:
            raise InputError(
                f"{self._path} can't be read ({e!r}): it says which target topics are in production. Restore it."
            ) from e

    @contextmanager
    def changing(self) -> Iterator[dict[str, Opened]]:
        """See :class:`LifeStore`."""
        with lock(lock_of(self._path)):
            opened = self.read()
            yield opened
            rows = {topic: asdict(one) for topic, one in sorted(opened.items())}
            replace_file(self._path, json.dumps({"version": _VERSION, "opened": rows}, indent=1) + "\n")


def mark_cut_over(store: LifeStore, plan: Plan, topic_ids: Mapping[str, str], at: str) -> None:
    """Record that the plan's target topics are about to be opened. Safe to repeat: the first record stays.

    :param topic_ids: current ids of the target topics, by name.
    :param at: ISO 8601.
    """
    with store.changing() as opened:
        for t in plan.topics:
            if not _is_open(opened, plan, t.target_topic, topic_ids):
                topic_id = topic_ids.get(t.target_topic, "")
                opened[t.target_topic] = Opened(topic_id, plan.target_cluster_id, plan.hash, at)


def take_back(store: LifeStore, plan_hash: str) -> None:
    """Record that a plan's cutover was undone: the topics that it had opened may be written to again."""
    with store.changing() as opened:
        for topic in [topic for topic, one in opened.items() if one.plan_hash == plan_hash]:
            del opened[topic]


def state(store: LifeStore, plan: Plan, topic_ids: Mapping[str, str]) -> str:
    """Return :data:`CUT_OVER` if one of the plan's target topics is in production, :data:`ACTIVE` otherwise.

    :param topic_ids: as for ``mark_cut_over``.
    """
    opened = store.read()
    return CUT_OVER if any(_is_open(opened, plan, t.target_topic, topic_ids) for t in plan.topics) else ACTIVE


def require_active(store: LifeStore, plan: Plan, target: ClusterAdmin) -> None:
    """Refuse to write to, or to hold, topics that this mirror has handed over.

    :raises MirrorCutOver: names the topics.
    """
    opened = store.read()
    if not opened:
        return
    ids = {name: info.topic_id for name, info in target.topics([t.target_topic for t in plan.topics]).items()}
    found = [t.target_topic for t in plan.topics if _is_open(opened, plan, t.target_topic, ids)]
    if found:
        raise MirrorCutOver(plan.mirror.name, found, opened[found[0]].at)


def _is_open(opened: Mapping[str, Opened], plan: Plan, topic: str, topic_ids: Mapping[str, str]) -> bool:
    one = opened.get(topic)
    if one is None or one.cluster_id != plan.target_cluster_id or topic not in topic_ids:
        return False
    return one.topic_id in ("", topic_ids[topic])  # without an id it is unknown whether the topic is a new one
