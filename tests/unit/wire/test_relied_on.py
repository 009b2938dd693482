"""What we use of kafka-python and aiokafka is internal to them, and their versions are a range: here is all of it.

A release that renames one of these fails here, with the name, before it fails in the middle of a migration.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest

import airflow_mirror

PACKAGE = Path(airflow_mirror.__file__).parent

# Request -> highest version sent; fields of request and answer; the same of their parts by name.
REQUESTS: dict[str, tuple[int, str, str]] = {
    "admin.AlterClientQuotasRequest": (1, "entries validate_only", "throttle_time_ms entries"),
    "admin.AlterUserScramCredentialsRequest": (0, "deletions upsertions", "throttle_time_ms results"),
    "admin.AlterConfigsRequest": (1, "resources validate_only", "throttle_time_ms responses"),
    "admin.CreateAclsRequest": (3, "creations", "throttle_time_ms results"),
    "admin.CreatePartitionsRequest": (3, "topics timeout_ms validate_only", "throttle_time_ms results"),
    "admin.CreateTopicsRequest": (7, "topics timeout_ms validate_only", "throttle_time_ms topics"),
    "admin.DeleteAclsRequest": (3, "filters", "throttle_time_ms filter_results"),
    "admin.DeleteRecordsRequest": (1, "topics timeout_ms", "topics"),
    "admin.DeleteTopicsRequest": (5, "topic_names timeout_ms", "throttle_time_ms responses"),
    "admin.DescribeClientQuotasRequest": (
        1, "components strict", "throttle_time_ms error_code error_message entries",
    ),
    "admin.DescribeUserScramCredentialsRequest": (
        0, "users", "throttle_time_ms error_code error_message results",
    ),
    "admin.DescribeAclsRequest": (
        3,
        "resource_type_filter resource_name_filter pattern_type_filter principal_filter host_filter operation "
        "permission_type",
        "throttle_time_ms error_code error_message resources",
    ),
    "admin.DescribeConfigsRequest": (4, "resources include_synonyms include_documentation", "throttle_time_ms results"),
    "admin.DescribeGroupsRequest": (5, "groups include_authorized_operations", "throttle_time_ms groups"),
    "admin.DescribeLogDirsRequest": (4, "topics", "error_code results"),
    "admin.DescribeProducersRequest": (0, "topics", "topics"),
    "admin.DescribeTransactionsRequest": (0, "transactional_ids", "throttle_time_ms transaction_states"),
    "admin.IncrementalAlterConfigsRequest": (1, "resources validate_only", "throttle_time_ms responses"),
    "admin.ListGroupsRequest": (5, "states_filter types_filter", "throttle_time_ms error_code groups"),
    "admin.ListTransactionsRequest": (
        0, "state_filters producer_id_filters", "throttle_time_ms error_code transaction_states",
    ),
    "consumer.ListOffsetsRequest": (5, "replica_id isolation_level topics", "topics"),
    "consumer.OffsetDeleteRequest": (0, "group_id topics", "throttle_time_ms error_code topics"),
    "consumer.OffsetForLeaderEpochRequest": (3, "replica_id topics", "topics"),
    "consumer.group.OffsetCommitRequest": (
        9,
        "group_id generation_id_or_member_epoch member_id group_instance_id retention_time_ms topics",
        "throttle_time_ms topics",
    ),
    "consumer.group.OffsetFetchRequest": (9, "group_id topics groups require_stable", "error_code topics groups"),
    "metadata.ApiVersionsRequest": (3, "client_software_name client_software_version", "error_code api_keys"),
    "metadata.FindCoordinatorRequest": (
        5, "key key_type coordinator_keys", "error_code error_message node_id coordinators",
    ),
    "metadata.MetadataRequest": (12, "topics allow_auto_topic_creation", "brokers cluster_id controller_id topics"),
    "producer.AddOffsetsToTxnRequest": (1, "transactional_id producer_id producer_epoch group_id", "error_code"),
    "producer.AddPartitionsToTxnRequest": (
        2,
        "v3_and_below_transactional_id v3_and_below_producer_id v3_and_below_producer_epoch v3_and_below_topics",
        "results_by_topic_v3_and_below",
    ),
    "producer.EndTxnRequest": (2, "transactional_id producer_id producer_epoch committed", "error_code"),
    "producer.InitProducerIdRequest": (
        4, "transactional_id transaction_timeout_ms producer_id producer_epoch", "error_code producer_id producer_epoch",
    ),
    "producer.ProduceRequest": (8, "transactional_id acks timeout_ms topic_data", "responses"),
    "producer.TxnOffsetCommitRequest": (2, "transactional_id group_id producer_id producer_epoch topics", "topics"),
    "producer.WriteTxnMarkersRequest": (1, "markers", "markers"),
    "sasl.SaslAuthenticateRequest": (2, "auth_bytes", "error_code error_message auth_bytes session_lifetime_ms"),
    "sasl.SaslHandshakeRequest": (1, "mechanism", "error_code mechanisms"),
}  # fmt: skip
# Parts of requests and answers -> their fields.
PARTS = {
    "admin.AlterClientQuotasRequest.EntryData": "entity ops",
    "admin.AlterClientQuotasRequest.EntryData.EntityData": "entity_type entity_name",
    "admin.AlterClientQuotasRequest.EntryData.OpData": "key value remove",
    "admin.AlterClientQuotasResponse.EntryData": "error_code error_message entity",
    "admin.AlterClientQuotasResponse.EntryData.EntityData": "entity_type entity_name",
    "admin.AlterUserScramCredentialsRequest.ScramCredentialUpsertion": ("name mechanism iterations salt salted_password"),
    "admin.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult": "user error_code error_message",
    "admin.DescribeClientQuotasResponse.EntryData": "entity values",
    "admin.DescribeClientQuotasResponse.EntryData.EntityData": "entity_type entity_name",
    "admin.DescribeClientQuotasResponse.EntryData.ValueData": "key value",
    "admin.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult": (
        "user error_code error_message credential_infos"
    ),
    "admin.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult.CredentialInfo": (
        "mechanism iterations"
    ),
    "admin.AlterConfigsRequest.AlterConfigsResource": "resource_type resource_name configs",
    "admin.AlterConfigsRequest.AlterConfigsResource.AlterableConfig": "name value",
    "admin.CreateAclsRequest.AclCreation": (
        "resource_type resource_name resource_pattern_type principal host operation permission_type"
    ),
    "admin.CreateAclsResponse.AclCreationResult": "error_code error_message",
    "admin.CreatePartitionsRequest.CreatePartitionsTopic": "name count assignments",
    "admin.CreatePartitionsResponse.CreatePartitionsTopicResult": "name error_code error_message",
    "admin.CreateTopicsRequest.CreatableTopic": "name num_partitions replication_factor assignments configs",
    "admin.CreateTopicsRequest.CreatableTopic.CreatableTopicConfig": "name value",
    "admin.CreateTopicsResponse.CreatableTopicResult": "name error_code error_message",
    "admin.DeleteAclsRequest.DeleteAclsFilter": (
        "resource_type_filter resource_name_filter pattern_type_filter principal_filter host_filter operation "
        "permission_type"
    ),
    "admin.DeleteAclsResponse.DeleteAclsFilterResult": "error_code error_message matching_acls",
    "admin.DeleteAclsResponse.DeleteAclsFilterResult.DeleteAclsMatchingAcl": (
        "error_code error_message resource_type resource_name pattern_type principal host operation permission_type"
    ),
    "admin.DeleteTopicsResponse.DeletableTopicResult": "name error_code error_message",
    "admin.DescribeAclsResponse.DescribeAclsResource": "resource_type resource_name pattern_type acls",
    "admin.DescribeAclsResponse.DescribeAclsResource.AclDescription": "principal host operation permission_type",
    "admin.DescribeConfigsRequest.DescribeConfigsResource": "resource_type resource_name configuration_keys",
    "admin.DescribeConfigsResponse.DescribeConfigsResult": "error_code error_message resource_name configs",
    "admin.DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult": (
        "name value read_only is_default is_sensitive config_source"
    ),
    "admin.DescribeGroupsResponse.DescribedGroup": "error_code group_id group_state",
    "admin.IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig": "name config_operation value",
    "admin.ListGroupsResponse.ListedGroup": "group_id protocol_type group_state",
    "admin.ListTransactionsResponse.TransactionState": "transactional_id",
    "consumer.OffsetDeleteResponse.OffsetDeleteResponseTopic.OffsetDeleteResponsePartition": "partition_index error_code",
    "consumer.group.OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition": (
        "partition_index committed_offset committed_leader_epoch committed_metadata"
    ),
    "consumer.group.OffsetCommitResponse.OffsetCommitResponseTopic.OffsetCommitResponsePartition": (
        "partition_index error_code"
    ),
    "consumer.group.OffsetFetchRequest.OffsetFetchRequestGroup": "group_id topics",
    "consumer.group.OffsetFetchResponse.OffsetFetchResponseGroup": "group_id topics error_code",
    "metadata.FindCoordinatorResponse.Coordinator": "key node_id error_code error_message",
    "metadata.MetadataResponse.MetadataResponseBroker": "node_id host port",
    "metadata.MetadataResponse.MetadataResponseTopic": "error_code name topic_id partitions",
    "metadata.MetadataResponse.MetadataResponseTopic.MetadataResponsePartition": (
        "partition_index leader_id leader_epoch replica_nodes"
    ),
    "producer.ProduceRequest.TopicProduceData": "name partition_data",
    "producer.ProduceRequest.TopicProduceData.PartitionProduceData": "index records",
    "producer.ProduceResponse.TopicProduceResponse": "name partition_responses",
    "producer.ProduceResponse.TopicProduceResponse.PartitionProduceResponse": "index error_code",
}
OTHER = {
    "kafka.net.sasl.get_sasl_mechanism",
    "kafka.net.sasl.oauth.AbstractTokenProvider",
    "kafka.errors.kafka_errors",
    "kafka.protocol.api_key.ApiKey",
    "kafka.protocol.metadata.ApiVersionsResponse",
    "kafka.protocol.metadata.MetadataResponse",
    "kafka.protocol.producer.WriteTxnMarkersResponse",
    "aiokafka.codec.snappy_decode",
    "aiokafka.codec.snappy_encode",
    "aiokafka.record.default_records.DefaultRecordBatch",
}


def found(dotted: str) -> Any:
    """Return what a dotted path below kafka.protocol names."""
    parts = dotted.split(".")
    modules = [part for part in parts if part.islower()]
    there: Any = importlib.import_module(".".join(["kafka.protocol", *modules]))
    for part in parts[len(modules) :]:
        there = getattr(there, part)
    return there


@pytest.mark.parametrize("name", REQUESTS)
def test_request_has_the_version_and_the_fields_that_we_use(name: str) -> None:
    highest, asked, answered = REQUESTS[name]
    request, response = found(name), found(name.removesuffix("Request") + "Response")
    assert request.max_version >= highest and response.API_KEY == request.API_KEY
    assert set(asked.split()) <= set(request.fields) and set(answered.split()) <= set(response.fields)


@pytest.mark.parametrize("name", PARTS)
def test_part_of_a_message_has_the_fields_that_we_use(name: str) -> None:
    assert set(PARTS[name].split()) <= set(found(name).fields)


@pytest.mark.repeats
def test_everything_that_we_import_of_both_packages_is_named_here() -> None:
    imported = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("kafka", "aiokafka"):
                imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert imported == {f"kafka.protocol.{name}" for name in REQUESTS} | OTHER


def test_c_codec_of_aiokafka_reads_what_it_wrote() -> None:
    from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    builder.append(0, 5, b"k", b"v", [("h", b"x"), ("n", None)])
    builder.append(3, 4, None, None, [])
    records = list(DefaultRecordBatch(bytearray(builder.build())))
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records] == [
        (0, 5, b"k", b"v", [("h", b"x"), ("n", None)]), (3, 4, None, None, []),
    ]  # fmt: skip
