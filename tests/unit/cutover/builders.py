"""Stand-ins for what a broker can't be made to do: fail exactly here, or record the order of what was asked of it."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.cutover import decision
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.decision import FenceState, fence_state
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.platform import Platform, Side
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.request import Clusters, CutoverRequest
from airflow_mirror.errors import LeaseLost, RequestRefused
from airflow_mirror.kafka.acls import OPERATIONS
from airflow_mirror.kafka.model import Acl, ConfigEntry, GroupInfo, TopicInfo
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.kinds import in_pieces
from airflow_mirror.ledger.records import FENCE, LAST_PLAN
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan
from airflow_mirror.wire.transactions import TransactionDescription
from tests.builders import CommitsMany, plan_of, topic_plan
from tests.unit.ledger.memory import MemoryLedger, MemoryState

if TYPE_CHECKING:
    import pytest


def a_plan(*topics: str) -> Plan:
    mirror = Mirror(name="flow", source="src", target="dst")
    return plan_of(mirror, *(topic_plan(t, {0: 0}, source_topic_id=f"id-{t}") for t in topics))


class AllAllowed:
    """A cluster on which everything is allowed but what a test denies: pairs of a name and an operation."""

    denied: Collection[tuple[str, str]] = ()

    def allowed_on_topics(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        return {n: frozenset(o for o in OPERATIONS if (n, o) not in self.denied) for n in names}

    allowed_on_groups = allowed_on_topics

    def unseen_groups(self, ids: Iterable[str]) -> list[str]:
        return [group for group, allowed in self.allowed_on_groups(sorted(ids)).items() if "DESCRIBE" not in allowed]

    def allowed_on_cluster(self) -> dict[str, frozenset[str]]:
        return self.allowed_on_topics(["kafka-cluster"])


class Acls:
    """The ACLs of a cluster: a set, and a record of what was done to it."""

    role = "source"

    def __init__(self, *acls: Acl, open_by_default: bool | str | None = None, authorizer: bool = True) -> None:
        self.acls = set(acls)
        self._open_by_default, self._authorizer = open_by_default, authorizer
        self.done: list[str] = []

    def cluster_id(self) -> str:
        return "s"

    def describe_acls(self, resource_type: str, name: str | None = None, principal: str | None = None) -> list[Acl]:
        if not self._authorizer:
            raise RequestRefused("describe", 54, "SECURITY_DISABLED")
        wanted = {"resource_type": resource_type, "name": name, "principal": principal}
        return sorted(a for a in self.acls if all(v in (None, getattr(a, k)) for k, v in wanted.items()))

    def acls_by_broker(self, resource_type: str) -> dict[int, list[Acl]]:
        return {1: self.describe_acls(resource_type)}

    def create_acls(self, acls: list[Acl], permit: Permit = unfenced) -> None:
        if acls:
            permit()
        self.acls |= set(acls)
        self.done += [f"+{a.permission} {a.operation} {a.name}" for a in acls]

    def delete_acls(self, acls: list[Acl], permit: Permit = unfenced) -> list[Acl]:
        if acls and not self._authorizer:
            raise RequestRefused("delete", 54, "SECURITY_DISABLED")
        if acls:
            permit()
        there = [a for a in acls if a in self.acls]
        self.acls -= set(there)
        self.done += [f"-{a.permission} {a.operation} {a.name}" for a in there]
        return there

    def broker_configs(self) -> dict[int, dict[str, ConfigEntry]]:
        if self._open_by_default is None:
            return {1: {}}
        value = None if self._open_by_default == "hidden" else str(self._open_by_default).lower()
        return {1: {}, 2: {"allow.everyone.if.no.acl.found": ConfigEntry(value=value, is_sensitive=value is None)}}


class Described(CommitsMany):
    """Describes groups by their states alone: no kind of application."""

    def group_states(self, ids: Iterable[str]) -> dict[str, str]:
        return dict.fromkeys(ids, "Empty")

    def describe_groups(self, ids: Iterable[str]) -> dict[str, GroupInfo]:
        return {group: GroupInfo(group, state, "consumer") for group, state in self.group_states(ids).items()}

    def groups_offsets_apart(self, ids: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.groups_offsets(ids), {}  # type: ignore[attr-defined]


class Logs:
    """The logs of one cluster: where each ends, and how the answers to a list of questions change them."""

    def __init__(self, ends: dict[TopicPartition, int]) -> None:
        self.ends = dict(ends)

    def log_ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.ends[tp] for tp in tps}

    last_stable = log_ends

    def broker_ids(self) -> list[int]:
        return []

    def log_starts(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)


class Topics:
    """A target that has every topic."""

    role = "target"

    def cluster_id(self) -> str:
        return "t"

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, f"id-{name}", 1, 1) for name in names}


class Leases:
    """The writer lease at the target's coordinator, with a clock that only waiting moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, holder: tuple[int, int] | None = (7001, 0)) -> None:
        self.holder, self.is_job, self.clock, self.taken = holder, True, 0.0, 0
        self.short: TransactionDescription | None = None
        for name in ("take", "confirm", "is_anybody_writing", "seen_short"):
            monkeypatch.setattr(lease, name, getattr(self, f"_{name}"))
        monkeypatch.setattr(Attempt, "now", lambda _: self.clock)
        monkeypatch.setattr(Attempt, "pause", lambda run, seconds=None: self._pause(run, seconds))

    def take_by_another_job(self) -> None:
        assert self.holder is not None
        self.holder, self.is_job = (self.holder[0], self.holder[1] + 2), True

    def _pause(self, attempt: Attempt, seconds: float | None) -> None:
        self.clock += attempt.limits.poll_s if seconds is None else seconds
        attempt.check_stop()

    def _take(
        self, _target: object, mirror: str, *, to_end: bool = False, short: TransactionDescription | None = None
    ) -> LeaseToken:  # fmt: skip
        wait_s = lease.HANDOVER_S if short is None or short != self.short else lease.SHORT_HANDOVER_S
        waits, self.is_job = to_end or self.holder is not None, not to_end
        producer_id, epoch = self.holder or (7001, -2)
        self.holder, self.taken = (producer_id, epoch + 2), self.taken + 1
        return LeaseToken(
            transactional_id=f"airflow-mirror:{mirror}:lease", producer_id=producer_id, epoch=epoch + 2,
            mark_ms=70_000 + epoch, wait_s=wait_s if waits else 0.0,
        )  # fmt: skip

    def _confirm(self, _target: object, token: LeaseToken) -> None:
        if self.holder != (token.producer_id, token.epoch):
            raise LeaseLost(token.transactional_id, token.epoch, f"epoch {self.holder}")

    def _seen_short(self, _target: object, _mirror: str) -> TransactionDescription | None:
        return self.short

    def _is_anybody_writing(self, _target: object, _mirror: str) -> bool:
        return self.holder is not None and self.is_job


@functools.cache
def target_of(run_dir: Path) -> MemoryState:
    """The state on the target of the cutover that has this directory on some host, with its plan."""
    state, plan = MemoryState(), a_plan("orders", "payments")
    state.write(in_pieces(f"plan/flow/{plan.hash}", plan.to_json().encode()))
    return state


@functools.cache
def _decisions_of(run_dir: Path) -> list[bytes]:
    planned: list[bytes] = []
    MemoryLedger(planned).decide(lambda _: LAST_PLAN.put({"hash": a_plan("orders", "payments").hash}, "flow"))
    return planned


def ledger_of(run_dir: Path) -> MemoryLedger:
    """The target's ledger, as a new process reads it."""
    return MemoryLedger(_decisions_of(run_dir))


def dir_of(attempt: Attempt) -> Path:
    """The directory of a run."""
    assert attempt.store.directory is not None
    return attempt.store.directory


def kept_in(run_dir: Path) -> ReportStore:
    """The report of that cutover, as a new process finds it."""
    return ReportStore(target_of(run_dir), "flow", run_dir.name, run_dir)


class GivenSide(Side):
    """A cluster of stand-ins, which a test may replace one by one."""

    log: Any = None  # type: ignore[assignment]

    def __init__(self, admin: Any, ledger: Any = None, state: Any = None) -> None:
        super().__init__(admin)
        self.ledger = ledger  # type: ignore[misc]
        self.kept = MemoryState() if state is None else state

    def state(self, *_: str, **__: float) -> Any:
        return self.kept


def platform_in(run_dir: Path, source: Any = None, target: Any = None, ledger: Any = None) -> Platform:
    """Both clusters, as a new process of the cutover that has this directory on some host finds them."""
    life = ledger_of(run_dir) if ledger is None else ledger
    there = GivenSide(Topics() if target is None else target, life, target_of(run_dir))
    return Platform(GivenSide(Acls() if source is None else source, MemoryLedger()), there)


def go_up(attempt: Attempt) -> None:
    """Decide that the fence of a run is up."""
    attempt.before = fence_state(attempt.ledger.values(), attempt.mirror.name)
    if attempt.intent.topics == ():
        attempt.intent = Intent(topics=tuple(attempt.topics))
    attempt.report.id = attempt.me
    attempt.up = FenceState(
        run=attempt.store.run, attempt=attempt.report.attempt, id=attempt.me, plan=attempt.plan.hash,
        revision=attempt.plan.revision, owner=attempt.me, max_fence_s=attempt.limits.max_fence_s,
        kind=getattr(attempt.fence, "kind", "acl"), intent=attempt.intent.value(),
        kept=attempt.request.keep_fence, process=attempt.report.process or {},
    )  # fmt: skip
    attempt.until_ms = decision.go_up(attempt.ledger, attempt.mirror.name, attempt.up, attempt.before, attempt.turned)


def not_kept(attempt: Attempt) -> None:
    """Let it have been decided that the fence of a run is lifted once its target is open."""
    name = attempt.mirror.name
    attempt.ledger.decide(lambda values: {FENCE.key(name): {**cast("Any", FENCE.at(values, name)), "kept": False}})
    attempt.up = fence_state(attempt.ledger.values(), name)


OPENED_AT = "2026-11-20T02:00:07+00:00"


def open_behind(attempt: Attempt) -> None:
    """Decide that the target behind a fence that is up is open, at ``OPENED_AT``."""
    assert attempt.up is not None
    ids, pin = (
        {t.target_topic: f"id-{t.target_topic}" for t in attempt.plan.topics},
        decision.Pin(direction=None, tail=None),
    )
    attempt.up = decision.open_behind(attempt.ledger, attempt.plan, attempt.up, ids, OPENED_AT, attempt.until_ms, pin)


def a_run(tmp_path: Path, fence: Any, source: Any = None) -> Attempt:
    plan = a_plan("orders", "payments")
    on = platform_in(tmp_path, source or Acls())
    limits = Limits(poll_s=0.001, quiet_at_most_s=0.0)
    return Attempt(
        request=CutoverRequest(plan=plan, limits=limits, accept_ledger_writers=["User:*"]),
        clusters=Clusters(on=on, fence=fence, verify=lambda _: []),
        report=CutoverReport(mirror="flow", plan_hash=plan.hash), store=kept_in(tmp_path),
        before=fence_state(on.target.ledger.values(), plan.mirror.name),
    )  # fmt: skip


def want(attempt: Attempt, **changed: Any) -> None:
    """Change what is wanted of a run, or what it is done with. :param changed: fields of either, or of Additions."""
    for name, value in changed.items():
        part = next(p for p in ("request", "clusters", "additions") if hasattr(getattr(attempt, p), name))
        setattr(attempt, part, replace(getattr(attempt, part), **{name: value}))
