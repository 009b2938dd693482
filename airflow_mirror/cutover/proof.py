"""Prove at the brokers themselves that a fence by ACL is in force: before its log ends are trusted, and before opening.

Two proofs, because neither is always possible:

- ``acls``: every live broker lists the fence's ACLs. Each one goes by the list that it has, and has it a moment after the
  controller. A list does not say for whom it counts: no ACL binds a super user.
- ``answers``: an invalid batch, sent to each partition's leader as the mirror's own principal. The leader asks its
  authorizer first (KafkaApis.handleProduceRequest) and refuses the batch in any case. If that answer changes from
  CORRUPT_MESSAGE before the fence to TOPIC_AUTHORIZATION_FAILED behind it, this leader turns away one who could write.

The first is always asked for. The second is left out where it can't tell anything, and the report says why: a principal
without the right to write at the source is refused before the fence too; one that is let in behind the fence is a super
user; and a release on which nobody has seen that such a batch is never written (``wire.served.REFUSING``) gets none.

Nothing here writes or changes anything: a process that dies leaves nothing to undo.
"""

from __future__ import annotations

import time
from collections import Counter

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.errors import FenceGone, FenceUnproven
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.served import unproven
from airflow_mirror.wording import some

# What a fence is proven by; a callable fence by its own check and by the log ends alone.
ANSWERS, ACLS, CHECK = "answers", "acls", "check"

_MAY, _MAY_NOT = ErrorCode.CORRUPT_MESSAGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED


def look_before(attempt: Attempt) -> dict[str, str]:
    """Ask the leaders before the fence is raised; return what can prove it: ``by``, and ``why`` it is no more."""
    if not isinstance(attempt.fence, AclFence):
        return {"by": CHECK, "why": "the fence is callable: no broker knows of it"}
    if unknown := unproven(attempt.source_log):
        why = "no invalid batch is sent to brokers of a release on which it was not seen to be left unwritten"
        return {"by": ACLS, "why": f"{why}: {some(unknown)}"}
    # Before the fence, by the same principal: only a change of the answer proves that it was the fence.
    codes = attempt.source_log.write_answers(attempt.routes)
    if others := {tp: code for tp, code in codes.items() if code != _MAY}:
        return {"by": ACLS, "why": f"the mirror's principal can't write at the source before the fence: {_shown(others)}"}
    return {"by": ANSWERS, "why": ""}


def prove(attempt: Attempt) -> dict[str, str]:
    """Wait until every live broker lists the fence, and every leader that took writers refuses them; return the proof.

    :raises FenceUnproven: some don't, within ``proof_timeout_s``. :raises FenceGone: no broker lists it by then.
    """
    record = attempt.report.fence
    assert record is not None
    if record.proof.get("by", CHECK) == CHECK or not isinstance(attempt.fence, AclFence):
        return record.proof
    started, timeout_s = attempt.now(), attempt.at_most(attempt.limits.proof_timeout_s)
    while True:
        # Lists first: a leader that does not have the rule yet would answer as before, and be taken for one that lets a
        # super user in.
        without = attempt.fence.brokers_without(attempt.intent)
        found = [f"broker {broker} does not list its ACLs" for broker in without]
        if not found and record.proof["by"] == ANSWERS:
            codes = attempt.source_log.write_answers(attempt.routes)
            # Only the first time: later, at the opening, the same answer means that somebody has let the mirror in, or
            # removed the rule.
            if all(code == _MAY for code in codes.values()) and record.proven is None:
                why = "the mirror's principal is let in in spite of the fence: a super user, whom no ACL binds"
                record.proof = {"by": ACLS, "why": why}
                attempt.log.warning("no leader's answer proves the fence: %s", why)
            else:
                found = [f"the leader of {tp} answers {error_name(c)}" for tp, c in codes.items() if c != _MAY_NOT]
        if not found:
            # In the report with the step's end. A later process does not believe it: it proves once more
            # (`writers.require_source_shut`).
            record.proven = record.proven or time.time()
            return record.proof
        if attempt.now() - started >= timeout_s:
            if len(without) >= attempt.source.broker_count():  # it was raised, and nobody lists it
                raise FenceGone(attempt.source.role)
            raise FenceUnproven(attempt.source.role, timeout_s, found)
        attempt.waits_for = some(found)
        attempt.pause()


def _shown(codes: dict[TopicPartition, int]) -> str:
    """Return how many partitions answered with which code, with an example of each."""
    example = {code: tp for tp, code in reversed(codes.items())}
    return ", ".join(
        f"{error_name(code)} from {count} leader(s) ({example[code]})" for code, count in Counter(codes.values()).items()
    )
