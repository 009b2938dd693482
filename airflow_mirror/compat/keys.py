"""A row for every key of MirrorMaker 2's flows and of the Connect worker that they run on, from Kafka 2.4 to 4.3.

A test holds the tables against the lists that the classes of 4.3.1 print. :data:`DEFAULTS` has what an absent key means:
a flow that came along behaves as before, also where a Mirror's own default is another one.
"""

from __future__ import annotations

from airflow_mirror.compat.rows import DEFAULTS, TABLES

__all__ = ["DEFAULTS", "DRIVER", "FLOW", "LIKE_RETENTION", "POLICIES", "RETENTION", "WORKER"]

POLICIES = {
    "org.apache.kafka.connect.mirror.DefaultReplicationPolicy": "prefix",
    "org.apache.kafka.connect.mirror.IdentityReplicationPolicy": "identity",
}

# What MirrorMaker and the Go mirror maker leave to the target's brokers, which delete by the topic's own retention. Here
# that is on hold, so that history survives its arrival; what replaces it must keep the target as small, so nothing is
# waited for that none of them waited for.
LIKE_RETENTION = {"sync_log_starts": True, "log_start_delay_s": 60.0}
RETENTION = (
    "on hold on target topics while the mirror runs; what the source's retention deletes is deleted there within "
    "minutes, and a compacted topic is compacted again once the copy is level; a warning names topics of which neither "
    "is so"
)

FLOW, WORKER, DRIVER = (TABLES[name] for name in ("flow", "worker", "driver"))
