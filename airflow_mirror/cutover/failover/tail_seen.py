"""What is known of the tail of a mirror whose source may be gone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_mirror.cutover.platform import Side
from airflow_mirror.jobs.runner.active import SILENCE_S, ActiveTail, Sign
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.sync.ends import follower


@dataclass(frozen=True, kw_only=True)
class TailSeen:
    """What is known of the mirror's tail.

    :param status: of :mod:`.jobs.runner.state`; empty if none is decided to be the mirror's.
    :param unseen_s: seconds since it has seen the source, by its own clock; None: nothing is known of that.
    :param look_s: seconds from one look at the source to the end of the next one: for so long more nobody misses it.
    :param ages_s: seconds since what follows the data was last looked at, by its own clock.
    """

    status: str = ""
    host: str = ""
    unseen_s: float | None = None
    look_s: float = 0.0
    ages_s: Mapping[str, float] | None = None

    @classmethod
    def of(cls, status: str, host: str, sign: Sign | None) -> TailSeen:
        """Return what its last sign says."""
        follows = {} if sign is None else sign.followed
        at = 0.0 if sign is None else sign.at
        source = follows.get(follower.NAME, {})
        # A look that failed as a whole says nothing about the source. One that has never seen it says so.
        # By the tail's own clock alone: two hosts' clocks decide nothing here.
        unseen = at - (source["seen"] or 0.0) if "seen" in source else None
        # With unreachable brokers a look takes tens of seconds, and of tens of thousands of partitions one follows the
        # other half a minute later: a source that answers each of them is not missed in between.
        look_s = sum(_seconds(source.get(name)) for name in ("every_s", "took_s"))
        ages = {name: max(0.0, at - one["at"]) for name, one in follows.items() if one.get("at")}
        return cls(status=status, host=host, unseen_s=unseen, look_s=look_s, ages_s=ages)

    @property
    def misses(self) -> bool:
        """Whether it lives, and has not seen the source for half a minute and a look."""
        return self.status == RUNNING and self.unseen_s is not None and self.unseen_s >= SILENCE_S + self.look_s

    def saw(self, age_s: float | None, within_s: float = SILENCE_S) -> str:
        """Return who has seen the source in the last half minute, or may have, as half a sentence; empty: nobody.

        :param age_s: the age of the last look that is noted, by the clocks of two hosts.
        :param within_s: another time than the last half minute; of a tail that runs, and a look.
        """
        runs, unseen_s = f"its tail runs on host {self.host!r}, and", self.unseen_s
        # A tail that sees the source: cut off from here is not gone. Unknown counts as seen.
        if self.status == RUNNING and (unseen_s is None or unseen_s < within_s + self.look_s):
            saw = "may see the source" if unseen_s is None else f"has seen the source {unseen_s:.0f} s ago"
            return f"{runs} {saw}"
        # By two clocks: so for a refusal alone, on top of what the tail itself says, and it costs a retry or a word of
        # force.
        if age_s is None or age_s >= within_s:
            return ""
        gone = f"its tail on host {self.host!r} is {self.status}" if self.status else "no tail is decided to be its"
        who = f"{runs} has not seen the source for {unseen_s:.0f} s" if self.status == RUNNING else gone
        return f"{who}, but by the notes and this host's clock the source was seen {age_s:.0f} s ago"


def _seconds(value: object) -> float:
    """Return a time of a sign, in which anything may stand."""
    return value if isinstance(value, (int, float)) and 0 <= value < math.inf else 0.0


def tail_of(on: Side, tail: ActiveTail | None) -> TailSeen:
    """Return what is known of a tail; may listen for its signs for half a minute."""
    if tail is None:
        return TailSeen()
    watch = on.watch(tail.name)
    # RUNNING only if it gave a sign while we listened: an old sign says that it lived.
    status = watch.settled(tail)
    return TailSeen.of(status, tail.host, watch.sign(tail))
