"""Every kind of record that a ledger has, as this version writes it about mirror ``m``, and as a newer one may."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, NamedTuple, cast

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import DECISIONS as TOPIC
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.cutover.decision import FenceState, fence_state
from airflow_mirror.cutover.failover.record import Cut, Record
from airflow_mirror.cutover.heartbeat import owner_of
from airflow_mirror.cutover.report import CutoverReport, FenceRecord, GroupRecord, StepRecord
from airflow_mirror.cutover.report_store import ReportStore, newest_reports
from airflow_mirror.extras.drill.store import Drill, Drills
from airflow_mirror.extras.drill.turn import another
from airflow_mirror.jobs.driver.windows import Span, Window, WindowBook
from airflow_mirror.jobs.plain import shares
from airflow_mirror.jobs.plain.shares import Share
from airflow_mirror.jobs.runner import reports
from airflow_mirror.jobs.runner.active import (
    ActiveTail,
    Heartbeat,
    JobId,
    Sign,
    Watch,
    active_tail,
    left_by,
    said,
    stop_requested_by,
)
from airflow_mirror.jobs.runner.state import RUNNING, SUCCEEDED
from airflow_mirror.jobs.runner.wishes import Wish, Wishes, wish
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.ledger import chain, deciding, records
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.kinds import Kind as Row
from airflow_mirror.ledger.records import GRANTED, LIMITED, kind_of
from airflow_mirror.plan import ledger_store, mm2_topics, ownership, refused
from airflow_mirror.plan.direction import Direction, direction
from airflow_mirror.plan.findings import block
from airflow_mirror.plan.owned import owners
from airflow_mirror.sync import seen_acls, seen_configs
from airflow_mirror.sync.ends import notes as ends
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.log_starts import observations
from airflow_mirror.verify.proof import Proofs
from tests.builders import plan_of, rule, topic_plan
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.plan.builders import a_mirror

PLAN = plan_of(a_mirror(name="m"), topic_plan("orders", {0: 0}, source_topic_id="s"))
ME = ActiveTail(mirror=PLAN.mirror.to_dict(), plan=PLAN.hash, inputs="", directory="", job="mine")
ORDERS = TopicPartition("orders", 0)
IDS = {"orders": "id"}
SPAN = Span(0, 1000)
FENCE = FenceState(
    run="run", attempt=1, id="i", plan=PLAN.hash, revision=PLAN.revision, owner="me", max_fence_s=60.0,
)  # fmt: skip
TURNED = Direction(generation=1, primary="t", by="failover", attempt="1", plan=PLAN.hash, at="noon")


class Kind(NamedTuple):
    """A kind of record, as this version writes it about mirror ``m``.

    :param values: by key, as decisions (or, bytes, the state) have them.
    :param read: returns what this version makes of them. :param within: fields whose records may also get more fields.
    """

    values: dict[str, Any]
    read: Callable[[dict[str, Any]], Any]
    within: tuple[str, ...] = ()


def state_with(values: dict[str, Any]) -> MemoryState:
    state = MemoryState()
    state.write(values)
    return state


def written_by(write: Callable[[MemoryState], object]) -> dict[str, Any]:
    state = MemoryState()
    write(state)
    return state.read()


def decided_by(change: Callable[[MemoryLedger], object]) -> dict[str, Any]:
    ledger = MemoryLedger()
    change(ledger)
    return dict(ledger.values())


def ledger_with(values: dict[str, Any]) -> MemoryLedger:
    ledger = MemoryLedger()
    ledger.decide(lambda _: values)
    return ledger


def began(values: dict[str, Any]) -> Any:
    ledger = Ledger(cast("Any", None))
    deciding.catch_up(ledger_with(values), ledger._fold)
    return ledger._of(TopicInfo(name=TOPIC, topic_id="id", partitions=1, replication_factor=1))


def fence_of(values: dict[str, Any]) -> Any:
    found = fence_state(values, "m")
    assert found is not None
    return replace(found, process={}), owner_of("m", found.process)


def report_of(values: dict[str, Any]) -> Any:
    (found,) = newest_reports(values, "m")
    return replace(found, process=None), owner_of("m", found.process), found.host


def said_by(job: JobId) -> bytes:
    """Return what a job says about who it is."""
    values = written_by(lambda state: Heartbeat(state, job).give(RUNNING))
    return values[left_by(job)[-1]]


PROCESS = {"host": "h", "where": "h/1", "pid": 7, "started": 9, "job": "theirs"}
OWNED = replace(FENCE, process=PROCESS)
REPORT = CutoverReport(
    mirror="m", plan_hash=PLAN.hash, process=PROCESS, steps=[StepRecord(name="fence", status="done", started=1.0)],
    fence=FenceRecord(kind="acl", intent={"topics": ["orders"]}, requested=1.0),
    groups=[GroupRecord(group="g", settled="empty", source_state="Empty")],
)  # fmt: skip
BULK = JobId(name="m", job="bulk", bulk=True)
SHARE = Share(
    number=1,
    lease=LeaseToken(transactional_id="id", producer_id=1, epoch=2, mark_ms=5, wait_s=0.0),
    options=CopyOptions(mirror="m"),
    lists=[],
)
RESULT = PartitionResult(topic="orders", target_topic="orders", partition=0, position=9, done=False)
ENDS = ends.SourceEnds(at_ms=0).after({ORDERS: (5, 7)}, [ORDERS], 10)

KINDS = [
    Kind({"ledger": {"v": 1, "topic_id": "id"}}, lambda v: began(v) is not None),
    Kind({"active/m": ME.value()}, lambda v: active_tail(v, "m")),
    Kind({"fence/m": {"v": 1, **asdict(OWNED)}}, fence_of, ("process",)),
    Kind({"direction/m": TURNED.value()}, lambda v: direction(v, "m")),
    Kind({"drilling/m": {"v": 1, "run": "run", "owner": "me"}}, lambda v: another(MemoryLedger(), v, "m", "you", 0.0)),
    Kind(decided_by(lambda one: ownership.mark_cut_over(one, PLAN, IDS, "noon")), lambda v: owners(v)[0]
    ),
    Kind(decided_by(lambda one: mm2_topics.mark(one, ["heartbeats"])), mm2_topics.marked),
    Kind({"plan/m": {"v": 1, "hash": PLAN.hash}}, lambda v: ledger_store.last_hash(v, "m")),
    Kind({f"amended/m/{PLAN.hash}": {"v": 1, "hash": "a"}}, lambda v: ledger_store.revision(v, "m", PLAN.hash)),
    Kind(decided_by(lambda one: chain.add(one, "m", "run", "digest")), lambda v: chain.links(v, "m")),
    Kind({"job/m/mine/sign": Sign(number=4, state=RUNNING, notes=("n",)).encode()},
         lambda v: Watch(state_with(v)).sign(ME)),
    Kind({"job/m/bulk/bulk": said_by(BULK)}, lambda v: said(records.BULK, v, "m")),
    Kind({"job/m/p/member": said_by(JobId(name="m", job="p", processes=2))},
         lambda v: said(records.MEMBER, v, "m")),
    Kind({"job/m/mine/stop": b'{"v": 1, "by": "ann"}'}, lambda v: stop_requested_by(v, ME)),
    Kind(written_by(lambda one: wish(one, "m", "rate", Wish(by="ann", at="noon"))),
         lambda v: Wishes.of(v, "m")),
    Kind(written_by(lambda one: reports.write(one, "run/m/1", {"state": RUNNING, "lag": 4})),
         lambda v: (reports.read(state_with(v), "run/m/1") or {})["lag"]),
    Kind(written_by(lambda one: reports.write(one, "run/m/1", {"state": SUCCEEDED, "lag": 4})),
         lambda v: (reports.read(state_with(v), "run/m/1") or {})["lag"]),
    Kind(written_by(lambda one: WindowBook(one, "m").save(SPAN, {ORDERS: Window(start=0, end=1)}, IDS)),
         lambda v: WindowBook(state_with(v), "m").load(SPAN, IDS), ("partitions", "window")),
    Kind(dict(shares.given("m", "tail", "member", SHARE, {})),
         lambda v: shares.share_of(v, "m", "tail", "member")),
    Kind(dict(shares.reported("m", "member", "tail", 1, [RESULT], {})),
         lambda v: shares.report_of(v, "m", "member", "tail"), ("results",)),
    Kind(written_by(lambda one: Record(one, "m", "1").write_returned({"lines": 1})),
         lambda v: Record(state_with(v), "m", "1").returned()),
    Kind(written_by(lambda one: Record(one, "m", "1").write_exported("orders", {"file": 1})),
         lambda v: Record(state_with(v), "m", "1").exported()),
    Kind(written_by(lambda one: Record(one, "m", "1").write_cut(Cut(at_ms=1, offsets={ORDERS: 5}, lost={}))),
         lambda v: Record(state_with(v), "m", "1").cut()),
    Kind(written_by(lambda one: Record(one, "m", "1").write_done("groups", {"count": 1})),
         lambda v: Record(state_with(v), "m", "1").done()),
    Kind(dict(seen_acls.changed("m", {}, [rule("orders", "WRITE", "ALLOW", "User:app")])),
         lambda v: seen_acls.last_seen("m", state_with(v))),
    Kind(seen_acls.once(GRANTED, "m", "monday"),
         lambda v: seen_acls.was_done(GRANTED, "m", "monday", v)),
    Kind(seen_acls.once(LIMITED, "m", "monday"),
         lambda v: seen_acls.was_done(LIMITED, "m", "monday", v)),
    Kind({"configs/m/orders": seen_configs.dump({"retention.ms": "5"}, 1 << 50)},
         lambda v: seen_configs.last_seen(PLAN, v)),
    Kind({"groups/m/g": notes.dump(notes.Note(5, {ORDERS: ((7, ""),)}))},
         lambda v: notes.load(v["groups/m/g"])),
    Kind({"starts/m/orders/1": observations.dump(observations.Sight(
        number=1, at_ms=5, ids=("s", "t"), retention=observations.Retention(1, 2), seen={0: observations.Seen(1, 1)}))},
         lambda v: observations.load("starts/m/orders/1", v["starts/m/orders/1"])),
    Kind(dict(ENDS.dump("m")), lambda v: ends.load("m", v)),
    Kind(written_by(lambda one: Proofs(one, "m").add(PLAN, IDS, "records", {ORDERS: (0, 5)})),
         lambda v: Proofs(state_with(v), "m").ends(PLAN, IDS, "records")),
    Kind(written_by(lambda one: refused.note(one, "m", "plan", refused.Refusal.of([block("e", "r")], "d.t", 5.0))),
         lambda v: refused.refusals(v, "m")),
    Kind(written_by(lambda one: Drills(one, "m").save(Drill(run="one", at_ms=5))),
         lambda v: Drills(state_with(v), "m").all()),
    Kind(written_by(lambda one: ReportStore(one, "m", "run", None).save(REPORT)),
         report_of, ("fence", "steps", "groups", "process")),
]  # fmt: skip
MORE = {"later": {"deep": [1]}, "and": None}


def rows_of(kind: Kind) -> list[Row]:
    return [found[0] for key in kind.values if (found := kind_of(key))]


def changed(value: Any, within: tuple[str, ...] = (), **more: Any) -> Any:
    """Return a record as a newer version may have written it, which also knows ``more``."""
    if isinstance(value, bytes):
        packed = value[:1] not in b"{["
        text = json.dumps(changed(json.loads(zlib.decompress(value) if packed else value), within, **more)).encode()
        return zlib.compress(text) if packed else text
    if isinstance(value, list):
        return [changed(one, within, **more) for one in value]
    inner = {name: changed(one, within, **more) for name, one in value.items() if name in within}
    return {**value, **inner, **more}


def every(mirror: str, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return records of all kinds about a mirror, decisions and state, as a newer version wrote them."""
    both = {
        key.replace("/m", f"/{mirror}", 1): (changed(v, k.within, **more)) for k in KINDS for key, v in k.values.items()
    }
    both.pop("ledger")
    decisions = {key: value for key, value in both.items() if not isinstance(value, bytes)}
    if mirror != "m":
        decisions = {key.replace("topic/orders", "topic/theirs"): value for key, value in decisions.items()}
    return decisions, {key: value for key, value in both.items() if isinstance(value, bytes)}
