"""Quotas follow a mirror: under mapped names, never those of the mirror itself, and nothing is removed unasked."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from airflow_mirror.common.policy import Principals
from airflow_mirror.errors import NotKept
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.kafka.quotas import QuotaEntity
from airflow_mirror.sync import quotas
from airflow_mirror.sync.quotas import QuotaReport, sync_quotas

of = QuotaEntity.of
RATE, REQUESTS = "consumer_byte_rate", "request_percentage"


class Cluster:
    """A cluster's quotas. ``deaf``: takes changes and keeps none."""

    def __init__(self, there: dict[QuotaEntity, dict[str, float]], deaf: bool = False) -> None:
        self.there, self.deaf = there, deaf
        self.changes = 0

    def quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        return {one: dict(values) for one, values in self.there.items() if values}

    def alter_quotas(self, changes: dict[QuotaEntity, dict[str, float | None]], _permit: object) -> None:
        self.changes += 1
        for one, values in {} if self.deaf else changes.items():
            for key, value in values.items():
                if value is None:
                    del self.there[one][key]
                else:
                    self.there.setdefault(one, {})[key] = value


def synced(source: Cluster, target: Cluster, names: dict[str, str] | None = None, **given: Any) -> QuotaReport:
    both = cast("ClusterAdmin", source), cast("ClusterAdmin", target)
    return sync_quotas(*both, Principals(names or {}), "User:mirror", "User:mirror-2", unfenced, **given)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = quotas.settle  # type: ignore[attr-defined]
    monkeypatch.setattr(quotas, "settle", lambda wrong, what: settle(wrong, what, within_s=0))


def test_every_kind_of_entity_is_copied_and_users_are_mapped() -> None:
    source = Cluster({
        of(user="CN=app"): {RATE: 10.0}, of(user="alice", client_id="x"): {RATE: 1.0, REQUESTS: 5.0},
        of(client_id="y"): {RATE: 2.0}, of(user=None): {RATE: 3.0}, of(user="bob", client_id=None): {RATE: 4.0},
        of(ip="10.0.0.1"): {"connection_creation_rate": 7.0},
    })  # fmt: skip
    target = Cluster({of(user="alice", client_id="x"): {RATE: 9.0}, of(client_id="y"): {RATE: 2.0}})
    report = synced(source, target, {"User:CN=app": "User:app"})
    others = {one: values for one, values in source.quotas().items() if one.user != "CN=app"}
    assert target.quotas() == {of(user="app"): {RATE: 10.0}} | others
    assert report.changes == 6 and report.diff.kept == 1
    assert "+ quota of client-id 'x', user 'alice': consumer_byte_rate 9.0 -> 1.0" in report.lines()
    assert synced(source, target, {"User:CN=app": "User:app"}).changes == 0 and target.changes == 1


def test_quotas_of_the_mirror_itself_stay_and_defaults_are_noted() -> None:
    source = Cluster({of(user="mirror"): {RATE: 1.0}, of(user="mirror-2", client_id="x"): {RATE: 1.0},
                      of(user=None): {RATE: 5.0}})  # fmt: skip
    target = Cluster({})
    report = synced(source, target)
    assert target.quotas() == {of(user=None): {RATE: 5.0}}
    assert [line.partition(":")[2] for line in report.diff.left_out] == [" it is about the mirror's own user"] * 2
    assert "user <default>: limits the mirror as well" in report.diff.notes[0]
    assert not synced(source, Cluster({of(user="mirror-2"): {RATE: 9.0}})).diff.notes


def test_two_users_who_become_one_keep_no_value_that_differs() -> None:
    source = Cluster({of(user="a"): {RATE: 1.0, REQUESTS: 5.0}, of(user="b"): {RATE: 2.0, REQUESTS: 5.0}})
    report = synced(source, target := Cluster({}), {"User:a": "User:app", "User:b": "User:app"})
    assert target.quotas() == {of(user="app"): {REQUESTS: 5.0}}
    assert report.diff.left_out == (
        "user 'app': consumer_byte_rate: users of the source that become this one have 1.0, 2.0; set it by hand",
    )


def test_values_that_the_source_lacks_are_removed_only_when_asked() -> None:
    there = {of(user="alice"): {RATE: 1.0, REQUESTS: 5.0}, of(user="mirror-2"): {RATE: 9.0}, of(user="a"): {RATE: 1.0}}
    source, target = Cluster({of(user="alice"): {RATE: 1.0}}), Cluster(there)
    mapped = {"User:a": "User:app"}  # the mirror writes nothing for a user of this name
    report = synced(source, target, mapped)
    assert report.diff.drift == {of(user="alice"): {REQUESTS: 5.0}} and report.changes == 0 and target.changes == 0
    assert not synced(source, target, mapped, remove=True, dry_run=True).applied and target.changes == 0
    assert synced(source, target, mapped, remove=True).lines() == ["- quota of user 'alice': request_percentage 5.0"]
    assert target.quotas() == {of(user="alice"): {RATE: 1.0}, of(user="mirror-2"): {RATE: 9.0}, of(user="a"): {RATE: 1.0}}


def test_quota_that_is_not_kept_is_an_error_with_its_values() -> None:
    with pytest.raises(NotKept, match="user 'alice': consumer_byte_rate is None, not 1.0"):
        synced(Cluster({of(user="alice"): {RATE: 1.0}}), Cluster({}, deaf=True))


def test_user_that_becomes_no_user_is_listed() -> None:
    report = synced(Cluster({of(user="a"): {RATE: 1.0}}), Cluster({}), {"User:a": "Group:g"}, dry_run=True)
    (line,) = json.loads(json.dumps(report.to_dict()))["left_out"]
    assert line == "user 'a': it becomes Group:g, and quotas are for users"
