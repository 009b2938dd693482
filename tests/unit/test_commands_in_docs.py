"""Commands in the docs can be typed: targets, modules, scripts and options exist. No Airflow in here."""

from __future__ import annotations

import argparse
import ast
import functools
import importlib.util
import io
import itertools
import json
import re
import runpy
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import javaproperties
import pytest
import yaml

from airflow_mirror.compat import flags
from airflow_mirror.config import ClientConfig
from airflow_mirror.console import main
from airflow_mirror.console.commands import COMMANDS
from airflow_mirror.errors import InputError
from airflow_mirror.mirror import Mirror
from tests.parts import PARTS
from tests.unit.test_docs import PAGES, ROOT, prose, text

PYTHONS = ("python", "python3", ".venv/bin/python")
TARGETS = re.findall(r"^([\w%-]+):", text("Makefile"), re.MULTILINE)
# Options of programs that are not ours, as the docs name them.
FOREIGN = {
    "airflow": {"--conn-type", "--conn-host", "--conn-extra"},
    "kafka-acls.sh": {
        "--bootstrap-server", "--command-config", "--add", "--allow-principal", "--operation", "--topic", "--group",
        "--transactional-id", "--cluster", "--resource-pattern-type", "--list", "--remove", "--force", "--principal",
        "--deny-principal",
    },
    "kafka-dump-log.sh": {"--print-data-log", "--files"},
    "kafka-transactions.sh": {"--bootstrap-server", "--topic", "--partition", "--start-offset"},
    "spark-submit": {"--master", "--py-files", "--conf", "--driver-java-options", "--files", "--kill"},
}  # fmt: skip
OWN = (
    "spark_jobs/bulk_copy.py", "spark_jobs/streaming_tail.py", "spark_jobs/verify.py", "demo", "sandbox", "sandbox up",
    "benchmarks", "benchmarks.planning", "benchmarks.many_partitions", "benchmarks.fence",
    "benchmarks.adopt",
    "benchmarks.distance",
    "airflow_mirror.jobs.translate", "tests.parts",
    "tests.soak", "tests.soak.replication", "tests.figures", "tests.hearts", "airflow_mirror.console.main",
    "airflow_mirror.console.main ledger show", "airflow_mirror.console.main ledger init",
    "airflow_mirror.console.main status", "airflow_mirror.console.main rights",
    "airflow_mirror.console.main plan", "airflow_mirror.console.main configs", "airflow_mirror.console.main translate",
    "airflow_mirror.console.main preview", "airflow_mirror.console.main verify", "airflow_mirror.console.main clients",
    "airflow_mirror.console.main schemas", "airflow_mirror.console.main move-schemas",
    "airflow_mirror.console.main completion",
    "airflow_mirror.console.main cutover", "airflow_mirror.console.main rollback",
    "airflow_mirror.console.main lift-fence",
    "airflow_mirror.console.main swap-fence", "airflow_mirror.console.main failover",
    "airflow_mirror.console.main fence-on-return", "airflow_mirror.console.main failback",
    "airflow_mirror.console.main arm-reverse",
    "airflow_mirror.console.main retire", "airflow_mirror.console.main split", "airflow_mirror.console.main report",
    "airflow_mirror.console.main audit-reports", "airflow_mirror.console.main readiness",
    "airflow_mirror.console.main drills", "airflow_mirror.console.main copy", "airflow_mirror.console.main follow",
    "airflow_mirror.console.main import-mm2", "airflow_mirror.console.main run",
    "airflow_mirror.console.main adopt",
)  # fmt: skip


def commands(page: Any) -> Iterator[Any]:
    """Every line of a page's shell blocks and every piece of inline code, as words."""
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    inline = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(page))]
    for line in (*lines, *inline):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quote of prose: no command
            continue
        if words:
            yield words


def typed(lines: str) -> Iterator[list[str]]:
    """The words behind ``airflow-mirror`` of each line that is a command of its own, up to where a shell redirects it."""
    for line in lines.replace("\\\n", " ").splitlines():
        line = line.strip().removeprefix("$ ")
        if line.startswith("airflow-mirror "):
            words = shlex.split(line, comments=True)[1:]
            yield list(itertools.takewhile(lambda word: word not in (">", "|"), words))


def options(words: Any) -> Any:
    """The long options among some words, without their values."""
    return {word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z][\w-]*(=.*)?", word)}


@functools.cache
def help_of(program: Any) -> Any:
    """What a script or a module prints for --help. It runs in this process, which has imported most of it."""
    name, *words = program.split()
    run: Any = runpy.run_path if name.endswith(".py") else functools.partial(runpy.run_module, alter_sys=True)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as said, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a module that tests have imported is run a second time
        patch.setattr(sys, "argv", [name, *words, "--help"])
        with pytest.raises(SystemExit) as end:
            run(name, run_name="__main__")
    assert end.value.code == 0, program
    return said.getvalue()


def known(program: Any) -> Any:
    return set(re.findall(r"--[a-z][\w-]*", help_of(program)))


def program_of(words: Any) -> Any:
    """Which of our programs a command runs, and its arguments; None for others."""
    scripts = [i for i, word in enumerate(words) if word.startswith("spark_jobs/") and word.endswith(".py")]
    if scripts and words[0] in (*PYTHONS, "spark-submit"):
        return words[scripts[0]], words[scripts[0] + 1 :]
    if words[0] == "airflow-mirror":
        verbs = list(itertools.takewhile(lambda word: not word.startswith("-"), words[1:3]))
        return " ".join(["airflow_mirror.console.main", *verbs]), words[1 + len(verbs) :]
    if words[0] in PYTHONS and words[1:2] == ["-m"]:
        if words[2:4] == ["sandbox", "up"]:
            return "sandbox up", words[4:]
        return words[2], words[3:]
    return None


OLDER = set(flags.OPTIONS.keys)  # which jobs take besides their own


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_target_that_is_named_exists_with_its_variables(page: Any) -> None:
    targets = [*TARGETS, *(f"test-{part.name}" for part in PARTS), "test-PART"]
    for words in commands(page.read_text(encoding="utf-8")):
        if words[0] == "make" and len(words) > 1:
            assert words[1] in targets, words
            assert [w for w in words[2:] if f"$({w.partition('=')[0]})" not in text("Makefile")] == [], words


def test_every_command_that_is_shown_is_one_that_its_parser_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of blocks in the pages, and of the examples of each ``--help``: with what is required, choices and order."""
    blocks = [text for page in PAGES for text in re.findall(r"^```(?:sh)?\n(.*?)^```$", page.read_text(), re.M | re.S)]
    shown = [words for block in blocks for words in typed(block)]
    shown += [words for name in COMMANDS for words in typed(main.parser(name).format_help())]
    assert len(shown) > 150
    wrong = []
    for words in shown:
        if "..." in words:  # what the line before it has
            continue
        if words[0] == "follow" and flags.is_old(words[1:]):
            assert flags._parsed(words[1:])[1] == [], words
            continue
        try:
            main.parser(words[0]).parse_args(words[1:])
        except (SystemExit, InputError):
            wrong.append((words, capsys.readouterr().err))
    assert wrong == []


def test_no_option_is_given_a_pattern_that_the_shell_expands() -> None:
    """To two words where two files match: an option takes the first, and the rest is an argument that nobody wants."""
    blocks = [text for page in PAGES for text in re.findall(r"^```(?:sh)?\n(.*?)^```$", page.read_text(), re.M | re.S)]
    assert [line for block in blocks for line in block.splitlines() if re.search(r"--[a-z-]+ [^'\" ]*\*", line)] == []


def test_every_manifest_is_yaml_whose_commands_its_parser_takes() -> None:
    shown = re.findall(r"^```yaml\n(.*?)^```$", text("docs/kubernetes.md"), re.M | re.S)
    objects = [one for block in shown for one in yaml.safe_load_all(block)]
    (deployment,) = [one for one in objects if one.get("kind") == "Deployment"]
    (secret,) = [one for one in objects if one.get("kind") == "Secret"]
    pod = deployment["spec"]["template"]["spec"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    (mount,) = container["volumeMounts"]
    assert (container["command"], volume["secret"]["secretName"]) == (["airflow-mirror"], secret["metadata"]["name"])
    name, *words = container["args"]
    asked = main.parser(name).parse_args(words)
    for role in ("source", "target"):
        file = Path(getattr(asked, role))
        assert (str(file.parent), file.name in secret["stringData"]) == (mount["mountPath"], True)
        ClientConfig(javaproperties.loads(secret["stringData"][file.name]))


def test_every_block_of_json_is_the_mirror_or_the_settings_that_it_shows() -> None:
    shown = [block for page in PAGES for block in re.findall(r"^```json\n(.*?)^```$", page.read_text(), re.M | re.S)]
    given = [json.loads(block) for block in shown]
    mirrors = [one for one in given if {"name", "source", "target"} <= one.keys()]
    settings = [one for one in given if "bootstrap.servers" in one]
    assert len(mirrors) > 0 and len(settings) > 0
    for one in mirrors:
        Mirror.from_dict(one)
    for one in settings:
        ClientConfig(one)
    assert [one for one in given if one not in (*mirrors, *settings)] == []


def test_documented_modules_scripts_and_options_exist() -> None:
    """Of all pages in one test: so one process asks each program for its help, and once."""
    for page in PAGES:
        for words in commands(page.read_text(encoding="utf-8")):
            program, arguments = program_of(words) or ("", [])
            if program.endswith(".py"):
                assert (ROOT / program).exists(), (page, words)
            elif program:
                assert importlib.util.find_spec(program.split()[0]) is not None, (page, words)
            if program and options(arguments):
                theirs = OLDER if flags.is_old(arguments) else set()
                assert options(arguments) <= known(program) | theirs, (page, words)
    ours = set().union(*map(known, OWN), *FOREIGN.values(), OLDER)
    for page in PAGES:
        named = set().union(*map(options, commands(page.read_text(encoding="utf-8"))))
        assert named <= ours, (page, named - ours)


def _said() -> Iterator[tuple[str, str]]:
    """Yield (file, command) of each command in quotes that a text of the package advises; a value that is put in is X."""
    for file in sorted((ROOT / "airflow_mirror").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))):
                continue
            parts: list[Any] = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(one.value if isinstance(one, ast.Constant) else "X" for one in parts)
            for command in re.findall(r"'airflow-mirror ([a-z][^']*)'", " ".join(text.split())):
                yield str(file.relative_to(ROOT)), command


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    found = dict[str, argparse.Action]()
    for action in parser._actions:
        found |= dict.fromkeys(action.option_strings, action)
        for verb in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
            found |= _options(verb)
    return found


def test_advised_commands_and_their_options_exist_and_have_their_values() -> None:
    """Clusters and mirror are left out: whoever reads it knows them."""
    said, wrong = set(_said()), list[str]()
    for file, command in sorted(said):
        name, *words = command.split()
        known = _options(main.parser(name)) if name in COMMANDS else {}
        for word, value in itertools.zip_longest(words, words[1:], fillvalue="--"):
            if word.startswith("--") and (
                word not in known or (known[word].nargs is None and value.startswith("--"))
            ):  # fmt: skip
                wrong.append(f"{file}: {command}: {word}")
        wrong += [] if name in COMMANDS else [f"{file}: {command}"]
    assert len(said) > 30 and not wrong
