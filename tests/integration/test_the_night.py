"""The runbook for the night: each command in it is typed, and does what the page says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_mirror import errors
from airflow_mirror.cutover.after import After
from airflow_mirror.cutover.check import precheck
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.cutover.rollback.arm import arm
from airflow_mirror.cutover.rollback.run import roll_back
from airflow_mirror.cutover.run import run_cutover
from airflow_mirror.cutover.swap import swap_fence
from airflow_mirror.cutover.undoing import recover
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.plan.ledger_store import keep
from airflow_mirror.plan.ownership import claim
from tests.builders import rule
from tests.integration.cutover_world import Tail, World, writer_lease
from tests.integration.shell import ROOT, Shell, commands_of, sections_with_commands
from tests.waiting import wait_until

pytestmark = pytest.mark.tools
PAGE = (ROOT / "docs" / "the-night.md").read_text(encoding="utf-8")


@pytest.fixture
def shell(world: World) -> Shell:
    shell = Shell(world.directory)
    for name, admin in (("src", world.source), ("dst", world.target)):
        settings = admin.config.properties.items()
        (world.directory / f"{name}.properties").write_text("\n".join(f"{key}={value}" for key, value in settings))
    mine = world.source.config.properties
    login = f'username="{mine["sasl.username"]}" password="{mine["sasl.password"]}"'
    (world.directory / "admin.properties").write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {login};\n"
    )
    return shell


def commands(heading: str, world: World) -> list[str]:
    """The commands of a section, with the names of this test in them."""
    names = {
        "dc1-to-dc2": world.mirror.name, r"\borders\b": world.topic, "source:9092": world.source_cluster.bootstrap_sasl,
    }  # fmt: skip
    return commands_of(PAGE, heading, names)


def test_rights_plan_and_status_answer(world: World, shell: Shell) -> None:
    world.write(10)
    rights, plan = commands("Days before", world)
    assert shell.type(rights) == 0 and f"--topic {world.topic}" in shell.said
    assert shell.type(plan) == 0, shell.said
    assert world.topic in shell.said
    night, later = commands("The plan for the night", world)
    assert shell.type(night) == 0 and "# The night of mirror" in shell.said, shell.said
    assert shell.type(f"{night} --json > night.json") == 0, shell.said
    assert shell.type(later) == 0 and (world.directory / "night.html").exists(), shell.said
    Ledger(world.target).create()
    ids = {"source_cluster_id": world.source.cluster_id(), "target_cluster_id": world.target.cluster_id()}
    made = replace(world.plan(), **ids)
    claim(Ledger(world.target), made, world.target)  # as the job does that copies
    status, preview = commands("An hour before", world)
    assert shell.type(status) == 0 and world.mirror.name in shell.said
    state = state_of(world.target, PLAN.below(world.mirror.name), keys_only=True)
    keep(made, state, Ledger(world.target))
    (cutover,) = commands("The cutover", world)
    assert shell.type(preview) == 1 and "block: tail_runs: " in shell.said, "nobody has copied anything"
    assert shell.type(f"{cutover} --accept-ledger-writers 'User:*'") == 1 and "'tail' is not running" in shell.said
    world.source.create_acls(
        [rule(world.topic, "ALL", "ALLOW", "User:alice")], unfenced
    )  # else it may be open to everybody
    with Tail(world):
        wait_until(lambda: not world.behind())
        assert shell.type(preview) == 1 and "block: ledger_writers: " in shell.said, "the target has no authorizer"
        assert shell.type(f"{preview} --accept-ledger-writers 'User:*'") == 0, shell.said
    assert "predicted length of the fence: " in shell.said and "block" not in shell.said


def test_fence_of_a_killed_cutover_is_seen_and_lifted(world: World, shell: Shell) -> None:
    world.write(10)
    with writer_lease(world):  # it takes that for a tail, and waits for it
        world.lose(world.process())
    status, lift = commands("Nobody can write", world)
    assert shell.type(status) == 0 and "the source is fenced (acl)" in shell.said
    assert shell.type(lift) == 0, shell.said
    assert world.acls() == []


@pytest.mark.parametrize("was_open", [True, False])
def test_fence_is_removed_without_this_software(world: World, shell: Shell, was_open: bool) -> None:
    """Where the topic had no ACL: what allows reading goes, too."""
    fence = AclFence(world.source, open_by_default=was_open)
    name = name_of(world.mirror.name, "manual__1", "6a2f")
    fence.raise_(fence.intent([world.topic]), name, unfenced)
    fence.announce(name, unfenced)
    topic, named, lift, unname, readers = commands("Without this software", world)
    assert shell.type(topic) == 0 and "permissionType=DENY" in shell.said
    assert shell.type(named) == 0 and f"name=airflow-mirror.fence.{world.mirror.name}:manual__1:6a2f" in shell.said
    for line in (lift, unname, *([readers] if was_open else [])):
        assert shell.type(line) == 0, shell.said
    wait_until(lambda: world.acls() == [])
    left = world.source.describe_acls(resource_type="GROUP", principal="User:airflow-mirror-fence")
    assert [acl for acl in left if world.mirror.name in acl.name] == []


def test_every_error_of_the_page_is_one_of_ours() -> None:
    """And every one that a cutover, what looks after it, and its way back say they raise is on the page."""
    (table,) = re.findall(r"^\| error \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`([A-Z]\w+)`", table))
    assert {name for name in named if not hasattr(errors, name)} == set()
    raised = set[str]()
    for one in (run_cutover, recover, precheck, lift_leftover_fence, After.raise_if_wrong, arm, swap_fence, roll_back):
        for names in re.findall(r":raises ([\w,\s]+):", one.__doc__ or ""):
            raised |= set(re.findall(r"\w+", names))
    # Wrong arguments, and what only has to be tried again, say themselves what to do.
    assert len(raised) > 30 and raised - named == {"InvalidField", "InputError", "TryAgain"}


def test_every_command_of_the_page_is_typed_by_a_test() -> None:
    """A section of commands that nobody types here would be right only by chance."""
    assert sections_with_commands(PAGE) == set(
        re.findall(r'commands\("([^"]+)"', Path(__file__).read_text(encoding="utf-8"))
    )
