"""``airflow-mirror split``: let topics pass from one mirror to another, a wave's for instance."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import yaml

from airflow_mirror.common.patterns import matches, parse
from airflow_mirror.console.clusters import HELP, add_target, config_of, target_of
from airflow_mirror.console.command import add_mirror, command
from airflow_mirror.console.steps import add_steps, walk
from airflow_mirror.cutover.platform import Side
from airflow_mirror.errors import InputError
from airflow_mirror.extras.readiness.external_state import elsewhere, streams
from airflow_mirror.extras.readiness.waves import reads_of
from airflow_mirror.extras.split import Split, keys_of, part_of, require_apart, rest_of
from airflow_mirror.jobs.decommission import require_at_rest
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, ledger_store
from airflow_mirror.plan.inventory import hides_groups
from airflow_mirror.plan.owned import target_ids

_TEXT = """\
Let topics pass from one mirror to another one, which goes on where the old one ended: nothing is copied again, and what
is known of them passes on, too. So a wave of the plan for the night gets a mirror, a tail and a cutover of its own, while
the others go on being copied. Groups move with the topics that they read: a group of which a part would stay is refused.

Stop the old mirror's tail first. Afterwards exclude the topics from its Mirror, start its tail again, and make a plan of
the new Mirror, which is printed.

Without --yes it lists what it would do, and changes nothing. It may be repeated, also after it was interrupted; until it
is done no mirror writes to these topics.

Exit status: 0 done, or nothing was left; 1 try again; 2 wrong input, or the mirror is not at rest: nothing was changed.

examples:
  airflow-mirror split --source src.properties --target dst.properties --mirror dc1-to-dc2 --to orders --topics 'orders.*'
  airflow-mirror split ... --topics "$(jq -r '.waves[0].mirror.topics | join(",")' night.json)" --yes
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "split", _TEXT, _run)
    p.add_argument("--source", required=True, metavar="CLUSTER", help=f"the source cluster: {HELP}")
    add_target(p)
    add_mirror(p, help="the mirror that has the topics")
    p.add_argument("--to", required=True, metavar="NAME", help="the mirror that gets them: a new name")
    p.add_argument(
        "--topics", required=True, metavar="LIST", help="names or patterns of the source's topics, as in a Mirror"
    )
    add_steps(p)


def _run(arguments: argparse.Namespace) -> None:
    old, name = arguments.mirror, arguments.to
    with ClusterAdmin(config_of(arguments.source, "source")) as source, target_of(arguments) as target:
        ledger = Ledger(target)
        part, rest, whole, groups = _parts(arguments, source, target, ledger)
        split = Split(
            mirror=old, part=part, rest=rest, whole=whole, topic_ids=target_ids(part, target), ledger=ledger,
            state=state_of(target, *keys_of(old), *keys_of(name)),
            plans=state_of(target, PLAN.below(name), keys_only=True),
            old_plans=state_of(target, PLAN.below(old), keys_only=True),
            end_writing=partial(Side(target, arguments.clock).end_writing, old),
        )  # fmt: skip
        split.require_possible()
        watch = Side(target, arguments.clock).watch(old)
        require_at_rest(old, ledger, target.wire, watch, may_be_held=arguments.end_writing)
        found = walk(arguments, split.steps())
    _tell(arguments, found, part, groups)


def _parts(
    arguments: argparse.Namespace, source: ClusterAdmin, target: ClusterAdmin, ledger: Ledger
) -> tuple[Plan, Plan | None, str, Sequence[str]]:
    """Return the new mirror's first plan, the old one's without its topics and by its hash, and the groups of these.

    :raises InputError: there is no such mirror, or the topics can't be parted from its others.
    """
    whole, begun = (_last(name, source, target, ledger) for name in (arguments.mirror, arguments.to))
    if whole is None:
        raise InputError(
            f"mirror {arguments.mirror!r} has no plan on this target",
            "its ledger names none",
            "'airflow-mirror status' lists the mirrors.",
        )
    patterns = parse("topics", arguments.topics, commas=True)
    every = {t.source_topic for one in (whole, begun) if one is not None for t in one.topics}
    topics = [topic for topic in every if matches(patterns, topic)]
    if not topics:
        raise InputError(
            f"--topics {arguments.topics}", f"mirror {arguments.mirror!r} copies none of these", "Correct the patterns."
        )
    names, selected = _groups_of(whole, source)
    # As the plan for the night has it: an application's internal topics are its own, whoever commits positions there.
    internal = streams(elsewhere(source.topic_names(), every, names, {}))
    reads = reads_of(selected, source.groups_offsets(selected), internal)
    groups = require_apart(topics, every, reads)
    # The old mirror may have another plan by now, without them.
    goes_on = begun is not None and {t.source_topic for t in begun.topics} == set(topics)
    part = begun if begun is not None and goes_on else part_of(whole, topics, arguments.to)
    return part, rest_of(whole, part), whole.hash, groups


def _groups_of(whole: Plan, source: ClusterAdmin) -> tuple[list[str], list[str]]:
    """Return the source's groups, and those of them that move with the mirror.

    :raises InputError: it may have others: one that also reads topics that stay would be in two cutovers.
    """
    mirror = whole.mirror
    if not mirror.names_its_groups and hides_groups(source):
        raise InputError(
            f"mirror {mirror.name!r}: groups of the source that read these topics may be hidden",
            "the principal lacks DESCRIBE on group *: Kafka lists what may be described, and says no error",
            "Grant it (airflow-mirror rights), or nobody knows which topics belong together.",
        )
    # Who asks for a group by its name is told that it may not see it. Those that are gone by now have no positions.
    known = {*whole.groups, *mirror.named_groups}
    names = sorted({one.group_id for one in source.groups()} | known)
    return names, [name for name in names if mirror.selects_group(name)]


def _last(name: str, source: ClusterAdmin, target: ClusterAdmin, ledger: Ledger) -> Plan | None:
    """Return a mirror's last plan as it is amended; None if it has none between these clusters."""
    plan_hash = ledger_store.last_hash(ledger.values(), name)
    if plan_hash is None:
        return None
    plan = ledger_store.fetch(plan_hash, name, target, ledger)
    between = source.cluster_id(), target.cluster_id()
    if (plan.source_cluster_id, plan.target_cluster_id) != between:
        raise InputError(
            f"mirror {name!r} is one between other clusters",
            f"it copies from {plan.source_cluster_id} to {plan.target_cluster_id}, and these are "
            f"{' and '.join(map(str, between))}",
            "Name its clusters (--source, --target).",
        )
    return plan


def _tell(arguments: argparse.Namespace, found: list[dict[str, Any]], part: Plan, groups: Sequence[str]) -> None:
    topics = list(part.mirror.topics)
    if arguments.json:
        told = {"mirror": part.mirror.to_dict(), "exclude_topics": topics, "groups": groups}
        print(json.dumps({"done": arguments.yes, "steps": found, **told}, indent=1))
        return
    print(f"groups     that read them, and move with them: {', '.join(groups) or 'none'}")
    print(f"exclude    from mirror {arguments.mirror!r}, before its tail starts again: {', '.join(topics)}")
    print(f"mirror     {arguments.to!r}, as a file:")
    print("".join(f"  {line}\n" for line in _file(part.mirror).splitlines()), end="")
    if not found:
        print(f"nothing is left to do: the topics are mirror {arguments.to!r}'s")
    else:
        print("done" if arguments.yes else "nothing was changed (--yes does it)")


def _file(mirror: Mirror) -> str:
    """Return a Mirror as YAML, without what is so by default."""
    usual = Mirror(name=mirror.name, source=mirror.source, target=mirror.target).to_dict()
    always = ("name", "source", "target", "topics")
    told = {key: value for key, value in mirror.to_dict().items() if key in always or value != usual[key]}
    told |= {"policy": str(told["policy"])} if "policy" in told else {}  # it dumps no other kind of text
    return yaml.safe_dump(told, sort_keys=False, default_flow_style=None, width=100)
