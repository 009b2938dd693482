"""Every kind of record of a ledger, by the writer that the package uses for it, with fixed times, ids and processes.

``python -m tests.unit.ledger.written`` writes what they write now into ``tests/golden/ledger_records.json``: a difference
is another format, which needs another version.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets import encoding, pieces
from airflow_mirror.copy.offsets import store as maps
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.cutover.decision import FenceState, begin_lifting, go_up
from airflow_mirror.cutover.failover.record import Cut, Record
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.report import CutoverReport, FenceRecord, GroupRecord, StepRecord
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.extras.drill.store import Drill, Drills
from airflow_mirror.extras.drill.turn import begin as begin_drill
from airflow_mirror.jobs.driver.windows import Span, Window, WindowBook
from airflow_mirror.jobs.plain import shares
from airflow_mirror.jobs.plain.shares import Share
from airflow_mirror.jobs.runner import reports
from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat, JobId, Watch, ask_to_stop, begin
from airflow_mirror.jobs.runner.state import RUNNING, SUCCEEDED
from airflow_mirror.jobs.runner.wishes import Wish, Wishes, wish
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import GRANTED, LIMITED, LOOK, WISH_LOOK
from airflow_mirror.plan import ledger_store, mm2_topics, ownership, refused
from airflow_mirror.plan.amendment import next_amendment
from airflow_mirror.plan.direction import Direction, turn
from airflow_mirror.plan.findings import block
from airflow_mirror.sync import seen_acls, seen_configs
from airflow_mirror.sync.ends import notes as ends
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.log_starts import observations
from airflow_mirror.verify.proof import Proofs
from tests.builders import plan_of, rule, topic_plan
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.plan.builders import a_mirror

GOLDEN = Path(__file__).parents[2] / "golden" / "ledger_records.json"
PLAN = plan_of(
    a_mirror(name="m"),
    topic_plan("orders", {0: 3, 1: 0}, source_topic_id="s-orders"),
    topic_plan("other", {0: 0}, source_topic_id=""),
)
IDS = {"orders": "t-orders", "other": "t-other"}
HASH = "9e75"
ORDERS = TopicPartition("orders", 0)
AMENDED = next_amendment(PLAN, (replace(PLAN.topics[0], reason="added"),), (), "now")
# Plans and amendments have golden files of their own: a Mirror may get more fields without another format of records.
MASKED = {
    PLAN.to_json(): "the plan", AMENDED.to_json(): "the amendment",
    PLAN.hash: "plan-hash", AMENDED.hash: "amendment-hash",
}  # fmt: skip
PROCESS: dict[str, Any] = {"host": "h", "where": "pid:1", "pid": 7, "started": 9, "job": "j"}
TAIL = ActiveTail(mirror={"name": "m", "topics": ["größe"]}, plan=HASH, inputs="i", directory="/jobs/1", **PROCESS)
BULK = JobId(**{**PROCESS, "name": "m", "job": "b"}, bulk=True)
MEMBER = JobId(**{**PROCESS, "name": "m", "job": "p"}, processes=3)
FENCE = FenceState(
    run="run", attempt=2, id="f", plan=HASH, revision=HASH, owner="me", max_fence_s=60.0, name="acl",
    process=PROCESS, intent=Intent(topics=("orders",)).value(),
)  # fmt: skip
TURNED = Direction(generation=1, primary="t", by="failover", attempt="a", plan=HASH, at="noon")
LEASE = LeaseToken(transactional_id="airflow-mirror:m:lease", producer_id=1, epoch=2, mark_ms=5, wait_s=0.5)
RANGE = CopyRange(source_topic="orders", target_topic="orders", partition=0, start_offset=3)
RESULT = PartitionResult(topic="orders", target_topic="orders", partition=0, position=9, done=False)
ORIGIN = pieces.Origin(3, 0, "token", 1)
MAP = OffsetMap(3, 0)
MAP.add(5, 0, 4)


class _Target:
    """A target that has every topic, and nothing in it."""

    role = "target"

    def topics(self, names: list[str]) -> dict[str, Any]:
        return {name: _Topic(name) for name in names}


class _Topic:
    partitions = 1

    def __init__(self, name: str) -> None:
        self.name, self.topic_id = name, IDS.get(name, "l")


class _Begins(Ledger):
    """The real way to begin a ledger, into a list."""

    def __init__(self, log: MemoryLedger) -> None:
        super().__init__(cast("Any", None))
        self._log = log

    def topic(self) -> Any:
        return _Topic("airflow-mirror.decisions")

    def _decide(self, change: Any, until_ms: int | None = None) -> Any:
        return self._log.decide(change, until_ms)


def _shares_topic(ledger: MemoryLedger, _: MemoryState) -> None:
    alone = {"sync_groups": False, "sync_configs": False, "sync_acls": False}
    shared = replace(PLAN, mirror=replace(PLAN.mirror, ownership="shared", delivery="transactional", **alone))
    other = replace(shared, mirror=replace(shared.mirror, name="o"), source_cluster_id="s2")
    ownership.claim(ledger, shared, cast("Any", _Target()))
    ownership.claim(ledger, other, cast("Any", _Target()), lambda _: ["s3", "s2"])


def _plans_and_fences(ledger: MemoryLedger, state: MemoryState) -> None:
    ledger_store.keep(PLAN, state, ledger)
    ledger_store.amend(AMENDED, "m", state, ledger)
    go_up(ledger, "m", FENCE, None, None)
    begin_lifting(ledger, "m", FENCE, "lifter")


def _signs(_: MemoryLedger, state: MemoryState) -> None:
    said = {"phase": "copying", "summary": {"lag": 4}, "notes": ("größer",), "follows": {"groups": {"at": 1}}}
    Heartbeat(state, TAIL).give(RUNNING, **said, heard={"pause": None})
    for one in (BULK, MEMBER):
        Heartbeat(state, one).give(SUCCEEDED, error="e", blame="retry")
    ask_to_stop(state, "m", "j", "ann")


def _looks(_: MemoryLedger, state: MemoryState) -> None:
    for look in (LOOK, WISH_LOOK):
        watch = Watch(state, clock=lambda: 12.5, probe_every_s=0.0, look=look)
        watch.status(replace(TAIL, where="elsewhere"))
        watch.status(replace(TAIL, where="elsewhere"))


def _wishes(_: MemoryLedger, state: MemoryState) -> None:
    wish(state, "m", "pause", Wish(by="ann", at="noon"))
    wish(state, "m", "rate", Wish(by="größe", at="noon", max_bytes_per_second=5))
    assert Wishes.of(state.read(), "m").rate is not None


def _reports(_: MemoryLedger, state: MemoryState) -> None:
    key = reports.report_key("m", "r")
    reports.write(state, key, {"state": RUNNING, "lag": 4, "path": Path("/p")})
    reports.write(state, key, {"state": SUCCEEDED, "lag": 0})


def _shares(_: MemoryLedger, state: MemoryState) -> None:
    one = Share(number=3, lease=LEASE, options=CopyOptions(mirror="m"), lists=[[RANGE]], seconds=60.0)
    state.write(shares.given("m", "j", "p", one, {}))
    state.write(shares.reported("m", "p", "j", 3, [RESULT], {}))


def _failover(_: MemoryLedger, state: MemoryState) -> None:
    record = Record(state, "m", "a")
    record.write_cut(Cut(at_ms=1, offsets={ORDERS: 5}, lost={"at_least": 1}))
    record.write_done("groups", {"path": Path("/p")})
    record.write_returned({"fence": ["größe"]})
    record.write_exported("orders", {"file": "f"})


def _seen(_: MemoryLedger, state: MemoryState) -> None:
    state.write(seen_acls.changed("m", {}, [rule("orders", "WRITE", "ALLOW", "User:größe")]))
    state.write(seen_acls.once(GRANTED, "m", "monday"))
    state.write(seen_acls.once(LIMITED, "m", "monday"))
    state.write({f"{seen_configs.prefix('m')}orders": seen_configs.dump({"b": "5", "a": "größe"}, 7)})
    state.write({f"{seen_configs.prefix('m')}users": seen_configs.dump({"b": "5"}, 7, "plan monday")})
    note = notes.Note(5, {ORDERS: ((7, "d"), (8, "")), TopicPartition("other", 1): ((0, ""),)})
    state.write({notes.key("m", "größe/2"): notes.dump(note)})
    sight = observations.Sight(
        number=1,
        at_ms=5,
        ids=("s", "t"),
        retention=observations.Retention(1, observations.FOREVER),
        seen={0: observations.Seen(2, 1)},
    )
    state.write({observations.key("m", "orders", 1): observations.dump(sight)})
    looked = ends.SourceEnds(at_ms=0).after({ORDERS: (5, 7)}, [ORDERS], 2000).after({ORDERS: (9, 9)}, [ORDERS], 4000)
    state.write(dict(looked.dump("m")))
    Proofs(state, "m").add(PLAN, IDS, "records", {ORDERS: (0, 5)})


def _cutover(ledger: MemoryLedger, state: MemoryState) -> None:
    report = CutoverReport(
        mirror="m", plan_hash=HASH, id="f", process=PROCESS, started=1.0,
        steps=[StepRecord(name="fence", status="done", started=1.0)],
        fence=FenceRecord(kind="acl", intent={"topics": ["orders"]}, requested=1.0),
        groups=[GroupRecord(group="größe", settled="empty", source_state="Empty")],
    )  # fmt: skip
    one = ReportStore(state, "m", "run", None)
    one.save(report)
    one.add_to_chain(report, ledger, None, lambda *what: None)


def _maps(_: MemoryLedger, state: MemoryState) -> None:
    name = f"m/{RANGE.map_key}"
    state.write({ORIGIN.key(name, "t-orders"): maps._ORIGIN_VALUE})
    state.write({pieces.piece_key(name, "t-orders", "token", 1, (3, 9, 1)): encoding.encode(MAP)})
    state.write({pieces.adopted_key(name, "t-orders", ORIGIN, 4): maps._ORIGIN_VALUE})


WRITERS: list[Callable[[MemoryLedger, MemoryState], object]] = [
    lambda ledger, _: _Begins(ledger).adopt(),
    lambda ledger, _: ownership.mark_cut_over(ledger, PLAN, IDS, "noon"),
    _shares_topic,
    lambda ledger, _: mm2_topics.mark(ledger, ["heartbeats"]),
    lambda ledger, state: begin(ledger, TAIL, Watch(state)),
    _plans_and_fences,
    lambda ledger, _: ledger.decide(lambda _: turn("m", TURNED)),
    lambda ledger, _: begin_drill(ledger, "m", "run", "me", 0.0),
    _signs,
    _looks,
    _wishes,
    _reports,
    lambda _, state: WindowBook(state, "m").save(Span(0, 1000), {ORDERS: Window(start=0, end=1, late=2)}, IDS),
    _shares,
    _failover,
    _seen,
    lambda _, state: refused.note(state, "m", "plan", refused.Refusal.of([block("größer", "do", "x")], "d.t", 5.5)),
    lambda _, state: Drills(state, "m").save(Drill(run="run", at_ms=5, topics=["größe"], missed=["slow"])),
    _cutover,
    _maps,
]


@contextmanager
def fixed() -> Iterator[None]:
    """Let times and drawn ids be the same in each run."""
    numbers = count(1)
    with ExitStack() as stack:
        stack.enter_context(patch("time.time", lambda: 1_700_000_000.5))
        stack.enter_context(patch("uuid.uuid4", lambda: uuid.UUID(int=next(numbers) << 96)))
        yield


def written() -> dict[str, list[dict[str, Any]]]:
    """Return what the writers write, in order: of decisions the values, of the state what the bytes are."""
    found: dict[str, list[dict[str, Any]]] = {"decisions": [], "state": []}
    with fixed():
        for write in WRITERS:
            ledger, state = MemoryLedger(), Noted()
            write(ledger, state)
            for record in ledger.records:
                sets = json.loads(record)["sets"]
                found["decisions"] += [{"key": key, "value": value} for key, value in sets.items()]
            found["state"] += [{"key": key, **shown(value)} for key, value in state.written if value is not None]
    return cast("Any", masked(found))


def masked(value: Any) -> Any:
    """Return values without what belongs to plans alone."""
    if isinstance(value, str):
        for text, name in MASKED.items():
            value = value.replace(text, name)
        return value
    if isinstance(value, dict):
        return {masked(key): masked(one) for key, one in value.items()}
    return [masked(one) for one in value] if isinstance(value, list) else value


class Noted(MemoryState):
    """A state that keeps all that was ever written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[str, bytes | None]] = []

    def write(self, values: Any, permit: Permit = unfenced) -> None:
        self.written += values.items()
        super().write(values, permit)


def shown(value: bytes) -> dict[str, str]:
    """Return bytes as text; compressed ones as what they are of, because not every zlib makes the same of it."""
    return {"zlib": zlib.decompress(value).decode()} if value[:1] == b"x" else {"text": value.decode()}


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(written(), indent=1, ensure_ascii=False, sort_keys=True) + "\n")
