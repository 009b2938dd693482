"""A process that copies what its driver deals to it, one task after the other; :mod:`.workers` starts it.

Orders are lines of JSON on standard input, the results of a task are one line on standard output. Settings come that way
too: arguments and environment can be read by others. When the input ends, and the kernel ends it for a driver that was
killed, the task ends as if it had been asked to: requests in flight are finished, and nothing new is sent.

Signals for the whole process group (Ctrl-C, a service manager) are the driver's, which ends its workers.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from airflow_mirror.config import Handover
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.task import copy_ranges, work_from_json
from airflow_mirror.jobs.runner.status import blame


def main() -> int:
    """Carry out tasks until standard input ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no answer
    tasks, ending = SimpleQueue[dict[str, Any] | None](), threading.Event()
    threading.Thread(target=_hear, args=(tasks, ending), name="orders", daemon=True).start()
    while (task := tasks.get()) is not None:
        try:
            print(json.dumps(_carry_out(task, ending)), file=answers, flush=True)
        except BrokenPipeError:  # the driver was killed meanwhile
            break
    return 0


def _hear(tasks: SimpleQueue[dict[str, Any] | None], ending: threading.Event) -> None:
    try:
        for line in sys.stdin:
            order = json.loads(line)
            if order is None:
                ending.set()
            else:
                ending.clear()  # the driver has the last task's results: who ended it did not mean this one
                tasks.put(order)
    except ValueError:  # a driver that is killed may have written half a line
        logging.getLogger(__name__).info("the last order is cut: the driver was killed")
    finally:
        ending.set()
        tasks.put(None)


def _carry_out(task: dict[str, Any], ending: threading.Event) -> dict[str, Any]:
    try:
        Handover(task["settings"]).accept()
        ranges = [CopyRange(**one) for one in task["ranges"]]
        work = replace(work_from_json(task["work"]), report_to=task["report_to"])
        results = copy_ranges(work, ranges, task["duration_s"], ending.is_set)
    except Exception as e:  # the rim of this process: the driver decides
        logging.getLogger(__name__).info("a task failed", exc_info=True)
        return {"error": f"{type(e).__name__}: {e}", "blame": blame(e)}
    return {"results": [one.to_dict() for one in results]}


if __name__ == "__main__":
    sys.exit(main())
