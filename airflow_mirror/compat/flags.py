"""Command lines of the first MirrorMaker and of the Go mirror maker, as flows of our own.

:data:`OPTIONS` has a row for each of their options: what it becomes, or why it is refused. A default that is not the one
of the old tool is in its row, too. Pure, but for the files that a command line names.

Of the first MirrorMaker it is the newest form (3.9) and what older ones had besides (``--blacklist``,
``--num.producers``, ``--queue.size``, several ``--consumer.config``).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from airflow_mirror.common import patterns
from airflow_mirror.common.nearest import nearest_key
from airflow_mirror.compat import properties, scala_keys
from airflow_mirror.compat.clients import Settings, convert
from airflow_mirror.compat.keys import LIKE_RETENTION, RETENTION
from airflow_mirror.compat.providers import Providers
from airflow_mirror.compat.rows import TABLES, Fate, Noticed, Table
from airflow_mirror.errors import InputError
from airflow_mirror.wording import listed

OPTIONS = TABLES["options"]

_OURS_TOO = frozenset({"--include", "--exclude"})
_SWITCHES = frozenset({"--preserve.partitions", "--preserve.order", "--abort.on.send.failure", "--new.consumer"})
# The Go mirror maker knew no other way than to go on.
_OF_GO = frozenset({"--prefix", "--preserve.partitions", "--preserve.order"})
_REPEATED = frozenset({"--consumer.config"})
# What neither tool did: groups and settings that follow the data, or settings that change on a topic that is there. A
# Mirror of one's own may switch it on.
_RECORDS_ALONE = {"sync_groups": False, "sync_configs": False, "keep_configs": ".*", **LIKE_RETENTION}
_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Flow:
    """One source of a command line.

    :param source: settings of its connection, secrets included; ``target`` too.
    :param fields: of the Mirror. Without ``partitioning`` the topics on both sides decide.
    """

    source: Mapping[str, str] = field(repr=False)
    target: Mapping[str, str] = field(repr=False)
    fields: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """What a command line of an older tool asks for.

    :param flows: one for each source.
    :param streams: how many copy at once; None: not said.
    :param aborts: the first record that can't be written ends the job.
    :param give_up_after_s: how long a target may be away until a record counts as one of these; None: without end.
    :param noticed: what became of each option, and of each key of the files.
    :param rest: arguments that none of the tools had.
    """

    flows: tuple[Flow, ...]
    streams: int | None
    aborts: bool
    give_up_after_s: float | None
    noticed: tuple[Noticed, ...]
    rest: tuple[str, ...]


def is_old(argv: Sequence[str]) -> bool:
    """Return whether a command line has an option that only the older tools had."""
    names = {argument.partition("=")[0] for argument in argv}
    return bool(names & (set(OPTIONS.keys) - _OURS_TOO))


def read(argv: Sequence[str]) -> CommandLine:
    """Read a command line and the files that it names.

    :raises InputError: lists all that is wrong, unknown or refused, each with the remedy. No line has a secret.
    """
    given, rest = _parsed(argv)
    problems = [*_refused(given), *_topics_of(given)[1]]
    sources = [_client(Path(path), scala_keys.CONSUMER) for path in given.get("--consumer.config", [])]
    targets = [_client(Path(path), scala_keys.PRODUCER) for path in given.get("--producer.config", [])]
    problems += [problem for client in (*sources, *targets) for problem in client.settings.problems]
    for option, clients in (("--consumer.config", sources), ("--producer.config", targets)):
        if not clients:
            problems.append(f"{option}: missing. Give the old tool's file.")
        problems += [
            f"{client.path}: bootstrap.servers is missing. Name the cluster's brokers."
            for client in clients
            if not client.settings.properties.get("bootstrap.servers") and not client.settings.problems
        ]
    streams, problem = _number(given, "--num.streams")
    problems += problem
    if problems:
        raise InputError(f"{len(problems)} problem(s) of the command line", f"\n{listed(problems)}\n")
    noticed = [
        *(
            Noticed.by(row, option, text[-1])
            for option, text in given.items()
            if (row := OPTIONS.find(option)) is not None
        ),
        *_absent(given),
        *(one for client in (*sources, *targets) for one in client.settings.noticed),
    ]
    fields = _fields(given)
    names = _names(sources, given)
    noticed += [
        Noticed(f"{client.path}: group.id", Fate.MAPPED, f"the mirror is called {name!r}", changed=True)
        for client, name in zip(sources, names, strict=True)
        if client.group and name != client.group and "--name" not in given
    ]
    flows = tuple(
        Flow(client.settings.properties, targets[0].settings.properties, {**fields, **client.fields(), "name": name})
        for client, name in zip(sources, names, strict=True)
    )
    return CommandLine(
        flows=flows,
        streams=streams,
        aborts=_switch(given, "--abort.on.send.failure") or not given.keys() & _OF_GO,
        give_up_after_s=targets[0].give_up_after_s(),
        noticed=tuple(noticed),
        rest=tuple(rest),
    )


# --- the command line ---------------------------------------------------------------------------------------------------

_Given = Mapping[str, list[str]]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(message, remedy="See docs/from-mirrormaker-1.md for the options of the older tools.")


def _parsed(argv: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    parser = _Parser(add_help=False, allow_abbrev=False)
    for option in OPTIONS.keys:
        if option in _SWITCHES:
            parser.add_argument(option, action="append", nargs="?", const="true", dest=option)
        else:
            parser.add_argument(option, action="append", dest=option)
    parser.add_argument("--name", action="append", dest="--name")
    known, rest = parser.parse_known_args(list(argv))
    return {option: values for option, values in vars(known).items() if values is not None}, rest


def _refused(given: _Given) -> list[str]:
    found = []
    for option, values in given.items():
        row = OPTIONS.find(option)
        if row is not None and row.fate is Fate.REFUSED:
            found.append(f"{option}: {row.why}.")
        elif len(values) > 1 and option not in _REPEATED:
            found.append(f"{option}: given {len(values)} times. Give it once.")
        elif option in _SWITCHES and values[0].lower() not in ("true", "false"):
            found.append(f"{option}={values[0]}: neither true nor false. Give one of them.")
    if _switch(given, "--abort.on.send.failure") is False:
        found.append(
            "--abort.on.send.failure=false: a record that can't be written is never dropped; it stops its partition, and "
            "the error names it. Remove the option."
        )
    return found


def _absent(given: _Given) -> Iterator[Noticed]:
    """Yield what is otherwise here where an option is absent: nobody has written it, so nobody would look for it."""
    yield Noticed("retention (no option)", Fate.MAPPED, RETENTION)
    if "--num.streams" not in given:
        yield Noticed("--num.streams (absent)", Fate.MAPPED, "all cores copy, where it was one stream")
    if "--preserve.partitions" not in given:
        yield Noticed(
            "--preserve.partitions (absent)", Fate.MAPPED,
            "records keep their partition, which is that of their key, unless a topic has another number of them on the "
            "target: then all are partitioned by key, as there",
        )  # fmt: skip


def _switch(given: _Given, option: str) -> bool | None:
    return given[option][0].lower() == "true" if option in given else None


def _number(given: _Given, option: str) -> tuple[int | None, list[str]]:
    if option not in given:
        return None, []
    text = given[option][0]
    if not text.isdecimal() or not int(text):
        return None, [f"{option}={text}: no number from 1. Correct it."]
    return int(text), []


def _topics_of(given: _Given) -> tuple[dict[str, list[str]], list[str]]:
    """Return the Mirror's patterns, and what is wrong with them. Both tools ask for exactly one list."""
    wanted = [text for option in ("--whitelist", "--include") for text in given.get(option, [])]
    unwanted = [text for option in ("--blacklist", "--exclude") for text in given.get(option, [])]
    if len(wanted) + len(unwanted) != 1:
        count = "none is" if not wanted and not unwanted else f"{len(wanted) + len(unwanted)} are"
        return {}, [f"exactly one of --whitelist (--include) and --blacklist (--exclude) is needed; {count} given."]
    if wanted:
        return {"topics": _expressions(wanted[0])}, []
    return {"topics": [".*"], "exclude_topics": _expressions(unwanted[0])}, []


def _expressions(text: str) -> list[str]:
    # TopicFilter of both tools takes off quotes that a shell has left.
    bare = "".join(text.split()).strip("\"'")
    return [".*" if item == "*" else item for item in patterns.of_older_tools(bare)]


def _fields(given: _Given) -> dict[str, Any]:
    found: dict[str, Any] = {"source": "source", "target": "target", **_RECORDS_ALONE, **_topics_of(given)[0]}
    if prefix := given.get("--prefix", [""])[0]:  # an empty one is none
        found |= {"policy": "prefix", "source_alias": prefix, "separator": ""}
    if (keeps := _switch(given, "--preserve.partitions")) is not None:
        found["partitioning"] = "preserve" if keeps else "by_key"
    return found


# --- files --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Client:
    path: Path
    settings: Settings
    group: str
    delivery_ms: str

    def fields(self) -> dict[str, Any]:
        """Return what the file says of the Mirror; where it is silent, what Java's consumer does."""
        fields = {"start": "latest", "isolation": "read_uncommitted", **self.settings.fields}
        return {**fields, "start_group": self.group} if self.group else fields

    def give_up_after_s(self) -> float | None:
        """Return how long a record may take to be written, in seconds; None: the file does not say."""
        return int(self.delivery_ms) / 1000 if self.delivery_ms else None


def _client(path: Path, table: Table) -> _Client:
    entries = properties.read(path)
    written = {entry.key: entry.value for entry in entries}
    given = scala_keys.modern(written)
    # What is near no key is perhaps the rest of a secret.
    names = {
        one.key: f"{path}: line {one.line}: what stands there"
        for one in entries
        if table.find(one.key) is None and not nearest_key(one.key, table.keys)
    }
    providers, problems = Providers.declared(given)
    problems += scala_keys.contradictions(written)
    resolved = {key: providers.resolve(key, value) for key, value in given.items()}
    settings = convert(resolved, table, f"{path}: ", names)
    settings.problems += [f"{path}: {problem}" for problem in problems]
    delivery_ms = resolved.get("delivery.timeout.ms", "").strip()
    return _Client(path, settings, resolved.get("group.id", "").strip(), delivery_ms)


def _names(sources: Sequence[_Client], given: _Given) -> list[str]:
    """Return a Mirror's name for each source: its group's, as several processes of one group are one mirror."""
    asked = given.get("--name", [""])[-1]
    if len(sources) == 1:
        return [asked or _name(sources[0].group) or "cli"]
    groups = [asked or client.group or "cli" for client in sources]
    hosts = [client.settings.properties["bootstrap.servers"].split(",")[0] for client in sources]
    apart = len(set(groups)) == len(groups)
    names = [_name(group if apart else f"{group}.{host}") for group, host in zip(groups, hosts, strict=True)]
    if len(set(names)) < len(names):
        raise InputError(
            "--consumer.config",
            f"two of them are of one group and one source, {', '.join(names)}",
            "Give each source once.",
        )
    return names


def _name(text: str) -> str:
    return _NAME.sub("-", text).strip("-._")[:128]


def describe(noticed: Sequence[Noticed]) -> list[str]:
    """Return a line for each option and key that does not simply mean what it meant."""
    return [f"{one.key}: {one.fate.value}: {one.text}" for one in noticed if one.fate is not Fate.HONOURED]
