"""Access rules as a task: what it asks for, and what it leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_mirror.operators.acls import SyncAclsOperator
from airflow_mirror.plan import Plan
from airflow_mirror.plan.owned import Owned
from airflow_mirror.plan.ownership import mark_cut_over
from airflow_mirror.sync.acl_rules import LeftOut
from airflow_mirror.sync.acls import AclDiff, AclOptions, AclReport, OfFence
from airflow_mirror.sync.quotas import QuotaDiff, QuotaReport
from airflow_mirror.sync.users import UserRow, UsersReport
from tests.builders import rule
from tests.provider.conftest import PLAN, InMemory
from tests.unit.ledger.memory import MemoryLedger

RULES = tuple(rule("orders", "READ", "ALLOW", f"User:u{i}") for i in range(10_000))


@pytest.fixture
def asked(clusters: InMemory, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Answer every task with ten thousand rules; note what it asked for."""
    found: list[dict[str, Any]] = []

    def sync(plan: Plan, _: Any, __: Any, options: Any, *, granted: Any, fence: Any, kept: Any) -> AclReport:
        assert fence() == OfFence(), "no cutover has fenced the source"
        with granted() as permit:
            if not options.dry_run:
                permit()
        given = {name: getattr(options, name) for name in AclOptions.__dataclass_fields__}
        found.append({**given, "principals": plan.mirror.principals})
        diff = AclDiff(
            own=(), deny=(), allow=RULES, kept=RULES[:3], later=RULES[:1], drift=(), stays=(),
            left_out=(LeftOut(RULES[0], "because"),), written_out=(), lost=("TOPIC 'orders': ...",),
        )  # fmt: skip
        applied = not given["dry_run"]
        return AclReport(phase=given["phase"], diff=diff, open_by_default=None, removed=(), applied=applied, notes=("n",))

    monkeypatch.setattr("airflow_mirror.sync.access.sync_acls", sync)
    return found


@pytest.mark.parametrize(("dry_run", "name"), [(True, "acls.early.dry-run.json"), ("False", "acls.early.json")])
def test_verdict_is_small_and_its_file_is_whole(
    asked: list[dict[str, Any]], dry_run: bool | str, name: str, context: dict[str, Any],
    connections: Callable[..., None], mirror: dict[str, Any], plan: Plan, home: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    logged: list[str] = []
    log = SimpleNamespace(info=lambda text, *values: logged.append(text % values), warning=lambda *_: None)
    monkeypatch.setattr(SyncAclsOperator, "log", log)
    found = SyncAclsOperator(task_id="t", mirror=mirror, plan=PLAN, dry_run=dry_run).execute(context)
    assert len(logged) == 201 and logged[0] == f"+ {RULES[0]}" and logged[-1].startswith("and 9802 more, see")
    assert len(json.dumps(found)) < 50_000
    assert (found["acls_changes"], found["acls_kept"], found["acls_later"]) == (10_000, 3, [str(RULES[0])])
    assert found["acls_left_out"] == [{"rule": str(RULES[0]), "reason": "because"}]
    assert found["acls_lost"] and found["acls_notes"]
    file = Path(found["path"])
    *shown, more = found["acls_granted"]
    assert file.name == name and shown == [str(one) for one in RULES[: len(shown)]]
    assert more == f"and {len(RULES) - len(shown):,} more, see {file}"
    assert json.loads(file.read_text())["acls"]["granted"] == [str(one) for one in RULES]
    (options,) = asked
    assert options["dry_run"] is (dry_run is True)
    assert (options["phase"], options["remove"], options["cluster_wide"]) == ("early", False, False)
    assert (options["open_to_all"], options["own"]) == (None, {})


def test_rendered_arguments_are_what_they_say(
    asked: list[dict[str, Any]], context: dict[str, Any], connections: Callable[..., None], mirror: dict[str, Any],
    plan: Plan, home: Path, ledger: MemoryLedger,
) -> None:  # fmt: skip
    mark_cut_over(ledger, plan, {"t": "id-t"}, "2026-02-01T00:00:00+00:00")
    SyncAclsOperator(
        task_id="t", mirror=mirror, plan=PLAN, phase="cutover", remove="True", cluster_wide="true",
        open_by_default="False", own_principals={"target": "User:CN=m"}, allow_production="True",
    ).execute(context)  # fmt: skip
    assert asked == [
        {"phase": "cutover", "dry_run": False, "remove": True, "cluster_wide": True, "open_to_all": False,
         "own": {"target": "User:CN=m"}, "beside_production": False, "principals": {}}
    ]  # fmt: skip


@pytest.mark.parametrize(("given", "is_refused"), [({}, True), ({"dry_run": True}, False), ({"phase": "early"}, False)])
def test_nobody_may_write_before_the_topics_are_handed_over(
    given: dict[str, Any], is_refused: bool, asked: list[dict[str, Any]], context: dict[str, Any],
    connections: Callable[..., None], mirror: dict[str, Any], plan: Plan, home: Path, ledger: MemoryLedger,
) -> None:  # fmt: skip
    """Who writes to a target topic stops its copy. A preview is welcome, and readers are."""
    task = SyncAclsOperator(task_id="t", mirror=mirror, plan=PLAN, **{"phase": "cutover", **given})
    if is_refused:
        with pytest.raises(
            AirflowFailException, match=r"InputError: mirror 'm' has not handed over target topics t\n  why: "
        ):
            task.execute(context)
    else:
        task.execute(context)
    assert (asked == []) is is_refused


@pytest.fixture
def opened(ledger: MemoryLedger, plan: Plan, clusters: InMemory) -> MemoryLedger:
    """The ledger behind the cutover."""
    topic = clusters.target.create("t", 2)
    mark_cut_over(ledger, plan, {"t": topic.topic_id}, "2026-02-01T00:00:00+00:00")
    return ledger


def test_task_that_is_cleared_behind_the_opening_changes_no_rule(
    asked: list[dict[str, Any]], context: dict[str, Any], connections: Callable[..., None], mirror: dict[str, Any],
    home: Path, opened: MemoryLedger,
) -> None:  # fmt: skip
    """It would take the rights of applications that came to the target since, if it may remove any."""
    task = partial(SyncAclsOperator, task_id="t", mirror=mirror, plan=PLAN, remove=True)
    with pytest.raises(AirflowFailException, match="(?s)'m' was cut over.*in production.*allow_production=True"):
        task().execute(context)
    assert asked == []
    task(dry_run=True).execute(context)  # a look is welcome
    task(allow_production=True).execute(context)
    assert [one["remove"] for one in asked] == [True, True]


@pytest.mark.parametrize(("word", "removes"), [(False, False), ("true", True)])
def test_nothing_is_removed_behind_the_opening_without_a_persons_word(
    word: bool | str, removes: bool, asked: list[dict[str, Any]], context: dict[str, Any],
    connections: Callable[..., None], mirror: dict[str, Any], home: Path, opened: MemoryLedger,
) -> None:  # fmt: skip
    """Writers are let in all the same: that is the night's own step."""
    SyncAclsOperator(task_id="t", mirror=mirror, plan=PLAN, phase="cutover", remove=True, allow_production=word).execute(
        context
    )
    assert [(one["phase"], one["remove"]) for one in asked] == [("cutover", removes)]


@pytest.mark.parametrize("phase", ["early", "cutover"])
@pytest.mark.parametrize("is_open", [True, False])
def test_another_wave_in_production_is_seen_in_the_ledger(
    phase: str, is_open: bool, asked: list[dict[str, Any]], context: dict[str, Any], connections: Callable[..., None],
    mirror: dict[str, Any], plan: Plan, home: Path, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    ledger: MemoryLedger = request.getfixturevalue("opened" if phase == "cutover" else "ledger")
    if is_open:
        one = Owned(topic_id="", mirror="wave-a", source_id=plan.source_cluster_id, opened_by="h", opened_at="2026-01-01")
        ledger.decide(lambda _: {"topic/other": one.value()})
    SyncAclsOperator(task_id="t", mirror=mirror, plan=PLAN, phase=phase).execute(context)
    assert [one["beside_production"] for one in asked] == [is_open], "its own topics do not count"


def test_writers_are_let_in_once_behind_each_opening(
    asked: list[dict[str, Any]], context: dict[str, Any], connections: Callable[..., None], mirror: dict[str, Any],
    plan: Plan, home: Path, opened: MemoryLedger,
) -> None:  # fmt: skip
    """Months later somebody clears the run: who has lost a right on the target since does not get it back."""
    task = partial(SyncAclsOperator, task_id="t", mirror=mirror, plan=PLAN, phase="cutover")
    task(dry_run=True).execute(context)
    for word in (False, False, "true"):
        task(allow_production=word).execute(context)
    assert [one["dry_run"] for one in asked] == [True, False, True, False]
    opened.decide(lambda values: {"topic/t": {**values["topic/t"], "opened_at": "2026-03-01T00:00:00+00:00"}})
    task().execute(context)
    assert asked[-1]["dry_run"] is False, "it was taken back and opened again"


@pytest.mark.parametrize("dry_run", [False, True])
def test_source_that_leads_to_the_target_lets_nobody_in(
    dry_run: bool, asked: list[dict[str, Any]], context: dict[str, Any], mirror: dict[str, Any], home: Path,
    opened: MemoryLedger, clusters: InMemory,
) -> None:  # fmt: skip
    """The target has all of its own rules, and writers would count as let in."""
    task = partial(SyncAclsOperator, task_id="t", mirror=mirror, plan=PLAN, phase="cutover")
    clusters.source.cluster_id = clusters.target.cluster_id
    with pytest.raises(AirflowFailException, match=r"InputError: source cluster\n  why: it is B, and mirror 'm' was"):
        task(dry_run=dry_run).execute(context)
    assert asked == []
    clusters.source.cluster_id = "A"
    task().execute(context)
    assert [one["dry_run"] for one in asked] == [False]


def test_quotas_follow_behind_the_opening_as_the_night_lets_them(
    others: dict[str, Any], context: dict[str, Any], connections: Callable[..., None], mirror: dict[str, Any],
    home: Path, opened: MemoryLedger,
) -> None:  # fmt: skip
    task = partial(SyncAclsOperator, task_id="t", mirror=mirror, plan=PLAN, parts=["quotas"], remove=True)
    task(phase="cutover").execute(context)
    assert others.pop("quotas") == {"remove": False, "dry_run": False}
    with pytest.raises(AirflowFailException, match="in production"):
        task().execute(context)
    assert others == {}


def test_quotas_are_set_once_behind_each_opening(
    others: dict[str, Any], asked: list[dict[str, Any]], context: dict[str, Any], mirror: dict[str, Any], home: Path,
    opened: MemoryLedger,
) -> None:  # fmt: skip
    """Weeks later somebody clears the run: what production has raised since is not set back."""

    def is_set(**given: Any) -> bool:
        asked_for = {"parts": ["quotas"], **given}
        SyncAclsOperator(task_id="t", mirror=mirror, plan=PLAN, phase="cutover", **asked_for).execute(context)
        return not others.pop("quotas")["dry_run"]

    assert [is_set(dry_run=True), is_set(), is_set(), is_set(allow_production="true")] == [False, True, False, True]
    assert asked == [], "which says nothing of writers"
    assert not is_set(parts=["quotas", "acls"]) and [one["dry_run"] for one in asked] == [False], "who come all the same"
    opened.decide(lambda values: {"topic/t": {**values["topic/t"], "opened_at": "2026-03-01T00:00:00+00:00"}})
    assert is_set(parts=["quotas", "acls"]), "it was taken back and opened again"
    assert not is_set() and not is_set(parts=["quotas", "acls"]) and asked[-1]["dry_run"]


def test_quotas_follow_in_either_phase_until_topics_are_open(
    others: dict[str, Any], context: dict[str, Any], mirror: dict[str, Any], plan: Plan, home: Path, ledger: MemoryLedger,
    clusters: InMemory,
) -> None:  # fmt: skip
    for _ in range(2):
        SyncAclsOperator(task_id="t", mirror=mirror, plan=PLAN, phase="cutover", parts=["quotas"]).execute(context)
        assert others.pop("quotas")["dry_run"] is False


def test_ledger_is_asked_again_before_each_change(
    asked: list[dict[str, Any]], context: dict[str, Any], connections: Callable[..., None], mirror: dict[str, Any],
    plan: Plan, home: Path, ledger: MemoryLedger, clusters: InMemory, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The target is opened right behind its first look."""
    topic = clusters.target.create("t", 2)

    def frozen(*_: Any) -> str:
        mark_cut_over(ledger, plan, {"t": topic.topic_id}, "2026-02-01T00:00:00+00:00")
        return "User:mirror"

    monkeypatch.setattr("airflow_mirror.sync.access.own_principal", frozen)
    with pytest.raises(AirflowFailException, match="in production"):
        SyncAclsOperator(task_id="t", mirror=mirror, plan=PLAN).execute(context)
    assert asked == []


@pytest.mark.parametrize("value", [{"both": "User:m"}, {"target": "mirror"}, "User:m"])
def test_own_principals_are_given_by_role(
    value: Any, asked: list[dict[str, Any]], context: dict[str, Any], connections: Callable[..., None],
    mirror: dict[str, Any], plan: Plan, home: Path,
) -> None:  # fmt: skip
    with pytest.raises(AirflowFailException, match="InvalidField: own_principals="):
        SyncAclsOperator(task_id="t", mirror=mirror, plan=PLAN, own_principals=value).execute(context)
    assert asked == []


def test_a_changed_map_of_principals_needs_no_new_plan(
    asked: list[dict[str, Any]], context: dict[str, Any], connections: Callable[..., None], mirror: dict[str, Any],
    plan: Plan, home: Path,
) -> None:  # fmt: skip
    mapped = {**mirror, "principals": {"User:a": "User:b"}}
    SyncAclsOperator(task_id="t", mirror=mapped, plan=PLAN).execute(context)
    assert asked[0]["principals"] == {"User:a": "User:b"}


# --- quotas and users -------------------------------------------------------------------------------------------------

SECRET = "a-secret-of-hers"


def give(user: str) -> str | None:
    """As an administrator's function would."""
    return SECRET if user == "alice" else None


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Answer for quotas and users; note what secrets the task would have."""
    seen: dict[str, Any] = {}

    def quotas(*_: Any, **given: Any) -> QuotaReport:
        seen["quotas"] = given
        nothing = QuotaDiff(set={}, before={}, kept=2, drift={}, left_out=(), notes=())
        return QuotaReport(diff=nothing, removed={}, applied=True)

    def users(*_: Any, secret_of: Any, **given: Any) -> UsersReport:
        seen["secrets"] = [secret_of(user) for user in ("alice", "bob")]
        row = UserRow(source="alice", target="alice", mechanism="SCRAM-SHA-512", iterations=4096, action="created")
        return UsersReport(rows=(row,), applied=True)

    monkeypatch.setattr("airflow_mirror.sync.access.sync_quotas", quotas)
    monkeypatch.setattr("airflow_mirror.sync.access.sync_users", users)
    return seen


@pytest.mark.parametrize("reference", ["env:NEW_USERS", f"{__name__}.give", None])
def test_secrets_reach_users_by_reference_and_nothing_else(
    reference: str | None, others: dict[str, Any], asked: list[dict[str, Any]], context: dict[str, Any],
    connections: Callable[..., None], mirror: dict[str, Any], plan: Plan, home: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("NEW_USERS", json.dumps({"alice": SECRET}))
    masked: list[str] = []
    monkeypatch.setattr("airflow_mirror.operators.acls.mask_secret", masked.append)
    task = SyncAclsOperator(
        task_id="t", mirror=mirror, plan=PLAN, parts=["quotas", "users"], remove=True, secrets=reference
    )
    found = task.execute(context)
    assert others["secrets"] == ([SECRET, None] if reference else [None, None])
    assert masked == ([SECRET] if reference else [])
    assert others["quotas"] == {"remove": True, "dry_run": False} and asked == []
    assert SECRET not in json.dumps(found) + Path(found["path"]).read_text()
    assert found["quotas_kept"] == 2 and found["users_rows"][0]["action"] == "created"
    assert "secrets" not in task.template_fields


@pytest.mark.parametrize("given", [SECRET, "no.such.function", "a b"])
def test_what_is_no_reference_is_refused_without_showing_it(
    given: str, others: dict[str, Any], context: dict[str, Any], connections: Callable[..., None],
    mirror: dict[str, Any], plan: Plan, home: Path,
) -> None:  # fmt: skip
    with pytest.raises(AirflowFailException, match=r"(?s)InvalidField: secrets=.*never a\s+secret") as e:
        SyncAclsOperator(task_id="t", mirror=mirror, plan=PLAN, parts="users", secrets=given).execute(context)
    assert given not in str(e.value) and others == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [({"parts": ["acl"]}, "parts='acl'"), ({"parts": []}, "nothing to do"), ({"phase": "x"}, "phase='x'")],
)
def test_parts_and_phases_that_do_not_exist_are_refused(
    given: dict[str, Any], message: str, asked: list[dict[str, Any]], context: dict[str, Any],
    connections: Callable[..., None], mirror: dict[str, Any], plan: Plan, home: Path,
) -> None:  # fmt: skip
    with pytest.raises(AirflowFailException, match=message):
        SyncAclsOperator(task_id="t", mirror=mirror, plan=PLAN, **given).execute(context)
    assert asked == []
