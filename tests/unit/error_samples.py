"""Errors with representative values, at least one of each class, and one for each branch of its text.

tests/golden/errors.json holds what they say.
"""

from __future__ import annotations

from airflow_mirror import errors as e
from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.patterns import invalid_pattern
from airflow_mirror.extras.adopt.take import refused
from airflow_mirror.extras.drill.clean_up import left_behind
from airflow_mirror.jobs.decommission import not_over
from airflow_mirror.jobs.runner.client import elsewhere
from airflow_mirror.jobs.runner.cluster_mode import silent
from airflow_mirror.jobs.runner.command import spark_missing
from airflow_mirror.jobs.runner.state import FAILED
from airflow_mirror.jobs.runner.status import error_of
from airflow_mirror.plan.ledger_store import unknown_mirror
from airflow_mirror.plan.model import blocked
from airflow_mirror.sync.taking_over import unclear
from airflow_mirror.sync.write_permit import Stopped
from airflow_mirror.wire import errors as w
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.kerberos.causes import Failure, no_ticket
from airflow_mirror.wire.kerberos.identity import Identity
from airflow_mirror.wire.single import nothing_fetched, unsettled

FEW = ["one", "two"]
TOPICS = [f"t{n:02}" for n in range(25)]
PLAN, OTHER = "0123456789abcdef0123", "fedcba9876543210fedc"
TP = TopicPartition("orders", 3)
STOPPED = ("orders", 3, 1200, 1300, "the cause", "The remedy.")
_IDENTITY = Identity(principal="mirror@EXAMPLE.COM", keytab="FILE:/k", proof="keytab /k")


def samples() -> list[e.MirrorError]:
    """Return them, made anew."""
    return [
        e.MirrorError("any text"),
        e.InputError("any text"),
        e.TryAgain("any text"),
        e.NeedsHuman("any text"),
        e.RegistryStillHeld("target", "it does not answer"),
        e.AnswerTooLarge("source", "/subjects", 64 << 20),
        e.InvalidField("field", 7, "the cause", "The remedy."),
        e.BrokersUnsupported("source", "0.11", FEW),
        e.BrokersUnsupported("target", "3.0", TOPICS),
        invalid_pattern("topics", "a[", "unterminated set"),
        invalid_pattern("groups", "a[", "unterminated set", "The remedy."),
        e.MissingSetting("connection 'kafka_a'", "bootstrap.servers"),
        e.InvalidSetting("client.properties line 4", "linger.ms", "is no number", "Give milliseconds"),
        e.UnknownConnection("kafka_a", "source"),
        e.NothingMatches(["a.*"], ["b"], []),
        e.NothingMatches(["a.*"], ["b"], TOPICS, returning=["a1"]),
        e.NothingMatches(["a.*"], ["b"], TOPICS, internal=TOPICS),
        unclear(TP, "copier", "the cause", "The remedy."),
        blocked(FEW),
        e.AuthenticationFailed("source", "broker:9092", "wrong password."),
        e.AuthenticationFailed("source", "broker:9092", "wrong password", "The remedy."),
        e.AuthenticationFailed(
            "source", "broker:9092", "invalid_client", "The remedy.", "the token endpoint gives no token"
        ),
        w.TlsRefused("source", "broker:9093", "certificate has expired", "The remedy."),
        e.MissingRight("describe 'orders'", "TOPIC_AUTHORIZATION_FAILED", "User:mirror"),
        e.RequestRefused("create 'orders'", 44, "POLICY_VIOLATION"),
        e.RequestRefused("create 'orders'", 44, "POLICY_VIOLATION", "too few replicas", "a policy refuses it"),
        e.NoAuthorizer("source", "no fence can be raised", "The remedy."),
        e.LedgerOpen("target", FEW, ["User:a", "User:b", "User:a"], ["kafka-acls x", "kafka-acls y", "kafka-acls x"]),
        e.OpeningTooLarge("airflow-mirror.decisions", 10_000, 1_930_000, 1_048_588),
        e.OpenByDefaultUnknown("source", FEW, "the cause"),
        e.OpenByDefaultUnknown("source", TOPICS, "the cause"),
        e.PlanOutdated(FEW),
        e.PlanAmended("m", FEW, PLAN, OTHER),
        e.PlanAmended("m", TOPICS, PLAN, OTHER),
        e.PreviewTooOld("m", "2026-01-31 09:30", 3600.0),
        e.NotApproved("cutover", "approval is on, and 'approve_cutover' is skipped", "The remedy."),
        e.MirrorCutOver("m", [], "2026-01-31"),
        e.MirrorCutOver("m", TOPICS, "2026-01-31"),
        e.TopicsOwned("m", {"orders": "mirror 'n'", "users": "mirror 'o'"}),
        e.TopicsOwned("m", {topic: "n" for topic in TOPICS}),
        e.TopicsShared("m", "be cut over"),
        unknown_mirror("m", []),
        unknown_mirror("m", ["b", "a"]),
        not_over("m", "the cause", "The remedy."),
        e.WriterRuns("m-tail", "/jobs/m-tail", "spec 1", "spec 2"),
        e.JavaNotFound(17, FEW),
        error_of("m-bulk", FAILED, "input", "the cause", "/jobs/m-bulk/log"),
        e.NoOffsetMap(TP),
        e.TracesUnfit({"b": "has 3 partitions", "a": "is not compacted"}),
        spark_missing(),
        e.ClusterUnreachable("source", "broker:9092", "refused"),
        e.BrokerError("fetch 'orders'", 6, "NOT_LEADER_OR_FOLLOWER"),
        e.BrokerError("fetch 'orders'", 6, "NOT_LEADER_OR_FOLLOWER", "the leader moved"),
        unsettled(TP, 1200, "the cause"),
        nothing_fetched("source", TP, 1200, "the cause"),
        e.JobFailed("m-bulk", "FAILED", "the cause", "/jobs/m-bulk/log"),
        elsewhere({"name": "m-bulk", "host": "h", "dir": "/jobs/m-bulk"}),
        e.TailRuns("m", "h", ""),
        e.TailRuns("m", "h", "/jobs/m-tail"),
        e.FollowDiffers("m", "h", FEW),
        e.TailReplaced("m", "h"),
        e.TailReplaced("m", None),
        e.TailReplaced("m", None, "ended by rollback"),
        e.MirrorPaused("m", "somebody", "2026-01-31"),
        silent("YARN", "the cause"),
        e.JobNotRunning("m-tail", "FAILED", "The remedy."),
        left_behind(FEW),
        e.MirrorUnhealthy("m", FEW),
        e.DrainTimedOut(60.4, {"orders-3": 5, "orders-4": 7}),
        e.DrainTimedOut(60.4, {topic: number for number, topic in enumerate(TOPICS)}),
        e.CutoverBlocked("m", FEW),
        e.CutoverRunning("/runs/r"),
        e.FenceStands("m", "r", "was not lifted"),
        e.CutoverTakenOver("r"),
        e.OpenOutcomeUnknown("source", "the cause"),
        e.CutoverCancelled("drain"),
        e.LeaseLost("mirror-m", 3, "epoch 4"),
        e.LeaseLost("mirror-m", 3, None),
        e.TaskUnheard(["orders-3"], "its executor is gone"),
        e.TaskUnheard(FEW, "its executor is gone"),
        e.LeaseUnconfirmed("mirror-m", 3, 60.4, None),
        e.LeaseUnconfirmed("mirror-m", 3, 60.4, OSError("gone")),
        e.LeaseUnconfirmed("mirror-m", 3, 60.4, e.TryAgain("later")),
        e.JobNeedsHuman("m-bulk", "the cause", "/jobs/m-bulk/log"),
        e.DrillMissed(FEW, "/drills/d"),
        e.WritingEnded("m"),
        e.PartitionStopped(*STOPPED),
        e.ForeignData(*STOPPED),
        e.SourceTruncated(*STOPPED),
        e.SourceGone(*STOPPED),
        e.TargetGone("orders", "id-1", "id-2"),
        e.CorruptBatch(*STOPPED),
        e.TargetMoved(*STOPPED),
        e.VerificationFailed(TOPICS),
        refused(FEW),
        e.SchemasDiffer(["topic 'orders': id 8 of the value (orders-value version 2) is not there on the target"]),
        e.FenceLeaks({"orders-3": (5, 7), "orders-1": (1, 2)}),
        e.FenceLeaks({topic: (1, 2) for topic in TOPICS}, TOPICS),
        e.FenceGone("source"),
        e.SourceNotSilent("m", {}, True),
        e.SourceNotSilent("m", {"orders-3": 5, "orders-1": 2}, False),
        e.SourceNotSilent("m", {topic: 1 for topic in TOPICS}, True),
        e.FencedByAnother("source", FEW, ["n:r:1"]),
        e.RulesOfAnotherFence("source", ["n:r:1"], FEW),
        e.FencedByAnother("source", TOPICS, TOPICS),
        e.FenceNotSwapped(FEW),
        e.FenceNotSwapped(TOPICS),
        e.FenceUnproven("source", 60.4, FEW),
        e.FenceUnproven("source", 60.4, TOPICS),
        e.TransactionsOpen(60.4, {"orders-3": (5, 7), "orders-1": (1, 2)}),
        e.TransactionsOpen(60.4, {topic: (1, 2) for topic in TOPICS}, ["'tx' holds orders-3"]),
        e.NotUndone("/runs/r", FEW),
        e.FenceTooLong("drain", 60.4),
        e.MayBeOpen("r", "source", "the cause"),
        e.OpeningUnfinished("/runs/r", "the cause"),
        e.FencedOnce(60.4, "the cause"),
        e.GroupsStillMoving(60.4, {"b": "moves", "a": "has members"}),
        e.GroupsStillMoving(60.4, {topic: "moves" for topic in TOPICS}),
        e.FenceNotLifted("source", TOPICS, "the cause"),
        e.NotKept("settings of 'orders'", TOPICS),
        e.HoldTooShort(["orders-0", "orders-3"], 604_800_000),
        e.GroupActive("billing", "target", "Stable"),
        e.GroupAhead(TOPICS),
        e.OffsetOutOfRange("billing", "orders", 3, 1500, "the cause", "The remedy."),
        e.LedgerNewer("topic 'orders'", {"v": 9}),
        e.LedgerNewer("topic 'orders'", "words"),
        e.ExportBroken("orders", "/exports/orders", "the cause"),
        e.NoWayBack("m", FEW),
        e.NoWayBack("m", TOPICS),
        e.RollbackRefused("m", FEW),
        e.RollbackRefused("m", TOPICS),
        e.PlanNotKept("m", PLAN),
        e.PlanUnreadable("m", PLAN, "the cause"),
        e.LedgerMissing(),
        e.LedgerLost("the cause"),
        e.DecidedLate(FEW),
        e.DecidedLate(TOPICS),
        e.Undecided(FEW, "the cause"),
        Stopped("any text"),
        w.ConnectionLost("source", "broker:9092", "Fetch", "reset"),
        w.ConnectionLost("source", "broker:9092", "Fetch", "reset", "Is TLS missing?"),
        w.StoppedByQuota("source", "broker:9092", 5.25),
        w.ApiNotServed("broker:9092", "Fetch", 4, None),
        w.ApiNotServed("broker:9092", "Fetch", 4, (0, 3)),
        w.acl_missing("fetch", ErrorCode.TOPIC_AUTHORIZATION_FAILED, "User:mirror", "Read", "topic", "orders"),
        w.acl_missing("do", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "User:m", "Alter", "cluster", "kafka-cluster"),
        w.acl_missing("read", ErrorCode.GROUP_AUTHORIZATION_FAILED, "User:CN=a b", "Read", "group", "the group"),
        w.UnknownTopic("fetch", "orders"),
        w.Fenced("produce", 47, 1000, 3),
        w.Fenced("marker", 52, 1000, 3),
        no_ticket("source", "broker:9092", _IDENTITY, Failure("expired", "Get another.")),
        no_ticket("source", "broker:9092", _IDENTITY, Failure("no answer", "Check the KDC.", passes=True)),
    ]
