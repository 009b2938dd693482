"""The record of a cutover: rewritten before and after every change, so that a kill at any moment leaves evidence.

It is all that a cutover stores. A later process, perhaps on another host, reads from it what must be undone. Therefore
each intent is on the target before its effect (:mod:`.report_store`). It never holds a secret or a record.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from airflow_mirror.common.files import replace_file
from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.errors import InputError
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.ledger.kinds import known
from airflow_mirror.ledger.records import REPORT

JSON_NAME, HTML_NAME = "report.json", "report.html"
TARGET = "target_topic"  # in rows of groups' positions, which have both sides
_LAG_EVERY_S = 1.0

# Outcomes of an attempt as a whole.
# None of them decides anything: a report in RUNNING may be of a process that was lifted, or has opened. `fence/...`
# says it.
RUNNING, DONE, BACKED_OUT, UNDO_FAILED = "running", "cut_over", "backed_out", "undo_failed"
# States of an attempt, each of which a step leads to.
CAUGHT_UP, FENCED, PROVEN, DRAINED, ENDING, VERIFIED, GROUPS_MOVED, QUIET, SEALED, CUT_OVER = (
    "CAUGHT_UP", "FENCED", "PROVEN", "DRAINED", "ENDING", "VERIFIED", "GROUPS_MOVED", "QUIET", "SEALED", "CUT_OVER",
)  # fmt: skip


@dataclass(kw_only=True)
class StepRecord:
    """One step of one attempt. Times in seconds since the epoch; ``evidence`` is what the step found."""

    name: str
    status: str
    started: float
    seconds: float = 0.0
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class UndoneRecord:
    """One thing that was undone, or was to be.

    :param what: became of it. :param error: that kept it from being done; None: nothing did.
    """

    step: str
    what: str = ""
    ok: bool = True
    error: str | None = None

    def __str__(self) -> str:
        """Return what became of it, for a log."""
        return self.what if self.ok else str(self.error)

    def fail(self, error: Exception) -> None:
        """Note what kept it from being done."""
        self.ok, self.error = False, "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])


@dataclass(kw_only=True)
class FenceRecord:
    """The fence, for people, and for who has to lift it where the target's ledger is lost.

    :param intent: what raising it changes, as :func:`as_recorded`.
    :param name: as it was asked for, for people: ``acl``, or the path of a function.
    :param proof: what proves it: ``by`` and ``why``, see :mod:`airflow_mirror.cutover.proof`.
    :param proven: when it was first proven; seconds since the epoch.
    :param unseen: why transactions may register a fenced partition unseen, and write a marker into it later; then there
        is no way back at identical offsets. "": none can.
    :param requested: when the first change was about to be sent; seconds since the epoch.
    :param opened: when the target was opened, which ends the fenced time; seconds since the epoch.
    :param lifted: when the source was open again; None while it is fenced.
    :param kept: the fence stays on purpose after the cutover. So it says still once that fence was lifted.
    """

    kind: str
    intent: Mapping[str, Any]
    requested: float
    name: str = ""
    proof: dict[str, str] = field(default_factory=dict)
    proven: float | None = None
    unseen: str = "nobody has looked"
    opened: float | None = None
    lifted: float | None = None
    kept: bool = False

    @property
    def changes(self) -> Intent:
        """What raising it changed. A fence that was swapped since has changed more: that is decided in the ledger."""
        rest = {name: value for name, value in self.intent.items() if name != "topics"}
        return Intent.of(rest, self.intent["topics"])

    @property
    def is_kept(self) -> bool:
        """Whether it stays on purpose, and nobody has noted that it was lifted since."""
        return self.kept and self.lifted is None

    @property
    def ended(self) -> float | None:
        """When somebody could write to one of the clusters again; None while nobody can."""
        return min((moment for moment in (self.opened, self.lifted) if moment is not None), default=None)

    @property
    def seconds(self) -> float | None:
        """Seconds for which nobody could write to either cluster; None while that lasts."""
        return None if self.ended is None else max(0.0, self.ended - self.requested)


_json = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


def _object(values: Mapping[str, Any], made: Mapping[str, str]) -> str:
    """Return what :func:`_json` does; ``made`` are the texts of some values that are at hand."""
    return f"{{{','.join(f'{_json(name)}:{made.get(name) or _json(values[name])}' for name in sorted(values))}}}"


def place_of(row: Mapping[str, Any], topic: str = "topic") -> TopicPartition:
    """Return the partition of a report's row. :param topic: which of its keys names the topic; or :data:`TARGET`."""
    return TopicPartition(row[topic], row["partition"])


def as_recorded(intent: Intent) -> dict[str, Any]:
    """Return an intent with the topics of its plan by name, as JSON has it."""
    # Those that it is not about as well: its places count them.
    return {"topics": sorted({*intent.topics, *intent.others}), **intent.value()}


@dataclass(kw_only=True)
class GroupRecord:
    """How one consumer group moved.

    :param settled: why its positions are final: ``empty``, ``at the end`` or ``stood still``.
    :param source_state: Kafka's state of the group on the source when its positions were read.
    :param positions: rows of ``topic, partition, source_offset, target_topic, target_offset, lag, found`` (as in
        :class:`airflow_mirror.sync.group_translation.GroupMove`), and ``earlier``, target offsets that this cutover set
        before.
    :param before: rows of ``topic, partition, offset, metadata`` on the target before the commit.
    :param restored: it has got back what it had, and whoever moves it from then on is somebody else.

    Its rows stay as they were made: another round makes another record.
    """

    group: str
    settled: str
    source_state: str
    positions: list[dict[str, Any]] = field(default_factory=list)
    before: list[dict[str, Any]] = field(default_factory=list)
    committed: bool = False
    restored: bool = False

    @property
    def on_source(self) -> dict[TopicPartition, int]:
        """Its committed offsets on the source, by source partition."""
        return {place_of(row): row["source_offset"] for row in self.positions}

    @property
    def on_target(self) -> dict[TopicPartition, int]:
        """The offsets that it was given on the target, by target partition."""
        return {place_of(row, TARGET): row["target_offset"] for row in self.positions}

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict, of the record's own rows."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        # Only where it is so: reports of before the field have the digest by which they were sealed.
        return found if self.restored else {name: value for name, value in found.items() if name != "restored"}

    def to_json(self) -> str:
        """Return the same as JSON."""
        return _object(self.to_dict(), self._rows)

    @cached_property
    def _rows(self) -> dict[str, str]:
        # Made once: of 300 groups they are nearly all of a report, and an attempt saves it some times behind its fence.
        return {"positions": _json(self.positions), "before": _json(self.before)}

    def has_moved(self, now: Mapping[TopicPartition, GroupPosition]) -> bool:
        """Whether one of the group's positions on the target is another one than it was given."""
        return any(tp in now and now[tp].offset != offset for tp, offset in self.on_target.items())


@dataclass(kw_only=True)
class CutoverReport:
    """Everything about one run of a cutover; JSON and HTML show the same.

    :param id: of the attempt, as the decision about its fence has it; "": no fence of it ever was up.
    :param process: that made this attempt: ``host, where, pid, started, job`` (as in
        :class:`airflow_mirror.jobs.runner.active.ActiveTail`); None: nobody knows.
    :param outcome: ``running``, ``cut_over``, ``backed_out`` or ``undo_failed``.
    :param state: how far it got, a state of :mod:`airflow_mirror.cutover.steps`.
    :param preview: what was found before the fence, and its predicted length (:meth:`.preview.Preview.to_dict`).
    :param max_fence_s: for which producers might be kept out; seconds.
    :param approved: who has approved it: ``answer, by, at``; None: nobody was asked.
    :param versions: of the package, and of the brokers as far as they tell.
    :param lags: rows of ``at, lag, partitions, copied``: seconds since the epoch, offsets that the target lacked, in how
        many, and the sum of the offsets that it had reached, of which a difference is what was copied.
    :param course: the same rows without ``partitions``, of whoever waited for the mirror to catch up before.
    :param drained: seconds until each partition was level behind the fence, as the fields of a
        :class:`airflow_mirror.common.chart.Fold`; empty: none had to be waited for.
    :param ends: rows of ``topic, partition, end``: the fenced log end offsets of the source.
    :param clients: who used the topics ``before`` the fence, and who of them was seen on the target ``since``, each an
        :class:`airflow_mirror.extras.clients.inventory.Inventory` as JSON has it. Empty: nobody looked.
    :param left_behind: groups with positions in these topics that the mirror does not select.
    :param left_out: selected groups that were left out by name, and what that means for each.
    :param verification: rows from :meth:`PartitionComparison.to_dict`.
    :param schemas: ids of schemas in a sample of each topic, before the fence: rows of ``topic, part, id, subjects,
        verdict`` (as in :class:`airflow_mirror.cutover.schema_ids.SchemaRow`); empty where no registries are named.
    :param lease: the writer lease that was taken from the tail: ``transactional_id, producer_id, epoch, wait_s``.
    :param undone: what was undone of it, in that order, by whoever has.
    :param earlier: one summary for each earlier attempt.
    :param seal: ``links`` of the run (:mod:`airflow_mirror.ledger.chain`), this report's own last; where there is one, a
        ``signature`` and the fingerprint of its ``key``. None: the run goes on, or has no link yet.
    """

    mirror: str
    plan_hash: str
    attempt: int = 1
    id: str = ""
    process: dict[str, Any] | None = None
    outcome: str = RUNNING
    state: str = CAUGHT_UP
    started: float = field(default_factory=time.time)
    updated: float = 0.0
    preview: dict[str, Any] | None = None
    max_fence_s: float | None = None
    approved: dict[str, str] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    lags: list[dict[str, Any]] = field(default_factory=list)
    course: list[dict[str, Any]] = field(default_factory=list)
    drained: dict[str, Any] = field(default_factory=dict)
    clients: dict[str, Any] = field(default_factory=dict)
    fence: FenceRecord | None = None
    steps: list[StepRecord] = field(default_factory=list)
    ends: list[dict[str, Any]] = field(default_factory=list)
    groups: list[GroupRecord] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    verification: list[dict[str, Any]] = field(default_factory=list)
    schemas: list[dict[str, Any]] = field(default_factory=list)
    lease: dict[str, Any] | None = None
    error: str | None = None
    undone: list[UndoneRecord] = field(default_factory=list)
    earlier: list[dict[str, Any]] = field(default_factory=list)
    seal: dict[str, Any] | None = None
    version: int = REPORT.version

    @property
    def host(self) -> str:
        """Where this attempt was made, for people."""
        return "unknown" if self.process is None else str(self.process.get("host", "unknown"))

    @property
    def is_fenced(self) -> bool:
        """True while the source is, or may be, fenced by this cutover."""
        # "Or may be": the intent is in the report before the first rule, and a lifter may have died before it could say
        # so.
        return self.fence is not None and self.fence.lifted is None

    @property
    def is_of_returned(self) -> bool:
        """Whether it is that of a source that returned after a failover: a cutover that has finished has steps."""
        return self.outcome == DONE and not self.steps

    @property
    def has_lost_groups(self) -> bool:
        """Whether groups could not get their positions back, as of the last try."""
        tries = [record for record in self.undone if record.step == "commit_groups"]
        return bool(tries) and not tries[-1].ok

    @property
    def opened_at(self) -> float | None:
        """When a finished cutover opened the target; seconds since the epoch. None: it has not finished."""
        # Finished, not only decided: a process that died in between has no end that anybody could count from.
        return None if self.fence is None or self.outcome != DONE else self.fence.opened

    @property
    def cut(self) -> dict[TopicPartition, int]:
        """By source partition, the end at which a cutover or a failover leaves both sides; empty before it is known."""
        return {place_of(row): row["end"] for row in self.ends}

    @property
    def predicted(self) -> dict[str, Any]:
        """The predicted length of the fence: ``seconds``, and ``steps`` by name; empty if nobody predicted it."""
        return (self.preview or {}).get("predicted") or {}

    @property
    def is_fence_gone(self) -> bool:
        """Whether the kept fence was not up when the finished cutover was compared again; as of the last such look."""
        last = self.steps[-1] if self.steps else None
        return last is not None and last.name == "verify_again" and last.evidence.get("fence_is_up") is False

    def saw_lag(self, behind: Mapping[str, int], reached: Mapping[TopicPartition, int]) -> None:
        """Note each partition's lag and position, once a second at most and whenever the lag ends."""
        row = {
            "at": round(time.time(), 3), "lag": sum(behind.values()), "partitions": len(behind),
            "copied": sum(reached.values()),
        }  # fmt: skip
        if not self.lags or not behind or row["at"] - self.lags[-1]["at"] >= _LAG_EVERY_S:
            self.lags.append(row)

    def summary(self) -> dict[str, Any]:
        """Return the few figures that fit an XCom and a log line."""
        return {
            "mirror": self.mirror,
            "plan_hash": self.plan_hash,
            "attempt": self.attempt,
            "outcome": self.outcome,
            "state": self.state,
            "fence_seconds": None if self.fence is None else self.fence.seconds,
            "predicted_seconds": self.predicted.get("seconds"),
            "fence_kept": self.fence is not None and self.fence.is_kept and not self.is_fence_gone,
            "seconds": {step.name: round(step.seconds, 3) for step in self.steps},
            "partitions": len(self.ends),
            "records_verified": sum(row["records"] for row in self.verification),
            "groups": {g.group: g.settled for g in self.groups},
            "left_behind": self.left_behind,
            "left_out": self.left_out,
            "error": self.error,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; ``from_dict`` is its inverse.

        Its rows are the report's own, to be read only: to copy those of 10,000 partitions takes longer than the rest of a
        save, and an attempt saves some dozen times behind its fence.
        """
        shown = dict(vars(self))
        shown["steps"] = [dict(vars(step)) for step in self.steps]
        shown["undone"] = [dict(vars(record)) for record in self.undone]
        shown["groups"] = [group.to_dict() for group in self.groups]
        shown["fence"] = None if self.fence is None else dict(vars(self.fence))
        shown["fence_seconds"] = None if self.fence is None else self.fence.seconds  # for human readers of the file
        return shown

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> CutoverReport:
        """Build from the result of ``to_dict``.

        :raises InputError: this release does not know the version.
        """
        # Not read as far as possible: half a list of groups would be undone half, and count as done.
        if values.get("version") != REPORT.version:
            raise InputError(
                f"cutover report of version {values.get('version')!r}",
                f"this release reads {REPORT.version}",
                "Use the release that wrote it.",
            )
        kept = dict(values)
        try:
            kept["fence"] = known(FenceRecord)(kept["fence"]) if kept.get("fence") else None
            kept["steps"] = [known(StepRecord)(row) for row in kept.get("steps", [])]
            kept["undone"] = [known(UndoneRecord)(row) for row in kept.get("undone", [])]
            kept["groups"] = [known(GroupRecord)(row) for row in kept.get("groups", [])]
            return known(cls)(kept)
        except TypeError as e:
            raise REPORT.unread(values) from e

    def to_json(self) -> str:
        """Return the report as JSON in one line: indenting thousands of partitions takes longer than all the rest."""
        return _object(self.to_dict(), {"groups": f"[{','.join(group.to_json() for group in self.groups)}]"})

    def save(self, run_dir: Path, text: str | None = None) -> None:
        """Replace ``report.json``; on return it is on disk.

        :param text: what :meth:`to_json` has returned, if that is at hand.
        """
        # Replaced as a whole, and synced: a host that loses power keeps the one before, never a part.
        replace_file(run_dir / JSON_NAME, self.to_json() if text is None else text)

    @classmethod
    def load(cls, run_dir: Path) -> CutoverReport | None:
        """Read ``report.json``; None if there was no attempt.

        :raises InputError: the file can't be read, or is not a report, so it is unknown what has to be undone.
        """
        path = run_dir / JSON_NAME
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as e:
            raise _unread(str(path), e) from e
        return cls.from_json(text, str(path))

    @classmethod
    def from_json(cls, text: str, where: str) -> CutoverReport:
        """Build from JSON.

        :param where: it was found, for the error.
        :raises InputError: it is not a report, so it is unknown what has to be undone.
        """
        try:
            return cls.from_dict(json.loads(text))
        except (AttributeError, ValueError, TypeError, KeyError) as e:
            raise _unread(where, e) from e


def _unread(where: str, e: Exception) -> InputError:
    return InputError(f"{where} is not a cutover report", str(e), "Restore it: it says what a fence changed.")
