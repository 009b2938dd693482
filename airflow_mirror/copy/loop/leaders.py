"""A partition's leader and its address: looked up when the partition is opened, and valid until it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import TryAgain
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.topology import Leader

Connect = Callable[[], Connection]


class Broker(NamedTuple):
    """The leader of a partition.

    :param epoch: leader epoch; a fetch with an older one is rejected (KIP-320). -1: unknown.
    :param connect: opens a connection to the broker, from any thread.
    """

    node_id: int
    epoch: int
    connect: Connect


def check_latest(tp: TopicPartition, leader: Leader, heard_epoch: int) -> None:
    """Check that a source leader is not one of before an election of which this copy has heard.

    :param heard_epoch: the newest leader epoch of the same topic that it has heard of; they never go back.
    :raises TryAgain: it is one.
    """
    if 0 <= leader.epoch < heard_epoch:
        raise TryAgain(
            f"{tp}: broker {leader.node_id} is told to lead it, under epoch {leader.epoch}, which ended with an election "
            f"(epoch {heard_epoch})",
            "the broker that tells so has not heard of that, and may be cut off from its cluster",
            "Others are asked. If this lasts, look whether they can be reached from here, and stop that one.",
        )


def _nowhere() -> Connection:
    raise AssertionError("a partition that is not open has no leader")


# Epoch -1 would skip the broker's check of KIP-320: no fetch is made with it, because nothing is fetched before
# opening.
NOBODY = Broker(-1, -1, _nowhere)
