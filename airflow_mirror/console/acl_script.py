"""ACLs as a shell script of kafka-acls.sh commands, with the reason of each, to be read before it is run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from airflow_mirror.plan.resources import PREFIXED
from airflow_mirror.plan.rights import Grant, Rights

_OPTION = {"TOPIC": "--topic", "GROUP": "--group", "TRANSACTIONAL_ID": "--transactional-id"}
_AT_ONCE = 50  # names in a command


def script(side: str, title: str, bootstrap: str, rights: Rights) -> Iterator[str]:
    """Yield the lines of the script for one cluster.

    :param side: names its two variables, which the reader sets.
    :param title: the first line.
    """
    cluster, admin = side.upper(), f"{side.upper()}_ADMIN"
    yield f"# {title}"
    yield from (f"# Note: {note}" for note in rights.notes)
    yield f"{cluster}={shlex.quote(bootstrap)}  # bootstrap servers"
    yield f"{admin}={side}-admin.properties  # client settings of somebody who may change ACLs"
    ask = f'kafka-acls.sh --bootstrap-server "${cluster}" --command-config "${admin}" --add'
    for resources in _alike(rights.grants):
        yield ""
        yield from (line for grant in resources[0] for line in _reasons(grant))
        for some in _chunks(resources):
            yield f"{ask} \\"
            yield f"  --allow-principal {shlex.quote(some[0][0].acl.principal)} {' '.join(_named(some))} \\"
            yield f"  {' '.join(_operations(some[0]))}"


def _alike(grants: Iterable[Grant]) -> list[list[list[Grant]]]:
    """Return the grants of each resource, those resources together of which the same is needed for the same reasons."""
    of_each: dict[tuple[str, str, str], list[Grant]] = {}
    for grant in grants:
        acl = grant.acl
        of_each.setdefault((acl.resource_type, acl.pattern_type, acl.name), []).append(grant)
    alike: dict[Any, list[list[Grant]]] = {}
    for (kind, pattern_type, _), its in of_each.items():
        alike.setdefault((kind, pattern_type, *((g.acl.operation, g.why) for g in its)), []).append(its)
    return list(alike.values())


def _reasons(grant: Grant) -> Iterator[str]:
    first, *others = grant.why
    yield f"# {grant.acl.operation}: {first}"
    yield from (f"#   also: {why}" for why in others)


def _chunks(resources: Iterable[list[Grant]]) -> Iterator[list[list[Grant]]]:
    left = iter(resources)
    while chunk := list(islice(left, _AT_ONCE)):
        yield chunk


def _named(resources: list[list[Grant]]) -> Iterator[str]:
    first = resources[0][0].acl
    if first.resource_type == "CLUSTER":
        yield "--cluster"
        return
    yield from (f"{_OPTION[first.resource_type]} {shlex.quote(its[0].acl.name)}" for its in resources)
    if first.pattern_type == PREFIXED:
        yield "--resource-pattern-type prefixed"


def _operations(grants: list[Grant]) -> Iterator[str]:
    """Yield options; kafka-acls.sh writes DESCRIBE_CONFIGS as DescribeConfigs."""
    yield from (f"--operation {grant.acl.operation.title().replace('_', '')}" for grant in grants)
