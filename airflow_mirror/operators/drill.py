"""Operators of the disaster-recovery drill. The drill itself is :mod:`airflow_mirror.extras.drill`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_mirror.common.policy import DRILL_PREFIX
from airflow_mirror.errors import (
    BrokerError,
    DrillMissed,
    InputError,
    InvalidField,
)
from airflow_mirror.extras.drill.page import JSON_NAME
from airflow_mirror.extras.drill.rehearsal import (
    KILL_TAIL,
    NOTICE_S,
    RECREATE_TOPIC,
    kill_tail,
    names_of,
    planned,
    recreate_topic,
    rehearse,
)
from airflow_mirror.hooks.home import report_dir
from airflow_mirror.operators.base import PlannedOperator, flag, number, states_of
from airflow_mirror.operators.drill_base import DrillBase, drill_topic, health_of, killer, require_own
from airflow_mirror.operators.drill_turn import begin, end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.mirror import Mirror

__all__ = [
    "CleanUpDrillOperator", "FailBackDrillOperator", "FailOverDrillOperator", "LoseSourceOperator", "OpenDrillOperator",
    "RehearseFaultsOperator", "RehearseGroupsOperator",
]  # fmt: skip

_CANARIES = "canaries.json"
_CLEAR_AGAIN = "An earlier try of this run has created it: clear the run again when its clean-up has deleted it."


class RehearseGroupsOperator(DrillBase):
    """Tells what a failover would do to the consumer groups of a mirror that replicates; commits nothing anywhere.

    For each group: how many records it would read again, or skip, and where it could not go on at all. The drill's report
    gets it. Without ``groups_of`` it does nothing.

    :param mirror: the drill's.
    :param groups_of: name of the mirror whose groups are looked at; it has the drill's source and target (templated).
    """

    template_fields: Sequence[str] = ("mirror", "groups_of")

    def __init__(self, *, groups_of: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.groups_of = groups_of

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Look at the groups on both sides.

        :raises InputError: the target knows no such mirror, or it copies from another source.
        """
        from airflow_mirror.extras.drill.groups import look
        from airflow_mirror.hooks.kafka import admins_of

        name = "" if self.groups_of is None else str(self.groups_of)
        if not name:
            self.log.info("groups_of names no mirror: no group is looked at")
            return {}
        with admins_of(mirror) as (source, target):
            outlook = look(name, source, target)
        for one in outlook.groups[:50]:
            self.log.log(30 if one.unplaced or one.skipped else 20, "%s", one)
        for line in outlook.hidden:
            self.log.warning("not looked at: %s", line)
        found = outlook.to_dict()
        with self.kept(mirror, context) as drill:
            drill.groups = found
        return {key: found[key] for key in ("mirror", "count", "reread", "skipped", "unplaced", "hidden")}


class OpenDrillOperator(DrillBase):
    """Notes what the drill is to achieve, and creates its topic on the source. Skips where another one's drill runs.

    Before that it deletes what drills of this mirror have left that began a day ago or before, in whichever Airflow.

    :param partitions: of the topic (templated).
    :param prefix: what the names of those begin with: no other topic is deleted (templated).
    :param rpo_objective_s: most seconds between the oldest lost record and the disaster (templated).
    :param rto_objective_s: most seconds from the disaster until the target is read and written (templated).
    :param rehearse: faults that RehearseFaultsOperator is to inject later; the drill fails unless it does (templated).
    """

    opens_drill = True
    template_fields: Sequence[str] = ("mirror", "partitions", "prefix", "rpo_objective_s", "rto_objective_s", "rehearse")

    def __init__(
        self,
        *,
        partitions: int | str = 3,
        prefix: str = DRILL_PREFIX,
        rpo_objective_s: float | str = 5.0,
        rto_objective_s: float | str = 120.0,
        rehearse: Sequence[str] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.rehearse, self.prefix = rehearse, prefix
        self.partitions, self.rpo_objective_s, self.rto_objective_s = partitions, rpo_objective_s, rto_objective_s

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Create the topic.

        :raises AirflowSkipException: another one's drill of the mirror runs; nothing was touched.
        :raises InvalidField: the topic exists, so it is not the drill's (a drill deletes its topic); or offsets are
            mapped, or a login is by Kerberos, which a drill can't use.
        """
        from airflow_mirror.extras.drill.clean_up import clean_up_earlier
        from airflow_mirror.extras.drill.clients import check_logins
        from airflow_mirror.extras.drill.reading import id_of
        from airflow_mirror.extras.drill.store import drills_of
        from airflow_mirror.hooks.kafka import admins_of, configs_of
        from airflow_mirror.kafka.model import NewTopicSpec
        from airflow_mirror.kafka.permit import unfenced
        from airflow_mirror.ledger.decisions import Ledger
        from airflow_mirror.wire.error_codes import ErrorCode

        if mirror.offsets == "mapped":
            raise InvalidField(
                "offsets", mirror.offsets, "a drill reads the same positions on both sides", "Use offsets='identical'."
            )
        topic, partitions = drill_topic(mirror), int(number("partitions", self.partitions, least=1))
        if len(str(self.prefix)) < 3:
            raise InvalidField("prefix", self.prefix, "what begins with it is deleted", "Give at least three characters.")
        wanted = {
            name: number(f"{name[:3]}_objective_s", value)
            for name, value in (("rpo_s", self.rpo_objective_s), ("rto_s", self.rto_objective_s))
        }
        faults = names_of(self.rehearse)
        clusters = list(configs_of(mirror).values())
        check_logins(clusters)
        with admins_of(mirror) as (source, target):
            source_id = source.cluster_id()
            # A drill may be the first thing that is done on a target. Its note alone would look like what a lost ledger
            # leaves, and nothing would be begun there any more.
            Ledger(target).begin()
            run = begin(self, context, target, mirror.name)
            drills, prefix = drills_of(target, mirror.name), str(self.prefix)
            for line in clean_up_earlier(drills, clusters, source_id, time.time(), prefix):
                self.log.warning("left by an earlier drill: %s", line)
            # A tail of the try before may still copy it: the teardowns, which run behind this error, stop that first.
            before = drills.of(run)
            is_ours = before is not None and topic in before.topics
            remedy = _CLEAR_AGAIN if is_ours else "Choose another prefix."
            for admin in (source, target):
                if topic in admin.topics([topic]):
                    raise InvalidField("topics", topic, f"exists on the {admin.role} already", remedy)
            # Before it is created: whatever ends this task, the clean-up knows that the topic is the drill's.
            with self.kept(mirror, context) as drill:
                if drill.missed is not None:  # the run was cleared after its clean-up
                    drill.begin_again(int(time.time() * 1000))
                drill.topics.append(topic)
                drill.note_id(topic, "")
                drill.source_id = source_id
                drill.wanted, drill.rehearsal = wanted, drill.rehearsal or planned(faults)
            try:
                source.create_topics([NewTopicSpec(topic, partitions, min(3, source.broker_count()))], unfenced)
            except BrokerError as e:
                if e.code == ErrorCode.TOPIC_ALREADY_EXISTS:  # somebody was quicker, and it is theirs
                    with self.kept(mirror, context) as drill:
                        drill.topics.remove(topic)
                raise
            # Dies before it: the clean-up takes the topic that is there.
            self.noting(mirror, context, topic)(id_of(source, topic))
        return {"topic": topic}


class LoseSourceOperator(PlannedOperator):
    """Writes canaries to the source while the tail follows, then kills the tail: from then on the source counts as lost.

    :param seconds: how long canaries are written (templated).
    :param per_second: canaries per second (templated).
    """

    template_fields: Sequence[str] = (*PlannedOperator.template_fields, "seconds", "per_second")

    def __init__(self, *, seconds: float | str = 15.0, per_second: float | str = 50.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seconds, self.per_second = seconds, per_second

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Write canaries, kill the tail, store what was acknowledged.

        :raises JobNotRunning: there is no tail to kill, so the drill would prove nothing.
        :raises TryAgain: the tail can't be killed from here.
        :raises DrillMissed: writing stopped before the tail was killed, or the tail had ended by then.
        :raises InputError: the plan maps offsets, or the topic is not the drill's: see :func:`require_own`.
        """
        from airflow_mirror.extras.drill.disaster import warm_up, write_canaries
        from airflow_mirror.hooks.kafka import admins_of, configs_of

        seconds, per_s = number("seconds", self.seconds), number("per_second", self.per_second, least=1)
        mapped = [t.source_topic for t in self.stored_plan(mirror).topics if t.mode != "identical"]
        if mapped:
            raise InputError(
                f"the plan maps the offsets of {', '.join(mapped)}",
                "a drill reads the same positions on both sides",
                "Use offsets='identical' and plan again.",
            )
        kill = killer(mirror)
        topic, configs = drill_topic(mirror), configs_of(mirror)
        with admins_of(mirror) as (source, target):
            require_own(self, context, mirror, topic, source, target)
        self.log.info(
            "the mirror copied the first canaries in %.1f s", warm_up(configs["source"], configs["target"], topic)
        )
        canaries = write_canaries(
            configs["source"],
            topic,
            group=topic,
            seconds=seconds,
            per_s=per_s,
            disaster=kill,
        )
        path = report_dir(mirror, context["ti"].run_id) / _CANARIES
        canaries.save(path)
        return {"acknowledged": len(canaries.acked), "disaster_ms": canaries.disaster_ms, "path": str(path)}


class FailOverDrillOperator(DrillBase):
    """Continues on the target, and measures RPO and RTO. They are judged by CleanUpDrillOperator."""

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Fail over and measure.

        :raises InputError: no canaries were written in this DAG run.
        """
        from airflow_mirror.extras.drill.canaries import Canaries
        from airflow_mirror.extras.drill.failover import fail_over
        from airflow_mirror.hooks.kafka import MirrorKafkaHook

        directory = report_dir(mirror, context["ti"].run_id)
        report = fail_over(MirrorKafkaHook(mirror.target, "target").config(), Canaries.load(directory / _CANARIES))
        with self.kept(mirror, context) as drill:
            drill.figures = report.to_dict()
        path = directory / JSON_NAME
        self.log.info("RPO %.2f s (%d lost), RTO %.2f s: %s", report.rpo_s, report.lost, report.rto_s, path)
        return {**report.to_dict(), "report": str(path)}


class FailBackDrillOperator(DrillBase):
    """Returns to the source: its topic is created again, filled from the target, compared, and read and written.

    CleanUpDrillOperator judges what was found.

    :param failback: whether to do so; the source must be able to be a target, that is of Kafka 3.0 or later (templated).
    """

    template_fields: Sequence[str] = ("mirror", "failback")

    def __init__(self, *, failback: bool | str = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.failback = failback

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Fail back.

        :raises InputError: no canaries were written in this DAG run, or the topic is not the drill's: see
            :func:`require_own`.
        """
        from airflow_mirror.extras.drill.canaries import Canaries
        from airflow_mirror.extras.drill.failback import fail_back
        from airflow_mirror.hooks.kafka import admins_of, configs_of

        if not flag("failback", self.failback):
            with self.kept(mirror, context) as drill:
                drill.failback = {"left_out": True}
            return {"left_out": True}
        canaries = Canaries.load(report_dir(mirror, context["ti"].run_id) / _CANARIES)
        configs = configs_of(mirror)
        with admins_of(mirror) as (source, target):
            require_own(self, context, mirror, canaries.topic, source, target)
        note = self.noting(mirror, context, canaries.topic)
        back = fail_back(configs["source"], configs["target"], canaries, mirror.name, note).to_dict()
        with self.kept(mirror, context) as drill:
            drill.failback = back
        self.log.info("back on the source after %.1f s, with %d records", back["took_s"], back["records"])
        return back


class RehearseFaultsOperator(DrillBase):
    """Injects faults on the topic of a tail that runs for that, and waits each time until the mirror's health shows it.

    The drill's report gets a row for each: what was injected, how it was noticed, and after how long. It doesn't fail:
    CleanUpDrillOperator judges. Afterwards the topic is no mirror's any more; the clean-up deletes it.

    :param mirror: the drill's, with a topic that an OpenDrillOperator has created for the faults.
    :param rehearse: ``recreate_topic``: delete the topic on the source and create it again; ``kill_tail``: kill the tail
        and its workers. In this order (templated).
    :param notice_s: how long a fault may take to be noticed (templated).
    """

    template_fields: Sequence[str] = ("mirror", "rehearse", "notice_s")

    def __init__(self, *, rehearse: Sequence[str] | str = (), notice_s: float | str = NOTICE_S, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rehearse, self.notice_s = rehearse, notice_s

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Inject the faults, one after the other.

        :raises JobNotRunning: no tail runs. :raises TryAgain: it can't be killed from here.
        :raises InvalidField: the topic is not the drill's: see :func:`require_own`.
        """
        from airflow_mirror.extras.drill.failback import TIMEOUT_S, create_again
        from airflow_mirror.hooks.kafka import admins_of
        from airflow_mirror.hooks.tail import TailView
        from airflow_mirror.kafka.model import NewTopicSpec

        names, notice_s, topic = names_of(self.rehearse), number("notice_s", self.notice_s), drill_topic(mirror)
        kill = killer(mirror)
        with admins_of(mirror) as (source, target):
            require_own(self, context, mirror, topic, source, target)
            view = TailView(target, mirror.name)

            def create_topic_again() -> None:
                there = source.topics([topic])[topic]
                spec = NewTopicSpec(topic, there.partitions, there.replication_factor)
                create_again(source, spec, TIMEOUT_S, self.noting(mirror, context, topic))

            faults = {KILL_TAIL: kill_tail(kill), RECREATE_TOPIC: recreate_topic(topic, create_topic_again)}
            rows = rehearse([faults[name] for name in names], lambda: health_of(view, mirror), notice_s)
        with self.kept(mirror, context) as drill:
            drill.rehearsal = rows
        for row in rows:
            self.log.log(30 if row["noticed_s"] is None else 20, "%(fault)s: after %(noticed_s)s s: %(how)s", row)
        return {row["fault"]: row["noticed_s"] for row in rows}


class CleanUpDrillOperator(DrillBase):
    """Deletes what the drill has created on both sides, and then judges the drill. Safe to repeat; meant as a teardown.

    A drill that missed its objectives fails here, when nothing of it is left, and not before; so does one that never
    measured anything, unless a task that failed has turned the run red; and one of whose faults nobody noticed one.
    """

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Delete topics and groups on both sides, if this drill has created them; then judge.

        :raises TryAgain: names what could not be deleted, or does not begin with the name of the mirror's topic.
        :raises DrillMissed: a figure is above its objective, nothing was measured, the way back was not exact, the group
            skipped records or read some twice, or a fault was not noticed.
        """
        from airflow_mirror.extras.drill.clean_up import clean_up_drill, deleted, left_behind
        from airflow_mirror.extras.drill.report import failures
        from airflow_mirror.hooks.kafka import MirrorKafkaHook, configs_of

        with self.kept(mirror, context) as drill:
            topics = list(drill.topics)
            left = clean_up_drill(drill, list(configs_of(mirror).values()), drill_topic(mirror), mirror.name)
            for line in drill.others:
                self.log.warning("%s", line)
            drill.missed = failures(drill) + [f"left behind: {line}" for line in left]
        path = report_dir(mirror, context["ti"].run_id) / JSON_NAME
        if left:
            raise left_behind(left)
        with MirrorKafkaHook(mirror.target, "target").admin() as target:
            end(self, context, target, mirror.name)
        # Behind a task that failed, the last ones are upstream_failed, and the run is red. Where somebody has marked the
        # run they are skipped: it would turn green.
        if not drill.figures and "upstream_failed" in states_of(context["ti"]).values():
            self.log.warning("%s", DrillMissed(drill.missed, str(path)))
        elif drill.missed:
            raise DrillMissed(drill.missed, str(path))
        return {"deleted": deleted(drill, topics)}
