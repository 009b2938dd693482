"""What the plan says of the cutover to come: what a form must say blocks, what can be granted later warns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.cutover import foreseen as module
from airflow_mirror.cutover.foreseen import foreseen
from airflow_mirror.cutover.request import CutoverRequest
from airflow_mirror.cutover.schema_ids import DIFFERENT, MISSING, SAME, SchemaProof, SchemaRow
from airflow_mirror.errors import BrokerError, InputError, MissingRight, TryAgain
from airflow_mirror.kafka.acls import OPERATIONS
from airflow_mirror.kafka.model import Acl
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.findings import warn
from airflow_mirror.plan.ledger_writers import Writer
from airflow_mirror.plan.topic_checks import UNREAD
from airflow_mirror.wire.errors import ApiNotServed
from tests.builders import rule
from tests.unit.cutover.builders import Acls, AllAllowed, a_plan


class Cluster(Acls, AllAllowed):
    """A cluster with rules, that tells what is allowed."""

    def allowed_on_cluster(self) -> dict[str, frozenset[str]]:
        return self.allowed_on_topics(["cluster"])


@pytest.fixture(autouse=True)
def writers(monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
    """Who else may write to the ledger, unless that is accepted."""
    others: list[Writer] = []
    monkeypatch.setattr(
        module, "ledger_writers", lambda _, __, accepted: tuple(w for w in others if w.principal not in accepted)
    )
    return others


def asked(source: Any = None, **fields: Any) -> list[str]:
    """Return the findings as level and check; of those that are well, nothing."""
    plan, prover = fields.pop("plan", a_plan("orders")), fields.pop("prover", lambda: None)
    request = CutoverRequest(**{"plan": plan, "mirror": plan.mirror, **fields})
    made = foreseen(request, source or Cluster(open_by_default=True), Cluster(), prover)  # type: ignore[arg-type]
    return [f"{one.level} {one.check}" for one in made if one.level != "pass"]


def test_nothing_is_said_where_nothing_is_in_the_way() -> None:
    assert asked() == []


def test_what_the_brokers_hide_the_form_has_to_say() -> None:
    """It was said after the whole copy and its comparison, and the form had to be filled in again."""
    hidden = Cluster(open_by_default="hidden")
    assert asked(hidden) == ["block cutover_fence"]
    assert asked(hidden, open_by_default=False) == []
    assert asked(Cluster(rule("orders", "READ"), open_by_default="hidden")) == [], "nothing to know"


def test_a_cluster_without_authorizer_needs_another_fence() -> None:
    assert asked(Cluster(authorizer=False)) == ["block cutover_fence"]
    assert asked(Cluster(authorizer=False), fence="tests.unit.cutover.test_foreseen.gateway") == []
    assert asked(fence="nowhere.at.all") == ["block cutover_fence"]


def gateway(*_: object) -> Any:
    """Return a fence of the site's own."""
    from airflow_mirror.cutover.callable_fence import CallableFence

    return CallableFence(lambda: None, lambda: None)


def test_a_right_can_still_be_granted() -> None:
    class Strict(Cluster):
        def delete_acls(self, acls: list[Acl], permit: Permit = unfenced) -> list[Acl]:
            raise MissingRight("delete ACLs", "CLUSTER_AUTHORIZATION_FAILED", "me")

    assert asked(Strict(open_by_default=True)) == ["warn cutover_fence"]
    bare = Cluster(open_by_default=True)
    bare.denied = [("orders", operation) for operation in OPERATIONS]
    assert asked(bare) == ["warn cutover_rights"]


def test_brokers_that_do_not_tell_what_is_allowed_are_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def old(*_: Any, **__: Any) -> Any:
        raise ApiNotServed("b:1", "DescribeCluster", 1, None)

    monkeypatch.setattr(module, "lacking", old)
    assert asked() == ["warn cutover_rights"]


def test_others_in_the_ledger_are_named_in_the_form(writers: list[Writer]) -> None:
    writers.append(Writer("User:etl", "a rule", "a command"))
    assert asked() == ["block cutover_ledger"]
    assert asked(accept_ledger_writers=["User:etl"]) == []


def test_a_mirror_that_can_not_be_cut_over_says_so_at_once() -> None:
    by_key = replace(
        a_plan("orders"), mirror=Mirror(name="m", source="a", target="b", offsets="mapped", partitioning="by_key")
    )
    assert asked(plan=by_key) == ["block cutover"]


def proven(*verdicts: str, **more: Any) -> Any:
    """Return what proves one id for each verdict."""
    rows = [SchemaRow(topic="o", part="value", id=i, subjects=(f"s{i}",), verdict=one) for i, one in enumerate(verdicts)]
    return lambda: lambda *_: SchemaProof(rows=rows, records=9, without=(), **more)


def fails(error: Exception) -> Any:
    """Return what raises an error instead of a proof."""

    def prove(*_: object) -> SchemaProof:
        raise error

    return lambda: prove


def test_registries_are_asked_before_the_copy() -> None:
    """They were asked by the preview, after the whole copy and its comparison."""
    assert asked(prover=proven(SAME)) == []
    assert asked(prover=proven(SAME, MISSING)) == ["block cutover_schemas"]
    assert asked(prover=fails(TryAgain("the registry does not answer"))) == ["block cutover_schemas"]
    assert asked(prover=fails(BrokerError("ask the registry", 401, "UNAUTHORIZED"))) == ["block cutover_schemas"]

    assert asked(prover=proven(SAME, MISSING, following=["s1"])) == [], "its tail registers them"
    assert asked(prover=proven(MISSING, following=["s0"])) == []
    assert asked(prover=proven(MISSING, DIFFERENT, following=["s0", "s1"])) == ["block cutover_schemas"]
    assert asked(prover=proven(MISSING, MISSING, following=["s0"])) == ["block cutover_schemas"]
    assert asked(prover=proven(MISSING, stops="no id could be kept")) == ["block cutover_schemas"]
    assert asked(prover=proven(SAME, importing=["s0"])) == ["block cutover_schemas"]
    assert asked(prover=proven()) == ["warn cutover_schemas"]

    def nowhere() -> Any:
        raise InputError("target registry 'x'", "neither an address nor a connection")

    assert asked(prover=nowhere) == ["block cutover_schemas"]


def test_a_registry_whose_store_is_copied_is_not_asked_before_the_copy() -> None:
    """It can be started only once the cutover has opened that topic."""
    store = replace(warn("a schema registry keeps its schemas there"), check="registry_topics")
    moving = replace(a_plan("_schemas"), findings=(store,))
    assert asked(plan=moving, prover=fails(TryAgain("not started"))) == []
    unread = replace(warn(f"{UNREAD}: _schemas (away)"), check="registry_topics")
    assert asked(plan=replace(moving, findings=(unread,)), prover=proven(MISSING)) == ["block cutover_schemas"]
    assert asked(plan=replace(moving, findings=(unread, store)), prover=proven(MISSING)) == []
