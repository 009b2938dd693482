"""SCRAM users are listed, and created only with a secret that somebody gives; no secret is ever shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from airflow_mirror.common.policy import Principals
from airflow_mirror.errors import InputError, NotKept
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.kafka.users import ScramCredential
from airflow_mirror.sync import users
from airflow_mirror.sync.users import UsersReport, secrets_of_environment, sync_users

SHA256, SHA512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
SECRET = "a-secret-of-hers"


class Cluster:
    def __init__(self, there: dict[str, dict[str, int]], deaf: bool = False) -> None:
        self.there, self.deaf = there, deaf
        self.created: dict[str, Sequence[ScramCredential]] = {}

    def scram_users(self) -> dict[str, dict[str, int]]:
        return {user: dict(of) for user, of in self.there.items()}

    def create_scram_users(self, new: Mapping[str, Sequence[ScramCredential]], _permit: object) -> None:
        self.created |= new
        for user, several in {} if self.deaf else new.items():
            self.there.setdefault(user, {}).update({one.mechanism: one.iterations for one in several})


def synced(source: Cluster, target: Cluster, names: dict[str, str] | None = None, **given: Any) -> UsersReport:
    both = cast("ClusterAdmin", source), cast("ClusterAdmin", target)
    return sync_users(*both, Principals(names or {}), "User:mirror", "User:mirror-2", unfenced, **given)


def actions(report: UsersReport) -> list[tuple[str, str, str]]:
    return [(row.target, row.mechanism, row.action) for row in report.rows]


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = users.settle  # type: ignore[attr-defined]
    monkeypatch.setattr(users, "settle", lambda wrong, what: settle(wrong, what, within_s=0))


def test_users_are_created_with_a_secret_and_listed_without_one() -> None:
    source = Cluster({"alice": {SHA256: 4096, SHA512: 20_000}, "bob": {SHA512: 8192}, "carol": {SHA512: 4096}})
    target = Cluster({"bob": {SHA512: 4096}})
    secrets = {"ally": SECRET}
    report = synced(source, target, {"User:alice": "User:ally"}, secret_of=secrets.get)
    assert actions(report) == [
        ("ally", SHA256, "created"), ("ally", SHA512, "created"), ("bob", SHA512, "there"),
        ("carol", SHA512, "needs a secret"),
    ]  # fmt: skip
    assert [(one.mechanism, one.iterations, one.password) for one in target.created["ally"]] == [
        (SHA256, 4096, SECRET), (SHA512, 16_384, SECRET),
    ]  # fmt: skip
    assert target.there["bob"] == {SHA512: 4096}, "a secret that is there is somebody's"
    assert report.changes == 2
    again = synced(source, target, {"User:alice": "User:ally"}, secret_of=secrets.get)
    assert again.changes == 0 and list(target.created) == ["ally"]


def test_user_that_somebody_creates_while_secrets_are_looked_up_keeps_its_secret() -> None:
    source, target = Cluster({"alice": {SHA256: 4096, SHA512: 4096}, "bob": {SHA512: 4096}}), Cluster({})

    def slowly(user: str) -> str:
        target.there["alice"] = {SHA256: 8192}
        return SECRET

    report = synced(source, target, secret_of=slowly)
    assert {user: [one.mechanism for one in of] for user, of in target.created.items()} == {
        "alice": [SHA512], "bob": [SHA512],
    }  # fmt: skip
    assert target.there["alice"] == {SHA256: 8192, SHA512: 4096} and report.changes == 2
    assert report.lines()[0] == (
        "! SCRAM user 'alice' (SCRAM-SHA-256): somebody has created it meanwhile, and it keeps that secret"
    )


def test_dry_run_creates_nobody_and_no_report_shows_a_secret() -> None:
    source, target = Cluster({"alice": {SHA512: 4096}}), Cluster({})
    report = synced(source, target, secret_of=lambda user: SECRET, dry_run=True)
    assert not report.applied and target.created == {} and report.changes == 1
    synced(source, target, secret_of=lambda user: SECRET)
    shown = json.dumps(report.to_dict()) + str(report) + "".join(report.lines()) + str(target.created)
    assert "alice" in shown and SECRET not in shown


def test_users_that_can_not_be_created_are_listed_with_the_reason() -> None:
    source = Cluster({"mirror": {SHA512: 4096}, "a": {SHA512: 4096}, "b": {SHA512: 4096}, "g": {SHA512: 4096},
                      "new": {"UNKNOWN": 4096}})  # fmt: skip
    map_ = {"User:a": "User:app", "User:b": "User:app", "User:g": "Group:g"}
    report = synced(source, Cluster({}), map_, secret_of=lambda user: SECRET)
    reasons = {row.source: row.reason for row in report.rows if row.action == "left out"}
    assert reasons == {
        "mirror": "it is the mirror's own user", "b": "another user of the source becomes the same one",
        "g": "it becomes Group:g, which is no user", "new": "this version does not know its mechanism",
    }  # fmt: skip


def test_user_that_is_not_listed_afterwards_is_an_error() -> None:
    with pytest.raises(NotKept, match="alice: no SCRAM-SHA-512") as e:
        synced(Cluster({"alice": {SHA512: 4096}}), Cluster({}, deaf=True), secret_of=lambda user: SECRET)
    assert SECRET not in str(e.value)


def test_secrets_come_from_an_environment_variable_and_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEW_USERS", json.dumps({"alice": SECRET}))
    assert secrets_of_environment("NEW_USERS")("alice") == SECRET
    assert secrets_of_environment("NEW_USERS")("bob") is None
    for value in (SECRET, f'["{SECRET}"]', f'{{"{SECRET}": 7}}'):
        monkeypatch.setenv("NEW_USERS", value)
        with pytest.raises(InputError, match="NEW_USERS holds no JSON object") as e:
            secrets_of_environment("NEW_USERS")
        assert SECRET not in str(e.value) and e.value.__cause__ is None and e.value.__context__ is None
    with pytest.raises(InputError, match="NOWHERE is not set"):
        secrets_of_environment("NOWHERE")
