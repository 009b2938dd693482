"""A second opinion on a comparison: records sampled at random, and every difference, read with confluent-kafka alone.

It shares no code with what copies and compares: no wire client, no decoder, no verifier. A mistake that the copy and the
comparison have in common would show here. It sees what an application sees, a few dozen records of it.

The place in the log is drawn, not the record: what is read is the first record at or behind it. A report may be kept for
years, and records may be confidential: what differs is told by lengths and digests.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from operator import methodcaller
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InputError
from airflow_mirror.wording import count

_NO_KERBEROS = "No provider for SASL mechanism GSSAPI"  # librdkafka's wheels have none
_SILENCE_S = 30.0
_POLL_S = 0.1
_AT_ONCE = 4  # clients of each cluster
_FIELDS = ("key", "value", "headers", "timestamp")
_UNREAD = "with a name that is not UTF-8"  # in place of a record's headers
# The client returns such headers as if nothing were wrong, with an error set. This raises it: Python checks here what a
# call returned. Where Python has specialised ``message.headers()``, it does not, and whatever comes next would raise it.
_ask_for_headers = methodcaller("headers")

Row = tuple[Any, ...]
"""A record's fields, in the order of :data:`_FIELDS`."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Offsets of one partition, equal on both sides, from which places are drawn.

    :param start: first offset. :param end: exclusive.
    :param may_lack: the target may have lost records of it by now: its log cleaner, or its retention, is at work.
    """

    source: TopicPartition
    target: TopicPartition
    start: int
    end: int
    may_lack: bool = False


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a comparison has found a difference.

    :param source_offset: the offset on the source, ``target_offset`` on the target.
    :param corrupt: a batch there could not be read.
    """

    source: TopicPartition
    source_offset: int
    target: TopicPartition
    target_offset: int
    corrupt: bool = False


@dataclass(frozen=True, kw_only=True)
class SpotCheck:
    """What an independent client found.

    :param seed: draws the same places again. :param records: compared on both sides, field by field.
    :param gone: drawn records that the target may lack, and lacks.
    :param differences: a line for each. :param left_out: what was not looked at, and why.
    :param failed: why the check fell out; empty: it did not.
    """

    seed: int
    records: int = 0
    gone: int = 0
    differences: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failed: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return asdict(self)


def spot_check(
    stretches: Sequence[Stretch], source: ClientConfig, target: ClientConfig, *, places: int, seed: int, isolation: str
) -> SpotCheck:
    """Draw places by lot, evenly over all offsets, and compare the records behind them.

    A client that can't be made or hears nothing is said in ``failed``; with Kerberos in ``left_out``.

    :param places: how many are drawn; fewer records if several lie before the same one.
    :param isolation: ``read_committed`` or ``read_uncommitted``, as the mirror reads.
    """
    from confluent_kafka import KafkaException

    rounds = list(_drawn(stretches, places, random.Random(seed)))
    seen: dict[tuple[TopicPartition, int], tuple[Row, Row | None]] = {}
    gone = set[tuple[TopicPartition, int]]()
    try:
        # A client that is told to read elsewhere waits for most of its time.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for found, lacking in pool.map(
                lambda its: _read(its, source, target, isolation),
                [its for n in range(_AT_ONCE) if (its := rounds[n::_AT_ONCE])],
            ):
                seen |= found
                gone |= lacking
    except (KafkaException, TimeoutError) as e:
        said = _said(e, source, target)
        return SpotCheck(seed=seed, left_out=[said]) if _NO_KERBEROS in said else SpotCheck(seed=seed, failed=said)
    differences = [line for (tp, offset), rows in sorted(seen.items()) if (line := _difference(tp, offset, *rows))]
    unread = sum(_are_headers_unread(*rows) for rows in seen.values())
    left_out = [f"headers of {count(unread, 'record')} {_UNREAD}, which the client can't read"] if unread else []
    return SpotCheck(seed=seed, records=len(seen), gone=len(gone), differences=differences, left_out=left_out)


def _read(
    rounds: Sequence[Mapping[Stretch, int]], source: ClientConfig, target: ClientConfig, isolation: str
) -> tuple[dict[tuple[TopicPartition, int], tuple[Row, Row | None]], set[tuple[TopicPartition, int]]]:
    """Return the record behind each place on both sides, and of which the target has none and may lack it."""
    seen: dict[tuple[TopicPartition, int], tuple[Row, Row | None]] = {}
    gone = set[tuple[TopicPartition, int]]()
    with closing(_Reader(source, isolation)) as here, closing(_Reader(target, isolation)) as there:
        for drawn in rounds:
            first = here.first({one.source: (place, one.end) for one, place in drawn.items()})
            by_source = {one.source: one for one in drawn}
            copies = there.first({by_source[tp].target: (offset, offset + 1) for tp, (offset, _) in first.items()})
            for tp, (offset, row) in first.items():
                one = by_source[tp]
                copy = copies.get(one.target)
                if copy is None and one.may_lack:
                    gone.add((tp, offset))
                else:
                    seen[tp, offset] = row, None if copy is None else copy[1]
    return seen, gone


def require_clients(*clusters: ClientConfig) -> None:
    """Return if librdkafka takes the settings of each cluster, or lacks Kerberos alone. Nothing is asked.

    :raises InputError: it does not: a check with it would fall out, hours later.
    """
    from confluent_kafka import KafkaException

    for cluster in clusters:
        try:
            _Reader(cluster, "read_committed").close()
        except KafkaException as e:
            if _NO_KERBEROS not in (said := _said(e, cluster)):
                raise InputError(
                    f"{cluster.role} settings", said, "Correct them, or leave the spot check out (--spot-checks 0)."
                ) from None


def second_look(
    places: Sequence[Place], source: ClientConfig, target: ClientConfig, *, isolation: str
) -> list[str]:  # fmt: skip
    """Return what an independent client finds at each place of a difference, in words that go on from "it".

    :param places: at most one of each partition. :param isolation: as for :func:`spot_check`.
    """
    # A batch that is damaged ends a client's reading, so each of those is asked for alone.
    whole = [one for one in places if not one.corrupt]
    found = dict[Place, str]()
    for some in [whole, *([one] for one in places if one.corrupt)]:
        found |= _seen(some, source, target, isolation)
    return [found[one] for one in places]


def _said(e: Exception, *clusters: ClientConfig) -> str:
    """Return why there is nothing to read, without a secret."""
    said: Any = e.args[0] if e.args else e
    text = str(said.str() if hasattr(said, "str") else said)
    for secret in (secret for cluster in clusters for secret in cluster.secrets()):
        text = text.replace(secret, "***")
    return f"an independent client (librdkafka) could not read: {text.rstrip('. ')}"


def _seen(some: Sequence[Place], source: ClientConfig, target: ClientConfig, isolation: str) -> dict[Place, str]:
    from confluent_kafka import KafkaException

    if not some:
        return {}
    try:
        with closing(_Reader(source, isolation)) as here, closing(_Reader(target, isolation)) as there:
            rows = here.first({one.source: (one.source_offset, one.source_offset + 1) for one in some})
            copies = there.first({one.target: (one.target_offset, one.target_offset + 1) for one in some})
    except (KafkaException, TimeoutError) as e:
        return dict.fromkeys(some, _said(e, source, target))
    found = dict[Place, str]()
    for one in some:
        row, copy = rows.get(one.source), copies.get(one.target)
        if row is None and copy is None:
            found[one] = "an independent client finds no record there on either side"
        else:
            of_source, of_target = row and row[1], copy and copy[1]
            same = "reads the same record on both sides"
            if _are_headers_unread(of_source, of_target):
                same += f", but can't read its headers, {_UNREAD}"
            found[one] = f"an independent client {_differs(of_source, of_target) or same}"
    return found


def _drawn(stretches: Sequence[Stretch], places: int, lot: random.Random) -> Iterator[dict[Stretch, int]]:
    """Yield rounds with at most one place of each stretch; a long one has more of them than a short one."""
    some = [one for one in stretches if one.end > one.start]
    weights = [one.end - one.start for one in some]
    left: dict[Stretch, list[int]] = {}
    for one in lot.choices(some, weights, k=places) if some else ():
        left.setdefault(one, []).append(lot.randrange(one.start, one.end))
    while left:
        yield {one: drawn.pop() for one, drawn in left.items()}
        left = {one: drawn for one, drawn in left.items() if drawn}


class _Reader:
    """Reads single records, of many partitions at a time."""

    def __init__(self, cluster: ClientConfig, isolation: str) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(
            {
                **cluster.common(),
                "group.id": "airflow-mirror-referee",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
                "check.crcs": True,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "fetch.message.max.bytes": 65_536,
                "queued.min.messages": 1,
                "fetch.queue.backoff.ms": 1,
            }  # fmt: skip
        )

    def first(self, places: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, tuple[int, Row]]:
        """Return the first record in [place, end) of each partition, with its offset; nothing where there is none.

        :raises KafkaException: what the client reports. :raises TimeoutError: it hears nothing for half a minute.
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka import TopicPartition as Assigned

        self._consumer.assign([Assigned(tp.topic, tp.partition, place) for tp, (place, _) in places.items()])
        found: dict[TopicPartition, tuple[int, Row]] = {}
        waiting, heard = set(places), time.monotonic()
        while waiting:
            message = self._consumer.poll(_POLL_S)
            error = None if message is None else message.error()
            # It is told where to read, and commits nothing. The client asks for its group's coordinator all the same.
            if error and error.code() not in (KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED):
                raise KafkaException(error)
            tp = None if message is None else TopicPartition(message.topic(), message.partition())
            if tp not in waiting:
                if time.monotonic() - heard > _SILENCE_S:
                    raise TimeoutError(f"no record and no end of the log of {min(waiting)} in {_SILENCE_S:.0f} s")
                continue
            heard = time.monotonic()
            waiting.discard(tp)
            # Others would wait behind the rest of its records. A paused one would still be paused when assigned again.
            self._consumer.incremental_unassign([Assigned(*tp)])
            # Behind the end of a log the client begins anew at its start.
            if error is None and places[tp][0] <= message.offset() < places[tp][1]:
                _, at_ms = message.timestamp()
                found[tp] = message.offset(), (message.key(), message.value(), _headers(message), at_ms)
        return found

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def _headers(message: Any) -> Any:
    """Return a record's headers; :data:`_UNREAD` if one has a name that is not UTF-8, which brokers take."""
    try:
        return _ask_for_headers(message)
    except (SystemError, UnicodeDecodeError):
        # Asked once more, it returns a list in which the name is no object of Python.
        return _UNREAD


def _are_headers_unread(source: Row | None, target: Row | None) -> bool:
    at = _FIELDS.index("headers")
    return source is not None and target is not None and source[at] == target[at] == _UNREAD


def _difference(tp: TopicPartition, offset: int, source: Row, target: Row | None) -> str:
    """Return what an independent client sees differently; "" if nothing."""
    what = _differs(source, target)
    return f"{tp} offset {offset}: an independent client {what}" if what else ""


def _differs(source: Row | None, target: Row | None) -> str:
    if source is None or target is None:
        return f"finds no record on the {'target' if target is None else 'source'}"
    parts = [
        f"{name} {_digest(a)} on the source, {_digest(b)} on the target"
        for name, a, b in zip(_FIELDS, source, target, strict=True)
        if a != b
    ]
    return f"reads {'; '.join(parts)}" if parts else ""


def _digest(value: object) -> str:
    if value is None or isinstance(value, int) or value == _UNREAD:
        return str(value)
    content = value if isinstance(value, bytes) else repr(value).encode()
    return f"{len(content)} bytes {hashlib.sha256(content).hexdigest()[:12]}"
