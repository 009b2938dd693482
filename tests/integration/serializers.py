"""Applications that write and read by the serializers of confluent-kafka, which need an environment of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_MAIN = Path(__file__).with_name("serializer_main.py")
_PYTHON = Path(sys.prefix) / "serializers" / "bin" / "python"


def write(
    client: dict[str, str], registry: str, topic: str, kind: str, names: Sequence[str], *, in_headers: bool = False
) -> None:
    """Write a record for each name, which is its key too.

    :param client: librdkafka's settings; with a ``transactional.id`` in one transaction. :param registry: its address.
    :param kind: ``avro``, ``json`` or ``protobuf``. :param in_headers: ids are GUIDs in a header of each record.
    """
    _run(
        "write", client=client, registry=registry, topic=topic, kind=kind, names=list(names), in_headers=in_headers
    )  # fmt: skip


def read(client: dict[str, str], registry: str, topic: str, kind: str, group: str, count: int) -> list[str]:
    """Return the names of ``count`` records as a member of a group reads them, which then commits its offsets."""
    said = _run("read", client=client, registry=registry, topic=topic, kind=kind, group=group, count=count)
    return [str(name) for name in json.loads(said)]


def _run(action: str, **asked: Any) -> str:
    assert _PYTHON.exists(), "the serializers have no environment: make .venv/.serializers"
    done = subprocess.run(
        [_PYTHON, _MAIN, action], input=json.dumps(asked), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
