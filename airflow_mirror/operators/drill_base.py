"""What the operators of a drill share: its topic, what is kept of it, and what it does to its mirror."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_mirror.common.patterns import is_name
from airflow_mirror.errors import DrillMissed, InvalidField, JobNotRunning, MirrorError
from airflow_mirror.hooks.home import report_dir
from airflow_mirror.hooks.spark import runner_for
from airflow_mirror.jobs.runner import process, state
from airflow_mirror.jobs.runner.client import elsewhere, is_here
from airflow_mirror.jobs.runner.local import TAIL
from airflow_mirror.operators.base import MirrorOperator
from airflow_mirror.operators.drill_turn import stand_back
from airflow_mirror.operators.links import DrillLink, show_links

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow.sdk import BaseOperator, Context

    from airflow_mirror.extras.drill.store import Drill
    from airflow_mirror.hooks.tail import TailView
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan.findings import Finding


def drill_topic(mirror: Mirror) -> str:
    """Return the drill's topic, which is the only one of its mirror.

    :raises InvalidField: the mirror has more than one topic, or a pattern: a drill deletes its topic.
    """
    if len(mirror.topics) != 1 or not is_name(mirror.topics[0]):
        raise InvalidField("topics", list(mirror.topics), "a drill has one topic of its own", "Name exactly one topic.")
    return mirror.topics[0]


def require_own(
    task: BaseOperator, context: Context, mirror: Mirror, topic: str, source: ClusterAdmin, target: ClusterAdmin
) -> None:
    """Return if a topic of the source is the one that this drill has created. For who is about to lose its records.

    A task that opens the drill may have failed just because the topic is somebody else's, and be marked as successful.

    :raises InvalidField: it is not, or there is none. Nothing was touched.
    :raises AirflowSkipException: another one's drill of the mirror runs.
    """
    from airflow_mirror.extras.drill.store import drills_of

    # Of two Airflows with one schedule the runs have one name, and what is kept of them has one key.
    stand_back(task, context, target, mirror.name)
    drill = drills_of(target, mirror.name).of(report_dir(mirror, context["ti"].run_id).name)
    there = source.topics([topic]).get(topic)
    if drill is None or there is None or not drill.owns(topic, there.topic_id):
        raise InvalidField(
            "topics", topic, "the source has no topic of this name that OpenDrillOperator has created in this run: it is "
            "not the drill's, and nothing was touched",
            "Clear the whole run: it creates its topic. Where somebody else has one of this name, choose another prefix.",
        )  # fmt: skip


class DrillBase(MirrorOperator):
    """A task that completes what is kept of its drill."""

    operator_extra_links = (DrillLink(),)

    @contextmanager
    def kept(self, mirror: Mirror, context: Context) -> Iterator[Drill]:
        """Yield what is kept of this run; what the block changes is kept: in files for people, and on the target.

        :raises TryAgain: the target takes no writes. The files have it by then.
        :raises AirflowSkipException: another one's drill of the mirror runs.
        """
        from airflow_mirror.extras.drill import page
        from airflow_mirror.extras.drill.store import Drill, drills_of
        from airflow_mirror.hooks.kafka import MirrorKafkaHook

        directory = report_dir(mirror, context["ti"].run_id)
        with MirrorKafkaHook(mirror.target, "target").admin() as target:
            # Of two Airflows with one schedule the runs have one name, and what is kept of them has one key.
            stand_back(self, context, target, mirror.name)
            drills = drills_of(target, mirror.name)
            drill = drills.of(directory.name) or Drill(run=directory.name, at_ms=int(time.time() * 1000))
            yield drill
            page.write(directory, drill, drills.all())
            show_links(self, context, directory)
            drills.save(drill)

    def noting(self, mirror: Mirror, context: Context, topic: str) -> Callable[[str], None]:
        """Return what keeps the id of one of the drill's topics on the source, by which alone it is deleted."""

        def note(topic_id: str) -> None:
            with self.kept(mirror, context) as drill:
                drill.note_id(topic, topic_id)

        return note


def killer(mirror: Mirror) -> Callable[[], None]:
    """Return what kills the mirror's tail and all its workers at once; it returns when they are gone.

    It raises DrillMissed if the tail has ended by itself: what was lost since then is no loss of this disaster.

    :raises JobNotRunning: there is no tail to kill. :raises TryAgain: it can't be killed from here.
    """
    runner = runner_for(mirror)
    tail = runner.find(TAIL)
    status = "never started" if tail is None else runner.status(tail)
    if tail is None or not state.is_active(status):
        raise JobNotRunning(TAIL, status, "Clear the whole drill.")
    if not is_here(tail):
        raise elsewhere(tail)  # a surviving tail would make the figures look too good
    job_dir = Path(tail["dir"])

    def kill() -> None:
        if not state.is_active(status := runner.status(tail)):
            raise DrillMissed([f"the tail was {status} before it was killed: it had ended by itself"], str(job_dir))
        while members := process.members(job_dir):  # repeat for a worker that was just being forked
            process.end(members, signal.SIGKILL)
            process.wait_until_gone(job_dir, timeout_s=5.0)

    return kill


def health_of(view: TailView, mirror: Mirror) -> list[Finding]:
    """Return what is wrong with a mirror, as anybody on any worker sees it; also that it can't be asked."""
    from airflow_mirror.jobs.health.judging import OF_THE_TAIL, Facts, Limits, judge

    try:
        facts = Facts(tail=view.look(mirror))
    except MirrorError as e:
        facts = Facts(unknown={"tail": e})
    return judge(facts, Limits(), OF_THE_TAIL)
