"""The scratch topic of a mirror on its target: what is tried out is written there, and it is deleted again.

It has an internal name, so that no mirror ever copies it. If a process that was killed left one behind, the next one
finds it by its name and deletes it. Whoever creates it has it; another one waits for as long as a test takes. A topic
that is still there then is taken for left behind. If it was not, the test that used it can't go on; that is no error of
its plan.
"""

from __future__ import annotations

import logging
import time

from airflow_mirror.common.policy import SCRATCH_PREFIX
from airflow_mirror.errors import BrokerError, InputError, MirrorError, MissingRight
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.retry import Backoff

log = logging.getLogger(__name__)

_GONE_WITHIN_S = 10.0
_IN_USE_S = 10.0  # longer than a test takes
_HEARD_WITHIN_S = 5.0
# If the topic can't be deleted, it must not occupy the disk for long. Its segments are as large as the cluster likes: one
# may refuse small ones, and a segment whose last record is old enough is rolled and deleted.
CONFIGS = {"retention.ms": "3600000", "cleanup.policy": "delete"}


def create(target: ClusterAdmin, spec: NewTopicSpec) -> str | None:
    """Create the scratch topic, after deleting one that a killed plan left; return why it can't be, or None."""
    topic, others, deleted = spec.name, Backoff(_IN_USE_S), False
    while True:
        try:
            target.create_topics([spec], unfenced)
            return None
        except BrokerError as e:
            if e.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                return str(e)
            if not others.expired:
                others.pause()
                continue
            if deleted:
                return f"somebody else keeps creating {topic!r}"
            log.warning("the scratch topic %r of an earlier plan still exists; deleting it", topic)
            if delete(target, topic) is not None:
                return None  # it can't be deleted, but it can be used
            others, deleted = Backoff(_IN_USE_S), True
        except MissingRight:
            return f"no CREATE on the cluster, nor on topics that begin with {SCRATCH_PREFIX!r}"
        except InputError as e:
            return str(e)


def id_of(target: ClusterAdmin, topic: str) -> str | None:
    """Return the id of the topic that has this name now; None for none."""
    found = target.topics([topic]).get(topic)
    return None if found is None else found.topic_id


def id_once_known(target: ClusterAdmin, topic: str) -> str | None:
    """Return the id of a topic that was created just now; None if no broker hears of it for some seconds."""
    heard = Backoff(_HEARD_WITHIN_S)
    while (found := id_of(target, topic)) is None and not heard.expired:
        heard.pause()
    return found


def delete(target: ClusterAdmin, topic: str) -> str | None:
    """Delete the scratch topic and wait until it is gone; return why it stays, or None."""
    try:
        target.delete_topics([topic], unfenced)
        deadline = time.monotonic() + _GONE_WITHIN_S
        while target.topics([topic]):
            if time.monotonic() > deadline:
                return f"it still exists {_GONE_WITHIN_S:.0f} s after its deletion"
            time.sleep(0.05)
    except MissingRight:
        return "no DELETE on it. Grant it, or delete the topic by hand"
    except MirrorError as e:
        return str(e)
    return None
