"""What an older tool wrote after its last commit: where a mirror that takes over from it has to begin.

The first MirrorMaker and the Go mirror maker commit, every minute or so, how far they have read, after everything up to
there was acknowledged. If they are killed, the target holds records behind that position, and whoever begins at the
position writes them again. They are found by their digests: the records from the position on of which the target has a
copy, in the partition of the same number or, where the tool chose partitions by key, in any of the topic's.

Nothing is guessed. What several readings would explain is refused: records that are equal to one another, copies behind
a gap, a target on which the last committed record can't be found.

Pure: digests in, an offset out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LOOK_AHEAD = 10_000
"""Records behind the first one without a copy that are looked at: a copy of one of them would be behind a gap."""


@dataclass(frozen=True)
class Overlap:
    """What the target holds of a source partition from the committed position on.

    :param start: the first offset to copy.
    :param copies: records below it, from the position on: they are on the target already.
    :param behind_gap: records above it that are on the target as well. With an honest tool there are none.
    :param equal: an offset whose record is equal to another one, so that the copies can't be told apart; None: none.
    """

    start: int
    copies: int = 0
    behind_gap: int = 0
    equal: int | None = None


def is_spread(before: Iterable[int], here: Mapping[int, int], anywhere: Mapping[int, int]) -> bool:
    """Return whether the tool chose other partitions than the source's: it has put committed records into them.

    :param before: digests of the source's records before the position.
    :param here: what the target's partition of the same number holds. :param anywhere: and all of its partitions.
    """
    return any(digest in anywhere and digest not in here for digest in before)


def overlap(
    before: Iterable[int], after: Iterable[tuple[int, int]], there: Mapping[int, int], position: int, end: int
) -> Overlap:
    """Return what the target holds of one source partition.

    :param before: digests of the source's records before the position, as far back as the target's are in ``there``.
    :param after: offset and digest of each record from the position on, in order.
    :param there: how many records of the target have a digest; those that may be copies of this partition's.
    :param position: the committed one. :param end: the source's end, where ``after`` ends.
    """
    known = set(before)
    copies, start, behind, ahead = 0, -1, 0, 0
    for offset, digest in after:
        one_of_several, held = digest in known, there.get(digest, 0) > 0
        known.add(digest)
        if start < 0 and held and one_of_several:
            return Overlap(offset, copies, equal=offset)
        if start < 0 and held:
            copies += 1
        elif start < 0:
            start = offset if copies else position
        else:
            behind += held and not one_of_several
            ahead += 1
            if ahead >= LOOK_AHEAD:
                break
    return Overlap(end if start < 0 else start, copies, behind)
