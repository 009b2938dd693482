"""The page about the older tools' behaviour: no cell is empty, and the test that each row names is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from airflow_mirror.compat.client_keys import CONSUMER, PRODUCER
from airflow_mirror.compat.keys import DRIVER, FLOW, WORKER

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "old-tools.md").read_text()
COLUMNS = ["tool", "behaviour there", "here", "verdict", "test"]
VERDICTS = {"same", "better", "refused", "without effect"}
TOOLS = {"MM1", "MM2", "Go"}
# What somebody who has run one of them asks first. Each is a word of some row.
ASKED = (
    "abort.on.send.failure", "target that is away", "new topic", "rebalance", "exactly.once", "order within",
    "num.partitions", "murmur2", "auto.offset.reset", "heartbeats", "settings", "ACLs", "transactions", "compaction",
    "headers", "timestamps", "max.request.size", "SIGTERM", "MBeans", "positions", "message.handler", "replicas",
)  # fmt: skip


SAID = "integration/test_said_of_mirrormaker.py::"
CLASSES = "integration/test_mirrormaker_classes.py::"
RIGHTS = "integration/test_mirrormaker_rights.py::"
WORKERS = "integration/test_mirrormaker_workers.py::"
KEYS = "integration/test_java_files.py::test_the_keys_of_the_clients_and_of_mirrormaker_are_those_of_the_recorded_list"
FAR = "integration/test_mirrormaker_far.py::"
ELECTIONS = "integration/test_mirrormaker_elections.py::"
FLOWS = "integration/test_mirrormaker_flows.py::"
# What a test asks of a real MirrorMaker 2, or of its classes: words of the row, by the test.
ASKED_OF_MM2 = {
    SAID + "test_a_source_that_is_away_at_the_start_is_waited_for": ["a cluster that is away at the start"],
    SAID + "test_a_target_that_is_away_at_the_start_for_more_than_a_minute_ends_it": [
        "a cluster that is away at the start"
    ],
    SAID + "test_killed_it_sends_again_what_it_has_not_committed": [
        "at least once: positions",
        "a kill needs somebody",
    ],
    SAID + "test_aborted_records_are_copied_as_if_they_were_committed": [
        "records of aborted transactions",
    ],
    SAID + "test_offsets_shift_by_markers_and_a_lost_position_or_a_new_topic_is_no_error": [
        "offsets shift by each marker",
        "a position outside of the source's log",
        "was deleted and created again",
    ],
    SAID + "test_every_record_gets_a_new_offset_and_keeps_what_readers_see": [
        "every record gets a new offset",
        "names get the source's alias",
        "key, value and nulls stay",
        "`auto.offset.reset` is `earliest`",
    ],
    SAID + "test_a_record_above_max_request_size_ends_its_task": [
        "a record that the target refuses",
        "a record above `max.request.size`",
    ],
    SAID + "test_two_flows_with_unchanged_names_copy_in_a_circle": [
        "SIGTERM ends the process cleanly",
        "loops are found by the names",
    ],
    "integration/test_java_files.py::test_mirrormaker_makes_of_a_file_what_is_recorded": [
        "a flow is copied only if",
    ],
    SAID + "test_new_topics_and_partitions_are_found_at_its_interval": [
        "a new topic is found after",
        "partitions that the source gets",
    ],
    SAID + "test_a_topic_that_is_there_is_filled_whatever_it_holds_and_grown_whoever_made_it": [
        "is filled, whatever it holds",
        "is grown, whoever made it",
    ],
    SAID + "test_deleted_records_and_topics_stay_on_the_target": [
        "a topic that is deleted on the source",
    ],
    SAID + "test_what_the_owner_of_the_target_sets_is_set_back_and_retention_is_the_sources": [
        "the target's own retention deletes",
        "settings are set again",
    ],
    SAID + "test_too_few_brokers_for_two_replicas_are_an_error_in_its_log": [
        "remote topics have 2 replicas",
    ],
    SAID + "test_timestamps_are_those_that_the_sources_brokers_have_set": [
        "timestamps stay, as",
    ],
    SAID + "test_batches_are_compressed_anew_as_its_producer_says": [
        "the producer compresses anew",
    ],
    "unit/compat/test_keys.py::test_an_absent_key_has_mirrormakers_default": [
        "eight settings are excluded",
    ],
    SAID + "test_without_an_authorizer_acls_are_left_out_with_a_line_in_its_log": [
        "without an authorizer",
    ],
    "integration/test_java_files.py::test_stores_of_keytool_are_read": [
        "keys and certificates in PKCS12",
        "keys and certificates in JKS",
    ],
    SAID + "test_a_key_that_nobody_knows_is_dropped_without_an_error": [
        "a key that nobody knows",
    ],
    SAID + "test_groups_do_not_move_unless_they_are_asked_to": [
        "`sync.group.offsets.enabled` is false",
    ],
    "integration/parity/test_side_by_side.py::test_the_same_records_and_no_group_reads_anything_again": [
        "positions are translated from samples",
        "positions in its copies",
    ],
    CLASSES + "test_exactly_once_is_off_unless_it_is_enabled_and_its_consumer_reads_committed": [
        "`exactly.once.source.support` is `disabled`",
    ],
    "integration/test_adopt_mirrormaker.py::test_exactly_once_delivery_leaves_markers_and_no_repetition": [
        "`exactly.once.source.support` is `disabled`",
    ],
    FLOWS + "test_with_exactly_once_support_records_and_progress_are_one_transaction": [
        "`exactly.once.source.support` is `disabled`",
        "records and progress are committed in one transaction",
    ],
    FLOWS + "test_with_errors_tolerance_all_what_fails_is_skipped": [
        "`errors.tolerance=all`",
    ],
    FLOWS + "test_a_damaged_batch_stops_everything_that_its_task_copies_and_ends_nothing": [
        "a damaged batch is tried again",
    ],
    FLOWS + "test_only_flows_into_the_named_clusters_are_started": [
        "`--clusters` starts only flows",
    ],
    FLOWS + "test_with_latest_what_comes_while_nothing_runs_before_the_first_commit_is_skipped": [
        "before the first commit is skipped",
    ],
    FLOWS + "test_what_compaction_has_removed_shifts_all_offsets_after_it": [
        "what compaction has removed",
    ],
    FLOWS + "test_transforms_change_and_drop_records": [
        "`transforms` change or drop",
    ],
    FLOWS + "test_a_setting_that_the_target_does_not_know_is_a_line_in_its_log_and_its_task_waits": [
        "for a setting that the target does not know",
        "a sync that fails is a line",
    ],
    RIGHTS + "test_use_defaults_from_says_whose_default_a_topic_gets": [
        "`use.defaults.from` says",
    ],
    RIGHTS + "test_rights_of_literal_topics_are_added_without_write_and_never_removed": [
        "ACLs: of literal topics",
    ],
    RIGHTS + "test_a_wildcard_becomes_the_right_to_a_topic_that_nobody_has": [
        "the name `*` becomes",
    ],
    RIGHTS + "test_users_and_quotas_stay_behind": [
        "users and quotas stay behind",
    ],
    RIGHTS + "test_it_logs_in_over_tls_by_javas_settings_with_secrets_of_three_providers": [
        "encryption and passwords by settings",
        "secrets by config providers",
    ],
    RIGHTS + "test_old_records_are_deleted_as_soon_as_they_arrive": [
        "old records are deleted",
    ],
    WORKERS + "test_the_partitions_of_a_lost_process_wait_and_when_it_thaws_it_writes_on": [
        "a worker that joins or leaves",
        "a process that was frozen",
    ],
    KEYS: [
        "for 5 minutes (`scheduled.rebalance.max.delay.ms`)",
    ],
    WORKERS + "test_two_processes_of_one_file_share_its_work": [
        "two processes of one file",
    ],
    WORKERS + "test_of_two_files_that_of_the_leader_counts": [
        "of two processes with different files",
    ],
    WORKERS + "test_they_speak_in_clear_text_and_tell_nobody_their_state": [
        "state and restarts by the REST server",
        "workers speak to each other",
    ],
    FAR + "test_it_writes_over_a_long_way_more_slowly_than_it_reads": [
        "run near the target",
    ],
    FAR + "test_a_target_that_is_away_is_waited_for_and_then_its_own_tasks_for_a_while": [
        "a target that is away is waited for",
        "how soon it is level",
    ],
    FAR + "test_a_request_whose_answer_is_lost_is_written_twice": [
        "a target broker that restarts",
    ],
    ELECTIONS + "test_what_an_unclean_election_took_from_the_source_stays_on_the_target": [
        "what an unclean election took",
    ],
    ELECTIONS + "test_a_partition_without_a_leader_holds_up_the_others_once_the_buffer_is_full": [
        "a partition without a leader",
    ],
    CLASSES + "test_its_producer_has_one_request_in_flight_and_no_bound_of_its_own": [
        "order within a partition",
        "none of them has a copy with an end",
    ],
    CLASSES + "test_partitions_are_dealt_by_number_whatever_is_in_them": [
        "deal partitions by number",
    ],
    CLASSES + "test_a_filter_and_a_policy_of_ones_own_are_classes_of_java": [
        "a policy or filter of one's own",
    ],
    CLASSES + "test_the_rack_of_its_consumer_is_what_the_file_says": [
        "`client.rack`",
    ],
    CLASSES + "test_a_group_is_set_by_what_the_step_before_has_seen_of_it": [
        "a group that reads on and ends",
    ],
    CLASSES + "test_it_can_be_told_of_no_rate_no_comparison_and_no_way_back": [
        "the rate has no limit",
        "nothing compares both sides",
        "there is no cutover",
    ],
    SAID + "test_it_writes_to_the_source_and_keeps_topics_of_its_own_on_the_target": [
        "heartbeats, checkpoints and offset-syncs, which",
        "offset-syncs and heartbeats are written",
    ],
    "integration/test_adopt_mirrormaker.py::test_killed_and_started_again_it_is_taken_over_exactly": [
        "that it has half filled",
    ],
    "integration/test_java_files.py::test_every_metric_of_connect_is_one_that_the_page_must_have": [
        "MBeans and counters",
        "no lag in records",
    ],
}


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row != COLUMNS and not row[0].startswith("---")]


ROWS = rows()


@cache
def names_of(file: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1][:40])
def test_a_row_is_whole_and_its_test_exists(row: list[str]) -> None:
    assert len(row) == len(COLUMNS) and all(row), row
    tools, _, _, verdict, test = row
    assert set(tools.split(", ")) <= TOOLS
    assert verdict in VERDICTS
    named = re.fullmatch(r"`([\w/]+\.py)::(test_\w+)`", test)
    assert named is not None, test
    file = ROOT / "tests" / named[1]
    assert file.is_file() and named[2] in names_of(file), f"{test} is not there"


def test_every_tool_and_every_verdict_has_rows() -> None:
    assert {tool for row in ROWS for tool in row[0].split(", ")} == TOOLS
    assert {row[3] for row in ROWS} == VERDICTS
    assert len({row[1] for row in ROWS}) == len(ROWS) > 60, "a behaviour has one row"


def test_a_key_that_is_not_kept_is_told_as_the_tables_of_keys_do() -> None:
    fates = {row.key: row.fate.value for table in (DRIVER, WORKER, FLOW, CONSUMER, PRODUCER) for row in table.rows}
    told = {key: row[3] for row in ROWS for key in re.findall(r"`([\w.]+)(?:=\w+)?`", row[1]) if key in fates}
    not_kept = {key: verdict for key, verdict in told.items() if verdict not in ("same", "better")}
    assert not_kept == {key: fates[key] for key in not_kept} and len(not_kept) > 3


@pytest.mark.parametrize("word", ASKED)
def test_what_people_ask_about_has_a_row(word: str) -> None:
    assert any(word in row[1] for row in ROWS)


def test_a_row_about_mirrormaker_2_is_asked_of_it_or_says_that_it_is_not() -> None:
    for row in (row for row in ROWS if "MM2" in row[0]):
        asked = any(words in row[1] for some in ASKED_OF_MM2.values() for words in some)
        assert row[1].endswith(" °") is not asked, row[1]
    for test, some in ASKED_OF_MM2.items():
        file, _, name = test.partition("::")
        assert name in names_of(ROOT / "tests" / file), test
        assert [words for words in some if words not in PAGE] == []
