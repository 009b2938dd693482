"""A copy of a ledger outside of its cluster, and the way back.

An export holds every record at its offset, so that a restored ledger is the same one: versions go on where they were, and
a writer that read the old one can't overwrite what the new one decides. The new topic has another id. Until the last
decision of a restore names it, the ledger counts as lost, so that nobody decides in half of it.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflow_mirror.errors import InputError, LedgerLost, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.fold import Fold, timeless
from airflow_mirror.ledger.log import DecisionLog

_VERSION = 1
_PATIENCE_S = 120.0
_GIVE = "Give what 'airflow-mirror ledger export' has written."
_PAUSE_S = 0.2


def export(target: ClusterAdmin) -> dict[str, Any]:
    """Return the ledger of a cluster, as JSON has it.

    :raises LedgerMissing: there is none. :raises LedgerLost: it is not what it was; an older export is worth more.
    """
    # First: what is not whole must not take the place of an older export that is.
    Ledger(target).values()
    return {
        "v": _VERSION,
        "exported_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cluster_id": target.cluster_id(),
        # Read behind that look. What is decided in between is in it as well: a log is whole at each of its ends.
        "records": [None if value is None else base64.b64encode(value).decode() for value in _records(target)],
    }


def restore(target: ClusterAdmin, exported: Mapping[str, Any]) -> int:
    """Write an export into a cluster that has no ledger; return the number of records.

    A restore that was cut short is continued by the next one.

    :raises InputError: this is no export of a ledger, or the topic holds something else. Nothing was touched.
    :raises TryAgain: records could not be written within two minutes.
    """
    records = _checked(exported)
    # The order: topic, records, and last the decision that names the topic's new id. A process that dies before that
    # leaves a ledger that everybody takes for lost, in which nobody decides; the next call compares what is there, and
    # goes on.
    ledger, log = Ledger(target), DecisionLog(target.wire)
    ledger.create_topic()
    ledger.topic()
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        # Read again for each round: an append without an answer may have got in. If two restore at once, records come
        # twice: the comparison sees it, and a person deletes the topic. No harm is done, since nobody goes by it yet.
        present = _records(target)
        if present != records[: len(present)]:
            raise InputError(
                "the target's topic 'airflow-mirror.decisions' holds records that are not in the export",
                f"it has {len(present)} of its own, and the export {len(records)}",
                "If they are worth nothing, delete the topic and restore again; if it is the present ledger, nothing has "
                "to be restored.",
            )
        if len(present) == len(records):
            break
        if time.monotonic() > deadline:
            raise TryAgain(
                "the ledger is not restored",
                f"it holds {len(present)} of {len(records)} records after {_PATIENCE_S:.0f} s",
                "Restore it again: what is there already stays.",
            )
        for value in records[len(present) :]:
            # One by one, each behind the answer to the last: every record must come to lie at its old offset, by which
            # later decisions name it. Where the old log had a marker an empty record takes its offset, which is noise
            # to every reader.
            if log.append(value or b"") is None:  # look first: it may be there nevertheless
                time.sleep(_PAUSE_S)
                break
    # The last line on purpose: from here on it counts, as a whole.
    ledger.adopt()
    return len(records)


def _records(target: ClusterAdmin) -> list[bytes | None]:
    """Return the value at each offset. A marker's offset has none, and nor has what is no decision to any reader.

    Where it is restored, brokers append it at another time: so it says what became of its deadline.
    """
    values: list[bytes | None] = []
    for offset, value, appended_ms in DecisionLog(target.wire).read(0):
        values += [None] * (offset - len(values))
        values.append(timeless(value, appended_ms) or None)
    return values


def _checked(exported: Mapping[str, Any]) -> list[bytes | None]:
    """Return the records of an export that can be read by all."""
    fold = Fold()
    try:
        if exported["v"] != _VERSION:
            raise ValueError(f"version {exported['v']}")
        records = [None if text is None else base64.b64decode(text, validate=True) for text in exported["records"]]
        # As each reader will fold it: an export that lacks a decision which a later one names is refused here, before
        # there is a topic.
        for offset, value in enumerate(records):
            fold.apply(offset, value)
    except (KeyError, TypeError, ValueError, LedgerLost) as e:
        raise InputError("this is no complete export of a ledger", f"{e!r}. Nothing was touched", _GIVE) from e
    if not fold.values:
        raise InputError("this export of a ledger", "it holds no decision. Nothing was touched", _GIVE)
    return records
