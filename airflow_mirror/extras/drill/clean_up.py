"""Delete what a drill created: its own run, else the next drill, or a person.

What is kept of a drill names its topics, and others may write there. So whoever deletes says, from settings of its own,
what the names of drills begin with; any other name stays.
"""

from __future__ import annotations

from functools import partial

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokerError, MirrorError, TryAgain
from airflow_mirror.extras.drill.reading import patiently
from airflow_mirror.extras.drill.store import Drill, Drills

# No run of kafka_dr_drill takes that long: its tasks end after ten minutes each, and try again for less than two hours.
DEAD_AFTER_S = 24 * 3600.0


PREFIX = "mirror-drill."  # of the topics and groups of drills, unless somebody chooses another one


def clean_up_drill(drill: Drill, clusters: list[ClientConfig], begins: str) -> list[str]:
    """Delete what a drill has created. What could not be deleted is returned, one line each, and stays noted in it.

    :param begins: what the names of its topics begin with; see the module.
    """
    left, stays = [], []
    for topic in drill.topics:
        own = topic.startswith(begins)
        lines = (
            clean_up(clusters, topic, topic) if own else [f"clusters: no name of a drill, which begins with {begins!r}"]
        )
        left += [f"{topic!r} on the {line}" for line in lines]
        stays += [topic] if lines else []
    drill.topics = stays
    return left


def left_behind(left: list[str]) -> TryAgain:
    """Return the error for what could not be deleted."""
    return TryAgain(f"the drill could not delete {'; '.join(left)}", remedy="Clear this task, or type the command again.")


def clean_up_earlier(
    drills: Drills, clusters: list[ClientConfig], source_id: str, now_s: float, begins: str
) -> list[str]:
    """Delete what drills have left that began a day ago or before: nothing of them runs any more.

    :param source_id: of the source among ``clusters``; the topics of a drill with another source stay.
    :param begins: as for :func:`clean_up_drill`.
    :returns: what was deleted and what was not, one line each.
    """
    said = []
    for drill in drills.all():
        topics = list(drill.topics)
        if not topics or now_s - drill.at_ms / 1000 < DEAD_AFTER_S:
            continue
        if drill.source_id != source_id:
            said.append(f"{', '.join(topics)} of drill {drill.run} stay: on a source with cluster id {drill.source_id!r}")
            continue
        left = clean_up_drill(drill, clusters, begins)
        drills.save(drill)
        said += [f"{topic} of drill {drill.run} is deleted" for topic in topics if topic not in drill.topics]
        said += [f"drill {drill.run}: could not delete {line}" for line in left]
    return said


def clean_up(clusters: list[ClientConfig], topic: str, group: str, timeout_s: float = 60.0) -> list[str]:
    """Delete the drill's topic and group on each cluster; return what could not be deleted, one line each.

    Nothing that fails keeps the rest from being tried.

    :param timeout_s: for one group: a coordinator that is being elected, or a member that was killed, goes by.
    """
    left = []
    for config in clusters:
        for delete in (
            partial(patiently, partial(_delete_group, config, group), timeout_s),
            partial(_delete_topic, config, topic),
        ):
            try:
                delete()
            except (MirrorError, TimeoutError) as e:
                left.append(f"{config.role}: {e}")
    return left


def _delete_topic(config: ClientConfig, topic: str) -> None:
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.kafka.permit import unfenced

    with ClusterAdmin(config) as admin:
        admin.delete_topics(admin.topics([topic]), unfenced)


def _delete_group(config: ClientConfig, group: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient(config.common())  # kept alive: garbage collected too early, it would lose its results
    for future in client.delete_consumer_groups([group], request_timeout=15).values():
        try:
            future.result(timeout=30)
        except KafkaException as e:
            # Without a coordinator nobody knows of the group, which may be there; `patiently` asks again.
            if e.args[0].name() != "GROUP_ID_NOT_FOUND":
                raise BrokerError(f"delete group {group!r}", e.args[0].code(), e.args[0].name()) from e
