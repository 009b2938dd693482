"""What a driver tells a task that runs: to end, or to copy more partitions besides.

A line of JSON each, on the connection on which the task reports (`reporter`). They are numbered, and a report says up to
which number its task has taken them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """What one task is to do.

    :param number: higher than that of any before it.
    :param ranges: to copy as well; no other task has them.
    :param options: how, as far as that differs by topic. None: end, another turn is to begin.
    """

    number: int
    ranges: Sequence[CopyRange] = ()
    options: CopyOptions | None = None

    def to_line(self) -> bytes:
        """Return the line that says it."""
        return json.dumps(asdict(self), default=sorted).encode() + b"\n"  # a set of topics is a Collection too

    @classmethod
    def from_line(cls, line: bytes) -> Instruction:
        """Inverse of :meth:`to_line`.

        :raises ValueError: or LookupError, TypeError, if it is none.
        """
        values: dict[str, Any] = json.loads(line)
        ranges, options = tuple(CopyRange(**one) for one in values["ranges"]), values["options"]
        return cls(number=values["number"], ranges=ranges, options=None if options is None else CopyOptions(**options))
