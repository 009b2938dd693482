"""Command lines of the first MirrorMaker and of the Go mirror maker: each option has its old meaning, or is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_mirror.compat import flags, scala_keys
from airflow_mirror.compat.rows import Fate
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InputError
from airflow_mirror.mirror import Mirror

PAGE = Path(__file__).parents[3] / "docs" / "from-mirrormaker-1.md"
CONSUMER = "bootstrap.servers=old1:9092,old2:9092\ngroup.id=mirror-1\n"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return [
        "--consumer.config", written(tmp_path / "consumer.properties", CONSUMER),
        "--producer.config", written(tmp_path / "producer.properties", "bootstrap.servers=new:9092\nacks=-1\n"),
    ]  # fmt: skip


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def mirror(argv: list[str]) -> Mirror:
    (flow,) = flags.read(argv).flows
    return Mirror.from_dict(flow.fields)


def error(argv: list[str]) -> str:
    with pytest.raises(InputError) as caught:
        flags.read(argv)
    return str(caught.value)


def test_files_become_clusters_and_the_group_is_where_the_mirror_takes_over(files: list[str]) -> None:
    given = flags.read([*files, "--whitelist", "orders.*"])
    (flow,) = given.flows
    assert flow.source == {"bootstrap.servers": "old1:9092,old2:9092"}
    assert flow.target == {"bootstrap.servers": "new:9092"}
    found = Mirror.from_dict(flow.fields)
    assert (found.name, found.start_group, found.topics) == ("mirror-1", "mirror-1", ("orders.*",))
    assert (found.start, found.isolation, found.policy) == ("latest", "read_uncommitted", "identity")
    assert not (found.sync_groups or found.sync_configs or found.sync_acls)
    assert found.keeps_config("retention.ms") and not found.excludes_config("retention.ms")  # of a topic that is there
    assert (found.sync_log_starts, found.log_start_delay_s) == (True, 60.0)  # else the target would grow for ever
    assert any("retention (no option)" in line for line in flags.describe(given.noticed))


@pytest.mark.parametrize(
    ("option", "text", "wanted", "others"),
    [
        ("--whitelist", "*", ["anything"], ["__consumer_offsets"]),
        ("--whitelist=*", None, ["anything"], []),
        ("--include", "a.*, b", ["ab", "b"], ["bb", "c"]),
        ("--whitelist", "'x|y'", ["x", "y"], ["xy"]),
        ("--whitelist", "t{1,2}", ["t", "tt"], ["ttt"]),
        ("--whitelist", "(?i)a.*,b", ["A1", "B"], ["c"]),
        ("--include", r"prod\.(a,b)", ["prod.a", "prod.b"], ["prod.ab"]),
        ("--blacklist", "a.*,b", ["c"], ["aa", "b"]),
        ("--exclude", "a.*", ["b"], ["a1"]),
    ],
)
def test_topics_are_chosen_as_they_were(
    files: list[str], option: str, text: str | None, wanted: list[str], others: list[str]
) -> None:
    found = mirror([*files, option, *([] if text is None else [text])])
    assert [t for t in wanted + others if found.selects_topic(t)] == wanted


@pytest.mark.parametrize("lists", [[], ["--whitelist", "a", "--blacklist", "b"], ["--include", "a", "--whitelist", "a"]])
def test_exactly_one_list_is_asked_for(files: list[str], lists: list[str]) -> None:
    assert "exactly one of --whitelist (--include) and --blacklist (--exclude) is needed" in error([*files, *lists])


def test_a_prefix_is_put_before_the_name_and_nothing_in_between(files: list[str]) -> None:
    assert mirror([*files, "--whitelist=.*", "--prefix", "dc1_"]).naming.target_topic("test") == "dc1_test"
    assert mirror([*files, "--whitelist=.*", "--prefix", ""]).naming.target_topic("test") == "test"


@pytest.mark.parametrize(
    ("given", "partitioning"),
    [([], "preserve"), (["--preserve.partitions"], "preserve"), (["--preserve.partitions=false"], "by_key")],
)
def test_partitions(files: list[str], given: list[str], partitioning: str) -> None:
    assert mirror([*files, "--whitelist=.*", *given]).partitioning == partitioning


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--abort.on.send.failure", "false"], "a record that can't be written is never dropped"),
        (["--message.handler", "com.acme.Mask"], "--message.handler: it is code of Java"),
        (["--consumer.rebalance.listener=com.acme.L"], "--consumer.rebalance.listener: it is code of Java"),
        (["--num.streams", "0"], "--num.streams=0: no number from 1"),
        (["--preserve.order=perhaps"], "--preserve.order=perhaps: neither true nor false"),
        (["--prefix=a", "--prefix=b"], "--prefix: given 2 times"),
    ],
)
def test_what_can_not_be_kept_is_refused_by_name(files: list[str], given: list[str], says: str) -> None:
    assert says in error([*files, "--whitelist=.*", *given])


@pytest.mark.parametrize(
    ("given", "aborts"),
    [
        ([], True), (["--abort.on.send.failure"], True), (["--abort.on.send.failure", "true"], True),
        (["--prefix=dc1_"], False), (["--preserve.order=false"], False),
        (["--prefix=a", "--abort.on.send.failure"], True),
    ],
)  # fmt: skip
def test_a_failure_to_send_ends_the_job_where_it_did(files: list[str], given: list[str], aborts: bool) -> None:
    read = flags.read([*files, "--whitelist=.*", *given])
    assert (read.aborts, read.give_up_after_s) == (aborts, None)


def test_a_target_that_is_away_is_waited_for_as_long_as_the_producer_waited(files: list[str], tmp_path: Path) -> None:
    def of(text: str) -> list[str]:
        producer = written(tmp_path / "waits.properties", f"bootstrap.servers=new:9092\ndelivery.timeout.ms={text}\n")
        return [*files[:2], "--producer.config", producer, "--whitelist=.*"]

    read = flags.read(of("90000"))
    assert read.give_up_after_s == 90.0
    assert any("--give-up-after-s" in one.text for one in read.noticed if one.key.endswith("delivery.timeout.ms"))
    assert "waits.properties: delivery.timeout.ms: no whole number from 1 to 2147483647. Correct it." in error(of("soon"))


def test_group_and_patience_may_stand_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUP", "mirror-7")
    monkeypatch.setenv("PATIENCE", "90000")
    provided = "config.providers=env\nconfig.providers.env.class="
    provided += "org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
    consumer = written(tmp_path / "c", f"bootstrap.servers=old:9092\ngroup.id=${{env:GROUP}}\n{provided}")
    producer = written(tmp_path / "p", f"bootstrap.servers=new:9092\ndelivery.timeout.ms=${{env:PATIENCE}}\n{provided}")
    read = flags.read(["--consumer.config", consumer, "--producer.config", producer, "--whitelist=.*"])
    (flow,) = read.flows
    assert (flow.fields["name"], flow.fields["start_group"], read.give_up_after_s) == ("mirror-7", "mirror-7", 90.0)


_SECRET = "Zq9xZq9xZq9x"
_KEYS = st.sampled_from([*scala_keys.CONSUMER.keys, "no.such", "config.providers", "config.providers.f.class"])
_VALUES = st.lists(
    st.sampled_from([_SECRET, "SSL", "a:1", "9", "=", ";", "\\u00", "\\", '"', "${f:x:y}", " "])
    | st.characters(codec="utf-8"),
    max_size=4,
).map("".join)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(_KEYS, st.sampled_from("=: "), _VALUES)))
@example([("security.protocol", "=", _SECRET)])
@example([("ssl.keystore.location", "=", "\0")])
@example([("bootstrap.servers", "=", f"::1:{_SECRET}")])
@example([("delivery.timeout.ms", "=", "²")])
@example([("client.id", "=", f"\\u{_SECRET}")])
def test_any_file_is_settings_or_an_error_that_quotes_no_value(
    files: list[str], tmp_path: Path, lines: list[tuple[str, str, str]]
) -> None:
    text = "".join(f"{''.join(line)}\n" for line in lines)
    both = [written(tmp_path / name, f"bootstrap.servers=a:1\n{text}") for name in ("c.properties", "p.properties")]
    try:
        for flow in flags.read(["--consumer.config", both[0], "--producer.config", both[1], "--include=.*"]).flows:
            ClientConfig(flow.source)
    except InputError as e:
        assert _SECRET not in str(e)


def test_a_byte_order_mark_is_no_part_of_the_first_key(files: list[str], tmp_path: Path) -> None:
    marked = tmp_path / "marked.properties"
    marked.write_text("security.protocol=SSL\nbootstrap.servers=a:1\n", encoding="utf-8-sig")
    (flow,) = flags.read(["--consumer.config", str(marked), *files[2:], "--include=.*"]).flows
    assert flow.source == {"bootstrap.servers": "a:1", "security.protocol": "SSL"}


def test_a_default_that_has_changed_is_told_although_nobody_wrote_it(tmp_path: Path) -> None:
    both = ["--consumer.config", written(tmp_path / "c", "bootstrap.servers=a:1\n"), "--producer.config"]
    both.append(written(tmp_path / "p", "bootstrap.servers=b:1\n"))

    def absent(*more: str) -> list[str]:
        return [one.key for one in flags.read([*both, "--whitelist=a", *more]).noticed if "(absent)" in one.key]

    assert absent() == ["--num.streams (absent)", "--preserve.partitions (absent)"]
    assert absent("--prefix=dc1_", "--preserve.partitions=false", "--num.streams=1") == []


def test_all_problems_are_listed_at_once_and_no_secret_is(tmp_path: Path) -> None:
    consumer = written(tmp_path / "c", "zookeeper.connect=zk:2181\nsasl.jaas.config=hush-hush\ngroop.id=x\n")
    said = error(["--consumer.config", consumer, "--message.handler=X", "--whitelist=a"])
    for part in (
        "zookeeper.connect",
        "The nearest known is 'group.id'",
        "--message.handler",
        "--producer.config: missing",
    ):
        assert part in said
    assert "hush" not in said


def test_names_and_values_of_the_oldest_clients_are_understood(tmp_path: Path) -> None:
    consumer = written(tmp_path / "c", CONSUMER + "auto.offset.reset=smallest\nnum.consumer.fetchers=4\n")
    producer = written(tmp_path / "p", "metadata.broker.list=new:9092\nproducer.type=sync\ncompression.codec=none\n")
    (flow,) = flags.read(["--consumer.config", consumer, "--producer.config", producer, "--whitelist=a"]).flows
    assert (flow.fields["start"], flow.target) == ("earliest", {"bootstrap.servers": "new:9092"})


@pytest.mark.parametrize("older_first", [True, False])
def test_two_names_of_one_key_say_the_same_or_are_refused(tmp_path: Path, older_first: bool) -> None:
    """Java's producer writes where the newer one says. Which of them the old tool had, nobody knows."""
    consumer = written(tmp_path / "c", CONSUMER)

    def argv(older: str) -> list[str]:
        lines = [f"metadata.broker.list={older}\n", "bootstrap.servers=new:9092,new2:9092\n"][:: 1 if older_first else -1]
        producer = written(tmp_path / "p", "".join(lines))
        return ["--consumer.config", consumer, "--producer.config", producer, "--whitelist=a"]

    (flow,) = flags.read(argv("new2:9092, new:9092")).flows
    assert flow.target == {"bootstrap.servers": "new:9092,new2:9092"}
    assert "p: metadata.broker.list: bootstrap.servers has other addresses" in error(argv("old:9092"))


def test_several_sources_are_a_mirror_each(tmp_path: Path, files: list[str]) -> None:
    second = written(tmp_path / "second", "bootstrap.servers=far:9092\ngroup.id=mirror-1\n")
    third = ["--consumer.config", second, *files, "--whitelist=.*", "--num.streams=3"]
    given = flags.read(third)
    assert [flow.fields["name"] for flow in given.flows] == ["mirror-1.far-9092", "mirror-1.old1-9092"]
    assert [flow.fields["start_group"] for flow in given.flows] == ["mirror-1", "mirror-1"]
    assert given.streams == 3


def test_a_group_that_can_not_be_a_mirrors_name_is_told_with_what_it_is_called(files: list[str], tmp_path: Path) -> None:
    assert not [one for one in flags.read([*files, "--whitelist=.*"]).noticed if one.changed]
    odd = written(tmp_path / "odd", "bootstrap.servers=a:1\ngroup.id=mirror of orders\n")
    given = flags.read([f"--consumer.config={odd}", *files[2:], "--whitelist=.*"])
    assert f"{odd}: group.id: mapped: the mirror is called 'mirror-of-orders'" in flags.describe(given.noticed)
    named = flags.read([f"--consumer.config={odd}", *files[2:], "--whitelist=.*", "--name=orders"])
    assert not [one for one in named.noticed if one.changed]


def test_what_is_our_own_is_passed_on(files: list[str]) -> None:
    given = flags.read([*files, "--whitelist=.*", "--hold", "--turn-s", "60", "--name", "mine"])
    assert given.rest == ("--hold", "--turn-s", "60")
    assert given.flows[0].fields["name"] == "mine"


def test_a_command_line_of_ours_is_none_of_theirs() -> None:
    ours: list[Any] = ["--source", "a", "--target", "b", "--include", "x", "--exclude", "y", "--tasks=2"]
    assert not flags.is_old(ours)
    assert flags.is_old(["--consumer.config=c"]) and flags.is_old(["--num.streams", "1"])


def test_every_option_has_a_row_in_the_documentation_and_no_other() -> None:
    rows = re.findall(r"^\| `(--[\w.]+)` \| (\S.*?) \| (\S.*?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    shown = {option: (fate, text) for option, fate, text in rows}
    wanted = {row.key: (row.fate.value, cell(row.becomes, row.why)) for row in flags.OPTIONS.rows}
    assert shown == wanted


def cell(becomes: str, why: str) -> str:
    return ": ".join(part for part in (f"`{becomes}`" if becomes else "", why) if part).replace("|", "\\|")


def test_no_option_is_without_its_reason() -> None:
    assert all(row.why for row in flags.OPTIONS.rows)
    assert {row.fate for row in flags.OPTIONS.rows} == set(Fate)
