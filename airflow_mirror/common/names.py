"""Where a long name may go on in the next line: behind its separators, so that no word is broken."""

from __future__ import annotations

import re
from collections.abc import Iterator

_PIECE = re.compile(r"[^._\-/:,;=]*[._\-/:,;=]*")
LONGEST = 24  # letters of what is never broken


def pieces(name: str, longest: int = LONGEST) -> Iterator[str]:
    """Yield the parts of a name, each with the separators behind it; one that is longer than that, in parts of that."""
    for found in _PIECE.findall(name):
        for start in range(0, len(found), longest):
            yield found[start : start + longest]
