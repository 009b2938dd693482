"""The requests that a driven broker answers, by API key. Each module opens with its versions and what it leaves out."""

from __future__ import annotations

from typing import cast

from tests.driven.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    txn_offset_commit,
    write_txn_markers,
)
from tests.driven.handlers.common import Handler

_ALL = (
    produce, fetch, list_offsets, metadata, offset_fetch, find_coordinator, api_versions, delete_records,
    init_producer_id, offset_for_leader_epoch, add_partitions_to_txn, add_offsets_to_txn, end_txn, write_txn_markers,
    txn_offset_commit, describe_log_dirs, describe_producers, describe_transactions,
    list_transactions, describe_acls, describe_configs, list_groups, describe_groups, offset_commit, offset_delete,
    create_topics, create_partitions, delete_topics, incremental_alter_configs, create_acls, delete_acls,
    sasl_handshake, sasl_authenticate, delete_groups,
)  # fmt: skip
# What they change, a fetch may wait for.
WRITES = frozenset(
    one.KEY for one in (produce, delete_records, init_producer_id, end_txn, write_txn_markers, txn_offset_commit)
)
BY_KEY: dict[int, Handler] = {handler.KEY: cast("Handler", handler) for handler in _ALL}
