"""One shape for whatever is looked at and judged: questions, facts, checks, findings.

Clusters are asked first (:class:`Questions`), and what they say is kept as values, an error as well. Then each check of a
table (:class:`Checks`) judges these values: it yields what is not as it should be; nothing means that it passes. All of
them run, so that a person sees everything at once. What can't be judged, because a question got no answer, is a finding
too: who does not know whether something is well must not be told that it is.

A check is one function under the line that says its id and what a pass means, and stands nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, ParamSpec, TypeVar

from airflow_mirror.errors import BrokerError, ClusterUnreachable, MirrorError, MissingRight
from airflow_mirror.wire.errors import ApiNotServed
from airflow_mirror.wording import count, some, wrapped

P = ParamSpec("P")
T = TypeVar("T")
J = TypeVar("J", bound=Callable[..., Any])

BLOCK, WARN, PASS = LEVELS = ("block", "warn", "pass")  # the worst one first


@dataclass(frozen=True)
class Finding:
    """What one check has to say of one object.

    :param level: ``block`` (nothing may start), ``warn`` (a person should know) or ``pass``.
    :param check: the check's id, which its table stamps on it.
    :param object: its subject: a topic, a cluster, "8 topics"; empty: what was checked as a whole.
    :param evidence: the values found.
    :param remedy: what to do, or what the mirror does about it; empty for a pass.
    """

    level: str
    check: str
    object: str
    evidence: str
    remedy: str = ""

    @property
    def severity(self) -> int:
        """As the log counts it."""
        return {BLOCK: 40, WARN: 30}.get(self.level, 20)

    def __str__(self) -> str:
        said = ": ".join(filter(None, (self.check, self.object, self.evidence)))
        return f"{said.removesuffix('.')}. {self.remedy}" if self.remedy else said

    @property
    def lines(self) -> str:
        """Level and subject, why and what to do, each on a line of its own and wrapped, as errors say them."""
        head = f"{self.level}  {': '.join(filter(None, (self.check, self.object)))}"
        parts = (("  why: ", self.evidence), ("  do:  ", self.remedy))
        return "\n".join([head, *(wrapped(text, first) for first, text in parts if text)])


class Unknown(Finding):
    """Of a check whose question got no answer."""


def block(evidence: str, remedy: str = "", about: str = "") -> Finding:
    """Return what keeps anything from starting. :param about: the object."""
    return Finding(BLOCK, "", about, evidence, remedy)


def warn(evidence: str, remedy: str = "", about: str = "") -> Finding:
    """Return what a person should know before it starts."""
    return Finding(WARN, "", about, evidence, remedy)


def well(evidence: str, remedy: str = "", about: str = "") -> Finding:
    """Return what is as it should be, and worth telling."""
    return Finding(PASS, "", about, evidence, remedy)


def several(
    say: Callable[[str, str, str], Finding], items: Collection[object], noun: str, what: str, remedy: str = ""
) -> Iterator[Finding]:
    """Yield one finding about all items: how many of that noun, and the first few after ``what``; none if there are none.

    :param say: :func:`block` or :func:`warn`.
    """
    if items:
        yield say(f"{what}: {some(map(str, items))}", remedy, count(len(items), noun))


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by their levels; those of one level stay in their order."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def passed(findings: Iterable[Finding]) -> str:
    """Return how many checks passed."""
    return f"{count(len({f.check for f in findings if f.level == PASS}), 'check')} passed"


class Judged:
    """Base of what has findings."""

    findings: Sequence[Finding]

    @property
    def blocks(self) -> list[Finding]:
        """The findings that forbid a start."""
        return [f for f in self.findings if f.level == BLOCK]


class Questions:
    """Asks clusters. An error is kept by the name of its question, and keeps nothing else from being asked.

    :param passed_on: errors that are no answer, and end the look.
    """

    def __init__(self, *passed_on: type[MirrorError]) -> None:
        self._passed_on = passed_on
        self.unknown: dict[str, MirrorError] = {}

    def ask(self, name: str, question: Callable[[], T]) -> T | None:
        """Return the answer; None: there is none."""
        try:
            return question()
        except self._passed_on:
            raise
        except MirrorError as e:
            self.unknown[name] = e
            return None


@dataclass(frozen=True, kw_only=True)
class Check(Generic[P]):
    """A row of a table. Its function says what is wrong: as findings, as plain lines, or by raising an error.

    :param passed: what a pass says; empty: nothing. :param level: of lines. :param about: the object of findings without.
    :param needs: the questions, besides one of its own name, without whose answers it can't judge.
    :param away: the level of a question without an answer; ``hidden``: of one that needs a right, or newer brokers.
    :param first: if it blocks, the others make no sense. :param of: see :meth:`Checks.of`.
    """

    id: str
    judge: Callable[P, Iterable[Finding | str] | None]
    passed: str | Callable[P, str] = ""
    level: str = BLOCK
    about: str = ""
    needs: Collection[str] = ()
    away: str = BLOCK
    hidden: str = BLOCK
    first: bool = False
    of: str = ""


class Checks(Generic[P]):
    """A table of checks of the same facts, in the order in which they are told.

    :param about: the object of what passes, or could not be asked. :param given: defaults of its rows.
    :ivar rows: by their ids.
    """

    def __init__(self, about: str | Callable[P, str] = "", **given: Any) -> None:
        self._about, self._given, self.rows = about, given, dict[str, Check[P]]()

    def check(self, id_: str, passed: str | Callable[P, str] = "", **more: Any) -> Callable[[J], J]:
        """Add the function that follows. :param more: fields of :class:`Check`."""

        def add(judge: J) -> J:
            assert id_ not in self.rows, f"there are two checks {id_!r}"
            self.rows[id_] = Check(id=id_, judge=judge, passed=passed, **self._given | more)
            return judge

        return add

    def of(self, what: str) -> tuple[str, ...]:
        """Return the ids of the checks that are of one kind."""
        return tuple(row.id for row in self.rows.values() if row.of == what)

    def run(self, unknown: Mapping[str, MirrorError], /, *facts: P.args, **named: P.kwargs) -> list[Finding]:
        """Return what all checks find.

        :param unknown: the errors of questions, by their names.
        :raises TryAgain: a cluster did not answer a check that asks it by itself.
        """
        found: list[Finding] = []
        for row in self.rows.values():
            its = list(self._judged(row, unknown, *facts, **named))
            if row.first and any(f.level == BLOCK for f in its):
                return its
            found += its
        return found

    def _judged(
        self, row: Check[P], unknown: Mapping[str, MirrorError], *facts: P.args, **named: P.kwargs
    ) -> Iterator[Finding]:
        about = self._about if isinstance(self._about, str) else self._about(*facts, **named)
        for name in (name for name in (row.id, *row.needs) if name in unknown):
            level = row.hidden if isinstance(unknown[name], (MissingRight, ApiNotServed)) else row.away
            why = unknown[name] if name not in self.rows or name == row.id else f"see {name}"
            yield Unknown(level, row.id, about, f"not known: {why}", "Ask again once that is mended.")
            return
        try:
            said = list(row.judge(*facts, **named) or ())
        except (BrokerError, ClusterUnreachable):
            raise
        except MirrorError as e:
            said = [block(str(e))]
        if not said and row.passed:
            passed = row.passed if isinstance(row.passed, str) else row.passed(*facts, **named)
            yield Finding(PASS, row.id, about, passed)
        for finding in said:
            finding = Finding(row.level, row.id, "", finding) if isinstance(finding, str) else finding
            yield replace(finding, check=row.id, object=finding.object or row.about or about)
