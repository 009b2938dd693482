"""What a file of MirrorMaker 2 declares, whether it is the driver's or its connectors'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_mirror.compat.rows import Noticed


@dataclass(frozen=True)
class Given:
    """A value, and where a person finds it.

    :param value: never shown; it may be a secret.
    :param key: as its file has it.
    """

    value: str = field(repr=False)
    key: str


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a file, or several, say.

    :param flows: of each enabled flow, by source and target alias, its keys as its connectors get them.
    :param providers: the keys that declare providers of secrets.
    :param noticed: what becomes of each key, in the file's order.
    :param problems: what can't be kept, one line each.
    :param workers: of each flow its keys as the Connect workers get them that the driver starts; empty for connectors,
        whose workers have a file of their own.
    """

    flows: Mapping[tuple[str, str], Mapping[str, Given]]
    providers: Mapping[str, str]
    noticed: tuple[Noticed, ...]
    problems: tuple[str, ...]
    workers: Mapping[tuple[str, str], Mapping[str, Given]] = field(default_factory=dict)
