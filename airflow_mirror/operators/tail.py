"""A mirror's tail as one task sees it: found or started, watched, supervised, stopped."""

from __future__ import annotations

import logging
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_mirror.errors import InputError, JobFailed, MirrorError, TryAgain, WritingEnded
from airflow_mirror.hooks.gauges import tell_copy
from airflow_mirror.hooks.home import poll_interval_s
from airflow_mirror.hooks.remembered import plan_by_hash
from airflow_mirror.hooks.tail import log_of
from airflow_mirror.jobs.progress.wording import progress_line
from airflow_mirror.jobs.runner import process, state
from airflow_mirror.jobs.runner.active import SILENCE_S
from airflow_mirror.jobs.runner.local import TAIL
from airflow_mirror.kafka.model import same_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_mirror.hooks.tail import TailView
    from airflow_mirror.jobs.runner.active import ActiveTail
    from airflow_mirror.jobs.runner.local import Handle, LocalRunner
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan import Plan

log = logging.getLogger(__name__)

_JOIN_MARGIN_S = 10.0
_LOOK_EVERY_S = 1.0
_SAY_EVERY_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 300.0


class TailRun:
    """What a task does about the tail of its mirror.

    :param view: looks at it, on any host.
    :param runner: of this host.
    :param launch: starts it here, in place of a job that was found to have ended.
    :param attach: told of a tail that runs already, before it is waited for.
    :param patience_s: how long it may take until it copies.
    """

    def __init__(
        self,
        view: TailView,
        runner: LocalRunner,
        mirror: Mirror,
        plan: Plan,
        launch: Callable[[Mirror, Plan, str], Handle],
        attach: Callable[[ActiveTail], object],
        patience_s: float,
    ) -> None:
        self.view, self.mirror, self.plan = view, mirror, plan
        self._runner, self._launch, self._attach, self._patience_s = runner, launch, attach, patience_s

    def copies(self, tail: ActiveTail) -> bool:
        """Return whether a tail copies what this plan says, in its own plan or in what joined that since.

        A topic may have appeared right before this plan was made: then the tail has some time to take it in.
        """
        deadline = monotonic() + 2 * self.mirror.topic_interval_s + _JOIN_MARGIN_S
        while found := differences(tail, self.mirror, self.plan):
            joins = self.mirror.sync_topics and all(one.joins for one in found)
            if not joins or monotonic() > deadline:
                return False
            log.info("waiting until the tail takes in what appeared since its plan: %s", "; ".join(map(str, found)))
            sleep(min(_LOOK_EVERY_S, poll_interval_s()))
        return True

    def require_same(self, tail: ActiveTail) -> None:
        """Raise :class:`InputError` unless it does; the error names what differs."""
        if not self.copies(tail):
            found = differences(tail, self.mirror, self.plan)
            raise InputError(
                f"the mirror's tail is running ({log_of(tail)}) and carries out plan {tail.plan[:12]}, which is not "
                "this one",
                [str(one) for one in found],
                "Go on with its plan, stop it (StopMirrorOperator), or pass replace=True to have it stopped here.",
            )

    def require_running(self, tail: ActiveTail, otherwise: str) -> None:
        """Raise the tail's own error, or a :class:`JobFailed` that says ``otherwise``, if it does not run."""
        status = self.view.status(tail)
        if not state.is_active(status):
            self.view.raise_for(tail)
            raise JobFailed(TAIL, status, otherwise, log_of(tail))

    def start(self, tail: ActiveTail | None) -> dict[str, Any]:
        """Start the tail unless it lives, wait until it copies, or rests in a pause, and return where it runs.

        Another worker may start it at the same time: one of the two is decided to copy, and both tasks wait for that one.

        :param tail: the one that lives, if any.
        :raises JobFailed: it ended at once, does not copy in time, or its writing was ended and it does not end.
        """
        deadline = monotonic() + self._patience_s
        tail = self._not_deposed(tail, deadline)
        if tail is not None:
            self._attach(tail)
        handle = {} if tail else self._launch(self.mirror, self.plan, self.view.ended)
        log.info("%s", f"it runs already, {log_of(tail)}" if tail else f"started, {handle['dir']}/log.txt")
        while not self._is_copying(tail, handle):
            if tail is None and not state.is_active(self._runner.status(handle)):
                tail = self.view.living()
                if tail is None or tail.directory == handle["dir"]:
                    self._runner.raise_for(handle)
                    raise JobFailed(TAIL, self._runner.status(handle), "it ended at once", f"{handle['dir']}/log.txt")
                self.require_same(tail)
                self._attach(tail)
            if monotonic() > deadline:
                where = log_of(tail) if tail else f"{handle['dir']}/log.txt"
                raise JobFailed(TAIL, state.RUNNING, "it does not copy in time, and is left running", where)
            sleep(min(_LOOK_EVERY_S, poll_interval_s()))
        return result_of(tail) if tail else {"job": TAIL, "job_dir": handle["dir"], "host": handle["host"]}

    def stay(self, is_over: Callable[[], bool], is_killed: Callable[[], bool]) -> dict[str, Any]:
        """Supervise the tail until it is stopped, or ``is_over`` says why it ended: a cutover.

        One that fails is started again here, with growing pauses; also one that was lost on another host.

        :param is_killed: the task was killed, which has ended its tail. Its process may live on: Airflow's handler of
            SIGTERM does not end it.
        :raises JobFailed: the task was killed; the next try starts the tail again.
        :raises WritingEnded: the mirror has no tail any more, and was not cut over: to start one is a person's matter.
        :raises MirrorError: it ended for a cause that another start would meet again.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            since = monotonic()
            try:
                tail = self._watch()
                if tail is None:  # it began with one: a failover, a rollback or `retire` has taken it away
                    raise WritingEnded(self.mirror.name)
                if is_killed():
                    raise JobFailed(TAIL, self.view.status(tail), "its task was killed", log_of(tail))
                self.view.raise_for(tail)
                return {**result_of(tail), "tail": self.view.status(tail)}
            except MirrorError as e:
                if is_over():
                    return {"job": TAIL, "tail": "ended by the cutover"}
                if not isinstance(e, TryAgain) or is_killed():
                    raise
                pause_s = _FIRST_PAUSE_S if monotonic() - since > _LONGEST_PAUSE_S else pause_s
                log.warning("the tail is started again in %.0f s: %s", pause_s, e)
            sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            if not is_killed():
                with suppress(TryAgain):  # the next turn looks at it, and says why
                    self.start(self.view.living())

    def _watch(self) -> ActiveTail | None:
        """Log the tail's figures until it ends; return it. None: it was decided that the mirror has none any more."""
        said = monotonic()
        while (tail := self.view.tail()) is not None and state.is_active(self.view.status(tail)):
            sign = self.view.sign(tail)
            if sign is not None:
                tell_copy(self.mirror.name, {"summary": sign.summary})
            if sign is not None and monotonic() - said > _SAY_EVERY_S:
                said = monotonic()
                log.info("%s", progress_line({"phase": sign.phase, "summary": sign.summary}))
            sleep(poll_interval_s())
        return tail

    def _not_deposed(self, tail: ActiveTail | None, deadline: float) -> ActiveTail | None:
        """Return the tail if it lives and may write.

        One that a cutover has deposed lives on for some seconds, and says that it copies. It is waited for.
        """
        found = tail
        while found is not None and self.view.is_writing_ended():
            if monotonic() > deadline:
                why = "its writing was ended, by a cutover, and it does not end"
                raise JobFailed(TAIL, state.RUNNING, why, log_of(found))
            log.info("waiting until the tail has ended: a cutover has ended its writing, %s", log_of(found))
            sleep(min(_LOOK_EVERY_S, poll_interval_s()))
            found = self.view.living()
        if found is not None and found != tail:
            self.require_same(found)
        return found

    def _is_copying(self, tail: ActiveTail | None, handle: Handle) -> bool:
        if tail is None:
            phase = self._runner.progress(handle).get("phase")
        else:
            self.require_running(tail, "it ended at once")
            sign = self.view.sign(tail)
            phase = None if sign is None else sign.phase
        if phase == "paused":
            log.warning("the mirror is paused: its tail is there, and copies nothing until 'airflow-mirror resume'")
        return phase in ("copying", "paused")


def result_of(tail: ActiveTail) -> dict[str, Any]:
    """Return what a task says of a tail."""
    return {"job": TAIL, "job_dir": tail.directory, "host": tail.host}


def handle_of(runner: LocalRunner, tail: ActiveTail) -> Handle | None:
    """Return the handle of a tail that this host has started, and reaches; None for any other."""
    handle = runner.find(TAIL)
    return handle if handle is not None and is_of(handle, tail) and runner.reaches(handle) else None


def is_of(handle: Handle, tail: ActiveTail) -> bool:
    """Return whether a handle, which may be another host's, is that of a tail."""
    return bool(handle.get("id") == tail.job or (handle["where"], handle["dir"]) == (tail.where, tail.directory))


def stop_tail(view: TailView, runner: LocalRunner, tail: ActiveTail, grace_s: float) -> bool:
    """Stop a tail, wherever it runs. Return whether it did so by itself.

    :raises TryAgain: it runs on another host, and still gives signs of life. The application of a cluster
        manager is killed instead.
    """
    handle = handle_of(runner, tail)
    if handle is not None:
        return runner.cancel(handle, grace_s)
    view.ask_to_stop(tail, f"a task on host {process.hostname()}")
    asked = monotonic()
    while state.is_active(status := view.status(tail)):
        if monotonic() - asked > grace_s + SILENCE_S:
            break
        sleep(_LOOK_EVERY_S)
    if status not in state.FINAL and not runner.place.kill(tail.job) and state.is_active(status):
        raise TryAgain(
            f"the tail on host {tail.host!r} ({tail.directory}) was asked to stop, and gives signs of life after "
            f"{monotonic() - asked:.0f} s",
            "it may have to finish a large batch",
            "Try again, or end its process there.",
        )
    return status in state.FINAL


class Difference(NamedTuple):
    """What a running tail does otherwise, for people.

    :param joins: it is a topic that the tail's own rule selects: it takes that in by itself.
    """

    line: str
    joins: bool = False

    def __str__(self) -> str:
        return self.line


def differences(tail: ActiveTail, mirror: Mirror, plan: Plan) -> list[Difference]:
    """Return how a running tail differs from a mirror and its plan."""
    fields = [Difference(line) for line in tail.differing(mirror)]
    if tail.inputs == plan.digest:
        return fields
    is_same_rule = not fields
    try:
        copied = {t.source_topic: t for t in plan_by_hash(tail.plan, mirror).topics}
    except InputError:
        return [*fields, Difference("other topics (its plan is not there any more)")]
    planned = {t.source_topic: t for t in plan.topics}
    found = [
        Difference(f"topic {name!r}: not in the tail's plan", is_same_rule) for name in planned if name not in copied
    ]
    if not is_same_rule:  # else the source has it no more, and the tail gave it up; or it has joined since the plan
        found += [
            Difference(f"topic {name!r}: copied by the tail, not in this plan") for name in copied if name not in planned
        ]
    for name in sorted(planned.keys() & copied.keys()):
        was, now = copied[name], planned[name]
        if not same_topic(was.source_topic_id, now.source_topic_id):
            found.append(Difference(f"topic {name!r}: created again on the source since"))
        if (was.target_topic, was.mode) != (now.target_topic, now.mode):
            found.append(
                Difference(
                    f"topic {name!r}: goes to {was.target_topic!r} with {was.mode} offsets there, "
                    f"to {now.target_topic!r} with {now.mode} ones here"
                )
            )
    return [*fields, *found]
