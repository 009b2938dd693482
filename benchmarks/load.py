"""Produce at a steady pace, from memory: what a tail has to carry beside its probes.

Runs as a process of its own: ``python -m benchmarks.load SPEC`` with the JSON of :class:`Load`, until SIGTERM. A request
carries a batch for each partition, and none waits for its turn longer than the pace demands: who was held up catches up.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from dataclasses import asdict, dataclass

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.wire import produce
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import error_name
from benchmarks import records
from benchmarks.cases import TAILS

_TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class Load:
    """What one process produces.

    :param tail: name of the tail whose load it is. :param properties: librdkafka settings of the source.
    """

    tail: str
    properties: dict[str, str]

    def command(self) -> list[str]:
        """Return the command of the process."""
        return [sys.executable, "-m", "benchmarks.load", json.dumps(asdict(self))]


def run(load: Load) -> None:
    """Produce until the process is ended.

    :raises RuntimeError: a batch was refused; :raises MirrorError: the cluster is gone.
    """
    tail = next(tail for tail in TAILS if tail.name == load.tail)
    case = tail.load
    tps = [TopicPartition(case.topic, p) for p in range(case.partitions)]
    batches = itertools.cycle(records.ring(case))
    with WireCluster(ClientConfig(load.properties, "source"), client_id="benchmark") as cluster:
        cluster.refresh([case.topic])
        connection = cluster.dedicated(cluster.leader(tps[0]).node_id)
        due = time.monotonic()
        while True:
            request = {tp: next(batches) for tp in tps}
            number = connection.send(produce.API_KEY, produce.API_VERSION, produce.encode(request, _TIMEOUT_MS))
            _, answers = produce.decode(connection.receive(number))
            for answer in answers:
                if answer.error:
                    raise RuntimeError(f"{answer.tp}: {error_name(answer.error)} {answer.message}")
            due += sum(len(batch) for batch in request.values()) / (tail.load_mb_s * 1e6)
            time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    run(Load(**json.loads(sys.argv[1])))
