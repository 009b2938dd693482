"""A process of writers: each adds 1 to one of three counters again and again. Prints what they were told, as JSON.

Usage: ``python ledger_writer.py BOOTSTRAP WRITERS TIMES``
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from airflow_mirror.config import ClientConfig
from airflow_mirror.ledger.deciding import decide
from airflow_mirror.ledger.fold import Fold
from airflow_mirror.ledger.log import DecisionLog
from airflow_mirror.wire.cluster import WireCluster

PATIENCE_S = 240.0


def main() -> None:
    """Run the writers and print how often each counter was raised, and how long each decision took in ms."""
    bootstrap, writers, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    added: Counter[str] = Counter()
    took_ms: list[int] = []

    def write() -> None:
        config = ClientConfig({"bootstrap.servers": bootstrap}, "target")
        with WireCluster(config) as target:
            log, fold = DecisionLog(target), Fold()
            for _ in range(times):
                begun = time.monotonic()
                key = random.choice("abc")

                def change(fold: Fold, key: str = key) -> Mapping[str, Any]:
                    return {key: fold.values.get(key, 0) + 1}

                def again(until: float = begun + PATIENCE_S) -> bool:
                    time.sleep(random.uniform(0, 0.05))
                    return time.monotonic() < until

                assert decide(log, fold, change, again) is not None
                added[key] += 1
                took_ms.append(round(1000 * (time.monotonic() - begun)))

    threads = [threading.Thread(target=write) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"added": added, "took_ms": sorted(took_ms)}))


if __name__ == "__main__":
    main()
