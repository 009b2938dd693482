"""Decide a failover: the direction, no tail, topics in production, in one record.

Production follows from it, and every hold and every start of a job asks for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_mirror.cutover.decision import LIFTING, OPENED, fence_state
from airflow_mirror.errors import InputError, MirrorCutOver, MirrorError, TopicsOwned, TryAgain
from airflow_mirror.jobs.runner.active import ended
from airflow_mirror.ledger.decisions import Decisions, Values
from airflow_mirror.ledger.records import ACTIVE
from airflow_mirror.plan import ownership
from airflow_mirror.plan.direction import FAILOVER, Direction, direction, reverse_name, turn
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import Owned, of_mirror


def promote(
    ledger: Decisions, plan: Plan, topic_ids: Mapping[str, str], wanted: Direction, before: Direction | None,
    tail: Any = None, *, force: bool = False,
) -> Direction:  # fmt: skip
    """Decide that applications write to the plan's target topics, and that no tail does. Safe to repeat.

    :param topic_ids: of the target topics that are there, by name.
    :param before: what was decided when ``wanted`` was made; ``wanted`` itself, to complete it.
    :param tail: as it stood when it was looked at: another one may write.
    :param force: also if a cutover is at work: it opens nothing any more then.
    :return: what is decided, which is what somebody else has if they were faster.
    :raises MirrorCutOver: a cutover has opened the target. :raises InputError: one has left a fence.
    :raises TryAgain: one is at work; another tail, or a direction that is no failover's, was decided meanwhile, or topics
        have passed on to other mirrors.
    :raises TopicsShared: all of them are other mirrors' as well. Nothing was decided.
    """
    name = plan.mirror.name

    def change(values: Values) -> Values | None:
        # Called for each try, on what is decided then: another failover may have won in between, and is completed in
        # that case.
        found = direction(values, name)
        # This call may have slept for days: of a way back, or of a mirror that copies again, nothing is a failover's to
        # complete.
        if found not in (None, before) and found.by != FAILOVER:
            raise TryAgain(
                f"mirror {name!r}",
                "another direction was decided meanwhile, and nothing was decided here",
                "Call it again.",
            )
        one = wanted if found is None or found == before else found
        if found != one:
            # In the record, so pinned by its versions: a cutover that opens, or goes up, at this very moment is
            # refused, or we are.
            require_no_cutover(values, plan, topic_ids, force=force)
            # One that was decided since may have the lease, and write beyond the cut that is noted.
            if ACTIVE.at(values, name) != tail:
                raise TryAgain(
                    f"mirror {name!r}", "another tail began meanwhile, and nothing was decided", "Call it again."
                )
        try:
            opened = ownership.opening(values, plan, topic_ids, one.opened_by, one.at)
        except TopicsOwned as e:  # behind the look that has told them from those of others
            raise TryAgain(
                f"mirror {name!r}", "topics passed on meanwhile, and nothing was decided", "Call it again."
            ) from e
        if found == one:
            # The first record has ended the tail and turned the direction, and with one open topic no job of the plan
            # writes to any. So a death between two records leaves nothing that could be written to; the next call opens
            # the rest.
            return opened  # more topics than one decision holds
        return {**turn(name, one), **ended(name), **(opened or {})}

    # Undecided in here: the next call reads what was applied. A direction that is there is completed, under the cut that
    # it names; without one all of it is done anew, and the tail stays stopped in between.
    while ledger.decide(change) is not None:
        pass
    # What stands, which is somebody else's if they were faster: two calls at once end with one failover.
    found = direction(ledger.values(), name)
    assert found is not None
    return found


def cutover_at_work(values: Values, mirror: str) -> MirrorError | None:
    """Return why a cutover of the mirror refuses a failover without force: its fence is, or may be, up; None: none is."""
    fence = fence_state(values, mirror)
    if fence is None or not fence.stands:
        return None
    what, cause = f"mirror {mirror!r}: the fence of its cutover {fence.run!r} {fence.text}", "Nothing was changed"
    forced = "With force that cutover opens nothing any more, and its rules stay at the source until 'airflow-mirror "
    # Lifted it is in seconds, where the source answers. Without it nobody can delete a rule there, and to wait is in
    # vain.
    if fence.phase == LIFTING:
        return InputError(
            what, f"that does not end while the source is gone. {cause}", f"Use force. {forced}lift-fence' removes them."
        )
    return TryAgain(
        what, cause, f"Wait until it has ended. If the source is gone it can't lift its fence: use force. {forced}"
        "lift-fence' removes them.",
    )  # fmt: skip


def cut_over(values: Values, plan: Plan, topic_ids: Mapping[str, str]) -> MirrorCutOver | None:
    """Return why a cutover that has opened the target refuses a failover, also by force; None: none has."""
    try:
        require_no_cutover(values, plan, topic_ids, force=True)
    except MirrorCutOver as e:
        return e
    return None


def require_no_cutover(values: Values, plan: Plan, topic_ids: Mapping[str, str], *, force: bool) -> None:
    """Return unless a cutover of the mirror, or an earlier failover, has opened its target, or a cutover has a fence up.

    :param topic_ids: as in :func:`promote`. :param force: also if one has a fence up, or some topics only were opened.
    :raises MirrorCutOver: it was; names the topics. Errors else as :func:`cutover_at_work` has them.
    """
    mirror = plan.mirror.name
    fence = fence_state(values, mirror)
    if fence is not None and fence.phase == OPENED:
        raise MirrorCutOver(mirror, [], f"run {fence.run!r} has opened the target")
    # By force: the cutover's own `opened` is refused from then on by the direction (`decision.open_behind`), and its
    # lifting leaves the groups where they are.
    if not force and (at_work := cutover_at_work(values, mirror)) is not None:
        raise at_work
    # Of an opening whose fence was not kept, or was lifted since, only its topics tell: applications write there, and
    # neither groups nor settings are ours to change. So do those of a failover whose way back was armed since; not those
    # of the one that the direction names, which is completed, also by a call that was listening when it was decided.
    turned = direction(values, mirror)
    completed = turned.opened_by if turned is not None and turned.by == FAILOVER else None
    ours = of_mirror(values, mirror, plan.source_cluster_id, topic_ids)
    opened = {t: of for t, of in ours.items() if of.opened_by not in (None, completed)}
    # Some only: a topic was created again since, or joined the plan. What a failover does to all would be done to those
    # in production, too; whether the rest is worth that a person says.
    if opened and (not force or len(opened) == len(topic_ids)):
        raise _in_production(mirror, opened, turned)


def _in_production(mirror: str, opened: Mapping[str, Owned], turned: Direction | None) -> MirrorCutOver:
    first = min(opened.values(), key=lambda one: one.opened_at or "")
    at = first.opened_at or ""
    if first.is_cut_over:
        return MirrorCutOver(mirror, sorted(opened), at)
    since = "" if turned is None else f"; its direction was decided anew, by {turned.by!r} at {turned.at}"
    return MirrorCutOver(
        mirror, sorted(opened), f"by {first.opened_by} at {at}{since}",
        f"Where applications are back on its source, arm the way back of mirror {reverse_name(mirror)!r} "
        "('airflow-mirror arm-reverse'): it copies here again, and can be failed over. To start over, end this mirror "
        "('airflow-mirror retire'), then delete the target topics.",
    )  # fmt: skip
