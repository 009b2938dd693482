"""Find out what the mirror's principal may do on the target, by testing it on a scratch topic.

Rights can't be read reliably: reading them is itself a right, and prefixes, wildcards, hosts and super users all
matter. So each step of a copy is actually executed: create, write, read, a marker through the coordinator, markers in
bulk, delete records. The topic is deleted whatever happens; two hosts may plan the same mirror at the same time, as both
find its tail lost (see :mod:`.scratch`).

A topic with rules of its own may differ from the scratch topic; the copy then reports that.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import SCRATCH_PREFIX, marker_id, scratch_topic
from airflow_mirror.errors import MirrorError, MissingRight, NeededAcl, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NewConfigs, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.topic import replicas_on
from airflow_mirror.plan import scratch
from airflow_mirror.plan.model import Capabilities
from airflow_mirror.plan.refusals import judged, words
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import ApiNotServed, UnknownTopic, refusal
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.records import Record
from airflow_mirror.wire.retry import Backoff
from airflow_mirror.wire.single import fetch_one, produce_one
from airflow_mirror.wire.transactions import TransactionClient, coordinator_epoch_of, write_txn_markers

_PRODUCER_ID = 1 << 62  # self-assigned, like the copy's; WRITE on any topic allows it
_TIMEOUT_MS = 10_000
_SETTLED_WITHIN_S = 10.0


def probe(target: ClusterAdmin, mirror: str, *, keeps_offsets: bool = True, compacts: bool = False) -> Capabilities:
    """Test on ``target`` everything that a copy may need; a missing right is a result, not an error.

    :param keeps_offsets: some topic may keep its offsets; else nothing is padded in bulk or primed, nor tried.
    :param compacts: some topic is compacted after the hold. Who may not alter the scratch topic learns nothing of that.
    :raises ClusterUnreachable: the target can't be reached.
    """
    topic = scratch_topic(mirror)
    # With as many replicas as the ledger: a cluster may have a number that every topic must have.
    missing = scratch.create(target, NewTopicSpec(topic, 1, replicas_on(target), scratch.CONFIGS))
    if missing is not None:
        return Capabilities(note=f"nothing could be tried out, because there is no scratch topic: {missing}")
    ours = scratch.id_once_known(target, topic)
    lacks: list[str] = []
    markers, prime, note, keeps_policy = "unknown", True, "", ""
    try:
        with WireCluster(target.config, client_id=f"airflow-mirror.{mirror}.probe", timeout_s=30.0) as wire:
            markers, prime = _try_all(wire, mirror, TopicPartition(topic, 0), lacks, keeps_offsets)
        if compacts:  # only now: what was tried gave every broker the time to hear of the topic
            refused = target.refused_configs({topic: NewConfigs({"cleanup.policy": "compact"})}).get(topic)
            keeps_policy = words(refused) if judged(refused) else ""
    except MirrorError as e:
        ours_still = ours in (None, scratch.id_of(target, topic))  # None: nobody had heard of it yet
        if not isinstance(e, TryAgain) and ours_still:
            raise
        note = f"not everything could be tried out on the target: {e}"
    finally:
        left = scratch.delete(target, topic) if ours in (None, scratch.id_of(target, topic)) else None
    if left is not None:
        note = f"{note}{' ' if note else ''}The scratch topic {topic!r} was left behind: {left}"
    return Capabilities(markers=markers, prime=prime, lacks=tuple(lacks), note=note, keeps_policy=keeps_policy)


def _try_all(
    wire: WireCluster, mirror: str, tp: TopicPartition, lacks: list[str], keeps_offsets: bool
) -> tuple[str, bool]:
    """Test each step; return how holes can be padded, and whether a log can be primed."""
    if not _allowed(lacks, lambda: _write(wire, tp)):
        # Rights may be limited to some topics by name: an error on the scratch topic says nothing about those.
        return "unknown", True
    _allowed(lacks, lambda: _read(wire, tp))
    client = TransactionClient(wire, marker_id(mirror, tp))
    markers = "none"
    producer: list[tuple[int, int]] = []
    if _allowed(lacks, lambda: producer.append(_coordinator_marker(client, tp))):
        markers = "coordinator"
    if not keeps_offsets:
        return markers, True
    # Another id would need the same right; with this one the test does exactly what padding does.
    if producer and _allowed(lacks, lambda: _direct_markers(wire, tp, *producer[0])):
        markers = "direct"
    return markers, _allowed(lacks, lambda: _delete_records(wire, tp))


def _direct_markers(wire: WireCluster, tp: TopicPartition, producer_id: int, epoch: int) -> None:
    """Write two markers without the coordinator, with its epoch."""
    write_txn_markers(wire, tp, producer_id, epoch, 2, coordinator_epoch_of(wire, tp, producer_id))


def _allowed(lacks: list[str], step: Callable[[], object]) -> bool:
    """Run a step and record what it lacks. A temporary error that lasts is raised, because it proves nothing.

    It may be run several times: a leader that was elected just now does not know its topic for a moment, nor does
    another broker, and what a step leaves in the scratch topic does not matter.
    """
    backoff = Backoff(_SETTLED_WITHIN_S)
    while True:
        try:
            step()
            return True
        except ApiNotServed as e:
            lacks.append(f"{e.api}: {e.address} {e.serves}")
            return False
        except MissingRight as e:
            if e.acl is None:  # of no step that could tell what to grant
                raise
            if (needed := _needed(e.acl)) not in lacks:  # markers in bulk need READ too, to read the coordinator epoch
                lacks.append(needed)
            return False
        except (TryAgain, UnknownTopic):
            if backoff.expired:
                raise
        backoff.pause()


def _needed(acl: NeededAcl) -> str:
    """Name the right to grant: a copy needs it for all its ids and topics, not for the scratch ones."""
    if acl.resource == "transactional id":
        prefix = acl.name.partition(SCRATCH_PREFIX)[0]
        return f"WRITE on transactional ids that begin with {prefix!r}"  # it includes DESCRIBE, which is checked first
    operation = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", acl.operation.split()[0]).upper()
    return f"{operation} on the {acl.resource}" if acl.resource == "cluster" else f"{operation} on the target's topics"


def _write(wire: WireCluster, tp: TopicPartition) -> None:
    now_ms = int(time.time() * 1000)  # retention would delete an old record before it is read
    record = Record(0, now_ms, b"airflow-mirror", b"probe", [])
    answer = produce_one(wire, tp, wire_records.encode([record], 0, _PRODUCER_ID, 0, 0))
    if answer.error:
        raise refusal(f"Produce to {tp}", answer.error, "Write", tp.topic, wire.settings.principal)


def _read(wire: WireCluster, tp: TopicPartition) -> None:
    answer = fetch_one(wire, tp, 0, isolation=READ_UNCOMMITTED)
    if answer.error:
        raise refusal(f"Fetch {tp}", answer.error, "Read", tp.topic, wire.settings.principal)


def _coordinator_marker(client: TransactionClient, tp: TopicPartition) -> tuple[int, int]:
    producer_id, epoch = client.init(_TIMEOUT_MS)
    client.write_marker(tp, producer_id, epoch)
    return producer_id, epoch


def _delete_records(wire: WireCluster, tp: TopicPartition) -> None:
    wire.delete_records({tp: -1}, unfenced)
