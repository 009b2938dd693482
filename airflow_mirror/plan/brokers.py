"""Check whether a mirror can work with these brokers, and what an old source can't report."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokersUnsupported
from airflow_mirror.plan.model import Found, block, warn
from airflow_mirror.plan.situation import Situation
from airflow_mirror.wire.served import Without
from airflow_mirror.wording import some


def check_brokers(source: ClientConfig, target: ClientConfig) -> list[Without]:
    """Query the API versions of each broker; return what the source's brokers are too old to report.

    :raises BrokersUnsupported: names every broker and request.
    :raises ClusterUnreachable: no broker answered within 8 s.
    """
    from airflow_mirror.kafka.session import CONNECT_TIMEOUT_S
    from airflow_mirror.wire.cluster import WireCluster
    from airflow_mirror.wire.served import OLDEST, lacking, without

    lost: list[Without] = []
    for side, config in (("source", source), ("target", target)):
        with WireCluster(config, client_id="airflow-mirror.plan") as cluster:
            cluster.reach(CONNECT_TIMEOUT_S)
            if missing := list(lacking(cluster, side)):
                raise BrokersUnsupported(side, OLDEST[side], missing)
            if side == "source":
                lost = without(cluster)
    return lost


# The longest transaction timeout that the writer lease requests for its transactional id
# (`copy.writer.lease.LONGEST_MARK_MS`, which plans may not import; a test keeps the two equal).
_LEASE_MS = 126_535
_FORGETS_MS = 600_000  # a coordinator that is away for some minutes, or a driver that is frozen, must not lose the lease


def lease(s: Situation) -> Iterator[Found]:
    """The target's brokers reject the writer lease, which a cutover would otherwise notice while the source is fenced."""
    key, known = "transaction.max.timeout.ms", s.target.max_transaction_ms
    short = {broker: ms for broker, ms in sorted(known.items()) if ms is not None and ms < _LEASE_MS}
    hidden = [f"broker {broker}" for broker, ms in sorted(known.items()) if ms is None]
    if short:
        found = some(f"{ms:,} on broker {broker}" for broker, ms in short.items())
        yield block(
            "target brokers",
            f"{key} is {found}; the writer lease asks for up to {_LEASE_MS:,}",
            f"Set it to {_LEASE_MS} or more in these brokers' settings and restart them; Kafka's default is 900000.",
        )
    elif hidden or not known:
        of = f"of {some(hidden)}" if hidden else "(no DESCRIBE_CONFIGS on the cluster)"
        yield warn(
            "target brokers",
            f"{key} can't be read {of}",
            f"Make sure that it is {_LEASE_MS} or more on every broker of the target; Kafka's default is 900000.",
        )
    entry = (s.target.broker_configs or {}).get("transactional.id.expiration.ms")
    if entry is not None and entry.value is not None and int(entry.value) < _FORGETS_MS:
        yield warn(
            "target brokers",
            f"transactional.id.expiration.ms is {int(entry.value):,}: so soon coordinators forget the writer lease",
            "Set it to an hour or more; Kafka's default is a week. A copy renews its lease three times within it, and "
            "pauses for seconds where that fails.",
        )


def old_source(s: Situation) -> Iterator[Found]:
    """Warn about each thing that the source can't report."""
    for one in s.lost:
        yield warn(
            "source cluster",
            f"its brokers don't report {one.what} (Kafka {one.since} and later do): {one.effect}",
            "Nothing needs to be done; keep it in mind during the migration.",
        )
