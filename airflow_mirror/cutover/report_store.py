"""Reports of cutovers on the target: whoever comes next, on whichever host, reads there what has to be undone.

Each writing of a report has keys of its own, which are removed after the next one is there. So a process that is killed
between two pieces leaves the one before, whole: what the new one announces was not done yet. The keys name the process
that wrote them, because one that was thought dead must not mix its pieces with another one's.

The file in the run's directory is for people. It is read only where the target has no report, or can't be asked: a fence
must come down whatever became of the target.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from airflow_mirror.common.files import replace_file
from airflow_mirror.cutover.html import render
from airflow_mirror.cutover.report import HTML_NAME, CutoverReport
from airflow_mirror.cutover.signing import Signer
from airflow_mirror.errors import MirrorError
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger import chain
from airflow_mirror.ledger.decisions import Decisions
from airflow_mirror.ledger.records import REPORT
from airflow_mirror.ledger.state import State, state_of

_LOG = logging.getLogger("airflow_mirror.cutover")
# For one writing. An election takes nine seconds; nobody can write to either cluster for longer than this in vain.
PATIENCE_S = 30.0


def reports_of(target: ClusterAdmin, mirror: str) -> State:
    """Return the reports of a mirror's cutovers on its target."""
    return state_of(target, REPORT.below(mirror), patience_s=PATIENCE_S)


class ReportStore:
    """The report of one run, where it must survive.

    :param state: of the keys of the mirror's reports; None: the target can't be asked, and nobody does.
    :param run: the run's name, of which the mirror has one.
    :param directory: of the file for people; None: there is none on this host.
    """

    def __init__(self, state: State | None, mirror: str, run: str, directory: Path | None) -> None:
        self.run, self.directory = run, directory
        self._state, self._run = state, (mirror, run)
        self._me, self._number = uuid.uuid4().hex[:8], 0
        self._keys: dict[str, None] | None = None  # that are, or may be, there; None: nobody looked yet
        self.is_written = True  # whether the target has what was to be written last

    @property
    def where(self) -> str:
        """Where a person finds the run."""
        return f"run {self.run!r}" if self.directory is None else str(self.directory)

    @property
    def guard_log(self) -> Path | None:
        """Where the run's guard writes; None: to our own standard error."""
        return None if self.directory is None else self.directory / "guard.log"

    def load(self) -> CutoverReport | None:
        """Return the report; None if there was no attempt.

        :raises InputError: it can't be read, so it is unknown what has to be undone.
        :raises TryAgain: the target can't be asked.
        """
        # From the target, where it is there at all: the file of this host may be of an attempt that another worker has
        # gone on from.
        values = self._look()
        report = _newest(values, *self._run)
        # Only where the target has none: it has lost it, or no fence of the run ever was up, and the file says that.
        return self.on_disk() if report is None else report

    def of(self, attempt: str) -> CutoverReport | None:
        """Return the last report of an attempt, by its id; None if that one has left none. Errors as :meth:`load`."""
        # By the attempt's id: positions in another attempt's report would be set on its word. And not the newest of
        # all: one that was thought dead, and thaws, may have written behind it.
        found = _newest(self._look(), *self._run, attempt)
        on_disk = self.on_disk() if found is None else None
        return on_disk if on_disk is not None and on_disk.id == attempt else found

    def begin_anew(self) -> None:
        """Number above whatever is there by now: while this attempt waited, another one may have been up, and gone."""
        self._keys = None

    def on_disk(self) -> CutoverReport | None:
        """Return the report as it was last written on this host."""
        # Another host may have gone on since. So where only this is left, it names a fence, and the source says whether
        # that stands (`lifting._by_the_source`).
        return None if self.directory is None else CutoverReport.load(self.directory)

    def save(self, report: CutoverReport) -> None:
        """Write the report; on return it survives the loss of this host.

        :raises TryAgain: it is not known to be written. It may be nevertheless, until the next one is.
        :raises MissingRight: it can't be written.
        """
        # A link that it carries is that of the report before this change: left in, it would vouch for what it has not
        # seen.
        report.updated, report.seal = time.time(), None  # what was sealed is another report
        self._write(report)

    def save_here(self, report: CutoverReport) -> None:
        """Write the report for people alone: of an attempt whose fence never was up, or that the target can't be told."""
        report.updated, report.seal = time.time(), None
        # No report on the target: others would take this attempt for one whose fence was up.
        self._draw(report, report.to_json())

    def add_to_chain(
        self, report: CutoverReport, ledger: Decisions, signer: Signer | None, warn: Callable[..., object]
    ) -> None:
        """Decide the link of a report that was written, and write it once more, with its place in the chain.

        What fails is left to the run's next process; a report that has its link gets no other one.

        :param warn: is told what failed, as a logger's ``warning`` is.
        """
        # One that the target may not have gets no link: the chain would name a report that nobody can show.
        if report.seal is not None or not self.is_written:
            return
        try:
            # The report, then its link, then the report with the link. Dies between any two: the run's next process
            # finds the link (`chain.add`), or makes it, and writes the report once more.
            its = chain.add(ledger, report.mirror, self.run, chain.digest(json.loads(report.to_json())))
            signed = {} if signer is None else signer.sign(its[-1].signed())
            report.seal = {"links": [link.value() for link in its], **signed}
            self._write(report)
        except MirrorError as e:
            warn("the report has no link in the mirror's chain yet, the run's next process adds it: %s", e)

    def _write(self, report: CutoverReport) -> None:
        # What an earlier process has left is removed with our first writing, so it has to be known.
        if self._keys is None:
            self._look()
        assert self._state is not None and self._keys is not None
        # Until the broker has it: what is raised below leaves a report of which nobody knows whether it is there.
        self.is_written = False
        # New keys for each writing, with our own name: a process that was thought dead, and writes, mixes no piece into
        # ours.
        self._number += 1
        text = report.to_json()
        pieces = REPORT.pieces(text, *self._run, f"{self._number:06d}-{self._me}")
        # Both are to be removed next time, whatever becomes of this writing.
        old, self._keys = self._keys, self._keys | dict.fromkeys(pieces)
        # In this order: the new pieces, then the removal of the old ones. Killed in between: the one before is whole
        # still, or the new one is, and readers take the newest that is (`_texts`).
        self._state.write({**pieces, **old})
        self._keys, self.is_written = dict.fromkeys(pieces), True
        # The file last: it is a copy for people, and its host may be lost.
        self._draw(report, text)

    def _draw(self, report: CutoverReport, text: str) -> None:
        if self.directory is not None:
            try:
                # Dies between the two: a page that is one writing older than the file beside it. Nobody goes by either.
                report.save(self.directory, text)
                replace_file(self.directory / HTML_NAME, render(report), durable=False)
            except Exception as e:  # it is for people: no cutover ends because a page can't be drawn
                _LOG.warning("the report could not be written to %s: %s", self.directory, e)

    def _look(self) -> Mapping[str, bytes]:
        """Read what is there, and number what comes after it."""
        assert self._state is not None
        values = self._state.read()
        self._keys = {key: None for key in values if key.startswith(REPORT.below(*self._run))}
        # Above whatever is there, also of another process: otherwise what we write would count as older.
        self._number = max([self._number, *map(_number, REPORT.under(values, *self._run))])
        return values


def newest_reports(values: Mapping[str, bytes], mirror: str) -> Iterator[CutoverReport]:
    """Yield the last report of each run of a mirror.

    :raises InputError: one can't be read.
    """
    for run in REPORT.under(values, mirror):
        report = _newest(values, mirror, run)
        if report is not None:
            yield report


def text_in(values: Mapping[str, bytes], mirror: str, run: str) -> str | None:
    """Return the last report of a run as JSON, to the letter; None if there is none."""
    return next((text for _, text in _texts(values, mirror, run)), None)


def _number(name: str) -> int:
    return int(name.partition("-")[0])


def _newest(values: Mapping[str, bytes], mirror: str, run: str, attempt: str = "") -> CutoverReport | None:
    """Return the last report that is there as a whole, of an attempt if one is named.

    :raises InputError: it is none.
    """
    texts = _texts(values, mirror, run)
    reports = (CutoverReport.from_json(text, f"{key} in the target's ledger") for key, text in texts)
    return next((one for one in reports if attempt in ("", one.id)), None)


def _texts(values: Mapping[str, bytes], mirror: str, run: str) -> Iterator[tuple[str, str]]:
    """Yield key and text of each report that is there as a whole, the last one first."""
    numbers = sorted(REPORT.under(values, mirror, run), key=_number)
    for number in reversed(numbers):  # of the same number, the one that came later
        text = REPORT.text(values, mirror, run, number)
        # Not whole: its writer died amid it, and what it would have announced was not done.
        if text is not None:
            yield REPORT.key(mirror, run, number), text
