"""The views have what the code asks of the real ones, under the same names and parameters."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import airflow_mirror
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.session import AdminSession
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import StateLog
from airflow_mirror.wire.cluster import WireCluster
from tests.memory.admin import MemoryAdmin
from tests.memory.cluster import MemoryCluster
from tests.memory.ledger import MemoryLedger, MemoryState
from tests.memory.wire import MemoryWire

PACKAGE = Path(airflow_mirror.__file__).parent
# The code whose actors the explorer runs.
CODE = [
    *sorted((PACKAGE / "cutover").rglob("*.py")),
    *(PACKAGE / name for name in (
        "plan/ledger_store.py", "plan/missing_acls.py", "plan/ownership.py", "sync/groups.py", "sync/lag.py",
        "sync/write_permit.py",
        "plan/standing.py", "sync/acls.py", "sync/configs.py", "sync/holding.py", "sync/following/follower.py",
        "sync/following/reading.py",
        "verify/partition.py", "copy/writer/lease.py", "jobs/runner/active.py",
    )),
]  # fmt: skip
PAIRS = [(ClusterAdmin, MemoryAdmin), (WireCluster, MemoryWire), (Ledger, MemoryLedger), (StateLog, MemoryState)]

# What the requests of kafka/ are made with, which nobody else asks for.
ENGINE = {name for name in dir(AdminSession) if not name.startswith("_")} - {"close", "role", "wire"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def asked() -> set[str]:
    nodes = (node for file in CODE for node in ast.walk(ast.parse(file.read_text())))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize(("real", "view"), PAIRS[:2])
def test_view_has_all_that_is_asked(real: Any, view: Any) -> None:
    made = view(MemoryCluster())
    assert {name for name in (public(real) & asked()) - ENGINE if not hasattr(made, name)} == set()


@pytest.mark.parametrize(("real", "view"), PAIRS)
def test_views_methods_take_what_the_real_ones_take(real: Any, view: Any) -> None:
    """A permit (`check`) may come in addition."""
    for name in public(view) & public(real):
        theirs, ours = getattr(real, name), getattr(view, name)
        if not callable(theirs) or not inspect.isfunction(ours):
            continue
        wanted, has = (list(inspect.signature(one).parameters.values())[1:] for one in (theirs, ours))
        if [p.name for p in has] and has[-1].name == "check" and "check" not in {p.name for p in wanted}:
            has = has[:-1]
        assert [(p.name, p.kind, p.default) for p in has] == [(p.name, p.kind, p.default) for p in wanted], name
