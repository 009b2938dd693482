"""``airflow-mirror move-schemas``: give a registry what it lacks of another one, with the same ids."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import Any

from airflow_mirror.console.command import add_json, add_yes, command
from airflow_mirror.console.registries import registry_of
from airflow_mirror.sync.schemas.held import READONLY, READWRITE
from airflow_mirror.sync.schemas.hold import mode_of, release, what_was_done
from airflow_mirror.sync.schemas.move import MoveReport, move
from airflow_mirror.sync.schemas.registry import Registry
from airflow_mirror.wording import count

_TEXT = """\
Give the target's schema registry what it lacks of the source's: subjects, versions with their ids, references,
compatibility and contexts, what is softly deleted. Ids are kept in mode IMPORT, and from Apicurio to Apicurio by its
export and import. Nothing that the target has is overwritten: what differs is named. Without --yes it says what would be
done. What was interrupted the same command goes on with.

Of a subject that the target has, new versions alone come: its applications may be there by now, and what is deleted, set
or frozen on the source is not meant for them. Such differences are named, and so are modes of subjects; --complete brings
them.

--hold sets the target's registry to mode READONLY first: nobody else registers there, and moves go on, until 'cutover
--release-registry' has opened the target, or --release, which moves nothing.

A registry whose store is a topic moves with that topic instead. A registry is named as for 'schemas'.

Exit status: 0 the target has it all, or without --yes would have; 1 something differs and stays, or can't be moved, or a
registry does not answer or refuses; 2 wrong input.

examples:
  airflow-mirror move-schemas --source-registry http://registry.dc1:8081 --target-registry dst-registry.properties
  airflow-mirror move-schemas --source-registry registry_dc1 --target-registry registry_dc2 --yes
  airflow-mirror move-schemas --source-registry registry_dc1 --target-registry registry_dc2 --hold --yes
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "move-schemas", _TEXT, _run)
    for role in ("source", "target"):
        p.add_argument(
            f"--{role}-registry", required=True, metavar="REGISTRY",
            help=f"the {role}'s: its address, a file of properties, or an Airflow connection",
        )  # fmt: skip
    p.add_argument(
        "--complete", action="store_true",
        help="soft deletions, settings and modes also of subjects that the target has: what a kill has left, or what was "
        "done on the source since. Not once applications use the target's",
    )  # fmt: skip
    held = p.add_mutually_exclusive_group()
    held.add_argument(
        "--hold", action="store_true", help="let nobody else register at the target's, until it is released"
    )
    held.add_argument("--release", action="store_true", help="let everybody register there again, and move nothing")
    add_yes(p)
    add_json(p)


def _run(arguments: argparse.Namespace) -> int:
    source, target = (registry_of(role, getattr(arguments, f"{role}_registry")) for role in ("source", "target"))
    if arguments.release:
        return _release(arguments, target)
    say = partial(print, file=sys.stderr) if arguments.yes else lambda _: None
    found = move(
        source, target, dry_run=not arguments.yes, keep_out=arguments.hold, complete=arguments.complete, say=say
    )  # fmt: skip
    print(json.dumps(found.to_dict(), indent=1) if arguments.json else "\n".join(lines(found, done=arguments.yes)))
    return int(bool(found.conflicts or found.left_out))


def _release(arguments: argparse.Namespace, target: Registry) -> int:
    mode = mode_of(target)
    if not arguments.yes:
        said = f"the target's schema registry: it is in mode {mode}{f'; --yes sets {READWRITE}' * (mode == READONLY)}"
    else:
        said = what_was_done(target, release(target))
    print(json.dumps({"mode": mode, "released": arguments.yes and mode == READONLY}) if arguments.json else said)
    return 0


def lines(found: MoveReport, *, done: bool) -> list[str]:
    """Return what was done, or would be, and what differs."""
    return [
        *(f"{'done' if done else 'to do'}: {line}" for line in found.done),
        *(f"differs: {line}" for line in found.conflicts),
        *(f"left out: {line}" for line in found.left_out),
        f"{count(found.versions, 'version')} on the source, {count(len(found.done), 'change')} "
        f"{'made' if done else 'to make'}, {count(len(found.conflicts), 'difference')}",
        *([] if done or not found.done else ["nothing was changed; --yes does it"]),
    ]
