"""Turn errors of the mirror into outcomes of a task. No other module does that.

Wrong input and corrupt data fail the task at once, whatever its ``retries`` are, because a retry can't change them. A
temporary condition (a broker is down, a job was killed) stays an ordinary error, and Airflow retries it.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_mirror.errors import InputError, MirrorError, NeedsHuman
from airflow_mirror.wording import folded

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)
_SEEN = 84  # columns of an error in the UI's log, in a window of 1280 pixels; what is longer leaves the panel, unseen


def outcome_of(error: MirrorError) -> AirflowException:
    """Return the Airflow exception for ``error``; the message has the error's three parts, a line each."""
    final = isinstance(error, (InputError, NeedsHuman))
    said = folded(f"{type(error).__name__}: {error.lines}", _SEEN)
    return (AirflowFailException if final else AirflowException)(said)


@contextmanager
def task_outcome() -> Iterator[None]:
    """Run a task's work; raise a :class:`MirrorError` as the Airflow exception that decides about a retry."""
    try:
        yield
    except MirrorError as e:
        log.debug("where it was raised", exc_info=e)
        raise outcome_of(e) from None  # its three lines say it all: a traceback of ours would hide them
