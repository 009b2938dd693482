"""What another version of the package wrote into a ledger: typed, said, decided nothing on, and never replaced.

Versions work beside each other: a field that one of them does not know is no reason to stop, and a whole record only for
whoever must decide about that very thing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, cast

import pytest

from airflow_mirror.copy.offsets import encoding
from airflow_mirror.cutover.decision import (
    OPENED,
    FenceState,
    begin_closing,
    begin_lifting,
    fence_state,
    go_up,
    permit,
    stand_behind_open,
)
from airflow_mirror.cutover.failover.decision import promote
from airflow_mirror.cutover.failover.record import Record
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.rollback.arm import armed
from airflow_mirror.errors import InputError, LedgerNewer
from airflow_mirror.extras.drill.store import Drill, Drills
from airflow_mirror.jobs.driver.windows import Window, WindowBook
from airflow_mirror.jobs.runner import reports
from airflow_mirror.jobs.runner.active import Heartbeat, Sign, Watch, active_tail, begin
from airflow_mirror.jobs.runner.state import RUNNING, SUCCEEDED
from airflow_mirror.jobs.runner.wishes import Wish, Wishes, wish
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger import chain, records
from airflow_mirror.ledger.fold import NOTHING, Decision, Fold, Verdict
from airflow_mirror.ledger.kinds import Newer, in_pieces
from airflow_mirror.ledger.records import GRANTED, LIMITED
from airflow_mirror.plan import ledger_store, owned, ownership, requirements
from airflow_mirror.plan.amendment import next_amendment
from airflow_mirror.plan.direction import direction
from airflow_mirror.plan.owned import owned_topics, owners
from airflow_mirror.sync import seen_acls, seen_configs
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.log_starts import observations
from airflow_mirror.verify.proof import Proofs
from tests.builders import shut_again
from tests.unit.cutover.builders import Topics
from tests.unit.ledger.kinds import (
    FENCE,
    IDS,
    KINDS,
    ME,
    MORE,
    ORDERS,
    PLAN,
    SPAN,
    TURNED,
    Kind,
    began,
    changed,
    every,
    ledger_with,
    rows_of,
    state_with,
)
from tests.unit.ledger.memory import MemoryLedger, MemoryState

NEWER: Any = {"v": 99, "all": "different"}
STRANGE = [b"", b"{", b"[]", b"7", b'"text"', b"\xff\xfe", b"{}", json.dumps(NEWER).encode()]
BARE = b'{"v": 1}'  # of our version, and without what it has to say


def decided(key: str, value: Any = NEWER) -> MemoryLedger:
    ledger = MemoryLedger()
    ledger.decide(lambda _: {key: value})
    return ledger


def kept_as(key: str, value: bytes) -> MemoryState:
    state = MemoryState()
    state.write({key: value})
    return state


# --- decisions --------------------------------------------------------------------------------------------------------


def test_readers_keep_in_step_over_keys_and_values_they_do_not_know() -> None:
    """A key of another kind, a value of any type, an envelope with more fields: versions count on."""
    fold = Fold()
    strange: list[Any] = [{"v": 99}, [1], "text", 7, None]
    for offset, value in enumerate(strange):
        envelope = json.loads(Decision(expects={"future/x": offset}, sets={"future/x": value}, read=NOTHING).encode())
        assert fold.apply(offset, json.dumps({**envelope, "signature": "ab"}).encode()) is Verdict.APPLIED
    assert fold.version("future/x") == len(strange)


DECISIONS: dict[str, tuple[str, Callable[[MemoryLedger], object]]] = {
    "active tail": ("active/m", lambda ledger: active_tail(ledger.values(), "m")),
    "start of a tail": ("active/m", lambda ledger: begin(ledger, ME, cast("Watch", None))),
    "take-over of a tail": ("active/m", lambda ledger: begin(ledger, ME, cast("Watch", None), takeover=True)),
    "last plan": ("plan/m", lambda ledger: ledger_store.last_hash(ledger.values(), "m")),
    "new plan": ("plan/m", lambda ledger: ledger_store.keep(PLAN, MemoryState(), ledger)),
    "last amendment": (f"amended/m/{PLAN.hash}", lambda ledger: ledger_store.revision(ledger.values(), "m", PLAN.hash)),
    "new amendment": (
        f"amended/m/{PLAN.hash}",
        lambda ledger: ledger_store.amend(next_amendment(PLAN, PLAN.topics, (), "now"), "m", MemoryState(), ledger),
    ),
    "fence": ("fence/m", lambda ledger: fence_state(ledger.values(), "m")),
    "fence that goes up": ("fence/m", lambda ledger: go_up(ledger, "m", FENCE, None, None)),
    "fence that comes down": ("fence/m", lambda ledger: begin_lifting(ledger, "m", FENCE, "me")),
    "fence that is closed": ("fence/m", lambda ledger: begin_closing(ledger, "m", replace(FENCE, phase=OPENED), "me")),
    "fence of a returned source": ("fence/m", lambda ledger: stand_behind_open(ledger, "m", FENCE, TURNED)),
    "permit of an effect": ("fence/m", lambda ledger: permit(ledger, "m", FENCE)()),
    "chain of reports": ("evidence/m/000001", lambda ledger: chain.links(ledger.values(), "m")),
    "link of a report": ("evidence/m/000001", lambda ledger: chain.add(ledger, "m", "run", "digest")),
    "direction": ("direction/m", lambda ledger: direction(ledger.values(), "m")),
    "failover": ("direction/m", lambda ledger: promote(ledger, PLAN, IDS, TURNED, None)),
    "way back": ("direction/m", lambda ledger: armed("m", ledger.values())),
    "topics for a way back": ("topic/orders", lambda ledger: ownership.adopt(
        ledger, PLAN, cast("Any", Topics()), require=lambda _: None, unless=""
    )),
    "owner of a topic": ("topic/orders", lambda ledger: owned.decided(ledger.values(), IDS)),
    "hand-over of a topic": ("topic/orders", lambda ledger: ownership.mark_cut_over(ledger, PLAN, IDS, "noon")),
    "opening of a topic": ("topic/orders", lambda ledger: requirements.require_opened(ledger, PLAN)),
}  # fmt: skip


@pytest.mark.parametrize("value", [NEWER, [], "text", 7], ids=str)
def test_ledger_that_a_newer_version_made_is_not_taken_for_lost(value: Any) -> None:
    """To restore an export would undo what was decided since."""
    with pytest.raises(LedgerNewer, match="something about itself"):
        began({"ledger": value})


@pytest.mark.parametrize("value", [NEWER, [], "text", 7, {"v": 1}], ids=str)
@pytest.mark.parametrize("what", DECISIONS)
def test_newer_decision_is_named_and_never_replaced(what: str, value: Any) -> None:
    key, do = DECISIONS[what]
    ledger = decided(key, value)
    with pytest.raises(LedgerNewer, match=r"can't read .* Install the version"):
        do(ledger)
    assert ledger.values() == {key: value}


# --- state ------------------------------------------------------------------------------------------------------------

READ: dict[str, Callable[[bytes], object]] = {
    "pause": lambda value: Wishes.of({"wish/m/pause": value}, "m"),
    "rate": lambda value: Wishes.of({"wish/m/rate": value}, "m"),
    "report of a job": lambda value: reports.read(kept_as("run/m/1/now", value), "run/m/1"),
    "last report of a job": lambda value: reports.read(kept_as("run/m/1/last/0/1", value), "run/m/1"),
    "plan": lambda value: ledger_store.plan_in(in_pieces(f"plan/m/{PLAN.hash}", value), "m", PLAN.hash),
    "amendment": lambda value: ledger_store.amendments_in(in_pieces(f"plan/m/{PLAN.hash}+a", value), "m", PLAN.hash, "a"),
    "window": lambda value: WindowBook(kept_as(f"window/m/{SPAN.name}/0/1", value), "m").load(SPAN, IDS),
    "window before": lambda value: WindowBook(kept_as("window/m/0_0_0/0/1", value), "m").before(SPAN, IDS),
    "cut of a failover": lambda value: Record(kept_as("failover/m/1/cut/0/1", value), "m", "1").cut(),
    "steps of a failover": lambda value: Record(kept_as("failover/m/1/done/groups", value), "m", "1").done(),
    "rules of writers": lambda value: seen_acls.last_seen("m", kept_as("acls/m/later/0/1", value)),
    "note of rules": lambda value: seen_acls.changed("m", {"acls/m/later/0/1": value}, ()),
    "writers that were let in": lambda value: seen_acls.was_done(GRANTED, "m", "monday", {"acls/m/granted": value}),
    "quotas that were set": lambda value: seen_acls.was_done(LIMITED, "m", "monday", {"acls/m/quotas": value}),
    "settings": lambda value: seen_configs.LastSeen(PLAN, {"configs/m/orders": value}),
}


@pytest.mark.parametrize("value", [*STRANGE, BARE], ids=repr)
@pytest.mark.parametrize("what", READ)
def test_state_that_can_not_be_read_is_an_error_that_says_so(what: str, value: bytes) -> None:
    with pytest.raises(InputError):
        READ[what](value)


SKIPPED: dict[str, Callable[[bytes], object]] = {
    "note about a group": notes.load,
    "sight of a log start": lambda value: observations.load("starts/m/orders/1", value),
}


@pytest.mark.parametrize("value", [*STRANGE, BARE], ids=repr)
@pytest.mark.parametrize("what", SKIPPED)
def test_what_concerns_one_group_or_topic_is_left_to_its_reader(what: str, value: bytes) -> None:
    """Both followers leave that group or topic alone and report it; see their own tests."""
    assert SKIPPED[what](value) is None


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_sign_that_can_not_be_read_is_still_a_sign_of_life(value: bytes) -> None:
    sign = Sign.decode(value)
    assert sign is not None and sign.state == RUNNING and "newer version" in sign.notes[0]
    assert sign.number != Sign.decode(value + b" ").number  # type: ignore[union-attr]
    ended = json.dumps({**NEWER, "state": SUCCEEDED}).encode()
    assert (last := Sign.decode(ended)) and last.state == SUCCEEDED


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_request_to_stop_is_heard_whoever_wrote_it(value: bytes) -> None:
    assert Heartbeat(kept_as("job/m/mine/stop", value), ME).stop_requested_by() == "somebody"


@pytest.mark.parametrize("field", FenceState.__dataclass_fields__)
def test_fence_of_which_one_value_is_none_of_ours_is_named(field: str) -> None:
    """Half-read, it would be lifted, or would end whoever looks at it."""
    fields = {**asdict(FENCE), "v": 1}
    wrong: dict[type, list[Any]] = {
        str: [7, None], dict: ["text", []], float: ["7"], int: ["7", True], bool: [0, "no"]
    }  # fmt: skip
    for value in wrong[type(fields[field])]:
        with pytest.raises(LedgerNewer, match="the fence of 'm'"):
            fence_state(decided("fence/m", {**fields, field: value}).values(), "m")
    assert fence_state(decided("fence/m", fields).values(), "m") == FENCE


def test_phase_that_another_version_has_made_is_no_phase() -> None:
    with pytest.raises(LedgerNewer, match="handing-over"):
        fence_state(decided("fence/m", {**asdict(FENCE), "v": 1, "phase": "handing-over"}).values(), "m")


def test_fence_whose_changes_can_not_all_be_read_is_not_undone_in_part() -> None:
    """A newer version's fence may have changed what this one would leave behind."""
    for intent in ({"bare": "0", "quota": "0"}, {"bare": "7"}, {"denied": ["0"]}):
        with pytest.raises(LedgerNewer, match="what a fence has changed"):
            Intent.of(cast("Any", intent), ["orders"])


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_piece_of_a_map_that_can_not_be_read_is_derived_again(value: bytes) -> None:
    with pytest.raises(ValueError, match="|"):
        encoding.decode(value)


# --- nothing is replaced ----------------------------------------------------------------------------------------------


def test_a_tail_removes_nothing_of_a_kind_that_it_does_not_know() -> None:
    state = MemoryState(knows_all=True)
    wish(state, "m", "pause", Wish.now())
    unknown = {"job/m/hand-over": b"1", "wish/m/priority": b"1", "job/m/theirs/ballot": b"1"}
    state.write({**unknown, "job/m/theirs/sign": b"1", "job/m/theirs/stop": b"1", "job/m/look": b"1"})
    Heartbeat(state, ME).forget_others(unfenced)
    assert state.read().keys() == {*unknown, "wish/m/pause"}


def test_newer_proof_is_not_replaced_and_proves_nothing() -> None:
    state = kept_as("proof/m/orders", json.dumps(NEWER).encode())
    proofs = Proofs(state, "m")
    proofs.add(PLAN, IDS, "records", {ORDERS: (0, 5)})
    assert json.loads(state.read()["proof/m/orders"]) == NEWER
    assert proofs.ends(PLAN, IDS, "records") == {}


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_drill_that_can_not_be_read_is_listed_and_not_replaced(value: bytes) -> None:
    drills = Drills(kept_as("drill/m/old", value), "m")
    drills.save(Drill(run="new", at_ms=5, missed=[]))
    old, new = drills.all()
    assert (old.run, new.missed) == ("old", []) and old.missed and "this version can't read" in old.missed[0]
    with pytest.raises(LedgerNewer):
        drills.of("old")


def test_newer_window_is_not_replaced() -> None:
    state = kept_as(f"window/m/{SPAN.name}/0/1", json.dumps(NEWER).encode())
    with pytest.raises(LedgerNewer):
        WindowBook(state, "m").save(SPAN, {ORDERS: Window(start=0, end=1)}, IDS)
    assert len(state.read()) == 1


# --- what a newer version adds ------------------------------------------------------------------------------------------


def test_every_kind_of_record_is_here() -> None:
    """But who reads a plan, an amendment or a map compares its hash or its ends, and nobody reads a look."""
    r = records
    apart = {r.PLAN, r.AMENDMENT, r.MAP, r.LOOK, r.WISH_LOOK, r.SHARED_TOPIC}
    assert {row for kind in KINDS for row in rows_of(kind)} == set(records.KINDS) - apart


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: next(iter(kind.values)).partition("/0000")[0])
def test_fields_that_a_newer_version_has_added_change_nothing(kind: Kind) -> None:
    more = {key: changed(value, kind.within, **MORE) for key, value in kind.values.items()}
    before = kind.read(kind.values)
    assert before and kind.read(more) == before


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: next(iter(kind.values)).partition("/0000")[0])
def test_record_that_may_mean_something_else_is_an_error_with_a_name_or_no_proof(kind: Kind) -> None:
    """Or, of what is no more than a word (a sign of life, a wish to stop), still that word."""
    newer = {key: changed(value, v=99, version=99) for key, value in kind.values.items()}
    try:
        found = kind.read(newer)
    except InputError:
        return
    assert not found or all(row.newer is Newer.WORD for row in rows_of(kind))


def test_what_a_newer_version_decided_about_others_does_not_keep_anybody_from_an_end() -> None:
    """Whoever ends a mirror reads what was decided about all topics."""
    decisions, _ = every("others", v=99)
    ledger = ledger_with({**decisions, **every("m", **MORE)[0]})
    requirements.require_opened(ledger, PLAN)
    shut_again(ledger, "orders")
    assert ledger.values()["topic/theirs"] == decisions["topic/theirs"]
    assert owned_topics(ledger).keys() == {"orders"} and owned_topics(ledger)["orders"].opened_by is None
    assert ownership.release(ledger, "m", lambda: None) == ["orders"]
    assert owners(ledger.values())[1].keys() == {"theirs"}


def test_tail_and_who_watches_it_work_beside_a_newer_version() -> None:
    state = state_with({**every("others", v=99)[1], **every("m", **MORE)[1]})
    Heartbeat(state, ME).give(RUNNING)
    watch = Watch(state)
    assert watch.status(ME) == RUNNING and (sign := watch.sign(ME)) is not None and sign.number == 1
    assert Heartbeat(state, ME).stop_requested_by() == "ann"
    Heartbeat(state, ME).forget_others(unfenced)
    assert active_tail(every("m", **MORE)[0], "m") == ME


def test_process_of_which_a_record_does_not_say_where_it_runs_is_not_this_one() -> None:
    """What is missing must not be filled in from whoever reads it: this host would know that it has ended."""
    value = {key: one for key, one in ME.value().items() if key not in ("host", "where", "pid", "started")}
    tail = active_tail({"active/m": value}, "m")
    assert tail is not None and tail.job == "mine" and not tail.is_here and not tail.is_gone
    with pytest.raises(LedgerNewer):
        active_tail({"active/m": {key: one for key, one in value.items() if key != "job"}}, "m")
