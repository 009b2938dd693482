"""Topic settings follow while a tail runs: one pass reads both clusters, and alters what differs.

Nothing is decided here that :func:`airflow_mirror.sync.configs.diff` doesn't decide for a task, too. Both clusters say
everything, so a pass that dies anywhere is continued by the next one. Three things don't go over:

- What is on hold. It belongs to :class:`airflow_mirror.sync.hold.HoldWatch`; what it becomes at the end is noted
  (:mod:`airflow_mirror.sync.seen_configs`).
- What does not stay. Another owner sets it back (:mod:`airflow_mirror.sync.set_again`).
- What the target refuses. It would refuse it again, so it is not asked again before the source has another value.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_mirror.errors import InputError, LedgerNewer, RequestRefused
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.plan.config_diff import Change, diff, own_values, shown
from airflow_mirror.plan.configs import LIMITS, MIN_INSYNC, Rules, overrides, same_value
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.plan.target_configs import OwnConfigs, read_own_configs
from airflow_mirror.sync import seen_configs
from airflow_mirror.sync.configs import unfit_in_sync
from airflow_mirror.sync.passes import SAID, Pass, PassReport, Sides, listed, ours, same
from airflow_mirror.sync.set_again import TIMES, SetAgain

log = logging.getLogger(__name__)

_REMEMBERED = 10  # changes that stay in the report

Entries = Mapping[str, "ConfigEntry"]


@dataclass(kw_only=True)
class ConfigReport(PassReport):
    """One pass over all topics. A setting that differs and was not set stands in one of the lists, with its cause.

    :param topics: topics that follow.
    :param changed: settings that this pass set.
    :param latest: the last ones that were set, with the time.
    :param waiting: what applies when the mirror has stopped writing: settings on hold that have changed since the plan,
        and limits that are lower than here.
    :param given_up: settings that somebody else sets back.
    :param refused: settings that the target does not take, in the broker's words.
    :param left_out: topics whose settings don't follow, and values that would stop the copy.
    """

    head = "{topics:topic} kept level"
    topics: int = 0
    changed: int = 0
    latest: list[str] = listed()
    waiting: list[str] = listed("apply when the mirror has ended")
    given_up: list[str] = listed("set back by somebody else", SAID)
    refused: list[str] = listed("refused by the target", SAID)
    left_out: list[str] = listed("left out", SAID)


class ConfigFollower(Pass[ConfigReport]):
    """Keeps the settings of a plan's target topics as they are on the source.

    Its state holds what was last seen of the source.
    """

    report = ConfigReport

    def __init__(self, sides: Sides) -> None:
        super().__init__(sides)
        self._own: OwnConfigs | None = None
        self._set = SetAgain()
        self._refused: dict[tuple[str, str], tuple[str | None, str]] = {}
        self._latest: deque[str] = deque(maxlen=_REMEMBERED)

    def make(self, plan: Plan, now_ms: int, report: ConfigReport) -> None:
        """See :class:`.Pass`. ``now_ms`` is for notes and the report."""
        topics = ours(self._sides, plan, report)
        here = self._source.topic_configs(self._source.topics([t.source_topic for t in topics])) if topics else {}
        seen = self._source.topics(here) if here else {}
        topics = same(topics, {name: info.topic_id for name, info in seen.items()}, report)
        report.topics = len(topics)
        if topics:
            self._follow(plan, topics, here, now_ms, report)
        report.latest = list(self._latest)

    def _follow(
        self, plan: Plan, topics: list[TopicPlan], here: Mapping[str, Entries], now_ms: int, report: ConfigReport
    ) -> None:
        self._own = self._read_own()
        there = self._target.topic_configs([t.target_topic for t in topics])
        rules = Rules.of(plan.mirror)
        final = {
            t.target_topic: self._final(t, here[t.source_topic], there[t.target_topic], rules, report) for t in topics
        }
        try:
            self._note(plan, final, now_ms)
        except LedgerNewer as e:
            report.failed.append(str(e))
        at = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="seconds")
        for t in topics:
            change, later = (
                diff(here[t.source_topic], there[t.target_topic], hold, self._own, rules, t.configs)
                for hold in (True, False)
            )
            lowered = set(LIMITS) & {*later.set, *later.delete} - {*change.set, *change.delete}
            report.waiting += [str(one) for one in later.changes(t.target_topic) if one.key in lowered]
            wanted = {**change.set, **dict.fromkeys(change.delete)}
            wanted = {key: value for key, value in wanted.items() if key not in rules.held_keys}
            due = self._due(t.target_topic, wanted, report)
            if due:
                done = self._alter(t.target_topic, due, report)
                self._tell(t.target_topic, done, change.before, at, report)

    def _read_own(self) -> OwnConfigs | None:
        """Return what applies on the target without overrides, now; what can't be seen any more as it was seen last."""
        # At each look: what needs no override by the defaults of yesterday may need one today.
        before, now = self._own, read_own_configs(self._target)
        if before is None or now is None:
            return now or before
        return {key: before.get(key) if value is None else value for key, value in now.items()}

    def _final(self, t: TopicPlan, here: Entries, there: Entries, rules: Rules, report: ConfigReport) -> dict[str, str]:
        """Return the overrides that a topic would get if the hold ended now."""
        found = overrides(here, False, own_values(there, self._own), rules)
        final = {key: value for key, value in found.items() if not rules.keeps(key)}
        # Besides what it keeps: where the plan writes a default down, the target's own was not known yet.
        final |= {
            key: value for key, value in t.configs.items() if rules.keeps(key) or _is_default(here, key, value, found)
        }
        for key in rules.held_keys:
            if (value := final.get(key)) != t.configs.get(key):
                report.waiting.append(str(Change(t.target_topic, key, shown(t.configs.get(key)), value)))
        return final

    def _note(self, plan: Plan, final: Mapping[str, Mapping[str, str]], now_ms: int) -> None:
        """Note what topics get in the end, where that is not known yet."""
        known, prefix = seen_configs.last_seen(plan, self._state.read()), seen_configs.prefix(plan.mirror.name)
        # Also what the plan says: a later one, by which a failover goes, may say something else.
        noted = {
            f"{prefix}{topic}": seen_configs.dump(configs, now_ms)
            for topic, configs in final.items()
            if configs != known[topic]
        }
        if noted:
            with self._granted() as permit:
                self._state.write(noted, permit)

    def _due(self, topic: str, wanted: Mapping[str, str | None], report: ConfigReport) -> dict[str, str | None]:
        """Return what is to be set, without what was refused or given up."""
        due = dict(wanted)
        for key, value in wanted.items():
            refused, words = self._refused.get((topic, key), (value, ""))
            if words and refused == value:
                report.refused.append(f"{topic}: {key}={shown(value)}: {words}")
            elif self._set.times(topic, key, value) > TIMES:
                report.given_up.append(
                    f"{topic}: {key} was set to {shown(value)} {TIMES} times again, and is set back by its owner "
                    "(Strimzi, Terraform?): change it there"
                )
            else:
                continue
            del due[key]
        for line in unfit_in_sync(self._target, {topic: int(due.get(MIN_INSYNC) or 0)}).values():
            del due[MIN_INSYNC]  # every write would be refused, the copy's as well
            report.left_out.append(line)
        return due

    def _alter(self, topic: str, due: dict[str, str | None], report: ConfigReport) -> dict[str, str | None]:
        """Set settings; return which were set. A refused one keeps no other from being set."""
        to_set = {key: value for key, value in due.items() if value is not None}
        try:
            with self._granted() as permit:
                self._target.alter_topic_configs(topic, permit, to_set, [key for key in due if key not in to_set])
            return due
        except RequestRefused as e:
            if len(due) > 1:
                apart = [self._alter(topic, {key: value}, report) for key, value in due.items()]
                return {key: value for one in apart for key, value in one.items()}
            for key, value in due.items():
                self._refused[topic, key] = value, f"{e.name}: {e.detail}"
                report.refused.append(f"{topic}: {key}={shown(value)}: {e.name}: {e.detail}")
        except InputError as e:
            report.failed.append(f"{topic}: {e}")
        return {}

    def _tell(
        self, topic: str, done: Mapping[str, str | None], before: Mapping[str, str], at: str, report: ConfigReport
    ) -> None:
        report.changed += len(done)
        for key, value in done.items():
            again = self._set.count(topic, key, value) - 1
            line = str(Change(topic, key, before.get(key), value))
            line += f" (again, {again} of {TIMES} times)" if again else ""
            log.info("set %s", line)
            self._latest.append(f"{at} {line}")


def _is_default(here: Entries, key: str, value: str, found: Mapping[str, str]) -> bool:
    return key not in found and key in here and here[key].is_default and same_value(here[key].value, value)
