"""``airflow-mirror adopt``: take over a target that MirrorMaker 2 has filled."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_mirror.common.knobs import number
from airflow_mirror.config import ClientConfig
from airflow_mirror.console.clusters import add_both, both_of
from airflow_mirror.console.command import command
from airflow_mirror.console.steps import add_steps
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.errors import InputError
from airflow_mirror.extras.adopt import file, groups
from airflow_mirror.extras.adopt.examine import Adoption, Limits, examine
from airflow_mirror.extras.adopt.mirrormaker import Flow
from airflow_mirror.extras.adopt.report import lines, to_dict
from airflow_mirror.extras.adopt.take import refused, take
from airflow_mirror.jobs.driver.arguments import add_flow, mirror_of
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.sync.groups import GroupReport
from airflow_mirror.sync.maps import OffsetMaps

_TEXT = """\
Take over a target that MirrorMaker 2 has filled, in whole or in part: prove that it is stopped, match each of its copies
with the source's record, build the exact offset map, make the topics the mirror's, and correct the groups, if they
follow (sync_groups). The mirror's tail then goes on after the last copy. Nothing is copied again, or left out.

Without --yes it reads and reports, and changes nothing. It may be repeated, also after it was interrupted. Adopted topics
are not matched again; their groups are.

Exit status: 0 done, or it could be; 1 try again, or records are against it: nothing was changed; 2 wrong input, or
MirrorMaker 2 may still run: nothing was changed.

examples:
  airflow-mirror adopt --source src.properties --target dst.properties --name a-to-b --include 'orders.*' \\
      --policy prefix --source-alias A
  airflow-mirror adopt --mirror a-to-b.yaml --yes
  airflow-mirror adopt --config connect-mirror-maker.properties --flow 'A->B'
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "adopt", _TEXT, _run)
    add_both(p)
    add_flow(p)
    _add_mirrormaker(p)
    limits = p.add_argument_group("what may be taken over")
    limits.add_argument(
        "--max-ambiguous", type=number, default=Limits().ambiguous, metavar="SHARE",
        help="largest share of a partition's copies that may be of other records as well (default: %(default)g)",
    )  # fmt: skip
    limits.add_argument(
        "--max-missing", type=int, default=0, metavar="N",
        help="most records of a partition that the target lacks, while it has later ones (default: 0)",
    )  # fmt: skip
    limits.add_argument(
        "--max-unknown", type=int, default=0, metavar="N",
        help="most records of a partition of the target that are not the source's (default: 0)",
    )  # fmt: skip
    limits.add_argument(
        "--ignore-timestamps", action="store_true",
        help="match without them (default: only where the target topic has LogAppendTime)",
    )  # fmt: skip
    p.add_argument("--allow-rewind", action="store_true", help="also set back groups that are further on the target")
    add_steps(p)


def _add_mirrormaker(p: argparse.ArgumentParser) -> None:
    """Add what MirrorMaker 2's file says about it; its defaults are the driver's."""
    known = p.add_argument_group("MirrorMaker 2, as in its file (its source's alias: --source-alias)")
    known.add_argument(
        "--config", action="append", metavar="FILE",
        help="the file itself, or those of its connectors (repeat it): clusters, Mirror and all of the following",
    )  # fmt: skip
    known.add_argument("--flow", default="", metavar="A->B", help="which one; default: the only one that is enabled")
    known.add_argument("--target-alias", default="", metavar="B", help="its alias of the target: its topic on the source")
    known.add_argument(
        "--internal-separator", metavar="S", help="of its internal topics, if it is not --separator ('.' by default)"
    )
    for option, metavar, default in (
        ("--offset-storage-topic", "TOPIC", "mm2-offsets.A.internal"),
        ("--status-storage-topic", "TOPIC", "mm2-status.A.internal"),
        ("--config-storage-topic", "TOPIC", "mm2-configs.A.internal"),
        ("--workers-group", "GROUP", "A-mm2"),
    ):
        known.add_argument(option, default="", metavar=metavar, help=f"default: {default}")
    known.add_argument(
        "--ignore-group", action="append", default=[], metavar="GROUP",
        help="a group of Connect workers that run something else; may be repeated",
    )  # fmt: skip
    known.add_argument(
        "--watch", type=number, default=15.0, metavar="SECONDS",
        help="how long its logs must stand still (default: %(default)g)",
    )  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    mirror, flow, of_source, of_target = _asked(arguments)
    with ClusterAdmin(of_source) as source, ClusterAdmin(of_target) as target:
        found = examine(
            mirror, flow, source, target,
            limits=Limits(
                ambiguous=arguments.max_ambiguous, missing=arguments.max_missing, unknown=arguments.max_unknown
            ),
            watch_s=arguments.watch, timed=False if arguments.ignore_timestamps else None,
            ignored_groups=arguments.ignore_group,
        )  # fmt: skip
        corrected = None
        if not found.refusals:
            corrected = _taken(arguments, found, (source, target), (of_source, of_target))
    _tell(arguments, found, corrected)
    return 1 if found.refusals else 0


def _asked(arguments: argparse.Namespace) -> tuple[Mirror, Flow, ClientConfig, ClientConfig]:
    """Return the Mirror that goes on, what MirrorMaker 2 calls its own, and both clusters.

    :raises InputError: they are given twice, or not at all.
    """
    if not arguments.config:
        if arguments.flow:
            raise InputError("--flow is for a file of MirrorMaker 2", "none is named", "Name it (--config).")
        mirror = mirror_of(arguments)
        flow = Flow(source=mirror.source_alias or mirror.source, separator=mirror.separator)
        return mirror, _named(arguments, flow), *both_of(arguments, mirror)
    if arguments.mirror or arguments.source or arguments.target:
        raise InputError(
            "--config is given beside --mirror, --source or --target", "it says what these would say", "Give either."
        )
    brought = file.read([Path(path) for path in arguments.config], arguments.flow)
    return mirror_of(arguments, brought.mirror), _named(arguments, brought.flow), brought.source, brought.target


def _named(arguments: argparse.Namespace, flow: Flow) -> Flow:
    """Return a flow with the names that the command line gives."""
    given = {
        "target": arguments.target_alias, "separator": arguments.internal_separator,
        "offset_topic": arguments.offset_storage_topic, "status_topic": arguments.status_storage_topic,
        "config_topic": arguments.config_storage_topic, "group": arguments.workers_group,
    }  # fmt: skip
    return replace(flow, **{key: value for key, value in given.items() if value})


def _taken(
    arguments: argparse.Namespace, found: Adoption, admins: tuple[ClusterAdmin, ClusterAdmin],
    configs: tuple[ClientConfig, ClientConfig],
) -> GroupReport | None:  # fmt: skip
    """Take over what was found, on request; return where its groups stood, and where they would have to."""
    # By the maps that were just made, and by those that were stored before.
    new = groups.through({one.source: one.through for one in found.matches if one.through is not None})
    topics = {t.source_topic for t in found.topics}
    follow = found.plan.mirror.sync_groups

    def compared(maps: OffsetMaps) -> GroupReport:
        return groups.compare(
            found.plan.mirror, *admins, [*found.topics, *found.done],
            lambda tp, offset: new(tp, offset) if tp.topic in topics else maps.to_target(tp, offset),
            allow_rewind=arguments.allow_rewind and follow,
        )  # fmt: skip

    def set_them(token: LeaseToken) -> GroupReport:
        with OffsetMaps(found.plan, *configs) as maps:
            report = compared(maps)
            groups.take_over(found, *admins, maps, token, allow_rewind=arguments.allow_rewind)
        return replace(report, committed=True)

    if arguments.yes and follow:
        return take(found, *admins, end_writing=arguments.end_writing, then=set_them)
    if arguments.yes:  # MirrorMaker has set no position either: those on the target are its applications' own
        take(found, *admins, end_writing=arguments.end_writing)
    with OffsetMaps(found.plan, *configs) as maps:
        return compared(maps)


def _tell(arguments: argparse.Namespace, found: Adoption, corrected: GroupReport | None) -> None:
    if arguments.json:
        print(json.dumps(to_dict(found, corrected, done=arguments.yes and not found.refusals), indent=1))
    else:
        for line in lines(found, corrected):
            print(line)
    if found.refusals:
        print(f"refused: {refused(found.refusals)}", file=sys.stderr)
    elif not arguments.json:
        print("done" if arguments.yes else "nothing was changed (--yes does it)")
