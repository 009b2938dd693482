"""A process of writers: each adds 1 to one of three counters again and again. Prints what they were told, as JSON.

Usage: ``python ledger_writer.py BOOTSTRAP WRITERS TIMES [STEP]``. With a step of a decision one of the writers stops the
whole process there (SIGSTOP) when it is half-way through; somebody else lets it go on.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import TryAgain, Undecided
from airflow_mirror.ledger.deciding import decide
from airflow_mirror.ledger.fold import Fold
from airflow_mirror.ledger.log import DecisionLog
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Connection

PATIENCE_S = 600.0
STEPS = BEFORE_APPEND, BEFORE_ANSWER, BEFORE_READ_BACK = (
    "before the append",
    "before the answer",
    "before the read-back",
)


class SteppedLog(DecisionLog):
    """Stops the process at one step of the next decision once it is armed."""

    def __init__(self, target: WireCluster) -> None:
        super().__init__(target)
        self.step = ""
        self._appended = False

    def stop_at(self, step: str) -> None:
        if self.step == step:
            self.step = ""
            os.kill(os.getpid(), signal.SIGSTOP)

    def append(self, value: bytes) -> int | None:
        self.stop_at(BEFORE_APPEND)
        _appending.log = self
        try:
            return super().append(value)
        finally:
            _appending.log = None
            self._appended = True

    def read(self, start: int) -> Iterable[tuple[int, bytes | None, int]]:  # type: ignore[override]
        if self._appended:
            self.stop_at(BEFORE_READ_BACK)
        return super().read(start)


_appending = threading.local()
_receive = Connection.receive


def receive(connection: Connection, correlation_id: int) -> memoryview:
    """The request has left, and nobody has looked for its answer."""
    log = getattr(_appending, "log", None)
    if log is not None:
        log.stop_at(BEFORE_ANSWER)
    return _receive(connection, correlation_id)


def main() -> None:
    """Run the writers and print how often each counter was raised, and how long each decision took in ms."""
    bootstrap, writers, times, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [*sys.argv[4:], ""][0]
    Connection.receive = receive  # type: ignore[method-assign]
    added: Counter[str] = Counter()
    took_ms: list[int] = []

    def write(number: int) -> None:
        config = ClientConfig({"bootstrap.servers": bootstrap}, "target")
        with WireCluster(config) as target:
            log, fold = SteppedLog(target), Fold()
            for done in range(times):
                begun = time.monotonic()
                key = random.choice("abc")
                if number == 0 and done == times // 2:
                    log.step = step

                def change(values: Mapping[str, Any], key: str = key) -> Mapping[str, Any]:
                    return {key: values.get(key, 0) + 1}

                def again(until: float = begun + PATIENCE_S) -> bool:
                    time.sleep(random.uniform(0, 0.05))
                    return time.monotonic() < until

                while True:
                    try:
                        assert decide(log, fold, change, again) is not None
                        break
                    except Undecided:
                        raise
                    except TryAgain as e:  # nothing was changed
                        if not again():
                            raise
                        print(f"again: {e}", file=sys.stderr)
                added[key] += 1
                took_ms.append(round(1000 * (time.monotonic() - begun)))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"added": added, "took_ms": sorted(took_ms)}))


if __name__ == "__main__":
    main()
