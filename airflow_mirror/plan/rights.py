"""The rights that a mirror's principal needs: one table, and what of it a Mirror asks for. No cluster is queried.

Each row was tried on a real broker (``tests/integration/test_rights.py``): a principal with these rights alone plans,
copies, compares and cuts over; without one of them an error or a warning names it. ``docs/mirror.md`` shows the same
table; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from airflow_mirror.common.policy import (
    DECISIONS,
    HEARTBEATS,
    MAPS,
    STATE,
    WISHES,
    own_ids,
    progress_group,
    scratch_topic,
    starts_group,
)
from airflow_mirror.kafka.acls import OPEN_BY_DEFAULT
from airflow_mirror.kafka.model import COORDINATORS, OF_GROUPS, Acl
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.resources import ANY, PREFIXED, Resource, covering, includes

Version = tuple[int, ...]
PLAN, COPY, VERIFY, CUTOVER = ROLES = ("plan", "copy", "verify", "cutover")
# Of somebody who runs a command of `airflow-mirror` and no part of the work; each may have a principal of its own.
STATUS, PAUSE, LIFT_FENCE, FAILOVER, RETIRE = COMMANDS = ("status", "pause", "lift-fence", "failover", "retire")
SOURCE, TARGET = SIDES = ("source", "target")
NEWEST: Version = (99,)  # newer than any release
_PREFIXES = (2, 0)  # the first release with prefixed patterns (KIP-290)


@dataclass(frozen=True)
class Right:
    """One row of the table.

    :param on: a key of :data:`RESOURCES`.
    :param operation: Kafka's name, as in an ACL.
    :param roles: the parts of a migration that need it.
    :param when: a key of :data:`WHEN`: the Mirrors that need it.
    :param since: the first release of the side's brokers for which this row holds; ``before``: the first for which not.
    :param why: for what; and what is different without it, where that is no error.
    """

    side: str
    on: str
    operation: str
    roles: tuple[str, ...]
    why: str
    when: str = ""
    since: Version = ()
    before: Version | None = None

    def is_for(self, mirror: Mirror, version: Version) -> bool:
        """Return whether a Mirror needs it on brokers of this release."""
        return self.since <= version and (self.before is None or version < self.before) and WHEN[self.when](mirror)


def _keeps_partitions(mirror: Mirror) -> bool:
    return mirror.partitioning == "preserve"


WHEN: dict[str, Callable[[Mirror], bool]] = {
    "": lambda _: True,
    "identical offsets": lambda mirror: mirror.may_keep_offsets,
    "mapped offsets": lambda mirror: mirror.offsets != "identical",
    "mapped offsets, partitioning='preserve'": lambda mirror: mirror.offsets != "identical" and _keeps_partitions(mirror),
    "partitioning='preserve'": _keeps_partitions,
    "delivery='transactional'": lambda mirror: mirror.delivery == "transactional",
    "start='latest' or start_group": lambda mirror: mirror.begins_once,
    "sync_groups": lambda mirror: mirror.sync_groups and _keeps_partitions(mirror),
    "groups or checkpoints follow": lambda mirror: (
        (mirror.sync_groups or "checkpoints" in mirror.traces) and _keeps_partitions(mirror)
    ),
    "sync_acls": lambda mirror: mirror.sync_acls,
    "traces": lambda mirror: bool(mirror.traces),
    "sync_log_starts": lambda mirror: (
        mirror.sync_log_starts and _keeps_partitions(mirror) and mirror.delivery != "transactional"
    ),
}

# As the documentation names them; `_resources` has the names that a Mirror gives them.
RESOURCES = {
    "topics": "the mirror's topics",
    "groups": "the mirror's groups",
    "all groups": "groups `*`",
    "cluster": "cluster",
    "all ids": "transactional ids `*`",
    "coordinators": f"topic `{COORDINATORS}`",
    "group coordinators": f"topic `{OF_GROUPS}`",
    "ids": f"transactional ids with the prefix `{own_ids('<mirror>')}`",
    "ledger": f"topic `{DECISIONS}`",
    "state": f"topic `{STATE}`",
    "wishes": f"topic `{WISHES}`",
    "maps": f"topic `{MAPS}`",
    "traces": "topics of `traces`: `heartbeats`, `<source alias>.heartbeats`, ...",
    "positions": "topics of `traces` without heartbeats: `<source alias>.checkpoints.internal`, ...",
    "scratch": f"topic `{scratch_topic('<mirror>')}`",
    "progress": f"group `{progress_group('<mirror>')}`",
    "starts": f"group `{starts_group('<mirror>')}`",
}

_EVERY = (PLAN, COPY, VERIFY, CUTOVER)
_ANYBODY = (*_EVERY, *COMMANDS)
_LEDGER = (PLAN, COPY, CUTOVER, LIFT_FENCE, FAILOVER, RETIRE)
_FOLLOW = "let groups follow; without it none does, and the tail says so"
_EVERY_LIST = "see whether a list of groups lacks those without a coordinator; without it the log says that it may"
_TRIED = "try out the other rights; without it the plan warns that it could not"
# Side, what, operation, who, and for what.
RIGHTS: tuple[Right, ...] = (
    Right(SOURCE, "topics", "READ", _EVERY, "read records"),
    Right(SOURCE, "topics", "DESCRIBE_CONFIGS", (PLAN, COPY), "read the topics' settings"),
    Right(
        SOURCE, "all groups", "DESCRIBE", (PLAN, CUTOVER),
        "read positions; without it no group is found: a plan warns, a cutover is refused",
        when="partitioning='preserve'", since=(1, 0),
    ),
    Right(SOURCE, "all groups", "DESCRIBE", (COPY,), _FOLLOW, when="groups or checkpoints follow", since=(1, 0)),
    Right(  # KIP-163
        SOURCE, "all groups", "READ", (PLAN, CUTOVER),
        "read positions: brokers before 1.0 ask for more than DESCRIBE", when="partitioning='preserve'", before=(1, 0),
    ),
    Right(SOURCE, "all groups", "READ", (COPY,), _FOLLOW, when="groups or checkpoints follow", before=(1, 0)),
    Right(
        SOURCE, "group coordinators", "DESCRIBE", (PLAN, CUTOVER), _EVERY_LIST + ", the plan warns",
        when="partitioning='preserve'",
    ),
    Right(SOURCE, "group coordinators", "DESCRIBE", (COPY,), _EVERY_LIST, when="groups or checkpoints follow"),
    Right(  # KIP-231
        SOURCE, "cluster", "DESCRIBE", (PLAN, CUTOVER), "list groups: brokers before 2.1 ask for it", before=(2, 1),
    ),
    Right(SOURCE, "cluster", "DESCRIBE", (COPY,), _FOLLOW, when="groups or checkpoints follow", before=(2, 1)),
    Right(
        SOURCE, "cluster", "DESCRIBE", (COPY,),
        "sizes of partitions, to split work by bytes; without it the job uses samples, and its log says so", since=(2, 0),
    ),
    Right(
        SOURCE, "cluster", "DESCRIBE", (PLAN,),
        "sizes of topics, to see whether they fit on the target; without it the plan warns", since=(2, 0),
    ),
    Right(  # KIP-546
        SOURCE, "cluster", "DESCRIBE_CONFIGS", (PLAN,),
        "client quotas that slow the mirror down; without it the plan warns", since=(2, 6),
    ),
    Right(
        SOURCE, "ledger", "READ", (PLAN, COPY),
        "see whether topics come from the target; also where there is no ledger, because Kafka does not say so "
        "without it",
    ),
    Right(
        SOURCE, "cluster", "ALTER", (CUTOVER, LIFT_FENCE),
        "the fence by ACL; without it the cutover stops before anything is touched. A fence of your own needs none",
    ),
    Right(  # KIP-664
        SOURCE, "all ids", "DESCRIBE", (CUTOVER,),
        "see transactions that hold a fenced partition; without it the report says: no identical way back", since=(3, 0),
    ),
    Right(
        SOURCE, "coordinators", "DESCRIBE", (CUTOVER,),
        "see whether every coordinator of transactions was asked; without it as above", since=(3, 0),
    ),
    Right(TARGET, "topics", "CREATE", (COPY,), "create topics"),
    Right(TARGET, "topics", "DESCRIBE", (PLAN, STATUS, RETIRE), "find the topics that exist"),
    Right(
        TARGET, "topics", "DESCRIBE_CONFIGS", (PLAN, VERIFY, CUTOVER, FAILOVER),
        "settings of topics that exist; whether retention is off, when a record is missing there",
    ),
    Right(TARGET, "topics", "WRITE", (COPY,), "write records"),
    Right(
        TARGET, "topics", "READ", (COPY, VERIFY, CUTOVER, LIFT_FENCE, FAILOVER),
        "find where to go on, compare, commit positions",
    ),
    Right(
        TARGET, "topics", "ALTER_CONFIGS", (COPY, FAILOVER, RETIRE),
        "retention off while the mirror writes, the source's settings afterwards",
    ),
    Right(TARGET, "topics", "DELETE", (COPY,), "prime a log that starts above 0", when="identical offsets"),
    Right(TARGET, "topics", "DELETE", (COPY,), "delete what the source's retention has deleted", when="sync_log_starts"),
    Right(
        TARGET, "topics", "ALTER", (COPY,),
        "add partitions to a topic when its source topic got some", when="partitioning='preserve'",
    ),
    Right(TARGET, "ids", "WRITE", _LEDGER, "writer lease, padding, transactional delivery"),
    Right(  # KIP-1037
        TARGET, "cluster", "ALTER", (PLAN, COPY),
        "pad in bulk; without it the plan warns, and padding is slower", when="identical offsets", since=(3, 8),
    ),
    Right(
        TARGET, "cluster", "CLUSTER_ACTION", (PLAN, COPY),
        "pad in bulk; without it the plan warns, and padding is slower", when="identical offsets", before=(3, 8),
    ),
    Right(
        TARGET, "cluster", "DESCRIBE_CONFIGS", (PLAN,),
        "what its brokers allow (`transaction.max.timeout.ms` of 159,303 ms, the largest request); without it the "
        "plan warns",
    ),
    Right(TARGET, "cluster", "DESCRIBE", (PLAN,), "free disk of its brokers; without it the plan warns"),  # KIP-827
    Right(
        TARGET, "cluster", "DESCRIBE", (PLAN, CUTOVER),
        "see who else may write to the ledger; without it a plan warns, a cutover wants `accept_ledger_writers`",
    ),
    Right(
        TARGET, "cluster", "DESCRIBE", (COPY,),
        "sizes of partitions, to see what `retention.bytes` explains; without it nothing does", when="sync_log_starts",
    ),
    Right(
        TARGET, "cluster", "ALTER", (FAILOVER,),
        "let writers write, by the rules that were last seen of the source", when="sync_acls",
    ),
    Right(TARGET, "ledger", "CREATE", (PLAN,), "the first plan begins the ledger"),
    Right(TARGET, "ledger", "READ", _ANYBODY, "whose topics are, what plans have"),
    Right(TARGET, "ledger", "WRITE", _LEDGER, "make a topic the mirror's, hand it over"),
    Right(TARGET, "ledger", "DESCRIBE_CONFIGS", _ANYBODY, "see that it keeps its records"),
    Right(TARGET, "state", "CREATE", (PLAN,), "keep plans, where any worker finds them"),
    Right(TARGET, "state", "READ", _ANYBODY, "find the plan, find the tail"),
    Right(TARGET, "state", "WRITE", (*_EVERY, LIFT_FENCE, FAILOVER, RETIRE), "plans, proofs, signs of life, reports"),
    Right(TARGET, "wishes", "CREATE", (PLAN,), "who may only pause a mirror creates nothing"),
    Right(
        TARGET, "wishes", "READ", (PLAN, COPY, CUTOVER, STATUS, PAUSE, RETIRE),
        "hear that nothing is to be copied, or at which rate",
    ),
    Right(TARGET, "wishes", "WRITE", (PAUSE, RETIRE), "wish that, and forget it"),
    Right(TARGET, "maps", "CREATE", (COPY,), "store offset maps", when="mapped offsets"),
    Right(TARGET, "maps", "READ", (*_EVERY, FAILOVER), "read offset maps", when="mapped offsets"),
    Right(TARGET, "maps", "READ", (RETIRE,), "see that none is left"),
    Right(TARGET, "maps", "WRITE", (COPY, RETIRE), "store offset maps, and remove them", when="mapped offsets"),
    Right(TARGET, "maps", "DESCRIBE_CONFIGS", (COPY,), "see that it keeps its records", when="mapped offsets"),
    *(
        Right(TARGET, "traces", operation, roles, why, when="traces")
        for operation, roles, why in (
            ("CREATE", (PLAN, COPY), "traces for Java clients; the plan tries it out without creating one"),
            ("WRITE", (PLAN, COPY), "write traces for Java clients; the plan tries it out without writing one"),
            ("DESCRIBE_CONFIGS", (PLAN, COPY), "see that topics of traces are as they must be"),
            ("DESCRIBE", (RETIRE,), "name those that stay"),
        )
    ),
    Right(
        TARGET, "positions", "READ", (PLAN, COPY, FAILOVER),
        "see which traces stand there; the plan tries it out", when="traces",
    ),
    Right(
        TARGET, "positions", "WRITE", (CUTOVER, FAILOVER),
        "leave the last checkpoints; without it they stay as they are, and the report says so", when="traces",
    ),
    Right(TARGET, "scratch", "CREATE", (PLAN,), _TRIED),
    Right(TARGET, "scratch", "WRITE", (PLAN,), _TRIED),
    Right(TARGET, "scratch", "READ", (PLAN,), _TRIED),
    Right(TARGET, "scratch", "DELETE", (PLAN,), "delete it again; without it the plan warns"),
    Right(TARGET, "scratch", "DELETE", (RETIRE,), "delete what a killed plan has left"),
    Right(TARGET, "groups", "READ", (CUTOVER, LIFT_FENCE, FAILOVER), "read and commit positions"),
    Right(TARGET, "groups", "READ", (COPY,), _FOLLOW, when="sync_groups"),
    Right(
        TARGET, "groups", "DELETE", (CUTOVER, LIFT_FENCE),
        "delete positions when a cutover is undone; without it they stay, and the report says so",
    ),
    Right(
        TARGET, "progress", "DESCRIBE", (COPY, VERIFY, CUTOVER),
        "see whether the records were written in transactions", when="mapped offsets, partitioning='preserve'",
    ),
    Right(TARGET, "progress", "READ", (COPY,), "commit the progress with the records", when="delivery='transactional'"),
    Right(TARGET, "ids", "DESCRIBE", (VERIFY,), "see who wrote the records", when="delivery='transactional'"),
    Right(
        TARGET, "starts", "READ", (PLAN, COPY),
        "a job without Airflow stores there where the mirror began", when="start='latest' or start_group",
    ),
    *(
        Right(TARGET, group, "DESCRIBE", (RETIRE,), "see that no position is left")
        for group in ("progress", "starts")
    ),
    *(
        Right(TARGET, on, operation, (RETIRE,), "delete its own positions", when=when)
        for group, when in (("progress", "delivery='transactional'"), ("starts", "start='latest' or start_group"))
        for on, operation in ((group, "DELETE"), ("topics", "READ"))
    ),
)  # fmt: skip


class Grant(NamedTuple):
    """An ACL that somebody has to add, and for what: a sentence for each right that it stands for."""

    acl: Acl
    why: tuple[str, ...]


class Rights(NamedTuple):
    """What a principal needs on one side of a Mirror.

    :ivar grants: in the table's order, without those that another one includes.
    :ivar notes: what no ACL can say exactly.
    """

    grants: list[Grant]
    notes: list[str]


def rights_of(
    mirror: Mirror,
    side: str,
    principal: str,
    *,
    roles: Collection[str] = ROLES,
    version: Version = NEWEST,
    names: Collection[str] | None = None,
    open_by_default: bool | None = None,
) -> Rights:
    """Return the ACLs that a Mirror needs on one side.

    :param principal: such as ``User:mirror``.
    :param roles: of :data:`ROLES` and :data:`COMMANDS`. With partitioning by key there is neither a comparison nor a
        cutover, and with shared ownership neither a cutover nor a failover: nobody needs rights for what is refused.
    :param version: the oldest release of that side's brokers.
    :param names: the source's topics that the Mirror selects, if somebody has asked it; else its patterns decide.
    :param open_by_default: whether what has no ACL is open to everybody on that side; None: nobody knows.
    """
    refused = () if _keeps_partitions(mirror) else (VERIFY, CUTOVER, LIFT_FENCE)
    wanted = {*roles}.difference(refused, (CUTOVER, LIFT_FENCE, FAILOVER) if mirror.shares else ())
    grants: list[Grant] = []
    notes: list[str] = []
    for right in RIGHTS:
        if right.side == side and wanted & set(right.roles) and right.is_for(mirror, version):
            on, said = _resources(mirror, right, names, prefixes=version >= _PREFIXES)
            grants += (Grant(_acl(one, right.operation, principal), (right.why,)) for one in on)
            notes += said
            notes += [_MAY_CHANGE_ACLS] if (right.on, right.operation) == ("cluster", "ALTER") else []
    if grants and open_by_default is not False:
        notes.insert(0, _CLOSES)
    return Rights(_without_included(grants), list(dict.fromkeys(notes)))


def _resources(
    mirror: Mirror, right: Right, names: Collection[str] | None, *, prefixes: bool
) -> tuple[list[Resource], list[str]]:
    """Return the resources of one row, and what they cover beyond it."""
    if right.on == "topics":
        named = mirror.naming.target_topic if right.side == TARGET else str
        if names is not None:
            return [Resource("TOPIC", named(name)) for name in names], [_AS_OF_NOW]
        prefix = mirror.naming.target_prefix("") if right.side == TARGET else ""
        if prefix is None:
            return [Resource("TOPIC", ANY)], [_NO_PATTERN]
        return covering("TOPIC", mirror.topics, mirror.exclude_topics, prefix=prefix, prefixes=prefixes)
    if right.on == "groups":
        return covering("GROUP", mirror.groups)
    if right.on in ("traces", "positions"):
        kinds = [kind for kind in mirror.traces if right.on == "traces" or kind != HEARTBEATS]
        return [Resource("TOPIC", name) for kind in kinds for name in mirror.trace_topics_of(kind)], []
    return [_OWN[right.on](mirror.name)], []


_CLOSES = (
    f"Where what has no ACL is open to everybody ({OPEN_BY_DEFAULT}=true), the first ACL of a resource closes it to "
    "everybody else, and one on '*' all of its kind. Run nothing of this there: the mirror may do all of it anyway."
)
_MAY_CHANGE_ACLS = (
    "ALTER on the cluster also lets the principal change every ACL there. Leave it out where that is too much."
)
_NO_PATTERN = "The mirror's policy names topics one by one: the rights are for every topic of the target."
_AS_OF_NOW = "The topics are those that the source has now. Ask again when it has more."
_OWN: dict[str, Callable[[str], Resource]] = {
    "all groups": lambda _: Resource("GROUP", ANY),
    "cluster": lambda _: Resource("CLUSTER", "kafka-cluster"),
    "all ids": lambda _: Resource("TRANSACTIONAL_ID", ANY),
    "coordinators": lambda _: Resource("TOPIC", COORDINATORS),
    "group coordinators": lambda _: Resource("TOPIC", OF_GROUPS),
    "ids": lambda name: Resource("TRANSACTIONAL_ID", own_ids(name), PREFIXED),
    "ledger": lambda _: Resource("TOPIC", DECISIONS),
    "state": lambda _: Resource("TOPIC", STATE),
    "wishes": lambda _: Resource("TOPIC", WISHES),
    "maps": lambda _: Resource("TOPIC", MAPS),
    "scratch": lambda name: Resource("TOPIC", scratch_topic(name)),
    "progress": lambda name: Resource("GROUP", progress_group(name)),
    "starts": lambda name: Resource("GROUP", starts_group(name)),
}


def _acl(on: Resource, operation: str, principal: str) -> Acl:
    return Acl(
        resource_type=on.kind, name=on.name, pattern_type=on.pattern_type, principal=principal, host="*",
        operation=operation, permission="ALLOW",
    )  # fmt: skip


def _without_included(grants: Sequence[Grant]) -> list[Grant]:
    """Leave out each grant that another one includes, which then stands for its reason as well."""
    acls = list(dict.fromkeys(grant.acl for grant in grants))
    kept: dict[Acl, list[str]] = {acl: [] for acl in acls if not any(o != acl and includes(o, acl) for o in acls)}
    for grant in sorted(grants, key=lambda g: g.acl not in kept):  # its own reason first
        kept[next(acl for acl in kept if includes(acl, grant.acl))] += grant.why
    return [Grant(acl, tuple(dict.fromkeys(why))) for acl, why in kept.items()]
