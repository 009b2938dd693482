"""Schema registries by Airflow connections, and who gets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from requests.auth import HTTPBasicAuth

from airflow_mirror.cutover import request as requests
from airflow_mirror.errors import InputError
from airflow_mirror.hooks.registries import registry_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.cutover import CutoverOperator, PreviewCutoverOperator
from airflow_mirror.operators.mirror import StartMirrorOperator
from airflow_mirror.operators.schemas import MoveSchemasOperator
from airflow_mirror.plan import Plan
from tests.provider.conftest import PLAN
from tests.unit.schemas.registries import driven


@pytest.fixture
def masked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found = list[str]()
    monkeypatch.setattr("airflow_mirror.hooks.registries.mask_secret", found.append)
    return found


def connect(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "http", **fields}))


def test_connection_has_the_address_in_its_fields_or_in_its_extra(
    monkeypatch: pytest.MonkeyPatch, masked: list[str]
) -> None:
    connect(monkeypatch, "plain", host="registry", port=8081)
    connect(monkeypatch, "login", host="registry", schema="https", port=8081, login="me", password="hush")
    connect(monkeypatch, "extra", extra={"schema.registry.url": "https://r/", "bearer.auth.token": "secret"})
    assert [registry_of("source", name).url for name in ("plain", "login", "extra", "http://r:1")] == [
        "http://registry:8081", "https://registry:8081", "https://r", "http://r:1",
    ]  # fmt: skip
    assert registry_of("target", "login")._session.auth == HTTPBasicAuth(b"me", b"hush")
    assert {"hush", "me:hush", "secret"} <= set(masked)


def test_extra_that_does_not_parse_is_no_registry_without_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "broken", host="registry", extra='{"bearer.auth.token": "hush",}')
    with pytest.raises(InputError, match=r"connection 'broken' \(source registry\): its extra is no JSON") as caught:
        registry_of("source", "broken")
    assert "hush" not in str(caught.value)


def test_name_that_leads_nowhere_and_a_secret_over_http_are_refused(
    monkeypatch: pytest.MonkeyPatch, masked: list[str]
) -> None:
    with pytest.raises(InputError, match="source registry 'nowhere'.*nor the id of an Airflow connection"):
        registry_of("source", "nowhere")
    connect(monkeypatch, "bad", host="registry", login="me", password="hush")
    with pytest.raises(InputError, match="connection 'bad'.*a secret would go over http") as e:
        registry_of("target", "bad")
    assert "hush" not in str(e.value)


def test_cutover_of_a_mirror_with_registries_is_given_what_proves_them(
    context: dict[str, Any], mirror: dict[str, Any], connections: Any, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[Any]()

    class Enough(Exception):
        pass

    @contextmanager
    def connected(_request: Any, _source: Any, _target: Any, prove: Any) -> Any:
        given.append(prove)
        raise Enough
        yield

    monkeypatch.setattr(requests, "connected", connected)
    named = mirror | {"source_registry": "http://old:8081", "target_registry": "http://new:8081"}
    for one in (mirror, named):
        with pytest.raises(Enough):
            PreviewCutoverOperator(task_id="t", mirror=one, plan=PLAN).execute(context)
    assert given[0] is None
    assert (given[1].keywords["here"].url, given[1].keywords["there"].url) == ("http://old:8081", "http://new:8081")
    with pytest.raises(AirflowFailException, match="nor the id of an Airflow connection"):
        nowhere = mirror | {"source_registry": "nowhere", "target_registry": "http://new:8081"}
        PreviewCutoverOperator(task_id="t", mirror=nowhere, plan=PLAN).execute(context)


def test_cutover_that_is_to_release_a_registry_does_so_behind_the_opening(
    context: dict[str, Any],
    mirror: dict[str, Any],
    cut_over_by: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Enough(Exception):
        pass

    @contextmanager
    def connected(*_: Any) -> Any:
        on = SimpleNamespace(target=SimpleNamespace(admin=None))
        yield SimpleNamespace(on=on), SimpleNamespace(load=lambda: None)

    def run_cutover(*_: Any, additions: Any, **__: Any) -> None:
        additions.afterwards()
        raise Enough

    monkeypatch.setattr(CutoverOperator, "_connected", connected)
    cut_over_by(run_cutover)
    with driven() as there:
        named = mirror | {"source_registry": "http://old:8081", "target_registry": there.url}
        for wanted, mode in ((False, "READONLY"), ("True", "READWRITE")):
            there.modes[""] = "READONLY"
            with pytest.raises(Enough):
                CutoverOperator(task_id="t", mirror=named, plan=PLAN, release_registry=wanted).execute(context)
            assert there.modes[""] == mode


def test_schemas_move_as_a_task_and_what_differs_is_a_warning(
    context: dict[str, Any], mirror: dict[str, Any], home: Path
) -> None:
    with pytest.raises(AirflowFailException, match="names no registries"):
        MoveSchemasOperator(task_id="t", mirror=mirror).execute(context)
    with driven() as here, driven() as there:
        here.register(7, '"string"', "orders-value", 3)
        there.register(9, '"int"', "theirs", 1)
        named = mirror | {"source_registry": here.url, "target_registry": there.url}
        planned = MoveSchemasOperator(task_id="t", mirror=named, dry_run="True").execute(context)
        assert planned["done"] == ["register orders-value version 3 as id 7"] and there.wrote == []
        found = MoveSchemasOperator(task_id="t", mirror=named).execute(context)
        assert there.subjects["orders-value", 3] == 7 and there.modes[""] == "READWRITE"
        assert found["conflicts"] == ["theirs version 1 is on the target alone"] and not found["dry_run"]
        assert json.loads(Path(found["path"]).read_text())["versions"] == 1
        assert MoveSchemasOperator(task_id="t", mirror=named).execute(context)["done"] == []
        assert there.modes[""] == "READWRITE"
        MoveSchemasOperator(task_id="t", mirror=named, hold="True").execute(context)
        assert there.modes[""] == "READONLY"


def test_tail_that_lets_schemas_follow_is_handed_what_is_in_connections(
    context: dict[str, Any], mirror: dict[str, Any], connections: Any, plan: Plan, monkeypatch: pytest.MonkeyPatch,
    masked: list[str],
) -> None:  # fmt: skip
    connections("dst", **{
        "bootstrap.servers": "dst:9092", "schema.registry.url": "https://other", "bearer.auth.token": "of-another",
    })  # fmt: skip
    connect(monkeypatch, "new_registry", host="new", schema="https", port=8081, login="me", password="hush")
    named = {"source_registry": "http://old:8081", "target_registry": "new_registry"}
    follows = Mirror.from_dict({**mirror, **named, "sync_schemas": True})
    for operator, its in ((StartMirrorOperator, follows), (StartMirrorOperator, replace(follows, sync_schemas=False))):
        task = operator(task_id="t", mirror=its, plan=PLAN, mode="tail")
        secrets = task.secrets(its)
        found = {k: v for one in secrets.values() for k, v in one.properties.items() if "registry" in k or "auth." in k}
        spec = json.dumps(task.spec(its, plan).to_dict())
        assert "hush" not in spec and ("new_registry" in spec) == its.sync_schemas
        assert found == (
            {"schema.registry.url": "https://new:8081", "schema.registry.basic.auth.user.info": "me:hush"}
            if its.sync_schemas
            else {"schema.registry.url": "https://other", "bearer.auth.token": "of-another"}
        )
    with pytest.raises(InputError, match="source registry 'nowhere'"):
        StartMirrorOperator(task_id="t", mirror=follows, plan=PLAN, mode="tail").secrets(
            replace(follows, source_registry="nowhere")
        )


def test_scheduled_dag_moves_between_the_registries_of_its_form(context: dict[str, Any], home: Path) -> None:
    from airflow_mirror.example_dags.kafka_schemas import dag

    task: Any = dag.get_task("move_schemas")
    with driven() as here, driven() as there:
        here.register(7, '"string"', "orders-value", 3)
        params = {"source_registry": here.url, "target_registry": there.url, "dry_run": False, "hold": True}
        task.render_template_fields({**context, "params": params})
        assert task.execute(context)["done"][-1] == "register orders-value version 3 as id 7"
        assert there.subjects["orders-value", 3] == 7 and there.modes[""] == "READONLY"
