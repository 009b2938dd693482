"""What a cutover would meet, and how long its fence would last: a verdict on each thing that it depends on.

What blocks keeps the fence down, and a pass says what was seen. What could not be asked blocks as well, unless it is
something that a cluster tells only those who have a right that a mirror need not have. No socket, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_mirror.cutover.forecast import ENOUGH_S, Forecast, forecast
from airflow_mirror.cutover.foreseen import GRANT, about_right, of_schemas
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.seen import CutoverFacts
from airflow_mirror.errors import CutoverBlocked
from airflow_mirror.jobs.health.judging import Limits as HealthLimits
from airflow_mirror.jobs.runner.state import is_active
from airflow_mirror.plan.findings import (
    BLOCK,
    PASS,
    WARN,
    Checks,
    Finding,
    Judged,
    block,
    several,
    warn,
    well,
    worst_first,
)
from airflow_mirror.plan.missing_acls import Lacking
from airflow_mirror.plan.resources import ANY
from airflow_mirror.plan.rights import SOURCE
from airflow_mirror.wording import count, size, some

CHECKS = Checks[CutoverFacts, Limits]("both clusters", hidden=WARN)
_FREE_BYTES = HealthLimits().min_free_bytes
_START_TAIL = "Start the tail (StartMirrorOperator, mode='tail'), and wait until it has caught up."


@dataclass(frozen=True, kw_only=True)
class Preview(Judged):
    """What a cutover of a plan's revision would meet. :param at: when it was looked at, seconds since the epoch."""

    mirror: str
    plan: str
    revision: str
    at: float
    findings: Sequence[Finding]
    forecast: Forecast | None = None

    def raise_if_blocked(self) -> None:
        """Return if a fence may be raised. :raises CutoverBlocked: with every finding that blocks."""
        if self.blocks:
            raise CutoverBlocked(self.mirror, [str(f) for f in self.blocks])

    @property
    def no_way_back(self) -> str:
        """Why what applications write to the target can't be copied back; empty if it can, or if nobody has asked."""
        return "; ".join(f.evidence for f in self.findings if f.check == "way_back" and f.level != PASS)

    def lines(self) -> list[str]:
        """Return a line for each finding, and one for the forecast: for a log, and for whoever approves."""
        said = [f for f in self.findings if (f.check, f.level) != ("length", PASS)]  # the first line says it
        lines = [f"{'ok' if f.level == 'pass' else f.level}: {f}" for f in said]
        return lines if self.forecast is None else [f"predicted length of the fence: {self.forecast}", *lines]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {
            "mirror": self.mirror,
            "plan": self.plan,
            "revision": self.revision,
            "at": round(self.at, 3),
            "findings": [asdict(f) for f in self.findings],
            "predicted": None if self.forecast is None else self.forecast.to_dict(),
        }


def judge(facts: CutoverFacts, limits: Limits) -> tuple[list[Finding], Forecast]:
    """Return the findings, blocks first, and the predicted length of the fence."""
    return worst_first(CHECKS.run(facts.unknown, facts, limits)), forecast(facts.times)


@CHECKS.check("tail", "the tail lives and holds the writer lease", about="tail")
def _tail(facts: CutoverFacts, _: Limits) -> Iterator[Finding]:
    tail = facts.tail
    if tail is None:
        why = "nobody has decided on one (StartMirrorOperator does), so nobody knows whether it lives"
    elif not is_active(facts.tail_status):
        why = f"it gives no sign of life from host {tail.host} (it is {facts.tail_status})"
    elif not facts.leased:
        why = f"it lives on host {tail.host}, and does not hold the writer lease: it can't write"
    else:
        return
    # A target that has everything of a source at rest needs no tail; where a job holds the lease somebody may copy.
    needed = (bool(facts.behind) or facts.written) and not (tail is None and facts.leased)
    yield (block if needed else warn)(why, _START_TAIL)


def _lag_seen(facts: CutoverFacts, _: Limits) -> str:
    if not facts.behind:
        return "the target holds everything"
    behind = sum(facts.behind.values())
    bytes_ = "" if facts.bytes_an_offset is None else f" (about {size(round(behind * facts.bytes_an_offset))})"
    takes = "" if facts.times.drain is None else f": {facts.times.drain:.1f} s"
    return (
        f"{count(behind, 'offset')}{bytes_} behind in {count(len(facts.behind), 'partition')}, "
        f"at {facts.offsets_per_s:,.0f} offsets/s{takes}"
    )


@CHECKS.check("lag", _lag_seen)
def _lag(facts: CutoverFacts, _: Limits) -> Iterator[Finding]:
    yield from several(
        block if facts.watched_s >= ENOUGH_S else warn,
        [f"{tp} ({count(facts.behind[tp], 'offset')})" for tp in sorted(facts.stands)], "partition",
        f"nothing was copied for {facts.watched_s:.1f} s although the target is behind",
        "See what the tail says of them: 'airflow-mirror status'.",
    )  # fmt: skip


def _compared_seen(facts: CutoverFacts, _: Limits) -> str:
    took = "" if facts.compared is None else f"; {facts.compared.offsets:,} of them took {facts.compared.seconds:.1f} s"
    return f"{count(facts.rest or 0, 'offset')} left to compare, {facts.times.verify or 0.0:.1f} s{took}"


@CHECKS.check("compared", _compared_seen, about="target")
def _compared(facts: CutoverFacts, _: Limits) -> Iterator[Finding]:
    if facts.compared is not None and facts.compared.differences:
        remedy = "Find out why before anything else."
        yield from several(block, facts.compared.differences, "partition", "both sides differ", remedy)
    elif facts.rest is None:
        yield warn(
            "nobody knows what was compared before",
            "All of it is compared behind the fence. Run VerifyMirrorOperator first.",
        )
    elif facts.times.verify is None:
        yield warn(f"{count(facts.rest, 'offset')} to compare, and nothing that could be yet", _START_TAIL)


@CHECKS.check("transactions", "none is open", about="source")
def _transactions(facts: CutoverFacts, _: Limits) -> Iterator[Finding]:
    yield from several(
        block, [holder for holder in facts.holders if holder.hangs], "transaction",
        "no coordinator knows of them, so they never end", "Abort them: kafka-transactions.sh abort.",
    )  # fmt: skip
    yield from several(
        warn, [holder for holder in facts.holders if not holder.hangs], "transaction", "open",
        "The fence waits until they end. Stop a producer whose transactions stay open for long.",
    )  # fmt: skip
    if facts.unseen:
        remedy = "Without that, there is no way back at identical offsets."
        yield warn(f"there may be more of them unseen: {facts.unseen}", remedy)


@CHECKS.check("groups", lambda facts, _: f"{count(facts.groups, 'group')} can move", about="source")
def _groups(facts: CutoverFacts, _: Limits) -> Iterator[Finding]:
    if lost := facts.untranslated:
        yield block(some(lost, 3), "Correct these groups, or exclude them.", count(len(lost), "position"))
    yield from several(
        warn if facts.stops else block, [f"{group} ({kind})" for group, kind in facts.applications.items()], "group",
        "they have members, and commit so seldom that their positions count only without",
        "If the fence does not stop them, the cutover waits wait_groups_s and backs out."
        if facts.stops else "Stop these applications first, or leave the groups out by name (leave_out_groups).",
    )  # fmt: skip
    yield from several(
        block, facts.still, "group",
        f"they have members and lag, and have committed nothing for {facts.watched_s:.1f} s",
        "Stop their consumers; or name them in accept_still_groups, if they commit at least every few seconds and so "
        "have read nothing since; or in leave_out_groups.",
    )  # fmt: skip
    hidden = [right.acl.name for right in facts.hidden if right.acl is not None]
    yield from several(
        block, hidden, "group", "the plan has positions of theirs, and the mirror's principal may not see them any more",
        f"{GRANT} Or leave the groups out by name (leave_out_groups).",
    )  # fmt: skip
    yield from several(
        warn, [group for group in facts.gone if group not in hidden], "group",
        "the plan has positions of theirs in these topics, and the source has none now",
        "They don't move. If they were deleted, or have expired, nothing is to be done.",
    )  # fmt: skip
    if facts.times.quiet:
        yield warn(
            "a group of accept_still_groups has members and lag, and commits nothing",
            f"Its positions count as final after {facts.times.quiet:g} s behind the fence. Better stop its consumers.",
        )
    for group, what in facts.left_out.items():
        remedy = "Set its positions by hand before it starts on the target: airflow-mirror translate --groups."
        yield warn(f"left out by name: {what}", remedy, f"group {group!r}")
    yield from several(
        warn, facts.left_behind, "group", "they have positions in these topics and are not selected",
        "They find a fenced source, and no position on the target.",
    )  # fmt: skip


@CHECKS.check("replicas", "all in sync on both sides")
def _replicas(facts: CutoverFacts, _: Limits) -> Iterator[Finding]:
    for side, by_tp in facts.replicas.items():
        down = sorted(tp for tp, its in by_tp.items() if not its.led)
        short = sorted(tp for tp, its in by_tp.items() if side == "target" and its.in_sync < facts.least.get(tp.topic, 1))
        under = sorted(tp for tp, its in by_tp.items() if its.in_sync < its.all)
        about = f"{side}, {count(len(down or short or under), 'partition')}"
        if down or short:
            what = "have no leader" if down else "have fewer replicas in sync than a write takes (min.insync.replicas)"
            yield block(f"they {what}: {some(map(str, down or short))}", "Wait until their brokers are back.", about)
        elif under:
            yield warn(
                f"not all their replicas are in sync: {some(map(str, under))}",
                "One broker less, and they may stop in the middle of the fence. Better wait.", about,
            )  # fmt: skip


# A cutover that backs out names what it leaves; where it can't see who may write to the ledger, it asks who is trusted.
_SPARE = {("group", "DELETE"), ("cluster", "DESCRIBE")}


def _is_spare(right: Lacking, facts: CutoverFacts) -> bool:
    """Return whether a cutover does without a right."""
    # Rules may be for the mirror's groups alone, which no broker tells. Who sees no group may see none of them.
    sees_some = facts.groups and (right.side, list(right.names)) == (SOURCE, [ANY])
    return bool(sees_some) or (right.kind, right.operation) in _SPARE


@CHECKS.check("rights", lambda facts, _: f"all granted, on {facts.rights:,} topics and groups")
def _rights(facts: CutoverFacts, _: Limits) -> Iterator[Finding]:
    for right in facts.lacking:
        yield (warn if _is_spare(right, facts) else block)(str(right), GRANT, about_right(right))


@CHECKS.check("versions", "the source's brokers tell all that a cutover asks", about="source")
def _versions(facts: CutoverFacts, _: Limits) -> Iterator[Finding]:
    yield from (warn(f"its brokers can't give: {line}", "Nothing to do.") for line in facts.old)


def _free(facts: CutoverFacts) -> dict[int, int]:
    return {broker: usable for broker, usable in facts.free_bytes.items() if usable is not None}


@CHECKS.check("disk", lambda facts, _: f"at least {size(min(_free(facts).values()))} free on each broker of the target")
def _disk(facts: CutoverFacts, _: Limits) -> Iterator[Finding]:
    free = _free(facts)
    needed = round(sum(facts.behind.values()) * (facts.bytes_an_offset or 0.0))
    least = min(free, key=lambda broker: free[broker], default=None)
    if least is None:
        yield warn("its brokers don't tell what is free", "Look there.", "target")
    elif free[least] < max(needed, _FREE_BYTES):
        evidence = f"{size(free[least])} free, and {size(needed)} still to copy"
        remedy = "Free disk there: applications write too."
        yield Finding(BLOCK if free[least] < needed else WARN, "", f"target, broker {least}", evidence, remedy)


@CHECKS.check("schemas", about="both registries")
def _schemas(facts: CutoverFacts, _: Limits) -> Iterator[Finding]:
    if facts.schemas is not None:
        yield from of_schemas(facts.schemas)


@CHECKS.check("length", about="fence")
def _length(facts: CutoverFacts, limits: Limits) -> Iterator[Finding]:
    expected, most_s = forecast(facts.times), limits.max_fence_s
    if expected.seconds > most_s:
        yield block(
            f"it would last {expected}, and max_fence_s is {most_s:g}",
            "Shorten the longest part: let the tail catch up, compare again, stop consumers that stand still; or allow "
            "more time.",
        )
    elif expected.unknown:
        yield warn(
            str(expected), f"Nobody could measure the rest; after {most_s:g} s (max_fence_s) the cutover backs out."
        )
    else:
        yield well(str(expected))
