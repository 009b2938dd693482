"""What is kept of a refusal: small, on a target that has a ledger, of a mirror that it knows."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from airflow_mirror.common.policy import DECISIONS, STATE
from airflow_mirror.errors import LedgerNewer
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.kinds import MOST_BYTES
from airflow_mirror.ledger.state import state_of
from airflow_mirror.plan import refused
from airflow_mirror.plan.findings import block
from airflow_mirror.plan.refused import MOST, PREVIEW, Refusal, keep_on, refusals
from tests.driven.cluster import DrivenCluster
from tests.page.world import World
from tests.unit.ledger.memory import MemoryState

ONE = Refusal.of([block("no tail lives", "Start one.", "tail")], "dag.preview, run r", 5.0)


def test_it_is_kept_by_kind_and_goes_with_the_next_that_is_not_refused() -> None:
    state = MemoryState()
    refused.note(state, "m", PREVIEW, ONE)
    refused.note(state, "m", "plan", ONE)
    refused.note(state, "other", PREVIEW, ONE)
    refused.forget(state, "m", PREVIEW)
    assert refusals(state.read(), "m") == {"plan": ONE} and refusals(state.read(), "other") == {PREVIEW: ONE}


def test_what_is_not_there_is_not_removed() -> None:
    """A preview that passes writes nothing."""
    state = MemoryState()
    state.write = cast("Any", lambda *_: pytest.fail("written"))  # type: ignore[method-assign]
    refused.forget(state, "m", PREVIEW)


def test_its_size_has_an_end() -> None:
    many = Refusal.of([block("e" * 10_000, "r" * 10_000, "o" * 10_000)] * 500, "dag.t", 5.0)
    state = MemoryState()
    refused.note(state, "m", PREVIEW, many)
    (value,) = state.read().values()
    assert (len(many.findings), many.left) == (MOST, 480) and len(value) < MOST_BYTES / 10


@pytest.mark.parametrize("changed", [{"v": 99}, {"at": 1e300}, {"at": float("nan")}, {"findings": [{"level": "block"}]}])
def test_what_no_task_writes_is_named_and_breaks_nothing(changed: dict[str, Any]) -> None:
    state = MemoryState()
    refused.note(state, "m", PREVIEW, ONE)
    ((key, value),) = state.read().items()
    state.write({key: json.dumps({**json.loads(value), **changed}).encode()})
    with pytest.raises(LedgerNewer, match="what refused mirror 'm'"):
        refusals(state.read(), "m")


def test_nothing_is_created_for_it_and_nothing_is_said_of_a_mirror_that_the_ledger_does_not_know() -> None:
    with DrivenCluster("target") as bare, ClusterAdmin(bare.config) as admin:
        keep_on(admin, "m", PREVIEW, ONE)
        keep_on(admin, "m", PREVIEW, None)
        assert not {STATE, DECISIONS} & bare.topics.keys()
    with DrivenCluster("source") as source, DrivenCluster("target") as target, ClusterAdmin(target.config) as admin:
        world = World(source, target)
        keep_on(admin, "m", PREVIEW, ONE)
        assert refusals(state_of(admin, "").read(), "m") == {}
        world.plan("m", {"t": 1})
        keep_on(admin, "m", PREVIEW, ONE)
        assert refusals(state_of(admin, "").read(), "m") == {PREVIEW: ONE}
        keep_on(admin, "m", PREVIEW, None)
        assert refusals(state_of(admin, "").read(), "m") == {}
        world.close()
