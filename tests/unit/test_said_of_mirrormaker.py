"""What other pages than old-tools.md say of MirrorMaker 2: a test asks it of each sentence, or that is no claim."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.unit.test_old_tools import CLASSES, FLOWS, KEYS, ROOT, SAID, names_of

ADOPTED = "integration/test_adopt_mirrormaker.py::"
FILES = "integration/test_java_files.py::"
BESIDE = "integration/parity/test_side_by_side.py::test_the_same_records_and_no_group_reads_anything_again"
KILLED = ADOPTED + "test_killed_and_started_again_it_is_taken_over_exactly"
DEFAULTS = "unit/compat/test_keys.py::test_an_absent_key_has_mirrormakers_default"
OF_A_FILE = FILES + "test_mirrormaker_makes_of_a_file_what_is_recorded"
OURS = ""  # what to do with it, or what ours does
# Words of a sentence or cell, and the test that asks MirrorMaker 2 or its classes.
CLAIMS = {
    "from-mirrormaker.md": {
        "MirrorMaker drops what it does not know": SAID + "test_a_key_that_nobody_knows_is_dropped_without_an_error",
        "MirrorMaker starts with a cluster that is called": CLASSES + "test_a_comment_behind_a_value_is_a_part_of_it",
        "as MirrorMaker's option does": FLOWS + "test_only_flows_into_the_named_clusters_are_started",
        "Stop MirrorMaker first": OURS,
        "what is otherwise than with MirrorMaker": OURS,
        "has [MirrorMaker's default]": DEFAULTS,
        "It differs from MirrorMaker in this": OURS,
        "as on a target of MirrorMaker's": "integration/parity/test_for_java.py::test_i6_syncs_on_the_target",
    },
    "mirrormaker-keys.md": {
        "MirrorMaker's own default, written down": DEFAULTS,
        "MirrorMaker's eight": DEFAULTS,
        "aborted records are copied, as MirrorMaker does":
            SAID + "test_aborted_records_are_copied_as_if_they_were_committed",
        "where MirrorMaker lets the target's brokers delete by the same retention":
            SAID + "test_what_the_owner_of_the_target_sets_is_set_back_and_retention_is_the_sources",
        "MirrorMaker looks for a flow's key": OF_A_FILE,
        "MirrorMaker does not know it": KEYS,
        "false where checkpoints are off, by emit.checkpoints.enabled":
            FLOWS + "test_groups_do_not_move_where_checkpoints_are_off",
        "or a negative interval, as there":
            CLASSES + "test_where_the_interval_of_checkpoints_is_negative_nobody_makes_any",
    },
    "adopt.md": {
        "A target that MirrorMaker 2 has filled": OURS,
        "Have MirrorMaker 2's own file at hand": OURS,
        "Stop MirrorMaker 2 everywhere": OURS,
        "the retention that MirrorMaker gave the topics": ADOPTED + "test_the_steps_of_the_page_as_they_are_written",
        "members in its workers' group (`A-mm2`": KILLED,
        "a worker that was killed is a member until its session ends, 10 s": KEYS,
        "one a second, unless they are switched off": KEYS,
        "Where nothing of MirrorMaker 2 is found": OURS,
        "each as MirrorMaker 2's own classes make it": OF_A_FILE,
        "copies of what the target has already, sent again after a crash": KILLED,
        "What MirrorMaker 2 says of it is named, but it may have sent more": KILLED,
        "The Mirror of a file reads what MirrorMaker 2 reads": KILLED,
        "MirrorMaker 2 reads uncommitted by default":
            SAID + "test_aborted_records_are_copied_as_if_they_were_committed",
        "MirrorMaker 2 has often set them too far back": BESIDE,
        "MirrorMaker 2 has written no position on the target":
            SAID + "test_groups_do_not_move_unless_they_are_asked_to",
    },
    "parity.md": {
        "MirrorMaker 2 is tested by scenarios": OURS,
        "MirrorMaker 2 asserts": OURS,  # the page says where that is from
        "a topic that begins with the target's alias is never mirrored":
            CLASSES + "test_a_topic_that_begins_with_the_targets_alias_is_never_mirrored",
        "One test runs MirrorMaker 2 4.3.1 and ours side by side": BESIDE,
        "MirrorMaker 2 has its defaults": BESIDE,
        "MirrorMaker 2, mean of a partition": BESIDE,
        "MirrorMaker 2 keeps samples": BESIDE,
    },
}  # fmt: skip


@cache
def told(page: str) -> tuple[str, ...]:
    """Return the sentences and cells of a page, without its blocks of code and its headings."""
    text = re.sub(r"^```.*?^```", "", (ROOT / "docs" / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    found = list[str]()
    for block in re.split(r"\n\s*\n", text):
        if block.lstrip().startswith("|"):
            found += [cell.strip() for line in block.strip().splitlines() for cell in line.strip("|").split(" | ")]
        elif not block.startswith("#"):
            found += re.split(r"(?<=[.:;]) (?=[A-Z`*])", " ".join(block.split()))
    return tuple(found)


@pytest.mark.parametrize("page", CLAIMS)
def test_each_sentence_about_mirrormaker_2_is_one_that_a_test_asks_it(page: str) -> None:
    about = [one for one in told(page) if re.search(r"MirrorMaker(?!\w|\.)", one)]
    assert len(about) > 5
    assert [one for one in about if not any(words in one for words in CLAIMS[page])] == []


@pytest.mark.parametrize("page", CLAIMS)
def test_what_is_claimed_is_on_the_page_and_its_test_is_there(page: str) -> None:
    assert [words for words in CLAIMS[page] if not any(words in one for one in told(page))] == []
    for test in {*CLAIMS[page].values()} - {OURS}:
        file, _, name = test.partition("::")
        assert name in names_of(Path(ROOT / "tests" / file)), test
