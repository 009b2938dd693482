"""How long a fence will probably last: the sum of what each step was measured to take, before the fence is raised.

A forecast is no promise. What nobody could measure is left out of the sum and named, so that a short forecast is not
taken for a complete one. Afterwards the report shows it beside what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COMMITS_EVERY_S = 5.0  # what auto.commit.interval.ms is by default
# Of each position that is set: its request and answer, its reading back, its row in a report that is written some times
# (python -m benchmarks.fence). Less than a hundredth of a second for most groups, two seconds for 30,000.
_A_COMMIT_S = 60e-6
_SESSION = "up to the longest session timeout of its clients (45 s by default)"
ENOUGH_S = 5.0  # in a shorter look nothing is known to stand still


@dataclass(frozen=True, kw_only=True)
class Times:
    """What was measured, in seconds; None: nobody knows.

    :param look: to ask both sides for their ends. :param intent: to ask for the ACLs, or a fence of one's own.
    :param settle: what brokers are given to hear of the fence. :param still: how long the ends must stand still.
    :param drain: for the tail to copy what it is behind, at its present rate.
    :param verify: to compare what was not compared before.
    :param groups: to read the positions of all groups. :param positions: how many these are.
    :param quiet: how long a group must stand still that has members, is behind, and commits nothing. 0: there is none.
    :param commits: a group with members goes on reading: it is at the end with its next commit.
    :param handover: until the last task of a tail whose lease is taken has stopped.
    """

    look: float
    intent: float
    settle: float
    still: float
    drain: float | None
    verify: float | None
    groups: float
    positions: int
    quiet: float
    commits: bool
    handover: float


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Seconds of each step of the cutover, by its name; None: nobody knows.

    :param crashes: a group with members may hold it up: a member that crashed keeps its group until its session times
        out, and brokers don't tell a client's ``session.timeout.ms``.
    """

    steps: Mapping[str, float | None]
    crashes: bool = False

    @property
    def seconds(self) -> float:
        """The sum of what is known."""
        return sum(seconds for seconds in self.steps.values() if seconds is not None)

    @property
    def unknown(self) -> list[str]:
        """The steps of which nobody knows."""
        return [step for step, seconds in self.steps.items() if seconds is None]

    def __str__(self) -> str:
        parts = ", ".join(f"{step} {seconds:.1f}" for step, seconds in self.steps.items() if seconds is not None)
        unknown = f"; not known: {', '.join(self.unknown)}" if self.unknown else ""
        longer = f"; with a member of a group that crashed, {_SESSION} longer" if self.crashes else ""
        return f"{'at least ' if unknown else ''}{self.seconds:.1f} s ({parts}{unknown}){longer}"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        rounded = {step: None if seconds is None else round(seconds, 3) for step, seconds in self.steps.items()}
        return {"seconds": round(self.seconds, 3), "steps": rounded}


def forecast(times: Times) -> Forecast:
    """Return what a fence that is raised now will probably take."""
    prove, drain, verify = times.settle + times.look, times.drain or 0.0, times.verify or 0.0
    # A consumer's clock runs from the fence on; that a group stands still is seen only once the cutover looks at it.
    until_settled = prove + drain + times.look + verify
    next_commit = max(0.0, COMMITS_EVERY_S - until_settled) if times.commits else 0.0
    wait = max(times.quiet - verify, next_commit, 0.0)
    # Groups are committed while others are waited for: behind the wait are those that came to rest in its last second.
    late = 1.0 if wait <= 1 or times.quiet else 1 / wait
    commit = 2 * times.groups + wait + late * (times.groups + times.positions * _A_COMMIT_S)
    stand = max(0.0, times.still - drain - times.look - verify - commit)
    return Forecast(
        steps={
            "fence": times.intent + times.look,
            "prove_fence": prove,
            "drain": times.drain,
            "stop_writers": times.look,
            "verify": times.verify,
            "commit_groups": commit,
            "stand_still": stand,
            "seal_target": max(0.0, times.handover - stand - verify - commit) + times.look,
            "open_target": times.intent + times.look,
        },
        crashes=times.commits or bool(times.quiet),
    )
