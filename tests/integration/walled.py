"""Two clusters that let nobody do anything but what was printed, and a mirror between them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig, load
from airflow_mirror.console.main import main
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.cutover.decision import OPENED, UP
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import GroupRecord
from airflow_mirror.cutover.report_store import ReportStore, reports_of
from airflow_mirror.cutover.request import Additions
from airflow_mirror.errors import MirrorError
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
from airflow_mirror.plan.ownership import begin
from airflow_mirror.plan.requirements import require_active
from airflow_mirror.plan.rights import SIDES, rights_of
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
from tests.integration.cutover_once import LIMITS
from tests.integration.cutover_world import HeardFence, kept_in

OURS = "User:mirror"
ROOT = "admin"


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
            ranges, _ = resolve_ranges(job, here, self.mirror.start, "latest")
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
            values = Ledger(target).values()
            opened, owned = values[key], {k: v for k, v in values.items() if k.startswith("topic/")}
            shut = {k: {**v, "opened_by": None, "opened_at": None} for k, v in owned.items()}
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
                # Nobody is listened for. The decision that opens a target opens its topics in the same record.
                left = {key: {**opened, "phase": phase, "process": {}}, **(shut if phase == UP else owned)}
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


def commit(admin: ClusterAdmin, group: str, positions: Any) -> None:
    """A young cluster's coordinator is not where it will be."""

    def done() -> bool:
        try:
            admin.commit_group_offsets(group, positions, unfenced)
        except MirrorError:
            return False
        return True

    wait_until(done, "the group has its position")


def _at_the_beginning(group: GroupRecord) -> list[dict[str, Any]]:
    return [
        {"topic": row["target_topic"], "partition": row["partition"], "offset": 0, "metadata": ""}
        for row in group.positions
    ]
