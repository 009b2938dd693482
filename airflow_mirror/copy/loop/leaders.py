"""A partition's leader and its address: looked up when the partition is opened, and valid until it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from airflow_mirror.wire.connection import Connection

Connect = Callable[[], Connection]


class Broker(NamedTuple):
    """The leader of a partition.

    :param epoch: leader epoch; a fetch with an older one is rejected (KIP-320). -1: unknown.
    :param connect: opens a connection to the broker, from any thread.
    """

    node_id: int
    epoch: int
    connect: Connect


def _nowhere() -> Connection:
    raise AssertionError("a partition that is not open has no leader")


# Epoch -1 would skip the broker's check of KIP-320: no fetch is made with it, because nothing is fetched before
# opening.
NOBODY = Broker(-1, -1, _nowhere)
