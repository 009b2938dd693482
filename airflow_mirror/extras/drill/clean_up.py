"""Delete what a drill created: its own run, else the next drill, or a person.

What is kept of a drill names its topics, and others may write there. So whoever deletes says, from settings of its own,
what the names of drills begin with; any other name stays. So does a topic of a drill's name with another id than the
drill's: somebody has created it since.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokerError, MirrorError, TryAgain
from airflow_mirror.extras.drill.reading import patiently
from airflow_mirror.extras.drill.store import Drill, Drills

if TYPE_CHECKING:
    from airflow_mirror.kafka.admin import ClusterAdmin

# No run of kafka_dr_drill takes that long: its tasks end after ten minutes each, and try again for less than two hours.
DEAD_AFTER_S = 24 * 3600.0


class Cleaned(NamedTuple):
    """What became of one topic and its group, one line each, which begins with the role of a cluster.

    :param left: what could not be deleted. :param others: topics of that name which are not the drill's, and stay.
    """

    left: list[str]
    others: list[str]


def clean_up_drill(drill: Drill, clusters: list[ClientConfig], begins: str, mirror: str) -> list[str]:
    """Delete what a drill has created. What could not be deleted is returned, one line each, and stays noted in it.

    What is not the drill's is noted there as well, and is nothing that is left to do.

    :param begins: what the names of its topics begin with; see the module. :param mirror: the drill's.
    """
    left, stays = [], []
    for topic in drill.topics:
        done = Cleaned([f"clusters: no name of a drill, which begins with {begins!r}"], [])
        if topic.startswith(begins):
            done = clean_up(clusters, topic, topic, Own(mirror, drill.ids.get(topic, "")))
        left += [f"{topic!r} on the {line}" for line in done.left]
        # Once: a call that comes back for what it has left finds them again.
        drill.others += [line for other in done.others if (line := f"{topic!r} on the {other}") not in drill.others]
        stays += [topic] if done.left else []
    drill.topics, drill.ids = stays, {topic: one for topic, one in drill.ids.items() if topic in stays}
    return left


def deleted(drill: Drill, topics: list[str]) -> list[str]:
    """Return which of a drill's topics a clean-up has deleted, of those that it had before."""
    other = [topic for topic in topics if any(line.startswith(f"{topic!r} on ") for line in drill.others)]
    return [topic for topic in topics if topic not in drill.topics and topic not in other]


def left_behind(left: list[str]) -> TryAgain:
    """Return the error for what could not be deleted."""
    return TryAgain(
        "the drill could not delete all that it has made", "; ".join(left), "Clear this task, or type the command again."
    )


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
        left = clean_up_drill(drill, clusters, begins, drills.mirror)
        drills.save(drill)
        said += [f"drill {drill.run}: {line}" for line in drill.others]
        said += [f"{topic} of drill {drill.run} is deleted" for topic in deleted(drill, topics)]
        said += [f"drill {drill.run}: could not delete {line}" for line in left]
    return said


class Own(NamedTuple):
    """By what a drill's topic is told from another one of its name.

    :param mirror: the drill's, to which the target's ledger says that the topic there belongs.
    :param source_topic_id: as it was noted; "" if it was not.
    """

    mirror: str
    source_topic_id: str

    def is_not(self, admin: ClusterAdmin, topic: str, topic_id: str) -> str:
        """Return why a topic of that name and id on a cluster is not the drill's; "" if it is, or nobody noted it."""
        from airflow_mirror.ledger.decisions import Ledger
        from airflow_mirror.plan.owned import owners

        noted = self.source_topic_id
        if admin.role != "source":
            owned = owners(Ledger(admin).peek())[0].get(topic)
            # A mirror with `.*`, say, where the prefix is another one: its tail was faster than the drill's own plan.
            if owned is not None and owned.mirror != self.mirror and owned.topic_id in ("", topic_id):
                return f"it belongs to {owned.owner}"
            noted = owned.topic_id if owned is not None and owned.mirror == self.mirror else ""
        return f"its id is {topic_id}, not {noted}" if noted not in ("", topic_id) else ""


def clean_up(clusters: list[ClientConfig], topic: str, group: str, own: Own, timeout_s: float = 60.0) -> Cleaned:
    """Delete the drill's topic and group on each cluster.

    Nothing that fails keeps the rest from being tried.

    :param timeout_s: for one group: a coordinator that is being elected, or a member that was killed, goes by.
    """
    done = Cleaned([], [])
    for config in clusters:
        others = len(done.others)
        for delete in (
            partial(_delete_topic, config, topic, own, done.others),
            partial(patiently, partial(_delete_group, config, group), timeout_s),
        ):
            try:
                delete()
            except (MirrorError, TimeoutError) as e:
                done.left.append(f"{config.role}: {e}")
            if len(done.others) > others:
                break  # nor is the group that reads it
    return done


def _delete_topic(config: ClientConfig, topic: str, own: Own, others: list[str]) -> None:
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.kafka.permit import unfenced

    with ClusterAdmin(config) as admin:
        there = admin.topics([topic]).get(topic)
        if there is None:
            return
        # Brokers before 2.8 have no ids: there the name is all that tells it.
        if not there.topic_id:
            admin.delete_topics([topic], unfenced)
            return
        # Not noted: a process died between its creation and the note, so it is what is there under the drill's name. An
        # id that was noted never makes a topic of another name go: it is only compared.
        if why := own.is_not(admin, topic, there.topic_id):
            others.append(f"{config.role}: it is not the drill's ({why}), and stays")
            return
        # By its id, which was read just now: what somebody creates in this name from here on is another topic. Dies
        # before it, or its answer is lost: the next call finds the topic, or none.
        admin.delete_topic(topic, there.topic_id, unfenced)


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
