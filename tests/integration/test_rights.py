"""A principal with the rights that ``airflow-mirror rights`` prints can do everything; each missing one is noticed.

Each part of a migration runs with the rights that are printed for it alone, in the order of a migration. The data have
holes and start above 0, so that offsets that are kept take every right.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import LEDGER
from airflow_mirror.config import ClientConfig, load
from airflow_mirror.console.main import main
from airflow_mirror.copy.loop import retries
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover.decision import OPENED, UP
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import GroupRecord
from airflow_mirror.cutover.report_store import ReportStore, reports_of
from airflow_mirror.cutover.request import Additions
from airflow_mirror.errors import InputError, MirrorError
from airflow_mirror.extras.readiness.build import night_plan
from airflow_mirror.jobs.driver.held_lease import HeldLease, writer_lease
from airflow_mirror.jobs.driver.prepare import prepare_to_copy, resolve_ranges, wishes_at_start
from airflow_mirror.jobs.driver.weights import bytes_to_copy
from airflow_mirror.jobs.request import BulkRequest
from airflow_mirror.jobs.runner.wishes import Wish, wish
from airflow_mirror.jobs.start_memory import begun_at, copy_modes, remember
from airflow_mirror.kafka.admin import Acl, ClusterAdmin, GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import PLAN, PROOF, SIGN, WISH
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build
from airflow_mirror.plan.build import Before
from airflow_mirror.plan.ledger_store import fetch, keep
from airflow_mirror.plan.ownership import begin, require_active
from airflow_mirror.plan.resources import includes
from airflow_mirror.plan.rights import COMMANDS, RIGHTS, ROLES, SIDES, rights_of
from airflow_mirror.plan.store import write as write_plan
from airflow_mirror.sync import lag, seen_acls
from airflow_mirror.sync.configs import sync_configs
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.following.follower import GroupFollower
from airflow_mirror.sync.groups import translate_groups
from airflow_mirror.sync.maps import OffsetMaps
from airflow_mirror.sync.mm2_topics.follower import TraceFollower
from airflow_mirror.sync.mm2_topics.heartbeats import Heart
from airflow_mirror.sync.topics import create_target_topics
from airflow_mirror.sync.write_permit import WritePermit
from airflow_mirror.verify.proof import Proofs
from airflow_mirror.verify.remaining import verify_rest
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.builders import rule
from tests.cutting_over import cut_over
from tests.followed import sides
from tests.integration.copying import config, create, wait_until, write, write_transactions
from tests.integration.cutover_once import LEASE_TIMES, LIMITS
from tests.integration.cutover_world import HeardFence, kept_in
from tests.integration.shell import Shell

MODES: dict[str, dict[str, Any]] = {
    "identical": {"offsets": "identical"},
    "mapped": {"offsets": "mapped"},
    "transactional": {"delivery": "transactional"},
    "latest": {"offsets": "identical", "start": "latest"},
    "traces": {"offsets": "identical", "traces": "heartbeats, checkpoints"},
}
FAILS_OVER = {**MODES, "acls": {"offsets": "identical", "sync_acls": True}}  # who lets rules follow, needs more for that
OPERATIONS = {right.operation for right in RIGHTS}
OURS = "User:mirror"
ROOT = "admin"


@pytest.fixture(scope="module")
def walled() -> Iterator[tuple[Cluster, Cluster]]:
    """Two clusters on which a user may do what an ACL says. Who comes without a password may do everything."""
    closed = {"allow.everyone.if.no.acl.found": "false", "super.users": f"User:{ROOT};User:ANONYMOUS"}
    with (
        Cluster("walled-source", authorizer=True, overrides=closed, ready_timeout_s=240) as source,
        Cluster("walled-target", authorizer=True, overrides=closed, ready_timeout_s=240) as target,
    ):
        yield source, target


class World:
    """A mirror of two topics with holes, which start above 0; one of them is on the target already. And one group."""

    def __init__(self, clusters: tuple[Cluster, Cluster], topic: str, directory: Path, **fields: Any) -> None:
        self.clusters, self.topic, self.directory = dict(zip(SIDES, clusters, strict=True)), topic, directory
        name = f"flow-{topic[-8:]}"
        self.mirror = Mirror(name=name, source="s", target="t", topics=[f"{topic}.*"], groups=[f"{topic}-g"], **fields)
        self.topics = [topic, f"{topic}-there"]
        for one in self.topics:
            create(clusters[0], one, 2)
            write(clusters[0], one, 40, 1, "lz4")
            with ClusterAdmin(config(clusters[0])) as admin:
                admin.delete_records({TopicPartition(one, 0): 7}, unfenced)
            write_transactions(clusters[0], one, seed=2, transactions=2, partitions=2)
        create(clusters[1], self.topics[1], 2)
        self.notes: list[str] = []
        self.lifted: list[dict[TopicPartition, GroupPosition]] = []  # the group on the target after each lifting

    @contextmanager
    def admins(self, user: str) -> Iterator[tuple[ClusterAdmin, ClusterAdmin]]:
        with (
            ClusterAdmin(self.config("source", user), timeout_s=60) as source,
            ClusterAdmin(self.config("target", user), timeout_s=60) as target,
        ):
            yield source, target

    def config(self, side: str, user: str) -> ClientConfig:
        return ClientConfig(self.clusters[side].properties(user), side)

    def file(self, side: str, user: str) -> str:
        file = self.directory / f"{side}-{user}.properties"
        file.write_text("".join(f"{k}={v}\n" for k, v in self.clusters[side].properties(user).items()))
        return str(file)

    def maps(self, plan: Plan, user: str) -> OffsetMaps:
        return OffsetMaps(plan, self.config("source", user), self.config("target", user))

    # --- the parts of a migration, as operators and jobs do them ------------------------------------------------------

    def plan(self, user: str, known: Any = ()) -> None:
        with self.admins(user) as (source, target):
            latest = self.mirror.start == "latest"
            modes = copy_modes(self.mirror, source.topic_names(), target)  # as a job by hand does
            begun = begun_at(self.mirror, source, target, modes) if latest else None
            plan = build(self.mirror, source, target, known, before=Before(begun=begun))
            if user != ROOT:
                self.notes += [str(finding) for finding in plan.findings if finding.level != "pass"]
            plan.raise_if_blocked()
            ledger = begin(plan, target)
            require_active(ledger, plan, target)
            keep(plan, state_of(target, PLAN.below(self.mirror.name), keys_only=True), ledger)
        self.hash = plan.hash

    def stored(self, user: str) -> Plan:
        """As a worker finds it that has not made it."""
        with self.admins(user) as (_, target):
            return fetch(self.hash, self.mirror.name, target, Ledger(target))

    def copy(self, user: str) -> None:
        """Twice: in between a topic grows. At the end groups follow, as they do while a tail runs."""
        self._copy(user)
        with self.admins(ROOT) as (source, _):
            source.grow_partitions(self.topic, 3, unfenced)
            wait_until(lambda: source.topics([self.topic])[self.topic].partitions == 3, "the topic has grown")
        self.plan(ROOT, self.stored(ROOT).known_topics)
        self._copy(user)

    def _copy(self, user: str) -> None:
        plan, file = self.stored(user), self.directory / "plan.json"
        write_plan(plan, file)
        with self.admins(user) as (source, target):
            state_of(target, SIGN.below(self.mirror.name)).write(
                {f"{SIGN.below(self.mirror.name)}test": b"{}"}
            )  # a sign of life
            create_target_topics(plan, target, unfenced)
            sync_configs(plan, source, target, unfenced, hold=True)
            if self.mirror.start == "latest":
                remember(plan, target)
        files = {side: self.file(side, user) for side in SIDES}
        job = prepare_to_copy(BulkRequest(mirror=self.mirror, **files, plan=str(file)))
        wishes_at_start(job)
        with WireCluster(load(job.source, "source")) as here, WireCluster(load(job.target, "target")) as there:
            ranges = resolve_ranges(job, here, self.mirror.start, "latest")
            bytes_to_copy(here, there, ranges)
        with writer_lease(job.target, self.mirror.name) as held:
            work = CopyWork(source=job.source, target=job.target, options=job.options, lease=held.token)
            results = copy_ranges(work, ranges)
            self._follow(plan, user, held)
        failed = [r.error for r in results if r.error]
        if failed:
            raise MirrorError("; ".join(failed))
        assert all(r.done for r in results)
        with self.admins(user) as (source, target), self.maps(plan, user) as maps:
            lags = lag.measure(plan, source, target, maps.positions if maps else None)
            assert not any(one.records for one in lags)
            sync_configs(plan, source, target, unfenced, hold=False)

    def _follow(self, plan: Plan, user: str, held: HeldLease, *, traces: bool = True) -> None:
        with self.admins(user) as (source, target), self.maps(plan, user) as maps:
            state = state_of(target, notes.prefix(self.mirror.name))
            right = WritePermit(lambda: held.token)
            given = sides(plan, source, target, right, state=state, ledger=Ledger(target), maps=maps)
            report = GroupFollower(given).follow(1)
            self.notes += [*report.left_out, *report.failed]
            if self.mirror.traces and traces:
                beat = Heart(given).follow(1)
                traced = TraceFollower(given).follow(1)
                self.notes += [*beat.failed, *traced.left_out, *traced.failed]
                assert (beat.topics, traced.checkpoints) == (2, 1)

    def forget_group(self) -> None:
        """Take the group off the target: the copy has let it follow, and nothing would be left to commit."""
        client = AdminClient(self.config("target", ROOT).common())
        for future in client.delete_consumer_groups(list(self.mirror.groups)).values():
            future.result(60)

    def verify(self, user: str) -> None:
        plan = self.stored(user)
        with WireCluster(self.config("source", user)) as source:
            source.refresh(t.source_topic for t in plan.topics)
            tps = [TopicPartition(t.source_topic, p) for t in plan.topics for p in range(t.partitions)]
            ends = source.last_stable(tps)
        compare = verify_rest(plan, self.config("source", user), self.config("target", user))
        assert all(one.equal for one in compare(ends))
        with self.admins(user) as (_, target):
            ids = {name: info.topic_id for name, info in target.topics([t.target_topic for t in plan.topics]).items()}
            proofs = Proofs(state_of(target, PROOF.below(self.mirror.name)), self.mirror.name)
            proofs.add(plan, ids, "batches", {tp: (0, end) for tp, end in ends.items()})

    def cutover(self, user: str) -> None:
        """Once it backs out at the last moment, then it is done again."""
        for name, opens in (("backs-out", False), ("done", True)):
            self._cut_over(user, self.directory / name, opens)

    def _cut_over(self, user: str, run_dir: Path, opens: bool, *, keep_fence: bool = False) -> None:
        plan = self.stored(user)
        configs = {side: self.config(side, user) for side in SIDES}
        translate_groups(plan, configs["source"], configs["target"])  # the preview

        def decide_with(_: object) -> dict[str, Any]:
            if not opens:
                raise MirrorError("its direction is another one")
            return {}

        try:
            with self.admins(user) as (source, target), self.maps(plan, user) as maps:
                on = Platform.of(source, target)
                report = cut_over(
                    on, plan, kept_in(on, self.mirror.name, run_dir), fence=HeardFence(source), keep_fence=keep_fence,
                    verify=verify_rest(plan, configs["source"], configs["target"]), limits=LIMITS,
                    tail_positions=maps.positions, translate_offset=maps.to_target,
                    additions=Additions(decide_with=decide_with),
                    accept_ledger_writers=["User:*"] if user == ROOT else (),
                )  # fmt: skip
            assert [g.group for g in report.groups] == list(self.mirror.groups)
            assert report.fence is not None
            self.notes.append(report.fence.unseen)
        except MirrorError as e:
            if opens or "direction" not in str(e):
                raise
        finally:
            if (run_dir / "report.json").exists():
                self.notes += [undone["what"] for undone in json.loads((run_dir / "report.json").read_text())["undone"]]

    # --- commands ----------------------------------------------------------------------------------------------------

    def command(self, user: str, *words: str) -> None:
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            status = main([*words, "--target", self.file("target", user)])
        self.notes += said.getvalue().splitlines()
        assert user != ROOT or status == 0

    def status(self, user: str) -> None:
        self.command(user, "status")
        self.command(user, "ledger", "show")

    def pause(self, user: str) -> None:
        for verb in ("pause", "resume"):
            self.command(user, verb, "--mirror", self.mirror.name)
        self.command(user, "rate", "default", "--mirror", self.mirror.name)

    def lift_fence(self, user: str) -> None:
        """Of a cutover that was killed behind its fence; then of one that is over."""
        self.copy(ROOT)
        self._cut_over(ROOT, self.directory / "kept", opens=True, keep_fence=True)
        with self.admins(ROOT) as (_, target):

            def kept() -> ReportStore:
                return ReportStore(reports_of(target, self.mirror.name), self.mirror.name, "kept", None)

            done = kept().load()
            assert done is not None and done.fence is not None
            killed = replace(done, outcome="running", fence=replace(done.fence, kept=False))
            # As if it had set positions first, or moved them from the beginning.
            first = replace(killed, groups=[replace(one, before=[]) for one in done.groups])
            moved = replace(killed, groups=[replace(one, before=_at_the_beginning(one)) for one in done.groups])
            key = f"fence/{self.mirror.name}"
            opened = Ledger(target).values()[key]
            words = ["--mirror", self.mirror.name, "--source", self.file("source", user), "--include-retained"]
            for phase, report in ((UP, first), (UP, moved), (OPENED, done)):
                for one in done.groups:
                    there_is = {
                        TopicPartition(r["target_topic"], r["partition"]): r["target_offset"] for r in one.positions
                    }
                    commit(target, one.group, {tp: GroupPosition(offset, "") for tp, offset in there_is.items()})
                there = kept()
                there.load()  # what is saved is newer than what was
                there.save(report)
                left = {key: {**opened, "phase": phase, "process": {}}}  # nobody is listened for
                Ledger(target).decide(lambda _, left=left: left)
                self.command(user, "lift-fence", *words, "--home", str(self.directory / "nowhere"))
                self.lifted.append(target.group_offsets(f"{self.topic}-g"))

    def failover(self, user: str) -> None:
        """Of a group that is beyond the end in one partition, and ahead of its checkpoint in the other.

        With rules of writers, where they follow.
        """
        group, mirror = f"{self.topic}-g", self.mirror
        with self.admins(ROOT) as (source, target):
            commit(source, group, {TopicPartition(self.topic, 1): GroupPosition(5, "")})
            with writer_lease(self.file("target", ROOT), mirror.name) as held:
                self._follow(self.stored(ROOT), ROOT, held, traces=False)
            at = TopicPartition(mirror.naming.target_topic(self.topic), 0)
            commit(target, group, {at: GroupPosition(target.offsets([at])[at] + 100, "")})
            if mirror.sync_acls:
                rules = [rule(self.topic, "WRITE", "ALLOW", "User:shop")]
                state = state_of(target, seen_acls.prefix(mirror.name))
                state.write(seen_acls.changed(mirror.name, {}, rules))
        self.command(user, "failover", self.mirror.name, "--yes")

    def retire(self, user: str) -> None:
        with self.admins(ROOT) as (_, target):
            wish(state_of(target, WISH.below(self.mirror.name)), self.mirror.name, "rate", Wish.now(7))
        self.command(user, "retire", "--mirror", self.mirror.name, "--yes", "--end-writing")

    def do(self, role: str, user: str) -> None:
        getattr(self, role.replace("-", "_"))(user)

    # --- rights -------------------------------------------------------------------------------------------------------

    def allow(self, role: str, without: tuple[str, int] | None = None) -> Acl | None:
        """Grant what is printed for a role, on both sides, and nothing else. Return the ACL that is left out."""
        missing = None
        for side in SIDES:
            acls = [acl for acl, _ in rights_of(self.mirror, side, OURS, roles=[role]).grants]
            if without is not None and without[0] == side:
                missing = acls.pop(without[1])
            with ClusterAdmin(self.config(side, ROOT)) as admin:
                admin.delete_acls([acl for acl in admin.describe_acls() if acl not in acls], unfenced)
                admin.create_acls(acls, unfenced)
                wait_until(lambda admin=admin, acls=acls: admin.describe_acls() == sorted(acls), "the ACLs are known")
        return missing


@pytest.fixture
def world_of(
    walled: tuple[Cluster, Cluster], topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., World]]:
    for name, seconds in LEASE_TIMES.items():
        monkeypatch.setattr(lease, name, seconds)
    # Each test begins without a ledger, and leases of the others would be the traces of one that was lost.
    monkeypatch.setattr(Ledger, "require_never_was", lambda _: None)

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


def commit(admin: ClusterAdmin, group: str, positions: Any) -> None:
    """A young cluster's coordinator is not where it will be."""

    def done() -> bool:
        try:
            admin.commit_group_offsets(group, positions, unfenced)
        except MirrorError:
            return False
        return True

    wait_until(done, "the group has its position")


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
        return f"{OURS} lacks {spelled} on topic '{topic}'. Add the ACL: kafka-acls --add --allow-principal {OURS}"

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


def _at_the_beginning(group: GroupRecord) -> list[dict[str, Any]]:
    return [
        {"topic": row["target_topic"], "partition": row["partition"], "offset": 0, "metadata": ""}
        for row in group.positions
    ]
