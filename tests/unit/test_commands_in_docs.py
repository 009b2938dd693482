"""Commands in the docs can be typed: targets, modules, scripts and options exist. No Airflow in here."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.parts import PARTS
from tests.unit.test_docs import PAGES, ROOT, prose, text

PYTHONS = ("python", "python3", ".venv/bin/python")
CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which names options that are gone
TARGETS = re.findall(r"^([\w%-]+):", text("Makefile"), re.MULTILINE)
# Options of programs that are not ours, as the docs name them.
FOREIGN = {
    "airflow": {"--conn-type", "--conn-extra"},
    "spark-submit": {"--master", "--py-files", "--conf", "--driver-java-options"},
}
OWN = (
    "spark_jobs/bulk_copy.py", "spark_jobs/streaming_tail.py", "spark_jobs/verify.py", "demo", "sandbox", "sandbox up",
    "benchmarks", "benchmarks.planning", "benchmarks.many_partitions", "airflow_mirror.jobs.translate", "tests.parts",
    "tests.soak", "tests.figures",
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


def options(words: Any) -> Any:
    """The long options among some words, without their values."""
    return {word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z][\w-]*(=.*)?", word)}


@functools.cache
def help_of(program: Any) -> Any:
    """What a script or a module prints for --help."""
    words = program.split()
    asked = [words[0]] if words[0].endswith(".py") else ["-m", words[0]]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, *asked, *words[1:], "--help"]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout


def known(program: Any) -> Any:
    return set(re.findall(r"--[a-z][\w-]*", help_of(program)))


def program_of(words: Any) -> Any:
    """Which of our programs a command runs, and its arguments; None for others."""
    scripts = [i for i, word in enumerate(words) if word.startswith("spark_jobs/") and word.endswith(".py")]
    if scripts and words[0] in (*PYTHONS, "spark-submit"):
        return words[scripts[0]], words[scripts[0] + 1 :]
    if words[0] in PYTHONS and words[1:2] == ["-m"]:
        if words[2:4] == ["sandbox", "up"]:
            return "sandbox up", words[4:]
        return words[2], words[3:]
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_target_that_is_named_exists_with_its_variables(page: Any) -> None:
    targets = [*TARGETS, *(f"test-{part.name}" for part in PARTS), "test-PART"]
    for words in commands(page.read_text(encoding="utf-8")):
        if words[0] == "make" and len(words) > 1:
            assert words[1] in targets, words
            assert [w for w in words[2:] if f"$({w.partition('=')[0]})" not in text("Makefile")] == [], words


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_documented_modules_and_scripts_exist_and_take_their_options(page: Any) -> None:
    for words in commands(page.read_text(encoding="utf-8")):
        found = program_of(words)
        if found is None:
            continue
        program, arguments = found
        if program.endswith(".py"):
            assert (ROOT / program).exists(), words
        else:
            assert importlib.util.find_spec(program.split()[0]) is not None, words
        if options(arguments):
            assert options(arguments) <= known(program), words


@pytest.mark.parametrize("page", CURRENT, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_option_that_is_named_belongs_to_a_program(page: Any) -> None:
    ours = set().union(*map(known, OWN))
    named = set().union(*map(options, commands(page.read_text(encoding="utf-8"))), set())
    assert named - ours - set().union(*FOREIGN.values()) == set()
