"""Translates an offset that is kept outside Kafka, in a database or in checkpoints of Flink or Spark.

    python -m airflow_mirror.jobs.translate --target FILE --name MIRROR TOPIC PARTITION OFFSET

Prints one JSON object with both directions: OFFSET as a source offset, and as a target offset. It reads only the stored
map, which is complete up to ``source_end``; a copy stores its maps once a minute, and when it ends. For a target offset
behind the last mirrored record it looks whether others have written there. Exit status 0; 1 when there is no map, or the
target can't be read; 2 for bad arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from airflow_mirror.config import load
from airflow_mirror.copy.offsets.map import Translated
from airflow_mirror.copy.offsets.reader import MapReader
from airflow_mirror.errors import MirrorError, NoOffsetMap
from airflow_mirror.sync.maps import mapped_range, place, place_back
from airflow_mirror.wire.cluster import WireCluster


def main(argv: Sequence[str]) -> int:
    """Run the command; see the module docstring."""
    parser = argparse.ArgumentParser(prog="airflow_mirror.jobs.translate", description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True, metavar="FILE", help="the cluster that holds the copy, as for a job")
    parser.add_argument("--name", required=True, metavar="MIRROR", help="name of the mirror that made the copy")
    parser.add_argument("topic", help="topic name on the target")
    parser.add_argument("partition", type=int)
    parser.add_argument("offset", type=int, help="next-to-read position")
    arguments = parser.parse_args(argv)
    one = mapped_range("", arguments.topic, arguments.partition)
    try:
        with WireCluster(load(arguments.target, "target")) as target:
            found = MapReader(arguments.name, [one.map_key]).load(target, one)
            if found is None:
                raise NoOffsetMap(f"{one.target} of mirror {arguments.name}")
            to_source = place_back(found, arguments.offset, target, one.target)
    except MirrorError as e:
        print(f"error: {e.lines}", file=sys.stderr)
        return 1
    answer = {
        "topic": arguments.topic, "partition": arguments.partition, "offset": arguments.offset,
        "to_target": _shown(place(found, arguments.offset)), "to_source": _shown(to_source),
        "source_start": found.source_start, "source_end": found.source_end,
        "target_start": found.target_start, "target_end": found.target_end, "segments": len(found),
    }  # fmt: skip
    print(json.dumps(answer))
    return 0


def _shown(found: Translated) -> dict[str, Any]:
    return {"offset": found.offset, "found": found.where.value}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
