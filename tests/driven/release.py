"""What differs between the releases that a driven cluster can be, as far as the conformance suite has shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_METADATA, _DESCRIBE_LOG_DIRS, _DESCRIBE_TRANSACTIONS = 3, 35, 65


@dataclass(frozen=True)
class Release:
    """One release.

    :param newest: API key -> its newest version where that is less than our handler's; -1 where it does not serve it.
    :param verifies: a transactional batch or offset must belong to a transaction that knows its partition (KIP-890).
    :param remembers_fenced: a producer whose open transaction was aborted by a takeover may still compare with its epoch.
    :param takes_append_time: the LogAppendTime bit on a topic of CreateTime is cleared, not refused.
    """

    version: str
    newest: Mapping[int, int] = field(default_factory=dict)
    verifies: bool = True
    remembers_fenced: bool = True
    takes_append_time: bool = True

    def served(self, handlers: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """Return which versions of what our handlers can do this release serves."""
        ranges = {
            key: (lowest, min(highest, self.newest.get(key, highest))) for key, (lowest, highest) in handlers.items()
        }
        return {key: (lowest, highest) for key, (lowest, highest) in ranges.items() if lowest <= highest}


RELEASES = {
    release.version: release
    for release in (
        Release("4.3.1"),
        Release("2.8.2", {_METADATA: 11, _DESCRIBE_LOG_DIRS: 2, _DESCRIBE_TRANSACTIONS: -1}, False, False, False),
    )
}
