"""Translates an offset that is kept outside Kafka, in a database or in checkpoints of Flink or Spark.

    python -m airflow_mirror.jobs.translate --map-dir DIR TOPIC PARTITION OFFSET

Prints one JSON object with both directions: OFFSET as a source offset, and as a target offset. It reads only the stored
map, which is complete up to ``source_end``: run it after the copy has ended, or after a translation of groups, which
completes the map. Exit status 0; 1 when there is no map; 2 for bad arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from airflow_mirror.copy.offsets.map import Translated
from airflow_mirror.copy.offsets.store import MapStore


def main(argv: Sequence[str]) -> int:
    """Run the command; see the module docstring."""
    parser = argparse.ArgumentParser(prog="airflow_mirror.jobs.translate", description=__doc__.splitlines()[0])
    parser.add_argument("--map-dir", required=True, metavar="DIR", help="the mirror's offset maps: a directory or a URL")
    parser.add_argument("topic", help="topic name on the target")
    parser.add_argument("partition", type=int)
    parser.add_argument("offset", type=int, help="next-to-read position")
    arguments = parser.parse_args(argv)
    key = f"{arguments.topic}/{arguments.partition}"
    found = MapStore(arguments.map_dir).load(key)
    if found is None:
        print(f"error: no offset map of {key} below {arguments.map_dir}", file=sys.stderr)
        return 1
    answer = {
        "topic": arguments.topic, "partition": arguments.partition, "offset": arguments.offset,
        "to_target": _shown(found.to_target(arguments.offset)), "to_source": _shown(found.to_source(arguments.offset)),
        "source_start": found.source_start, "source_end": found.source_end,
        "target_start": found.target_start, "target_end": found.target_end, "segments": len(found),
    }  # fmt: skip
    print(json.dumps(answer))
    return 0


def _shown(found: Translated) -> dict[str, Any]:
    return {"offset": found.offset, "found": found.where.value}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
