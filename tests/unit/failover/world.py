"""A target without brokers, and a mirror that was copied to it; the process may die before or after each effect."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.cutover.decision import FenceState
from airflow_mirror.cutover.failover import check, run
from airflow_mirror.cutover.failover.losses import losses
from airflow_mirror.cutover.failover.report import FailoverReport
from airflow_mirror.cutover.platform import Side
from airflow_mirror.errors import LeaseLost, RequestRefused, TryAgain
from airflow_mirror.jobs.runner import active
from airflow_mirror.jobs.runner.active import ActiveTail, Sign
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.kafka.model import Acl, ConfigEntry, GroupCommit, GroupInfo, GroupPosition, TopicInfo
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger import records
from airflow_mirror.ledger.decisions import Change, Values
from airflow_mirror.plan import ledger_store, ownership
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import owned_topics
from airflow_mirror.sync import holding, seen_acls
from airflow_mirror.sync.configs import ConfigsReport
from airflow_mirror.sync.ends.notes import SourceEnds
from tests.builders import plan_of, rule, topic_plan
from tests.unit.cutover.builders import AllAllowed
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.plan.builders import a_mirror

if TYPE_CHECKING:
    import pytest

PLAN = plan_of(
    a_mirror(name="m"), topic_plan("a", {0: 0, 1: 0}, source_topic_id="1", configs={"retention.ms": "60000"}),
    topic_plan("b", {0: 0}, source_topic_id="2"),
)  # fmt: skip
WRITERS = (rule("a", "WRITE", "ALLOW", "User:app"), rule("a", "WRITE", "DENY", "User:eve"))
A0, A1, B0 = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))


class Killed(BaseException):
    """As kill -9 would end the process."""


class Effects:
    """What happens to the target, in order; the process dies before or after the one with the number ``dies_at``."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.dies_at: int | None = None
        self.after = False

    def do(self, what: str, effect: Any) -> Any:
        number = len(self.log)
        if number == self.dies_at and not self.after:
            raise Killed
        found = effect()
        self.log.append(what)
        if number == self.dies_at:
            raise Killed
        return found


class State(MemoryState):
    def __init__(self, effects: Effects) -> None:
        super().__init__()
        self.effects = effects

    def write(self, values: Mapping[str, bytes | None], permit: Permit = unfenced) -> None:
        if values:
            names = {key.rpartition("/")[0] if "/cut/" in key else key for key in values}
            self.effects.do(f"write {sorted(names)[0]}", lambda: super(State, self).write(values, permit))


class Part(State):
    """The keys of a state that begin with a prefix."""

    def __init__(self, whole: State, prefixes: tuple[str, ...]) -> None:
        self.whole, self.prefixes = whole, prefixes

    def read(self) -> dict[str, bytes]:
        return {key: value for key, value in self.whole.read().items() if key.startswith(self.prefixes)}

    def write(self, values: Mapping[str, bytes | None], permit: Permit = unfenced) -> None:
        assert all(key.startswith(self.prefixes) for key in values)
        self.whole.write(values, permit)


class Ledger(MemoryLedger):
    def __init__(self, records: list[bytes], effects: Effects) -> None:
        super().__init__(records)
        self.effects = effects

    def decide(self, change: Change, until_ms: int | None = None) -> Values | None:
        if change(self.values()) is None:
            return None
        decided: Values | None = self.effects.do("decide", lambda: super(Ledger, self).decide(change, until_ms))
        return decided


class Lease:
    """The writer lease. ``holder`` is ``""`` once all writing was ended."""

    VALID_S = 6.0

    def __init__(self, effects: Effects) -> None:
        self.effects, self.holder, self.epoch = effects, "tail", 0
        self.on_take: Any = lambda: None
        self.on_confirm: Any = lambda: None

    def take(self, _wire: Any, mirror: str, *, to_end: bool) -> LeaseToken:
        assert (mirror, to_end) == ("m", True)
        self.on_take()
        self.effects.do("take the lease", lambda: vars(self).update(holder="", epoch=self.epoch + 1))
        return LeaseToken(transactional_id="x", producer_id=1, epoch=self.epoch, mark_ms=self.epoch, wait_s=7.0)

    def confirm(self, _wire: Any, token: LeaseToken) -> None:
        self.on_confirm()
        if token.epoch != self.epoch:
            raise LeaseLost("x", token.epoch, f"epoch {self.epoch}")

    def is_writing_ended(self, _wire: Any, _mirror: str) -> bool:
        return self.holder == ""


class Target(AllAllowed):
    """The cluster. ``configs``: overrides by topic; ``at``: positions by group; ``members``: of which groups."""

    config, role, principal = None, "target", "User:mirror"

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.ids = {"a": "id-a", "b": "id-b"}
        self.wire = SimpleNamespace(refresh_present=lambda names: set(names) - self.ids.keys())
        self.stable = {A0: 50, A1: 40, B0: 30}
        self.configs = {"a": {"retention.ms": "-1"}, "b": {"retention.ms": "-1"}}
        self.at: dict[str, dict[TopicPartition, GroupPosition]] = {}
        self.members: set[str] = set()
        self.acls: list[Acl] = []
        self.strangers = ["b2"]
        self.refused: set[str] = set()

    def cluster_id(self) -> str:
        return "t"

    def topics(self, names: Collection[str] | None = None) -> dict[str, TopicInfo]:
        there = self.ids | dict.fromkeys(self.strangers, "another's")
        return {name: TopicInfo(name, there[name], 1, 1) for name in (there if names is None else names) if name in there}

    def topic_names(self) -> list[str]:
        return [*self.ids, *self.strangers]

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigEntry]]:
        default = {"retention.ms": ConfigEntry(value="604800000", is_default=True, source="DEFAULT_CONFIG")}
        return {name: default | {k: _override(v) for k, v in self.configs[name].items()} for name in names}

    def alter_topic_configs(
        self, topic: str, permit: Permit, to_set: Mapping[str, str], delete: Collection[str] = ()
    ) -> None:  # fmt: skip
        permit()
        if topic in self.refused:
            raise RequestRefused("alter", 44, "PolicyViolation", "no policy takes it")
        now = {k: v for k, v in {**self.configs[topic], **to_set}.items() if k not in delete}
        self.effects.do(f"alter {topic}", lambda: self.configs.update({topic: now}))

    def describe_acls(self) -> list[Acl]:
        return list(self.acls)

    def create_acls(self, rules: Collection[Acl], permit: Permit) -> None:
        permit()
        self.effects.do("grant", lambda: self.acls.extend(rule for rule in rules if rule not in self.acls))

    def groups(self) -> list[GroupInfo]:
        return [GroupInfo(group, "Stable" if group in self.members else "Empty", "consumer") for group in self.at]

    def groups_offsets(self, ids: Collection[str]) -> dict[str, dict[TopicPartition, GroupPosition]]:
        return {group: dict(self.at[group]) for group in ids}

    def offsets(self, tps: Collection[TopicPartition], spec: str) -> dict[TopicPartition, int]:
        assert spec == "latest_committed"
        return {tp: self.stable[tp] for tp in tps}

    def commit_groups(self, wanted: Mapping[str, Any], permit: Permit) -> dict[str, GroupCommit]:
        for group, its in wanted.items():
            try:
                permit()
            except TryAgain as e:
                return {one: GroupCommit(error=e) for one in wanted}
            self.effects.do(f"commit {group}", lambda group=group, its=its: self.at[group].update(its))
        return {group: GroupCommit(done=set(its)) for group, its in wanted.items()}


def _override(value: str) -> ConfigEntry:
    return ConfigEntry(value=value, source="DYNAMIC_TOPIC_CONFIG")


class TargetSide(Side):
    """The target, as one process finds it; waiting takes no time."""

    log: Any = None  # type: ignore[assignment]

    def __init__(self, world: World) -> None:
        clock = SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=world.wait)
        super().__init__(world.target, clock)  # type: ignore[arg-type]
        self.ledger, self._world = world.ledger(), world  # type: ignore[misc]

    def state(self, *prefixes: str, **_: float) -> Any:
        return Part(self._world.state, prefixes)

    def take_lease(self, mirror: str, *, to_end: bool = False, short: Any = None) -> LeaseToken:
        return self._world.lease.take(None, mirror, to_end=to_end)

    def confirm_lease(self, token: LeaseToken) -> None:
        self._world.lease.confirm(None, token)

    def is_writing_ended(self, mirror: str) -> bool:
        return self._world.lease.is_writing_ended(None, mirror)


class World:
    """A mirror that was copied, and whose source has gone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, plan: Plan = PLAN) -> None:
        self.effects, self.plan, self.records = Effects(), plan, list[bytes]()
        self.target, self.lease, self.state = Target(self.effects), Lease(self.effects), State(self.effects)
        self.copied = {A0: 50, A1: 40, B0: 30}
        self.seen: SourceEnds | None = None
        self.now_ms = 1_000_000
        self.heard = RUNNING
        self.waits: list[tuple[str, float]] = []
        ledger = self.ledger()
        ledger_store.keep(plan, Part(self.state, (records.PLAN.below("m"),)), ledger)
        ownership.claim(ledger, plan, self.target)  # type: ignore[arg-type]
        self.tail = ActiveTail(mirror=plan.mirror.to_dict(), plan=plan.hash, inputs="", directory="", host="far")
        ledger.decide(lambda _: {"active/m": self.tail.value()})
        self.sign(unseen_s=60.0)
        self.state.write(seen_acls.changed("m", {}, WRITERS))  # type: ignore[arg-type]
        self.effects.log.clear()
        monkeypatch.setattr(check, "copied_to", lambda *_: dict(self.copied))
        monkeypatch.setattr(check, "lost", self._lost)
        monkeypatch.setattr(active.Watch, "settled", lambda *_: self.heard)
        monkeypatch.setattr(holding, "sync_configs", _sync_configs)

    def _lost(self, _target: Any, plan: Plan, now_ms: int) -> Any:
        return losses(self.seen, self.copied, [A0, A1, B0], [A0, A1, B0], now_ms)

    def sign(self, unseen_s: float | None, state: str = RUNNING) -> None:
        """Let the tail give a sign."""
        source = {} if unseen_s is None else {"source": {"seen": 5000.0 - unseen_s, "at": 5000.0}}
        sign = Sign(number=1, state=state, at=5000.0, follows=source)
        self.state.write({f"job/m/{self.tail.job}/sign": sign.encode()})

    def fence(self, phase: str) -> None:
        """Decide that a cutover's fence has come so far."""
        one = FenceState(
            run="monday", attempt=1, id="x", plan=self.plan.hash, revision=self.plan.hash, owner="x", max_fence_s=60.0,
            phase=phase,
        )  # fmt: skip
        self.ledger().decide(lambda _: {"fence/m": {"v": 1, **asdict(one)}})
        self.effects.log.clear()

    def wait(self, seconds: float) -> None:
        """Note for how long somebody waits, and behind which effect; it takes no time."""
        self.waits.append(((self.effects.log or [""])[-1].partition("/")[0], seconds))

    def ledger(self) -> Ledger:
        return Ledger(self.records, self.effects)

    def on(self) -> TargetSide:
        """The target, as a new process finds it."""
        return TargetSide(self)

    def fail_over(self, **how: Any) -> FailoverReport:
        return run.run(self.on(), "m", **how)

    def dies(self, at: int, *, after: bool) -> bool:
        """Fail over in a process that dies at an effect; return whether it did."""
        self.effects.log.clear()
        self.effects.dies_at, self.effects.after = at, after
        try:
            with suppress(Killed):
                self.fail_over()
                return False
            return True
        finally:
            self.effects.dies_at = None

    def outcome(self) -> dict[str, Any]:
        """What everybody can see afterwards."""
        values = self.ledger().values()
        owned = owned_topics(self.ledger())
        return {
            "open": {topic for topic, one in owned.items() if one.opened_by is not None},
            "direction": "direction/m" in values,
            "tail": "active/m" in values,
            "holder": self.lease.holder,
            "at": self.target.at,
            "configs": self.target.configs,
            "acls": set(self.target.acls),
        }


def _sync_configs(
    plan: Plan, source: Any, target: Target, permit: Permit, hold: bool, dry_run: bool = False
) -> ConfigsReport:  # fmt: skip
    """As the real one, for the one setting that these topics have."""
    assert not hold
    lines, refused = [], []
    for t in plan.topics:
        final = {key: entry.value for key, entry in source.topic_configs([t.source_topic])[t.source_topic].items()}
        if target.configs[t.target_topic] != final:
            lines.append(f"{t.target_topic}: {target.configs[t.target_topic]} -> {final}")
            gone = [k for k in ("retention.ms",) if k not in final]
            if not dry_run:
                try:
                    target.alter_topic_configs(t.target_topic, permit, final, gone)
                except RequestRefused as e:
                    lines.pop()
                    refused.append(f"{t.target_topic}: retention.ms: {e.detail}")
    return ConfigsReport(hold=False, changes=tuple(lines), applied=True, refused=tuple(refused))  # type: ignore[arg-type]
