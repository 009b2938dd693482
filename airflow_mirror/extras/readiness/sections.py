"""A plan for the night for people, as Markdown and as a page: the same sections, each a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from airflow_mirror.common.chart import Chart, Fold, folded, number
from airflow_mirror.common.files import replace_file
from airflow_mirror.common.page import MOST_ROWS, template
from airflow_mirror.extras.readiness.estimate import Estimate
from airflow_mirror.extras.readiness.external_state import Kept
from airflow_mirror.extras.readiness.groups import TO_DO, Group
from airflow_mirror.extras.readiness.model import NightPlan
from airflow_mirror.extras.readiness.producers import Producer
from airflow_mirror.extras.readiness.race import Race, urgent
from airflow_mirror.extras.readiness.waves import Wave
from airflow_mirror.plan.markdown import FINDING_HEAD, finding_row, table
from airflow_mirror.wording import count, duration, size, some

_WAVES = (
    "Each wave is a cutover of its own, and a Mirror of its own: the JSON has its topics and groups as a Mirror takes "
    "them, and 'airflow-mirror split' takes it out of a mirror that copies already. Waves may be joined, and none may be "
    "split: the groups in the last column read several of its topics."
)
_RACE = (
    "When the source deletes the first record that is not copied yet, if nothing is copied meanwhile; of each topic the "
    "partition where that is first. Rates are those of a few seconds."
)
_TIME = "How long topics take that are not level, at the rates of a few seconds."
_TRIED = "Where nothing is copied yet, each as if it were copied alone."
_ELSEWHERE = "Found by the names of topics, which are what people chose."


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, a sentence, and a table. :ivar more: rows that only the JSON has."""

    title: str
    text: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    more: int = 0


def markdown(night: NightPlan) -> str:
    """Return it as Markdown."""
    parts = [f"# The night of mirror {night.mirror}", f"Looked at {night.at}, with plan `{night.plan[:12]}`."]
    for one in sections(night):
        parts += [f"## {one.title}", *([one.text] if one.text else [])]
        parts += [table(one.head, one.rows) if one.rows else "None."]
        parts += [f"and {one.more:,} more: the JSON has all of them"] if one.more else []
    return "\n\n".join(parts) + "\n"


def html(night: NightPlan) -> str:
    """Return it as one page; every value is escaped."""
    least = min((one.left_s for one in night.races if one.left_s is not None and one.behind), default=None)
    return template("extras/readiness/night.html.jinja").render(
        night=night,
        sections=sections(night),
        charts=charts(night),
        least="more than 30 days" if least is None else duration(least),
    )


def charts(night: NightPlan) -> list[Chart]:
    """Return who loses first to retention, which topics take longest, and how far partitions are behind."""
    open_ = [one for one in night.races if one.behind and one.left_s is not None]
    lose = {f"{one.topic}-{one.partition}" for one in open_ if one.level == "block"}
    left = Fold.of(((f"{one.topic}-{one.partition}", one.left_s or 0.0) for one in open_), smallest=True)
    takes = Fold.of((one.topic, one.seconds) for one in night.estimates if one.seconds is not None)
    behind = Fold.of((f"{one.topic}-{one.partition}", one.behind) for one in night.races if one.behind)
    return [
        *folded("First loss by retention, if nothing is copied", "partition", left, _in, lose.__contains__),
        *folded("Until a topic is level", "topic", takes, _in),
        *folded("Offsets to copy", "partition", behind, number),
    ]


def _in(seconds: float) -> str:
    return duration(seconds) if seconds else "now"


def write(night: NightPlan, path: Path) -> Path:
    """Write it beside a plan's file, for programs and for people; return the page."""
    for ending, text in (("json", night.to_json()), ("md", markdown(night)), ("html", html(night))):
        replace_file(path.with_suffix(f".night.{ending}"), text)
    return path.with_suffix(".night.html")


def sections(night: NightPlan) -> list[Section]:
    """Return what there is to say, what has to be done first."""
    left = [
        ("topics that the mirror does not select", ", ".join(night.left_topics) or "none"),
        ("groups with positions in these topics that it does not select", ", ".join(night.left_groups) or "none"),
    ]
    return [
        _section("To do", "", FINDING_HEAD, map(finding_row, night.findings)),
        _section(
            "Waves", _WAVES, ("wave", "topics", "groups", "kept together by"),
            (_wave(number, wave) for number, wave in enumerate(night.waves, 1)),
        ),
        _section(
            "Retention", _RACE, ("partition", "first loss", "behind", "written", "copied", ""),
            map(_race, urgent(night.races)),
        ),
        _section(
            "Time", _time(night), ("topic", "behind", "copied", "level in", "because of"), map(_estimate, night.estimates)
        ),
        _section(
            "Producers", "", ("transactional id", "producer id", "epoch", "last wrote", "partitions", "waves", ""),
            map(_producer, night.producers),
        ),
        _section("Groups", "", ("group", "kind", "state", "wave", "topics", "what to do"), map(_group, night.groups)),
        _section(
            "Kept elsewhere", _ELSEWHERE, ("what", "topics", "not mirrored", "what to do"), map(_kept, night.elsewhere)
        ),
        _section("Left behind", "", ("what", "which"), left),
        _section("Not seen", "", ("what, and why",), ((line,) for line in night.unseen)),
    ]  # fmt: skip


def _section(title: str, text: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Section:
    every = list(rows)
    more = max(0, len(every) - MOST_ROWS)
    return Section(title=title, text=text, head=head, rows=every[:MOST_ROWS], more=more)


def _wave(number: int, wave: Wave) -> tuple[str, ...]:
    ties = "; ".join(f"{group} ({some(its, 3)})" for group, its in wave.ties.items())
    return str(number), _names(wave.topics, "topic"), _names(wave.groups, "group"), ties


def _race(one: Race) -> tuple[str, ...]:
    left = "not within 30 days" if one.left_s is None else f"in {duration(one.left_s)}" if one.left_s else "now"
    copied = "" if one.copied_per_s is None else f"{one.copied_per_s:,.1f}/s"
    return f"{one.topic}-{one.partition}", left, f"{one.behind:,}", f"{one.produced_per_s:,.1f}/s", copied, one.verdict


def _time(night: NightPlan) -> str:
    """Return what there is to say of the rates."""
    if (trial := night.trial) is None:
        return _TIME
    whole = "for how long all takes nobody knows" if night.whole_s is None else f"all takes {duration(night.whole_s)}"
    return (
        f"{_TIME} {_TRIED} A trial copied {size(trial.copied_bytes)} to a scratch topic: {trial.alone} alone with "
        f"{size(trial.one_bytes_per_s)}/s, {count(len(trial.together), 'partition')} together with "
        f"{size(trial.task_bytes_per_s)}/s by one task, on this host. With {count(night.tasks, 'such task')} {whole}."
    )


def _estimate(one: Estimate) -> tuple[str, ...]:
    takes = "not known" if one.seconds is None else duration(one.seconds)
    return one.topic, f"{one.behind:,}", f"{one.copied_per_s:,.1f}/s", takes, one.bottleneck


def _producer(one: Producer) -> tuple[str, ...]:
    at = datetime.fromtimestamp(one.last_ms / 1000, UTC).isoformat(timespec="seconds") if one.last_ms >= 0 else ""
    note = "a mirror" if one.is_mirror else "in a transaction" if one.in_transaction else ""
    ids = one.transactional_id, str(one.producer_id), str(one.epoch)
    return *ids, at, some(one.partitions, 3), ", ".join(map(str, one.waves)), note


def _group(one: Group) -> tuple[str, ...]:
    return one.name, one.kind, one.state, str(one.wave or "none"), some(one.topics), TO_DO[one.kind]


def _kept(one: Kept) -> tuple[str, ...]:
    owner = f" application {one.owner}" if one.owner else ""
    return f"{one.kind}{owner}{one.note}", some(one.topics), some(one.missing), one.to_do


def _names(names: Sequence[str], noun: str) -> str:
    return f"{count(len(names), noun)}: {some(names)}" if names else "none"
