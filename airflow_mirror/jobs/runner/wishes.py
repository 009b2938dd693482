"""What people wish of a mirror's copy, whichever job carries it out: that it rests, or copies at another rate.

A wish is about the mirror, not about a job: it stands in the target's state until it is taken back, and a tail that is
started anywhere reads it before it copies. Each kind has a key of its own, so that nobody who sets one has to read the
other. Of two people who set the same one, the later record counts. They have a topic of their own.
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from airflow_mirror.errors import MirrorPaused
from airflow_mirror.jobs.runner import process
from airflow_mirror.ledger.kinds import known
from airflow_mirror.ledger.records import WISH
from airflow_mirror.ledger.state import State


@dataclass(frozen=True, kw_only=True)
class Wish:
    """Who wishes something, and since when, by that person's clock.

    :param max_bytes_per_second: of a wish for a rate: the rate, or None for no limit.
    """

    by: str
    at: str
    max_bytes_per_second: int | None = None

    @classmethod
    def now(cls, max_bytes_per_second: int | None = None, by: str = "") -> Wish:
        """Return one of now. :param by: whose; "": of whoever runs this process."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(by=by or f"{_user()}@{process.hostname()}", at=at, max_bytes_per_second=max_bytes_per_second)

    def __str__(self) -> str:
        """As in "paused by ann@host since ..."."""
        return f"by {self.by} since {self.at}"


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is wished of one mirror.

    :param pause: nothing is to be copied. :param rate: another rate than the Mirror's.
    """

    pause: Wish | None = None
    rate: Wish | None = None

    @classmethod
    def of(cls, values: Mapping[str, bytes], mirror: str) -> Wishes:
        """Return what the target's state says.

        :raises LedgerNewer: a newer version of the package wrote it.
        """
        return cls(**{kind: WISH.load(known(Wish), values, mirror, kind) for kind in ("pause", "rate")})

    def rate_or(self, default: float | None) -> float | None:
        """Return the wished rate, in bytes per second, or else the Mirror's own; None for no limit."""
        return default if self.rate is None else self.rate.max_bytes_per_second

    def lines(self) -> list[str]:
        """Return what a person should know."""
        said = [] if self.pause is None else [f"paused {self.pause}: nothing is copied"]
        if self.rate is not None:
            rate = self.rate.max_bytes_per_second
            said.append(f"rate set to {'no limit' if rate is None else f'{rate:,} bytes per second'} {self.rate}")
        return said


def wish(state: State, mirror: str, kind: str, value: Wish | None) -> None:
    """Set a wish, or take it back with None. A tail that runs hears it within two seconds.

    :param kind: ``pause`` or ``rate``.
    """
    state.write({WISH.key(mirror, kind): None} if value is None else WISH.put(asdict(value), mirror, kind))


def require_not_paused(state: State, mirror: str) -> Wishes:
    """Return what is wished of a mirror, unless that is to rest.

    :raises MirrorPaused: it is, by whom and since when.
    """
    wishes = Wishes.of(state.read(), mirror)
    if wishes.pause is not None:
        raise MirrorPaused(mirror, wishes.pause.by, wishes.pause.at)
    return wishes


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "somebody"
