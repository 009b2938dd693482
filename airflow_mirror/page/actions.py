"""What a person may do about a mirror from its page: runs of the package's DAGs, which Airflow's own API starts.

An action is a row of :data:`ACTIONS`. It is offered where it makes sense, to who may start a run of its DAG, and says its
effect before it has one. No socket, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_mirror.cutover.intent import ACL
from airflow_mirror.plan.direction import reverse_name

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Action:
    """One thing to do about a mirror.

    :param dag: of the package's example DAGs. :param text: on the button.
    :param effect: a sentence with fields of the row. :param conf: returns the form with which the DAG is triggered.
    :param offered: says whether it makes sense for a mirror as it is now.
    :param asks: the field of the form that a person fills in, empty at first.
    """

    key: str
    dag: str
    text: str
    effect: str
    conf: Callable[[Row], dict[str, str]]
    offered: Callable[[Row], bool]
    asks: str = ""

    def of(self, row: Row, paused: bool) -> dict[str, Any]:
        """Return what the page is told. :param paused: whether the DAG is turned off."""
        said = {"mirror": row["mirror"], "source": row["source"] or "the source", "target_id": row["target_id"]}
        said["fence"] = next((fence["name"] for fence in _is_up(row)), "")
        return {
            "key": self.key, "dag": self.dag, "text": self.text, "effect": self.effect.format(**said),
            "conf": self.conf(row), "asks": self.asks, "paused": paused,
        }  # fmt: skip


def _pace(action: str) -> Callable[[Row], dict[str, str]]:
    return lambda row: {"name": row["mirror"], "target": row["target_id"], "action": action}


def _between(row: Row) -> dict[str, str]:
    return {"name": row["mirror"], "source": row["source"], "target": row["target_id"]}


def _is_up(row: Row) -> list[Row]:
    return [fence for fence in row["fences"] if not fence["kept"]]


def _is_liftable(row: Row, *, by_acl: bool) -> bool:
    return row["source"] is not None and any((fence["kind"] == ACL) is by_acl for fence in _is_up(row))


def _is_opened(row: Row) -> bool:
    return bool(row["topics"]) and row["in_production"] == row["topics"]


def _copies(row: Row) -> bool:
    return row["plan"] is not None and not _is_opened(row)


def _is_reverse(row: Row) -> bool:
    return len(reverse_name(row["mirror"])) < len(row["mirror"])


_LIFTED = "Producers may write to {source} again. The fence of a cutover that is at work stays."
ACTIONS = (
    Action(
        key="lift", dag="kafka_lift_fence", text="Lift the fence", effect=_LIFTED,
        conf=lambda row: {**_between(row), "fence": ACL}, offered=partial(_is_liftable, by_acl=True),
    ),
    # Whoever may write to the ledger could name any function, which the run would call with an admin of the source: no
    # name of a record gets into a form. See ``fence_for``.
    Action(
        key="lift", dag="kafka_lift_fence", text="Lift the fence",
        effect=_LIFTED + " It was raised by a function. The ledger names {fence!r}, but is not believed: type the one "
        "that the cutover was given.",
        conf=_between, offered=partial(_is_liftable, by_acl=False), asks="fence",
    ),
    Action(
        key="pause", dag="kafka_pace", text="Pause",
        effect="{mirror} copies nothing until it is resumed. Records that {source} deletes meanwhile are lost to it.",
        conf=_pace("pause"), offered=lambda row: _copies(row) and row["pause"] is None,
    ),
    Action(
        key="resume", dag="kafka_pace", text="Resume", effect="{mirror} copies again, from where it was.",
        conf=_pace("resume"), offered=lambda row: row["pause"] is not None,
    ),
    Action(
        key="rate", dag="kafka_pace", text="Set the rate",
        effect="All jobs of {mirror} together copy at most so many bytes per second, until somebody sets another rate. "
        "default: as the Mirror says; none: no limit.",
        conf=_pace("rate"), offered=_copies, asks="rate",
    ),
    Action(
        key="failback", dag="kafka_failback", text="Fail back",
        effect="Applications return to {source} with what they wrote to {target_id} since. A person is asked once more, "
        "with what was counted, before {target_id} is fenced.",
        conf=_between, offered=lambda row: _is_opened(row) and row["source"] is not None and not _is_reverse(row),
    ),
    Action(
        key="drill", dag="kafka_dr_drill", text="Drill",
        effect="A topic of the drill's own is mirrored from {source} to {target_id}, lost and brought back, to measure "
        "what a disaster would cost. No topic of {mirror} is touched; its groups are only looked at.",
        conf=lambda row: {"source": row["source"], "target": row["target_id"], "groups_of": row["mirror"]},
        offered=lambda row: row["state"] == "following" and row["source"] is not None,
    ),
)  # fmt: skip


def actions_of(row: Row, started: Callable[[str], bool | None]) -> list[dict[str, Any]]:
    """Return what somebody may do about a mirror.

    :param row: of the list. :param started: returns of a DAG whether it is turned off; None: he may not start it.
    """
    found = ((one, started(one.dag)) for one in ACTIONS if one.offered(row))
    return [one.of(row, paused) for one, paused in found if paused is not None]
