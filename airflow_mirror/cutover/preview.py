"""What a cutover would meet, and how long its fence would last: a verdict on each thing that it depends on.

Each check answers with its findings, as the checks of a plan do: ``block`` (no fence is raised), ``warn`` or, if it has
none, ``pass`` with what was seen. What could not be asked blocks as well, unless it is something that a cluster tells
only those who have a right that a mirror need not have. No socket, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_mirror.checks import Finding, worst_first
from airflow_mirror.cutover.forecast import ENOUGH_S, Forecast, forecast
from airflow_mirror.cutover.request import Limits
from airflow_mirror.cutover.seen import Seen
from airflow_mirror.errors import CutoverBlocked, MissingRight
from airflow_mirror.jobs.health.judging import Limits as HealthLimits
from airflow_mirror.jobs.runner.state import is_active
from airflow_mirror.wire.errors import ApiNotServed
from airflow_mirror.wording import count, size, some

_FREE_BYTES = HealthLimits().min_free_bytes
_START_TAIL = "Start the tail (StartMirrorOperator, mode='tail'), and wait until it has caught up."


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What a cutover of a plan's revision would meet. :param at: when it was looked at, seconds since the epoch."""

    mirror: str
    plan: str
    revision: str
    at: float
    findings: Sequence[Finding]
    forecast: Forecast | None = None

    @property
    def blocks(self) -> list[Finding]:
        """The findings that keep a fence from being raised."""
        return [f for f in self.findings if f.level == "block"]

    def raise_if_blocked(self) -> None:
        """Return if a fence may be raised. :raises CutoverBlocked: with every finding that blocks."""
        if self.blocks:
            raise CutoverBlocked(self.mirror, [str(f) for f in self.blocks])

    @property
    def no_way_back(self) -> str:
        """Why what applications write to the target can't be copied back; empty if it can, or if nobody has asked."""
        return "; ".join(f.evidence for f in self.findings if f.check == "way_back" and f.level != "pass")

    def lines(self) -> list[str]:
        """Return a line for each finding, and one for the forecast: for a log, and for whoever approves."""
        said = [f for f in self.findings if (f.check, f.level) != ("length", "pass")]  # the first line says it
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


def judge(seen: Seen, limits: Limits) -> tuple[list[Finding], Forecast]:
    """Return the findings, blocks first, and the predicted length of the fence."""
    expected = forecast(seen.times)
    findings = []
    for name, passed, check in CHECKS:
        error = seen.unknown.get(name)
        if error is not None:
            level = "warn" if isinstance(error, (MissingRight, ApiNotServed)) else "block"
            findings.append(
                Finding(level, name, "both clusters", f"not known: {error}", "Ask again once that is mended.")
            )
            continue
        findings += list(check(seen)) or [Finding("pass", name, "both clusters", passed(seen))]
    findings += list(_length(expected, limits)) or [Finding("pass", "length", "fence", str(expected))]
    return worst_first(findings), expected


def _length(expected: Forecast, limits: Limits) -> Iterator[Finding]:
    most_s = limits.max_fence_s
    if expected.seconds > most_s:
        yield Finding(
            "block", "length", "fence", f"it would last {expected}, and max_fence_s is {most_s:g}",
            "Shorten the longest part: let the tail catch up, compare again, stop consumers that stand still; or allow "
            "more time.",
        )  # fmt: skip
    elif expected.unknown:
        yield Finding(
            "warn", "length", "fence", f"{expected}",
            f"Nobody could measure the rest; after {most_s:g} s (max_fence_s) the cutover backs out.",
        )  # fmt: skip


def _tail(seen: Seen) -> Iterator[Finding]:
    one = seen.tail
    if one is None:
        why = "nobody has decided on one (StartMirrorOperator does), so nobody knows whether it lives"
    elif not is_active(seen.tail_status):
        why = f"it gives no sign of life from host {one.host} (it is {seen.tail_status})"
    elif not seen.leased:
        why = f"it lives on host {one.host}, and does not hold the writer lease: it can't write"
    else:
        return
    # A target that has everything of a source at rest needs no tail; where a job holds the lease somebody may copy.
    needed = (bool(seen.behind) or seen.written) and not (one is None and seen.leased)
    yield Finding("block" if needed else "warn", "tail", "tail", why, _START_TAIL)


def _lag(seen: Seen) -> Iterator[Finding]:
    if seen.stands:
        shown = some(f"{tp} ({count(seen.behind[tp], 'offset')})" for tp in sorted(seen.stands))
        yield Finding(
            "block" if seen.watched_s >= ENOUGH_S else "warn", "lag", count(len(seen.stands), "partition"),
            f"nothing was copied for {seen.watched_s:.1f} s although the target is behind: {shown}",
            "See what the tail says of them: 'airflow-mirror status'.",
        )  # fmt: skip


def _lag_seen(seen: Seen) -> str:
    if not seen.behind:
        return "the target holds everything"
    behind = sum(seen.behind.values())
    bytes_ = "" if seen.bytes_an_offset is None else f" (about {size(round(behind * seen.bytes_an_offset))})"
    takes = "" if seen.times.drain is None else f": {seen.times.drain:.1f} s"
    return (
        f"{count(behind, 'offset')}{bytes_} behind in {count(len(seen.behind), 'partition')}, "
        f"at {seen.offsets_per_s:,.0f} offsets/s{takes}"
    )


def _compared(seen: Seen) -> Iterator[Finding]:
    if seen.compared is not None and seen.compared.differences:
        yield Finding(
            "block", "compared", count(len(seen.compared.differences), "partition"),
            f"both sides differ: {some(seen.compared.differences)}", "Find out why before anything else.",
        )  # fmt: skip
    elif seen.rest is None:
        yield Finding(
            "warn", "compared", "target", "nobody knows what was compared before",
            "All of it is compared behind the fence. Run VerifyMirrorOperator first.",
        )  # fmt: skip
    elif seen.times.verify is None:
        yield Finding(
            "warn", "compared", "target", f"{count(seen.rest, 'offset')} to compare, and nothing that could be yet",
            _START_TAIL,
        )  # fmt: skip


def _compared_seen(seen: Seen) -> str:
    took = "" if seen.compared is None else f"; {seen.compared.offsets:,} of them took {seen.compared.seconds:.1f} s"
    return f"{count(seen.rest or 0, 'offset')} left to compare, {seen.times.verify or 0.0:.1f} s{took}"


def _transactions(seen: Seen) -> Iterator[Finding]:
    if hanging := [one for one in seen.holders if one.hangs]:
        yield Finding(
            "block", "transactions", count(len(hanging), "transaction"),
            f"no coordinator knows of them, so they never end: {some(map(str, hanging))}",
            "Abort them: kafka-transactions.sh abort.",
        )  # fmt: skip
    if others := [one for one in seen.holders if not one.hangs]:
        yield Finding(
            "warn", "transactions", count(len(others), "transaction"), f"open: {some(map(str, others))}",
            "The fence waits until they end. Stop a producer whose transactions stay open for long.",
        )  # fmt: skip
    if seen.unseen:
        yield Finding(
            "warn", "transactions", "source", f"there may be more of them unseen: {seen.unseen}",
            "Without that, there is no way back at identical offsets.",
        )  # fmt: skip


def _groups(seen: Seen) -> Iterator[Finding]:
    if seen.untranslated:
        yield Finding(
            "block", "groups", count(len(seen.untranslated), "position"), some(seen.untranslated, 3),
            "Correct these groups, or exclude them.",
        )  # fmt: skip
    if seen.applications:
        shown = some(f"{group} ({application})" for group, application in seen.applications.items())
        yield Finding(
            "warn" if seen.stops else "block", "groups", count(len(seen.applications), "group"),
            f"they have members, and commit so seldom that their positions count only without: {shown}",
            "Stop these applications first, or leave the groups out by name (leave_out_groups)."
            if not seen.stops else "If the fence does not stop them, the cutover waits wait_groups_s and backs out.",
        )  # fmt: skip
    if seen.still:
        yield Finding(
            "block", "groups", count(len(seen.still), "group"),
            f"they have members and lag, and have committed nothing for {seen.watched_s:.1f} s: {some(seen.still)}",
            "Stop their consumers; or name them in accept_still_groups, if they commit at least every few seconds and so "
            "have read nothing since; or in leave_out_groups.",
        )  # fmt: skip
    if seen.times.quiet:
        yield Finding(
            "warn", "groups", "source", "a group of accept_still_groups has members and lag, and commits nothing",
            f"Its positions count as final after {seen.times.quiet:g} s behind the fence. Better stop its consumers.",
        )  # fmt: skip
    for group, what in seen.left_out.items():
        yield Finding(
            "warn", "groups", f"group {group!r}", f"left out by name: {what}",
            "Set its positions by hand before it starts on the target: airflow-mirror translate --groups.",
        )  # fmt: skip
    if seen.left_behind:
        yield Finding(
            "warn", "groups", count(len(seen.left_behind), "group"),
            f"they have positions in these topics and are not selected: {some(seen.left_behind)}",
            "They find a fenced source, and no position on the target.",
        )  # fmt: skip


def _replicas(seen: Seen) -> Iterator[Finding]:
    for side, found in seen.replicas.items():
        down = sorted(tp for tp, one in found.items() if not one.led)
        short = sorted(tp for tp, one in found.items() if side == "target" and one.in_sync < seen.least.get(tp.topic, 1))
        under = sorted(tp for tp, one in found.items() if one.in_sync < one.all)
        if down or short:
            what = "have no leader" if down else "have fewer replicas in sync than a write takes (min.insync.replicas)"
            yield Finding(
                "block", "replicas", f"{side}, {count(len(down or short), 'partition')}",
                f"they {what}: {some(map(str, down or short))}", "Wait until their brokers are back.",
            )  # fmt: skip
        elif under:
            yield Finding(
                "warn", "replicas", f"{side}, {count(len(under), 'partition')}",
                f"not all their replicas are in sync: {some(map(str, under))}",
                "One broker less, and they may stop in the middle of the fence. Better wait.",
            )  # fmt: skip


def _rights(seen: Seen) -> Iterator[Finding]:
    for one in seen.lacking:
        spare = (one.kind, one.operation) == ("group", "DELETE")  # a cutover that backs out names what it leaves
        yield Finding(
            "warn" if spare else "block", "rights", f"{one.side}, {count(len(one.names), one.kind)}", str(one),
            "Grant it: 'airflow-mirror rights' prints the commands.",
        )  # fmt: skip


def _versions(seen: Seen) -> Iterator[Finding]:
    for line in seen.old:
        yield Finding("warn", "versions", "source", f"its brokers can't give: {line}", "Nothing to do.")


def _disk(seen: Seen) -> Iterator[Finding]:
    free = {broker: usable for broker, usable in seen.free_bytes.items() if usable is not None}
    needed = round(sum(seen.behind.values()) * (seen.bytes_an_offset or 0.0))
    least = min(free, key=lambda broker: free[broker], default=None)
    if least is None:
        yield Finding("warn", "disk", "target", "its brokers don't tell what is free", "Look there.")
    elif free[least] < max(needed, _FREE_BYTES):
        yield Finding(
            "block" if free[least] < needed else "warn", "disk", f"target, broker {least}",
            f"{size(free[least])} free, and {size(needed)} still to copy", "Free disk there: applications write too.",
        )  # fmt: skip


Check = tuple[str, Callable[["Seen"], str], Callable[["Seen"], Iterator[Finding]]]
CHECKS: tuple[Check, ...] = (
    ("tail", lambda seen: "the tail lives and holds the writer lease", _tail),
    ("lag", _lag_seen, _lag),
    ("compared", _compared_seen, _compared),
    ("transactions", lambda seen: "none is open", _transactions),
    ("groups", lambda seen: f"{count(seen.groups, 'group')} can move", _groups),
    ("replicas", lambda seen: "all in sync on both sides", _replicas),
    ("rights", lambda seen: f"all granted, on {seen.rights:,} topics and groups", _rights),
    ("versions", lambda seen: "the source's brokers tell all that a cutover asks", _versions),
    ("disk", lambda seen: f"at least {_least_free(seen.free_bytes)} free on each broker of the target", _disk),
)


def _least_free(free: Mapping[int, int | None]) -> str:
    return size(min(usable for usable in free.values() if usable is not None))
