"""Users, quotas and ACLs in one go: in this order, and only what was asked for."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.errors import InvalidField
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.sync import access
from airflow_mirror.sync.access import ACLS, PARTS, QUOTAS, USERS, Options
from airflow_mirror.sync.acl_rules import CUTOVER, EARLY
from tests.builders import plan_of
from tests.unit.plan.builders import a_mirror


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in order; each part reports one line."""
    order: list[str] = []

    def part(name: str) -> Any:
        def sync(*given: object, **fields: object) -> SimpleNamespace:
            options = given[-1]
            is_dry = options.dry_run if isinstance(options, Options) else fields["dry_run"]
            granted: Any = fields.get("granted", lambda: nullcontext(options))
            with granted() as permit:
                permit()
            order.append(f"{name}{' dry' * bool(is_dry)}")
            values = {"changes": 1} | ({"kept": ["a", "b"]} if name == ACLS else {})
            return SimpleNamespace(lines=lambda: [f"+ {name}"], to_dict=lambda: values)

        return sync

    for name in PARTS:
        monkeypatch.setattr(access, f"sync_{name}", part(name))
    monkeypatch.setattr(access, "own_principal", lambda *_: "User:mirror")
    return order


def synced(permit: Permit = unfenced, **fields: Any) -> access.AccessReport:
    cluster: Any = None
    return access.sync_access(plan_of(a_mirror()), cluster, cluster, Options(**fields), permit)


def test_users_come_before_their_quotas_and_rights(done: list[str]) -> None:
    report = synced(parts=(ACLS, QUOTAS, USERS), dry_run=True)
    assert done == [f"{one} dry" for one in (USERS, QUOTAS, ACLS)]
    assert report.lines() == [f"+ {one}" for one in (ACLS, QUOTAS, USERS)]
    assert set(report.to_dict()) == set(PARTS)
    assert report.summary() == {"acls_changes": 1, "acls_kept": 2, "quotas_changes": 1, "users_changes": 1}


@pytest.mark.parametrize("part", PARTS)
def test_nothing_is_touched_but_what_was_asked_for(done: list[str], part: str) -> None:
    report = synced(parts=(part,))
    assert done == [part] and list(report.to_dict()) == [part]


@pytest.mark.parametrize("part", PARTS)
def test_permit_is_what_each_part_asks(done: list[str], part: str) -> None:
    asked: list[str] = []
    synced(lambda: asked.append(part), parts=(part,))
    assert asked == done == [part]


@pytest.mark.parametrize(("field", "value"), [("parts", ("topics",)), ("parts", ()), ("phase", "later")])
def test_what_does_not_exist_is_refused_at_once(field: str, value: Any) -> None:
    with pytest.raises(InvalidField, match=field):
        Options(**{field: value})


def test_quotas_that_are_kept_are_only_looked_at(done: list[str]) -> None:
    synced(parts=(ACLS, QUOTAS), keeps_quotas=True)
    assert done == [f"{QUOTAS} dry", ACLS]


def test_quotas_are_those_of_a_cutover_in_its_phase_alone() -> None:
    assert Options(parts=(QUOTAS,), phase=CUTOVER).limits
    for other in ({"parts": (ACLS,)}, {"phase": EARLY}, {"keeps_quotas": True}):
        assert not Options(**{"parts": (QUOTAS,), "phase": CUTOVER, **other}).limits


def test_writers_get_rights_with_acls_in_the_phase_of_the_cutover_alone() -> None:
    assert Options(phase=CUTOVER).gives_write
    assert not Options().gives_write and not Options(parts=(QUOTAS,), phase=CUTOVER).gives_write
