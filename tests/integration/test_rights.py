"""A principal with the rights that ``airflow-mirror rights`` prints can do everything; each missing one is noticed.

Each part of a migration runs with the rights that are printed for it alone, in the order of a migration. The data have
holes and start above 0, so that offsets that are kept take every right.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import LEDGER
from airflow_mirror.console.main import main
from airflow_mirror.copy.loop import retries
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import InputError, MirrorError
from airflow_mirror.extras.readiness.build import night_plan
from airflow_mirror.kafka.admin import Acl, ClusterAdmin, GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.resources import includes
from airflow_mirror.plan.rights import COMMANDS, RIGHTS, ROLES, SIDES, rights_of
from sandbox import Cluster
from tests.integration.copying import config, wait_until
from tests.integration.cutover_once import LEASE_TIMES
from tests.integration.shell import Shell
from tests.integration.walled import OURS, ROOT, World, commit

MODES: dict[str, dict[str, Any]] = {
    "identical": {"offsets": "identical"},
    "mapped": {"offsets": "mapped"},
    "transactional": {"delivery": "transactional"},
    "latest": {"offsets": "identical", "start": "latest"},
    "traces": {"offsets": "identical", "traces": "heartbeats, checkpoints"},
}
FAILS_OVER = {**MODES, "acls": {"offsets": "identical", "sync_acls": True}}  # who lets rules follow, needs more for that
OPERATIONS = {right.operation for right in RIGHTS}


@pytest.fixture(scope="module")
def walled() -> Iterator[tuple[Cluster, Cluster]]:
    """Two clusters on which a user may do what an ACL says. Who comes without a password may do everything."""
    closed = {"allow.everyone.if.no.acl.found": "false", "super.users": f"User:{ROOT};User:ANONYMOUS"}
    with (
        Cluster("walled-source", authorizer=True, overrides=closed, ready_timeout_s=240) as source,
        Cluster("walled-target", authorizer=True, overrides=closed, ready_timeout_s=240) as target,
    ):
        yield source, target


@pytest.fixture
def world_of(
    walled: tuple[Cluster, Cluster], topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., World]]:
    for name, seconds in LEASE_TIMES.items():
        monkeypatch.setattr(lease, name, seconds)
    # Each test begins without a ledger, and leases of the others would be the traces of one that was lost.
    monkeypatch.setattr(Ledger, "was_there", lambda _: False)

    def make(**fields: Any) -> World:
        world = World(walled, topic_name, tmp_path, **fields)
        with world.admins(ROOT) as (source, target):
            at = TopicPartition(topic_name, 1)
            offset = source.offsets([at])[at] if world.mirror.start == "latest" else 3
            commit(source, f"{topic_name}-g", {at: GroupPosition(offset, "")})
            old = {*LEDGER, *world.mirror.trace_topics}
            target.delete_topics(old & set(target.topic_names()), unfenced)
            wait_until(lambda: not old & set(target.topic_names()), "the ledger and the traces are gone")
        return world

    yield make
    end_guards(os.environ["PYTEST_CURRENT_TEST"].partition(" (")[0])


def end_guards(test: str) -> None:
    """End the guards that a test has started: they stay while nobody can decide, and here the ledger is deleted."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            command, environment = (Path("/proc", entry, name).read_bytes() for name in ("cmdline", "environ"))
            if b"airflow_mirror.cutover.guard" in command and f"PYTEST_CURRENT_TEST={test} (".encode() in environment:
                os.kill(int(entry), signal.SIGKILL)


@pytest.mark.faults
@pytest.mark.parametrize("mode", MODES)
def test_with_the_printed_rights_of_each_part_a_mirror_migrates(world_of: Callable[..., World], mode: str) -> None:
    world = world_of(**MODES[mode])
    for role in (*ROLES, "status", "pause", "retire"):
        world.allow(role)
        world.do(role, "mirror")
    assert [
        note
        for note in world.notes
        if re.search("missing|can't be read|lack of|lacks Describe|could not be|left behind|error:", note)
    ] == []
    with world.admins(ROOT) as (_, target):
        assert target.group_offsets(f"{world.topic}-g")


@pytest.mark.nights
@pytest.mark.parametrize("mode", ["identical", "mapped"])
def test_with_the_printed_rights_of_a_plan_a_night_is_planned(world_of: Callable[..., World], mode: str) -> None:
    """What these do not show is listed: transactional ids are the cutover's to see, and maps the copy's to complete."""
    world = world_of(**MODES[mode])
    for role in ("plan", "copy"):
        world.do(role, ROOT)
    plan = world.stored(ROOT)
    world.allow("plan")
    with world.admins("mirror") as (source, target):
        night = night_plan(plan, source, target)
    unseen = [line.partition(":")[0] for line in night.unseen[:-2]]
    hidden = [] if mode == "identical" else ["how far topics with mapped offsets are copied"]
    assert unseen == [*hidden, "some transactional ids of producers, perhaps"]
    assert [(one.verdict, one.behind) for one in night.races] == ([] if hidden else [("wins", 0)] * 5)
    assert night.waves and night.producers


@pytest.mark.nights
def test_with_the_printed_rights_of_a_plan_a_trial_copy_is_made(world_of: Callable[..., World]) -> None:
    world = world_of(**MODES["identical"])
    world.do("plan", ROOT)
    plan = world.stored(ROOT)
    world.allow("plan")
    with world.admins("mirror") as (source, target):
        night = night_plan(plan, source, target, trial_s=0.5)
    assert night.trial is not None and night.trial.copied_bytes > 0, night.unseen


@pytest.mark.faults
def test_preview_names_a_right_before_a_cutover_meets_that(world_of: Callable[..., World]) -> None:
    """Asked with the rights of a cutover, of which one is missing."""
    world = world_of(**MODES["identical"])
    for role in ("plan", "copy", "verify"):
        world.do(role, ROOT)
    grants = [acl for acl, _ in rights_of(world.mirror, "target", OURS, roles=["cutover"]).grants]

    def verdicts(operation: str = "") -> list[tuple[str, str, str]]:
        """Without the right to an operation on the group."""
        lacking = [i for i, acl in enumerate(grants) if (acl.resource_type, acl.operation) == ("GROUP", operation)]
        world.allow("cutover", ("target", lacking[0]) if lacking else None)
        world.notes.clear()
        words = ["--mirror", world.mirror.name, "--source", world.file("source", "mirror"), "--json"]
        world.command("mirror", "preview", *words)
        found = json.loads("\n".join(world.notes))["findings"]
        return [(f["level"], f["object"], f["evidence"].partition(" (")[0]) for f in found if f["check"] == "rights"]

    group = f"{world.topic}-g"
    assert verdicts() == [("pass", "both clusters", "all granted, on 9 topics and groups")]
    assert verdicts("DELETE") == [("warn", "target, 1 group", f"DELETE is not allowed to the mirror on group {group}")]
    assert verdicts("READ") == [("block", "target, 1 group", f"READ is not allowed to the mirror on group {group}")]


@pytest.mark.nights
def test_with_its_printed_rights_a_fence_is_lifted(world_of: Callable[..., World]) -> None:
    world = world_of(**MODES["identical"])
    world.plan(ROOT)
    world.allow("lift-fence")
    world.do("lift-fence", "mirror")
    assert any(note.startswith(f"run kept: lifted: DENY WRITE on topic {world.topic}") for note in world.notes), (
        world.notes
    )
    assert not [note for note in world.notes if "error:" in note or "still says that it is up" in note]
    at = TopicPartition(world.topic, 1)
    nowhere, beginning, opened = world.lifted
    assert (nowhere, beginning) == ({}, {at: GroupPosition(0, "")}), "as they were before"
    assert opened[at].offset > 0, "of readers now"


@pytest.mark.faults
@pytest.mark.parametrize("mode", FAILS_OVER)
def test_with_its_printed_rights_a_target_is_promoted(world_of: Callable[..., World], mode: str) -> None:
    world = world_of(**FAILS_OVER[mode])
    for role in ("plan", "copy"):
        world.do(role, ROOT)
    world.allow("failover")
    world.notes.clear()
    world.do("failover", "mirror")
    assert world.notes[0].endswith("its target topics are in production")
    assert not [note for note in world.notes if re.search("error:|not all of the last ones", note)], world.notes
    with world.admins(ROOT) as (_, target):
        at = TopicPartition(world.topic, 0)
        assert target.group_offsets(f"{world.topic}-g")[at].offset == target.offsets([at], "latest_committed")[at]
        granted = {acl.operation for acl in target.describe_acls() if acl.principal == "User:shop"}
        assert granted == ({"WRITE"} if mode == "acls" else set())


# Asked for a minute after a log was cut by its size; tests/unit/sync/log_starts has it.
SIZES = ("copy", "target", "CLUSTER", "DESCRIBE")


def _cases() -> Iterator[Any]:
    """Each right of each part alone; of other modes those that identical offsets don't need."""
    known = set()
    for mode, fields in FAILS_OVER.items():
        mirror = Mirror(name="m", source="s", target="t", topics=["t.*"], groups=["g"], **fields)
        for role in (*ROLES, *COMMANDS) if mode in MODES else ("failover",):
            for side in SIDES:
                for index, (acl, _) in enumerate(rights_of(mirror, side, OURS, roles=[role]).grants):
                    key = (role, side, acl)
                    if (mode, role) == ("traces", "plan"):
                        continue  # test_a_plan_names_each_right_that_traces_lack_and_touches_nothing has these
                    if (role, side, acl.resource_type, acl.operation) != SIZES and key not in known:
                        known.add(key)
                        label = f"{mode}-{role}-{side}-{acl.resource_type}-{acl.name}-{acl.operation}"
                        yield pytest.param(mode, role, side, index, id=label)


@pytest.mark.faults
@pytest.mark.parametrize(("mode", "role", "side", "index"), list(_cases()))
def test_a_right_that_is_missing_is_named(
    world_of: Callable[..., World],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    role: str,
    side: str,
    index: int,
) -> None:
    world = world_of(**FAILS_OVER[mode])
    for before in ROLES[: ROLES.index(role)] if role in ROLES else ROLES[: 1 if role == "lift-fence" else 2]:
        world.do(before, ROOT)
    if role == "cutover":
        world.forget_group()
    monkeypatch.setattr(retries, "PATIENCE_S", 5.0)  # it will not get better
    missing = world.allow(role, (side, index))
    assert missing is not None
    world.notes.clear()
    caplog.set_level(logging.INFO, "airflow_mirror")
    caplog.clear()
    try:
        world.do(role, "mirror")
    except MirrorError as e:
        world.notes.append(str(e))
    said = "\n".join([*world.notes, caplog.text])
    assert names(said, missing), f"{missing}: {said}"


@pytest.mark.nights
def test_a_plan_says_that_groups_may_be_hidden_where_only_some_are_seen(world_of: Callable[..., World]) -> None:
    world = world_of()
    world.mirror = replace(world.mirror, groups=[f"{world.topic}-.*"])
    grants = [acl for acl, _ in rights_of(world.mirror, "source", OURS, roles=["plan"]).grants]
    (every,) = [i for i, acl in enumerate(grants) if (acl.resource_type, acl.operation) == ("GROUP", "DESCRIBE")]
    lacking = world.allow("plan", ("source", every))
    assert lacking is not None and lacking.name == "*"
    with ClusterAdmin(world.config("source", ROOT)) as admin:
        # Who may describe the cluster is told of every group.
        admin.delete_acls(
            [acl for acl in grants if (acl.resource_type, acl.operation) == ("CLUSTER", "DESCRIBE")], unfenced
        )
        admin.create_acls([replace(lacking, name=f"{world.topic}-g")], unfenced)
        wait_until(lambda: replace(lacking, name=f"{world.topic}-g") in admin.describe_acls(), "the ACL is known")
    world.plan("mirror")
    assert any("some of the selected groups may be hidden" in note for note in world.notes), world.notes
    world.allow("plan")
    world.notes.clear()
    world.plan("mirror")
    assert not [note for note in world.notes if "some of the selected groups" in note]


@pytest.mark.nights
def test_a_plan_names_each_right_that_traces_lack_and_touches_nothing(world_of: Callable[..., World]) -> None:
    """Before their topics exist, and once a tail has made them."""
    world = world_of(**MODES["traces"])
    grants = [acl for acl, _ in rights_of(world.mirror, "target", OURS, roles=["plan"]).grants]
    ours = {acl.operation: i for i, acl in reversed([*enumerate(grants)]) if acl.name in world.mirror.trace_topics}
    assert set(ours) == {"CREATE", "WRITE", "READ", "DESCRIBE_CONFIGS"}
    assert {grants[i].name for i in ours.values()} == {"heartbeats", "s.checkpoints.internal"}

    def blocked(operation: str, known: Any = ()) -> str:
        world.allow("plan", ("target", ours[operation]))
        with pytest.raises(InputError, match="block this mirror; nothing was written") as caught:
            world.plan("mirror", known)
        return str(caught.value)

    def missing(operation: str) -> str:
        spelled, topic = operation.title().replace("_", ""), grants[ours[operation]].name
        command = f"kafka-acls --bootstrap-server ... --add --allow-principal {OURS}"
        return f"{OURS} lacks {spelled} on topic '{topic}'. Add the ACL: {command}"

    for operation in ours:
        assert missing(operation) in blocked(operation)
    with world.admins(ROOT) as (_, target):
        assert not {*LEDGER, *world.mirror.trace_topics}.intersection(target.topic_names())
    for role in ("plan", "copy"):
        world.allow(role)
        world.do(role, "mirror")
    known = world.stored(ROOT).known_topics
    for operation in set(ours) - {"CREATE"}:
        assert missing(operation) in blocked(operation, known)
    world.allow("plan")
    world.plan("mirror", known)


def names(text: str, acl: Acl) -> bool:
    """Whether somebody says which right is missing, or one that it includes: the first one that is asked for."""
    nouns = {"TOPIC": "topic", "GROUP": "group", "CLUSTER": "cluster", "TRANSACTIONAL_ID": "transactional id"}
    lacking = [operation for operation in OPERATIONS if includes(acl, replace(acl, operation=operation))]
    spelled = {*lacking, *(operation.title().replace("_", "") for operation in lacking)}
    lines = [line for line in text.splitlines() if nouns[acl.resource_type] in line]
    return any(operation in line for line in lines for operation in spelled)


@pytest.mark.nights
@pytest.mark.tools
def test_the_printed_script_adds_exactly_these_acls(
    walled: tuple[Cluster, Cluster], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run by a shell, with Kafka's own kafka-acls.sh."""
    words = ["rights", "--name", "flow", "--include", "orders", "--include", "pay[.].*", "--principal", OURS]
    assert main([*words, "--delivery", "transactional"]) == 0
    script = capsys.readouterr().out
    for side, cluster in zip(SIDES, walled, strict=True):
        file = tmp_path / f"{side}-admin.properties"
        file.write_text("")  # who comes without a password may do everything
        script = script.replace(f"{side.upper()}={side}:9092", f"{side.upper()}={cluster.bootstrap}")
        with ClusterAdmin(config(cluster)) as admin:
            admin.delete_acls(admin.describe_acls(), unfenced)
    shell = Shell(tmp_path)
    assert shell.type(script) == 0, shell.said
    mirror = Mirror(name="flow", source="s", target="t", topics=["orders", "pay[.].*"], delivery="transactional")
    for side, cluster in zip(SIDES, walled, strict=True):
        wanted = sorted(acl for acl, _ in rights_of(mirror, side, OURS).grants)
        with ClusterAdmin(config(cluster)) as admin:
            wait_until(lambda a=admin, w=wanted: a.describe_acls() == w, f"the {side} has these ACLs: {wanted}")
