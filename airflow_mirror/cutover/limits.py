"""How long the steps of a cutover may take: what a person may say of it is a knob, for operators and command lines alike.

Nothing of a cluster is imported here, because operators are made of it when Airflow reads a DAG.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from airflow_mirror.common.knobs import check, knob, knobs_of, limit

_seconds = partial(knob, metavar="S", section="seconds")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Time limits of the steps, in seconds.

    :param max_fence_s: for everything from the fence to the opening. It caps every limit below by what is left of it.
    :param drain_timeout_s: for the tail to reach the fenced ends.
    :param quiet_s: how long the source's log end offsets must stay unchanged to prove the fence; longer where the pauses
        between two writes are longer. ``quiet_at_most_s``: so long they are watched for that, before the fence.
    :param settle_s: wait after raising the fence, for brokers to learn of it and to answer requests in flight.
    :param proof_timeout_s: for every broker to learn of the fence and to refuse writers.
    :param transactions_timeout_s: for transactions that were open at the fence to end.
    :param wait_groups_s: for consumer groups on the source to come to rest.
    :param group_quiet_s: how long a group with members and lag must not commit. Above 5 s, because consumers commit
        every 5 s by default, and between two commits no position moves.
    :param approval_valid_s: how old it may be what was shown before the cutover.
    :param poll_s: between two polls.
    :raises InvalidField: a value makes no sense. Nothing was touched.
    """

    max_fence_s: float = _seconds(
        60.0, limit(), "how long producers may be kept out before the target is open; then the cutover backs out",
        "--max-fence-s",
    )  # fmt: skip
    drain_timeout_s: float = _seconds(
        300.0, limit(), "for the tail to reach the fenced log end offsets", "--drain-timeout-s"
    )
    quiet_s: float = _seconds(3.0, limit(), "how long log end offsets must not move", "--quiet-s")
    transactions_timeout_s: float = _seconds(
        90.0, limit(), "for transactions that were open at the fence to end", "--transactions-timeout-s"
    )
    wait_groups_s: float = _seconds(60.0, limit(), "for consumer groups to come to rest", "--wait-groups-s")
    group_quiet_s: float = _seconds(
        6.0, limit(), "how long a group with lag must have committed nothing", "--group-quiet-s"
    )
    approval_valid_s: float = 3600.0  # of an operator alone, which has an approval before it
    quiet_at_most_s: float = 10.0
    settle_s: float = 1.0
    proof_timeout_s: float = 10.0
    poll_s: float = 0.2

    def __post_init__(self) -> None:
        check(self)


# What an operator is given of them, and a command line.
GIVEN = tuple(one.name for one, _ in knobs_of(Limits))
