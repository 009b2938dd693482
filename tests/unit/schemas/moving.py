"""Two registries between which schemas move."""

from __future__ import annotations

from typing import Any

from airflow_mirror.sync.schemas.move import MoveReport, move
from airflow_mirror.sync.schemas.registry import Registry
from tests.unit.schemas.registries import DrivenRegistry

STRING, INT, LONG = ('"string"', '"int"', '"long"')


ORDER = '{"type":"record","name":"Order","fields":[]}'


def fill(here: DrivenRegistry, *, modes: bool = True) -> None:
    """Ids and versions with gaps, one schema in two subjects, references, another context, what is softly deleted."""
    here.register(30, ORDER, "a-value", 1, references=[{"name": "User", "subject": "z user/value", "version": 5}])
    here.register(7, STRING, "z user/value", 2)
    here.register(12, INT, "z user/value", 5)
    here.register(7, STRING, "again-value", 1)
    here.register(40, 'syntax = "proto3";', "proto-value", 1, kind="PROTOBUF")
    here.register(7, LONG, ":.other:s", 1, metadata={"properties": {"owner": "me"}})
    here.register(50, LONG, "gone-value", 1)
    here.deleted = {("gone-value", 1), ("z user/value", 2)}
    here.settings |= {"": "FULL", "a-value": "NONE", ":.other:": "FORWARD"}
    here.modes |= {"a-value": "READONLY", ":.other:": "READWRITE"} if modes else {}


def moved(here: DrivenRegistry, there: DrivenRegistry, **how: Any) -> MoveReport:
    source, target = (Registry(role, {"url": one.url}) for role, one in (("source", here), ("target", there)))
    return move(source, target, **{"dry_run": False, **how})
