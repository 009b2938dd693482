"""The figures of a running copy in plain words: for its log, for a task's log, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_mirror.copy.phase import Phase
from airflow_mirror.wording import count

_BATCHES = {"passed": "passed", "reencoded": "re-encoded", "merged": "merged", "dropped": "dropped"}
_OFFSETS = {"padded": "padded", "primed": "primed"}


def progress_line(report: Mapping[str, Any]) -> str:
    """Return one line about a running job's last report: its phase, and a copy's progress and remaining work."""
    phase, summary = str(report.get("phase", "starting")), report.get("summary") or {}
    return f"{phase}: {describe(summary)}" if "lag" in summary else phase


def describe(summary: Mapping[str, Any]) -> str:
    """Return one line about a copy from the ``summary`` of its status."""
    parts = [_how_far(summary), _held(summary), _how_fast(summary), throttled(summary)]
    slowest = summary.get("slowest")
    if slowest and slowest[0].get("eta_s") != 0:  # a tail that keeps up always has a small lag
        parts.append(f"slowest {_slow(slowest[0])}")
    parts += [tiers(summary.get("tiers") or {})]
    if stopped := (summary.get("states") or {}).get("stopped"):
        parts.append(f"{stopped:,} stopped ({(summary.get('stopped') or [''])[0]})")
    return "; ".join(part for part in parts if part)


def _how_far(summary: Mapping[str, Any]) -> str:
    lag, offsets, partitions = summary.get("lag"), summary.get("offsets"), summary.get("partitions") or 0
    every = count(partitions, "partition")
    if lag is None:
        begins = (summary.get("states") or {}).get(Phase.OPENING) == partitions
        return f"{every} being opened" if begins else f"the progress of {every} is unknown"
    if unknown := summary.get("unknown"):
        return f"{lag:,} offsets behind in {count(partitions - unknown, 'partition')}, unknown for {unknown:,}"
    if offsets:
        return f"{percent(offsets - lag, offsets)} of {offsets:,} offsets in {every}"
    if offsets is None:
        return f"{lag:,} offsets behind in {every}"
    return f"nothing to copy in {every}"


def _held(summary: Mapping[str, Any]) -> str:
    """Say what waits for an open transaction, which is not in the lag; empty if nothing does."""
    named = summary.get("open_transactions") or []
    if len(named) < 2:
        return "".join(named)
    return f"{summary['held']:,} offsets behind open transactions ({named[0]}; ...)"


def throttled(summary: Mapping[str, Any]) -> str:
    """Say whose quota holds the copy up, and how long a request waits for it; empty if none does."""
    sides = [f"the {side} by {ms / 1000:.1f} s a request" for side, ms in (summary.get("throttled") or {}).items()]
    return f"throttled by quota: {' and '.join(sides)}" if sides else ""


def _how_fast(summary: Mapping[str, Any]) -> str:
    text = f"{rate(summary.get('bytes_per_s') or 0)}, {summary.get('records_per_s') or 0:,} records/s"
    begun = (summary.get("states") or {}).get("copying")
    return f"{text}, {to_go(summary.get('eta_s'))}" if begun and summary.get("lag") else text


def _slow(one: Mapping[str, Any]) -> str:
    if one.get("state") == "opening":
        when = "waits"
    else:
        when = to_go(one.get("eta_s")) if one.get("advances") else "does not advance"
    return f"{one['partition']}: {one['lag']:,} offsets, {when}"


def tiers(counts: Mapping[str, int]) -> str:
    """Say how batches were copied and how many offsets were filled; empty before the first one."""
    batches = [f"{counts[name]:,} {word}" for name, word in _BATCHES.items() if counts.get(name)]
    offsets = [f"{counts[name]:,} {word}" for name, word in _OFFSETS.items() if counts.get(name)]
    said = [f"batches: {', '.join(batches)}"] if batches else []
    said += [f"offsets: {', '.join(offsets)}"] if offsets else []
    return "; ".join(said)


def percent(done: int, total: int) -> str:
    """Return a share in whole percent, 100 only when it is all."""
    return f"{100 if done >= total else min(99, 100 * done // max(total, 1))} %"


def rate(bytes_per_s: float) -> str:
    """Return bytes per second in MB (10^6 bytes), or kB when they are few."""
    return f"{bytes_per_s / 1e6:,.1f} MB/s" if bytes_per_s >= 1e5 else f"{bytes_per_s / 1e3:,.1f} kB/s"


def to_go(eta_s: int | None) -> str:
    """Return the time that is left."""
    return "lag does not shrink" if eta_s is None else f"about {duration(eta_s)} to go"


def duration(seconds: int) -> str:
    """Return seconds in the two largest units that fit."""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
