"""Every kind of record that a ledger has, a row each: its keys, who may write it, and what becomes of it.

What is decided may have several writers: of two that decide at once one wins (:mod:`.fold`). In the state each key has
one writer: a job that its key names, or one that holds the mirror's writer lease, or that a decision has named. A row is
what :class:`.kinds.Kind` says; of a key that several match the first one counts.
"""

from __future__ import annotations

from functools import partial

from airflow_mirror.common.policy import DECISIONS, MAPS, STATE, WISHES
from airflow_mirror.ledger.kinds import Kind, Newer, Retire, Split, dense, spaced

PASSES, COPIED, IN_PART, STEP, STAYS = Split.PASSES, Split.COPIED, Split.IN_PART, Split.STEP, Split.STAYS
REMOVED, FENCED, STEP_OF, KEPT = Retire.REMOVED, Retire.FENCED, Retire.STEP, Retire.STAYS
LEFT, WORD = Newer.LEFT, Newer.WORD
_decision, _wish = partial(Kind, topic=DECISIONS), partial(Kind, topic=WISHES, dumps=spaced)
_dense, _spaced = partial(Kind, topic=STATE, dumps=dense), partial(Kind, topic=STATE, dumps=spaced)
_any = partial(Kind, topic=STATE, dumps=partial(dense, default=str))
_TAIL, _JOB = "the mirror's tail", "the job that its key names"
_PLANNER = "who plans, before it is decided; the tail by which it goes"
_SHARE = "lease", "options", "ranges", "seconds", "ends"

# --- decisions --------------------------------------------------------------------------------------------------------

# Each of these is a compare-and-set on its key: of two that decide at once, or of one that thaws behind the other, the
# second is refused. What must change together is set in one record (a fence that is opened, its topics, the direction).
BEGIN = _decision("ledger", "itself", "who plans first; who restores an export", STAYS, KEPT)
TOPIC = _decision("topic/{topic}", "topic {topic!r}", "who claims, opens, gives up or passes on", STEP, STEP_OF)
# A version that does not know of sharing must not take the topic for its own.
SHARED_TOPIC = _decision(
    "topic/{topic}", "topic {topic!r}", "the mirrors that share it", STAYS, STEP_OF, version=2, needs=("sharers",)
)
TRACE = _decision("trace/{topic}", "topic {topic!r}", _TAIL, STAYS, KEPT, newer=WORD)
# A tail that begins replaces it. An opening of the target pins it: with a tail decided behind its look it is refused.
ACTIVE = _decision("active/{mirror}", "the tail of {mirror!r}", "a tail that begins; a failover", STEP, REMOVED)
# These two name what was written to the state before. Who dies in between leaves pieces that no decision names, and the
# plan or amendment of before stays the last one.
LAST_PLAN = _decision(
    "plan/{mirror}", "the last plan of {mirror!r}", "who plans; who retires", STEP, REMOVED, needs=("hash",)
)
LAST_AMENDMENT = _decision(
    "amended/{mirror}/{plan}", "the amendments of plan {plan:.12}", _TAIL, STAYS, FENCED, needs=("hash",)
)
# Decided before the first rule is created, and once more before the first one goes: whoever comes behind a death knows
# all rules that there may be.
FENCE = _decision("fence/{mirror}", "the fence of {mirror!r}", "a cutover; who lifts its fence", STAYS, FENCED)
DIRECTION = _decision("direction/{mirror}", "the direction of {mirror!r}", "a failover; a way back", STAYS, REMOVED)
DRILLING = _decision(
    "drilling/{mirror}", "the drill of {mirror!r}", "a drill that begins; its clean-up", STAYS, REMOVED,
    needs=("run", "owner"),
)  # fmt: skip
LINK = _decision("evidence/{mirror}/{number}", "the chain of {mirror!r}", "a cutover that has ended", STAYS, KEPT)

# --- state ------------------------------------------------------------------------------------------------------------

# None of these is compared with anything before it is written. So a key has one writer at a time: its name holds the
# job, the attempt or the run, and one that was taken for dead, and thaws, writes what nobody reads; or its writer holds
# the mirror's lease.
AMENDMENT = _dense("plan/{mirror}/{plan}+{amendment}", "plan {plan:.12}", _PLANNER, STAYS, FENCED, in_pieces=True)
PLAN = _dense("plan/{mirror}/{plan}", "plan {plan:.12}", _PLANNER, STEP, FENCED, version=2, in_pieces=True)
# Signs are no decision: silence may be a frozen process. Who acts on it decides first, and what thaws finds that.
SIGN = _any("job/{mirror}/{job}/sign", "a job", _JOB, STAYS, REMOVED, newer=WORD)
STOP = _spaced("job/{mirror}/{job}/stop", "a job", "who asks it to stop", STAYS, REMOVED, newer=WORD)
BULK = _spaced("job/{mirror}/{job}/bulk", "a bulk copy of {mirror!r}", _JOB, STAYS, REMOVED)
MEMBER = _spaced("job/{mirror}/{job}/member", "a process that shares {mirror!r}", _JOB, STAYS, REMOVED)
LOOK = _dense("job/{mirror}/look", "a look", "who listens: can anybody write?", STAYS, REMOVED, newer=WORD)
# What a job says last has a key of its own, and counts for more: a progress that was on its way, and comes behind it,
# brings no ended job back.
RUN_NOW = _any("run/{mirror}/{job}/now", "job {job} of {mirror!r}", _JOB, STAYS, REMOVED, needs=("state",))
RUN_LAST = _any(
    "run/{mirror}/{job}/last", "job {job} of {mirror!r}", _JOB, STAYS, REMOVED, needs=("state",), in_pieces=True
)
# Written before the first byte is copied by it: who dies behind that, and is run again, finds the same window.
WINDOW = _spaced(
    "window/{mirror}/{window}", "window {window}", "the job that copies it", STAYS, REMOVED, needs=("partitions",),
    in_pieces=True,
)  # fmt: skip
# It says what to copy, and permits nothing: each task confirms the lease that it names. A tail that was replaced, and
# thaws, deals under one that is lost.
SHARE = _spaced(
    "share/{mirror}/{tail}/to/{member}/{number}", "a share of {mirror!r}", "the tail that its key names", STAYS, REMOVED,
    needs=_SHARE, in_pieces=True, packed=True,
)  # fmt: skip
SHARE_REPORT = _spaced(
    "share/{mirror}/{member}/did/{tail}/{number}", "a report on a share of {mirror!r}", "the member that its key names",
    STAYS, REMOVED, needs=("results",), in_pieces=True, packed=True,
)  # fmt: skip
# Written whole before the decision that names its attempt: one that nobody names is a failover that died in between,
# and the next one removes it.
CUT = _spaced(
    "failover/{mirror}/{attempt}/cut", "where a copy was cut", "the failover, before it is decided", STAYS, REMOVED,
    needs=("at", "cut", "lost"), in_pieces=True,
)  # fmt: skip
# A step that is not noted may have been done all the same, by one that died in between: each can be done again.
DONE = _spaced(
    "failover/{mirror}/{attempt}/done/{step}", "a step of a failover", "who completes the failover", STAYS, REMOVED,
    needs=("found",), dumps=partial(spaced, default=str),
)  # fmt: skip
RETURNED = _spaced(
    "failover/{mirror}/{attempt}/returned", "a source that returned", "who fences it", STAYS, REMOVED, needs=("found",)
)
EXPORTED = _spaced(
    "failover/{mirror}/{attempt}/export/{topic}", "an export", "a failback", STAYS, REMOVED, needs=("found",)
)
# Who goes by it takes of its rules those about his mirror's topics and groups: of a mirror that was split, each its own.
LATER = _dense(
    "acls/{mirror}/later", "the rules of writers of {mirror!r}", _TAIL, COPIED, REMOVED, needs=("rules",), in_pieces=True
)
# Written behind the rules: who dies in between grants them once more, at its next try.
GRANTED = _dense(
    "acls/{mirror}/granted", "the opening behind which writers of {mirror!r} were let in", "who lets them in", STAYS,
    REMOVED, needs=("opening",),
)  # fmt: skip
# Likewise: they are set once more, to what the source says at that moment.
LIMITED = _dense(
    "acls/{mirror}/quotas", "the opening behind which quotas of {mirror!r} were set", "who sets them", STAYS, REMOVED,
    needs=("opening",),
)  # fmt: skip
CONFIGS = _dense(
    "configs/{mirror}/{topic}", "the settings of topic {topic!r}", f"{_TAIL}; who ends the hold", PASSES, REMOVED,
    needs=("at", "configs"), dumps=partial(dense, sort_keys=True),
)  # fmt: skip
# Written before the positions that it names are committed: who dies in between has noted some that may stand nowhere, and
# the next pass settles that.
GROUP = _dense(
    "groups/{mirror}/{group:path}", "a group", f"{_TAIL}; who adopts a target", IN_PART, REMOVED, newer=LEFT,
    dumps=partial(dense, ensure_ascii=False),
)  # fmt: skip
# Written before records are deleted by it: who dies in between deletes them in its next pass, by what was seen.
START = _dense("starts/{mirror}/{topic}/{number}", "a log start", _TAIL, PASSES, REMOVED, newer=LEFT)
LOOKED = _dense("ends/{mirror}/look", "the source's ends", _TAIL, STAYS, REMOVED, newer=LEFT)
ENDS = _dense("ends/{mirror}/{bucket}", "the source's ends", _TAIL, STAYS, REMOVED, newer=LEFT)
# Written behind the comparison. What a death has kept from being noted is compared again.
PROOF = _dense(
    "proof/{mirror}/{topic}", "the proof of {topic!r}", "who compares", PASSES, REMOVED, newer=LEFT,
    needs=("identity", "levels"),
)  # fmt: skip
DRILL = _spaced("drill/{mirror}/{run}", "drill {run!r}", "the run's tasks, one by one", STAYS, REMOVED, newer=WORD)
# For people alone, nothing goes by it: of two tasks at once the later record counts, as of wishes.
REFUSED = _dense(
    "refused/{mirror}/{kind}", "what refused mirror {mirror!r} ({kind})", "a task that is refused; the next that is not",
    STAYS, REMOVED, newer=WORD, needs=("by", "at", "findings"),
)  # fmt: skip
# For people, and for where groups go back to. What is lifted, and whether, says `fence/...` alone: it is decided.
# Each writing has keys of its own, and removes those of the one before behind its own: killed in between, the newest that
# is whole is read.
REPORT = _dense("report/{mirror}/{run}/{number}", "a cutover's run", _JOB, STAYS, FENCED, in_pieces=True)

# --- wishes -----------------------------------------------------------------------------------------------------------

WISH_LOOK = _wish("wish/{mirror}/look", "a look", "who wishes: does anybody hear?", STAYS, REMOVED, newer=WORD)
WISH = _wish("wish/{mirror}/{wish}", "what is wished of {mirror!r} ({wish})", "people", STAYS, REMOVED)

# --- maps: see copy.offsets.pieces; only topics that keep their offsets can pass --------------------------------------

MAP = Kind(
    "{mirror}/{topic}/{flow}/{topic_id}/{token}/{version}/{what}", "a piece of an offset map",
    "who holds the writer lease", STAYS, STEP_OF, topic=MAPS, newer=LEFT, dumps=dense,
)  # fmt: skip

KINDS = tuple(one for one in list(globals().values()) if isinstance(one, Kind))


def kind_of(key: str) -> tuple[Kind, dict[str, str]] | None:
    """Return the kind of a key of decisions, state or wishes, and the names in it; None: of none that we know."""
    kinds = _BY_START.get(key.partition("/")[0], ())
    return next(((kind, names) for kind in kinds if (names := kind.match(key)) is not None), None)


_BY_START: dict[str, list[Kind]] = {}
for _kind in KINDS[: KINDS.index(MAP)]:
    _BY_START.setdefault(_kind.pattern.partition("/")[0], []).append(_kind)
