"""A whole cutover with its own lease, its own tail and real logs; only groups and the fence are stood in for."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import DECISIONS, STATE, WISHES
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease import LeaseWatch
from airflow_mirror.cutover import heartbeat, platform, report_store, steps
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover import run as run_module
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.decision import LIFTED, OPENED, UP, begin_closing, end_lifting, fence_state
from airflow_mirror.cutover.fence import CallableFence
from airflow_mirror.cutover.lifting import Assurance, lift_leftover_fence
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore, reports_of
from airflow_mirror.cutover.request import Additions, Limits
from airflow_mirror.errors import (
    CutoverBlocked,
    CutoverTakenOver,
    FenceNotLifted,
    JobNotRunning,
    LeaseLost,
    MirrorError,
    OpeningUnfinished,
    SchemasDiffer,
    TryAgain,
)
from airflow_mirror.extras.schemas.proof import prove
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry, GroupInfo, Replicas, TopicInfo
from airflow_mirror.ledger.chain import Link, digest, links
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.owned import owned_topics
from airflow_mirror.sync.schemas.registry import Registry
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Connection
from tests.builders import CommitsMany, shut_again
from tests.cutting_over import cut_over
from tests.driven import records
from tests.driven.cluster import DrivenCluster, topic_config
from tests.driven.content import TIME_MS, Writer
from tests.driven.copying import Following, ends, ranges_of
from tests.driven.records import Row
from tests.driven.script import Fault
from tests.unit.cutover.builders import AllAllowed, a_plan
from tests.unit.schemas.registries import driven

PLAN = a_plan("t")
WAYS = ["thawed", "thawed a minute later", "killed"]  # what becomes of a cutover that was stopped
LIMITS = Limits(quiet_s=0.05, quiet_at_most_s=0.05, settle_s=0.0, poll_s=0.01, drain_timeout_s=20)


class Admin(AllAllowed, CommitsMany):
    """A cluster with one topic and no group."""

    def __init__(self, config: ClientConfig) -> None:
        self.config, self.role = config, config.role
        self.wire = WireCluster(config)

    def topic_names(self) -> list[str]:
        return ["t"]

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, f"id-{name}", 1, 1) for name in names}

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigEntry]]:
        return {name: {} for name in names}

    def replicas(self, names: Collection[str]) -> dict[TopicPartition, Replicas]:
        return {TopicPartition(name, 0): Replicas(1, 1) for name in names}

    def usable_bytes(self) -> dict[int, int | None]:
        return {1: 10**12}

    def groups(self) -> list[GroupInfo]:
        return []

    def group_states(self, _ids: Collection[str]) -> dict[str, str]:
        return {}

    describe_groups = group_states

    def groups_offsets(self, _ids: Collection[str], _only: object = None) -> dict[str, object]:
        return {}

    def groups_offsets_apart(self, _ids: Collection[str]) -> tuple[dict[str, object], dict[str, object]]:
        return {}, {}


class World:
    def __init__(self, source: DrivenCluster, target: DrivenCluster, run_dir: Path) -> None:
        self.source, self.target, self.run_dir, self.calls = source, target, run_dir, list[str]()
        self.when_called: Callable[[str], object] = lambda _: None
        self.log = source.create("t").logs[0]
        target.create("t")
        for name in (STATE, DECISIONS, WISHES):
            target.create(name, config=topic_config({"message.timestamp.type": "LogAppendTime"}))
        with self.ledger() as ledger:
            ledger.create()
        with self.platform() as on:
            ledger_store.keep(PLAN, on.target.state(f"plan/{PLAN.mirror.name}/"), on.target.ledger)
        self.write(10)

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The target's ledger, over connections of its own."""
        target = Admin(self.target.config)
        with closing(target.wire):
            yield Ledger(target, platform.PATIENCE_S)  # type: ignore[arg-type]

    @contextmanager
    def platform(self) -> Iterator[Platform]:
        """Both clusters, over connections of its own."""
        source, target = Admin(self.source.config), Admin(self.target.config)
        with closing(source.wire), closing(target.wire):
            yield Platform.of(source, target)  # type: ignore[arg-type]

    def write(self, count: int) -> None:
        with self.source.changing():
            Writer(self.log).plain(count)

    def cut_over(self, **more: Any) -> CutoverReport:
        def note(call: str) -> None:
            self.calls.append(call)
            self.when_called(call)

        with self.platform() as on:
            kept = ReportStore(on.target.reports(PLAN.mirror.name), PLAN.mirror.name, self.run_dir.name, self.run_dir)
            return cut_over(
                on, PLAN, kept, fence=CallableFence(lambda: note("on"), lambda: note("off")),
                verify=lambda _: [], limits=LIMITS,
                accept_ledger_writers=["User:*"], **more,
            )  # fmt: skip

    def report(self) -> CutoverReport:
        """The report that the target has."""
        target = Admin(self.target.config)
        with closing(target.wire):
            state = reports_of(target, PLAN.mirror.name)  # type: ignore[arg-type]
            found = ReportStore(state, PLAN.mirror.name, self.run_dir.name, None).load()
        assert found is not None
        return found

    @contextmanager
    def tail(self) -> Iterator[None]:
        """Copy under the lease, until somebody takes it."""
        with WireCluster(self.target.config) as wire:
            token = lease.take(wire, PLAN.mirror.name)
        with closing(LeaseWatch(self.target.config, token)) as watch:
            copy = Following(self.source, self.target, ranges_of(self.source, "t"), check=watch.check).__enter__()
            try:
                copy.until(lambda: ends(self.target) == [self.log.end], "the tail has caught up")
                yield
                copy._thread.join(30)  # it ends by itself: its lease is gone
            finally:
                with suppress(LeaseLost):
                    copy.__exit__()
        assert isinstance(copy.failed, LeaseLost)


@pytest.fixture
def world(
    source: DrivenCluster, target: DrivenCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> World:  # fmt: skip
    monkeypatch.setattr(Platform, "guarded", lambda *_, **__: nullcontext(lambda: None))
    for name, seconds in {"CONFIRM_EVERY_S": 0.1, "VALID_S": 0.4, "HANDOVER_S": 0.6}.items():
        monkeypatch.setattr(lease, name, seconds)
    return World(source, target, tmp_path / "run")


def test_a_source_that_a_tail_follows_is_cut_over(world: World) -> None:
    with world.tail():
        world.write(5)
        report = world.cut_over()
    assert (report.outcome, world.calls) == (reports.DONE, ["on"])
    assert [s.name for s in report.steps] == [step.name for step in steps.STEPS]
    assert world.target.topics["t"].logs[0].rows() == world.log.rows() and len(world.log.rows()) == 15
    world.write(3)
    assert ends(world.target) == [15]


def test_schemas_are_proven_before_the_fence(world: World) -> None:
    """What is missing, and a registry that is away, refuse; once it is there, the report has what was proven."""
    value = b"\0" + (7).to_bytes(4, "big") + b"payload"
    with world.source.changing():
        world.log.lay(records.encode([Row(world.log.end, TIME_MS, None, value, ())], leader_epoch=world.log.epoch))
    with driven() as here, driven() as there, ClusterAdmin(world.source.config) as source, world.tail():
        here.register(7, '"string"', "t-value", 3)
        sides = {
            side: Registry(role, {"url": one.url})
            for side, role, one in (("here", "source", here), ("there", "target", there))
        }
        schemas = partial(prove, PLAN, source, here=sides["here"], there=sides["there"], each=200)
        with pytest.raises(CutoverBlocked, match=r"(?s)topic 't': id 7 of the value \(t-value version 3\) is not there"):
            world.cut_over(schemas=schemas)
        there.register(7, '"int"', "t-value", 3)
        with pytest.raises(CutoverBlocked, match="id 7 of the value .* is another schema"):
            world.cut_over(schemas=schemas)
        there.status = 503
        with pytest.raises(CutoverBlocked, match="schemas: .*not known: .*target's schema registry"):
            world.cut_over(schemas=schemas)
        assert world.calls == [], "no fence was raised"
        there.status = 0
        there.register(7, '"string"', "t-value", 3)
        report = world.cut_over(schemas=schemas)
    assert (report.outcome, world.calls) == (reports.DONE, ["on"])
    row = {"topic": "t", "part": "value", "id": 7, "subjects": ["t-value version 3"], "verdict": "same"}
    assert report.schemas == world.report().schemas == [row]


@pytest.mark.parametrize("follows", [False, True])
def test_schema_that_came_behind_the_look_is_proven_behind_the_fence(world: World, follows: bool) -> None:
    """The report said that all is the same, and no tail came behind it that could have brought that schema."""

    def writes_with(schema_id: int) -> None:
        value = b"\0" + schema_id.to_bytes(4, "big") + b"payload"
        with world.source.changing():
            world.log.lay(records.encode([Row(world.log.end, TIME_MS, None, value, ())], leader_epoch=world.log.epoch))

    def last_writes(call: str) -> None:
        if call == "on":
            here.register(8, '"int"', "t-value", 4)
            writes_with(8)
            there.modes["t-value"] = "IMPORT"  # as a tail leaves it that is killed by now

    with driven() as here, driven() as there, ClusterAdmin(world.source.config) as source, world.tail():
        for one in (here, there):
            one.register(7, '"string"', "t-value", 3)
        writes_with(7)
        world.when_called = last_writes
        mirror = replace(PLAN.mirror, source_registry=here.url, target_registry=there.url, sync_schemas=follows)
        both = [Registry(role, {"url": one.url}) for role, one in (("source", here), ("target", there))]
        schemas = partial(prove, PLAN, source, here=both[0], there=both[1], each=200, follows=follows)
        if not follows:
            with pytest.raises(SchemasDiffer, match="id 8 of the value .* is not there on the target"):
                world.cut_over(schemas=schemas, mirror=mirror)
            assert world.calls == ["on", "off"] and there.wrote == []
            return
        for n in range(50):
            here.register(100 + n, f'{{"type":"fixed","name":"F","size":{n + 1}}}', f"other-{n}", 1)
        report = world.cut_over(schemas=schemas, mirror=mirror)
    assert (report.outcome, world.calls, there.subjects["t-value", 4]) == (reports.DONE, ["on"], 8)
    assert not [subject for subject, _ in there.subjects if subject != "t-value"], "producers wait for no more"
    assert there.modes == {"": "READWRITE"} and [row["id"] for row in report.schemas] == [7, 8]


def test_report_has_who_was_there_before_the_fence_and_who_has_come_since(world: World) -> None:
    """Looked at where no fence is up, and again by each later call; the chain of reports has what was seen last."""
    looks: list[str] = []

    def clients(report: CutoverReport) -> dict[str, Any]:
        looks.append("before" if report.fence is None else "fenced" if report.opened_at is None else "open")
        return {"at_ms": len(looks)}

    with world.tail():
        report = world.cut_over(additions=Additions(clients=clients))
    assert looks == ["before", "open"] and report.clients == {"before": {"at_ms": 1}, "since": {"at_ms": 2}}
    assert world.report().clients == report.clients and report.seal is not None
    world.cut_over(additions=Additions(clients=clients))
    there = world.report()
    assert looks == ["before", "open", "open"] and there.clients == {"before": {"at_ms": 1}, "since": {"at_ms": 3}}
    with world.ledger() as ledger:
        last = list(links(ledger.values(), PLAN.mirror.name))[-1]
    assert last.report == digest(json.loads(there.to_json()))


def test_who_has_come_is_added_to_what_a_lifting_has_written_meanwhile(world: World) -> None:
    """Written over, the report would say that the fence is kept, which somebody has lifted since."""

    def clients(report: CutoverReport) -> dict[str, Any]:
        if report.opened_at is not None:
            with world.platform() as on:
                fence = CallableFence(lambda: None, lambda: None)
                known = Assurance(listened=True)
                lift_leftover_fence(on, PLAN.mirror.name, fence, include_retained=True, known=known)
        return {"at_ms": 1}

    with world.tail():
        report = world.cut_over(additions=Additions(clients=clients))
    assert report.clients.keys() == {"before", "since"}
    assert report.fence is not None and report.fence.lifted is not None
    assert report.to_json() == world.report().to_json() and report.seal is not None


@pytest.mark.parametrize("when", ["before", "since"])
def test_no_cutover_fails_because_its_clients_can_not_be_asked(world: World, when: str) -> None:
    """A library that gives up has errors of its own; and one that is done is done."""

    def clients(report: CutoverReport) -> dict[str, Any]:
        if (report.opened_at is None) is (when == "before"):
            raise TimeoutError
        return {"at_ms": 1}

    with world.tail():
        report = world.cut_over(additions=Additions(clients=clients))
    assert report.outcome == reports.DONE and report.clients == {"since" if when == "before" else "before": {"at_ms": 1}}
    assert world.report().seal is not None


class Killed(BaseException):
    pass


def kill(world: World, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Cut over until ``where`` is called, and take nothing back: nobody lives to do that. Its host is lost with it."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as killed, pytest.raises(FenceNotLifted) as caught:
        killed.setattr(where, die)
        killed.setattr(steps, "back_out", lambda run, *_: run.report.undone.append({}))
        world.cut_over()
    assert isinstance(caught.value.__cause__, Killed)
    shutil.rmtree(world.run_dir)


# Between the taking of the lease and the report that says so.
JUST_TAKEN = "airflow_mirror.cutover.writers.asdict"


def test_retry_after_kill_with_lease_asks_for_the_tail_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No report says that the tail is gone; the lease does."""
    with world.tail():
        kill(world, monkeypatch, JUST_TAKEN)
    left = world.report()
    assert (left.outcome, left.lease) == (reports.RUNNING, None)
    assert left.steps[-1].name == "stop_writers"

    world.write(4)
    with pytest.raises(JobNotRunning, match=r"t-0 by 4.*start the tail"):
        world.cut_over()
    assert world.calls == ["on", "off"], "the old fence is lifted, no new one was raised"
    with world.tail():
        again = world.cut_over()
    assert (again.outcome, again.attempt) == (reports.DONE, 2)
    assert world.target.topics["t"].logs[0].rows() == world.log.rows()


def test_retry_after_kill_with_lease_finishes_on_full_target(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cutover was killed right after it took the lease; the target holds every record."""
    with world.tail():
        kill(world, monkeypatch, JUST_TAKEN)
    again = world.cut_over()
    assert (again.outcome, again.attempt, world.calls) == (reports.DONE, 2, ["on", "off", "on"])


@pytest.fixture
def full(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose target holds every record, after a cutover that was killed; its next one is to be watched."""
    with world.tail():
        kill(world, monkeypatch, JUST_TAKEN)
    world.calls.clear()
    return world


def test_target_that_takes_no_report_lets_producers_in_again(full: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the fence on; nobody waits for it without an end."""
    for module, name in ((report_store, "PATIENCE_S"), (heartbeat, "_PATIENCE_S"), (platform, "PATIENCE_S")):
        monkeypatch.setattr(module, name, 0.3)

    def fall_silent(call: str) -> None:
        if call == "on":
            full.target.script.on("Produce", Fault.not_arrived(), times=None)

    full.when_called = fall_silent
    with pytest.raises(TryAgain, match="could not be written"):
        full.cut_over()
    assert full.calls == ["off", "on", "off"]
    full.target.script.clear()
    full.when_called = lambda _: None
    assert full.report().outcome == reports.RUNNING, "it could not be told"
    again = full.cut_over()
    assert (again.outcome, again.attempt, full.calls[3:]) == (reports.DONE, 3, ["off", "on"])


def test_report_is_written_once_whatever_becomes_of_answers(full: World) -> None:
    every_second = cycle((True, False))
    rule = full.target.script.on("Produce", Fault.lost_answer(), times=None, when=lambda _: next(every_second))
    assert full.cut_over().outcome == reports.DONE and len(rule.hits) > 3
    found = full.report()
    assert found.outcome == reports.DONE and [step.name for step in found.steps] == [step.name for step in steps.STEPS]
    full.target.script.clear()
    undone, link = chain_of(full)  # of the one that was killed, and of this one
    assert found.seal == {"links": [undone.value(), link.value()]}


class Thread:
    """The owner's thread, as its requests show it: at one of them something happens before it is sent, or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.at, self.then = 0, -1, cast("Callable[[], object]", None)
        self.owner = threading.get_ident()
        send = Connection._send

        def counted(connection: Connection, *arguments: Any, **named: Any) -> Any:
            if threading.get_ident() == self.owner and self.then is not None:
                self.count += 1
                if self.count == self.at:
                    self.then()
            return send(connection, *arguments, **named)

        monkeypatch.setattr(Connection, "_send", counted)


def guard_acts(world: World) -> None:
    """Let a guard find the owner dead: it has given no sign for long enough. On connections of its own."""

    def act() -> None:
        with world.platform() as on, suppress(OpeningUnfinished, CutoverTakenOver):
            fence = CallableFence(lambda: None, lambda: world.calls.append("off"))
            there = fence_state(on.target.ledger.values(), PLAN.mirror.name)
            if there is not None and there.stands:
                lift_leftover_fence(on, PLAN.mirror.name, fence, known=Assurance(listened=True))

    thread = threading.Thread(target=act)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def forget_the_opening(world: World) -> None:
    """Let the topic be cut over once more: the mirror's fence is lifted, and its topic is the mirror's again."""
    with world.ledger() as ledger:
        there = fence_state(ledger.values(), PLAN.mirror.name)
        if there is not None and there.phase == OPENED:
            end_lifting(ledger, PLAN.mirror.name, begin_closing(ledger, PLAN.mirror.name, there, "a test"))
        shut_again(ledger, "t")


def decided(world: World) -> tuple[str, bool]:
    """What is decided about the fence of this run, and whether the topic is in production."""
    with world.ledger() as ledger:
        state, owned = fence_state(ledger.values(), PLAN.mirror.name), owned_topics(ledger).get("t")
    ours = state is not None and state.run == world.run_dir.name
    return state.phase if state is not None and ours else "", owned is not None and owned.opened_by is not None


def chain_of(world: World) -> list[Link]:
    """The links of the mirror's reports, which are one chain."""
    with world.ledger() as ledger:
        found = links(ledger.values(), PLAN.mirror.name)
    assert [link.before for link in found] == ["", *(link.digest for link in found[:-1])]
    return found


@pytest.mark.repeats
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.faults), 5])
def test_killed_at_any_request_that_links_its_report_it_is_linked_once(
    full: World, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """By the next process, which also links what it has compared once more."""
    monkeypatch.setattr(sys.modules[__name__], "LIMITS", replace(LIMITS, quiet_s=0.0, quiet_at_most_s=0.0))
    for name in ("CONFIRM_EVERY_S", "VALID_S", "HANDOVER_S"):
        monkeypatch.setattr(lease, name, 0.02)
    thread, seal, runs = Thread(monkeypatch), run_module._seal, full.run_dir.parent
    assert full.cut_over().outcome == reports.DONE

    def die() -> None:
        raise Killed

    def counted_seal(run: Attempt, report: CutoverReport) -> None:
        thread.count, thread.then = 0, die
        seal(run, report)
        thread.then = cast("Callable[[], object]", None)

    for at in count(1, step):
        forget_the_opening(full)
        full.run_dir, thread.at = runs / f"at {at}", at
        with monkeypatch.context() as killed, suppress(Killed):
            killed.setattr(run_module, "_seal", counted_seal)
            full.cut_over()
        was_killed, thread.then = thread.count >= at, cast("Callable[[], object]", None)
        digest_then = digest(json.loads((full.run_dir / "report.json").read_text()))
        again = full.cut_over()
        mine = [link for link in chain_of(full) if link.run == full.run_dir.name]
        assert [link.report for link in mine] == [digest_then, digest(json.loads(again.to_json()))], f"at request {at}"
        assert again.seal == {"links": [link.value() for link in mine]}
        if not was_killed:
            break
    assert at > 4


@pytest.mark.repeats
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.faults), 40])
@pytest.mark.parametrize("how", WAYS)
def test_owner_stopped_at_any_request_never_both_opens_and_is_lifted(
    full: World, monkeypatch: pytest.MonkeyPatch, how: str, step: int
) -> None:
    """A guard acts right there; then the owner goes on, goes on when its time is over, or never does.

    At every request among the faults, which takes a minute or three; every day at one of 40, each way at others.
    """
    monkeypatch.setattr(sys.modules[__name__], "LIMITS", replace(LIMITS, quiet_s=0.0, quiet_at_most_s=0.0))
    for name in ("CONFIRM_EVERY_S", "VALID_S", "HANDOVER_S"):
        monkeypatch.setattr(lease, name, 0.02)
    thread, outcomes, runs = Thread(monkeypatch), set[tuple[str, bool]](), full.run_dir.parent
    assert full.cut_over().outcome == reports.DONE
    for at in count(1 + WAYS.index(how) * step // len(WAYS), step):
        forget_the_opening(full)
        full.run_dir, full.calls = runs / f"{how} at {at}", []
        thread.count, thread.at = 0, at

        def stop() -> None:
            guard_acts(full)
            if how == "thawed a minute later":
                full.target.advance(61)
            if how == "killed":
                raise Killed

        thread.then = stop
        with monkeypatch.context() as killed, suppress(MirrorError, Killed):
            if how == "killed":
                killed.setattr(steps, "back_out", lambda run, *_: run.report.undone.append({}))
            full.cut_over()
        thread.then = cast("Callable[[], object]", None)
        if thread.count < at:
            break
        guard_acts(full)
        phase, in_production = decided(full)
        is_up = full.calls[-1:] == ["on"]
        assert phase != UP and (phase == OPENED) == in_production, f"at request {at}"
        assert not in_production or is_up, f"opened and lifted, at request {at}"
        assert in_production or not is_up, f"left up, at request {at}"
        outcomes.add((phase, is_up))
    both = {(LIFTED, False), (OPENED, True)}  # it is open behind few requests of them all
    assert (outcomes >= both if step == 1 else outcomes & both) and at > 30
