"""The docs say what the code is: examples are files, names exist, nothing is left out. No Airflow in here."""

from __future__ import annotations

import configparser
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror import __version__
from airflow_mirror.console.main import main
from airflow_mirror.copy.results import summarise
from airflow_mirror.cutover.steps import STEPS
from airflow_mirror.errors import InputError, NeedsHuman, TryAgain
from airflow_mirror.get_provider_info import get_provider_info
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.rights import RESOURCES, RIGHTS, ROLES, Right
from tests.figures import arrows, imported, modules
from tests.parts import PARTS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
EXAMPLE = DOCS / "examples" / "first_mirror.py"


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(page: str, language: str = "") -> list[str]:
    """The fenced blocks of one language."""
    every = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [content for named, content in every if named == language]


def prose(page: str) -> str:
    """A page without its fenced blocks: what stands in those are no links and no headings."""
    return re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def first_cells(page: str) -> list[str]:
    """The first cell of each row of each table."""
    return re.findall(r"^\| ([^|]+?) \|", page, re.MULTILINE)


# --- links and pictures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text(encoding="utf-8"))):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert broken == []


def test_every_page_is_reached_from_the_readme() -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in re.findall(r"\]\(([^)\s]+)\)", text("README.md"))}
    assert [p.name for p in PAGES[1:] if p not in linked and p.parent not in linked] == []


def test_pictures_need_nothing_from_elsewhere() -> None:
    for picture in (DOCS / "images").glob("*.svg"):
        elements = list(ElementTree.parse(picture).iter())
        assert not [e.tag for e in elements if e.tag.rpartition("}")[2] in ("script", "image", "foreignObject", "style")]
        assert not [key for e in elements for key in e.attrib if key.rpartition("}")[2] == "href"]


# --- kinds -----------------------------------------------------------------------------------------------------------

# What the first page calls what the site's navigation has.
KINDS = {
    "learn": "Tutorial", "do something": "How to", "look something up": "Reference", "understand": "Explanation",
    "work on it": "For maintainers",
}  # fmt: skip


def nav() -> dict[str, list[str]]:
    """The pages of each group of the navigation."""
    groups = re.split(r"^  - ", text("mkdocs.yml").partition("\nnav:\n")[2], flags=re.MULTILINE)[1:]
    return {group.partition(":")[0]: re.findall(r": ([\w./-]+)$", group, re.MULTILINE) for group in groups}


def test_every_page_is_of_one_kind() -> None:
    """A page that teaches, leads, lists and explains at once serves nobody: it is split, or its other part moves."""
    assert list(nav()) == ["Home", *KINDS.values()]
    pages = {
        "index.md",
        "adr/index.md",
        "changelog.md",
        "contributing.md",
        *(str(page.relative_to(DOCS)) for page in DOCS.glob("*.md")),
    }
    assert sorted(page for group in nav().values() for page in group) == sorted(pages)


def test_first_page_and_navigation_have_a_page_under_the_same_kind() -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| (.+) \|$", text("README.md").partition("## Where to go")[2], re.MULTILINE)
    assert [row for row, _ in rows] == list(KINDS)
    for row, links in rows:
        led_to = {page.replace("adr/", "adr/index.md") for page in re.findall(r"\]\(docs/([^)#]+)", links)}
        assert led_to <= {*nav()[KINDS[row]]}, row


# --- README ----------------------------------------------------------------------------------------------------------


def test_the_readmes_dag_is_the_example_file_and_short() -> None:
    (shown,) = blocks(text("README.md"), "python")
    assert shown == EXAMPLE.read_text(encoding="utf-8")
    assert len(shown.splitlines()) <= 15


def test_readme_is_short_and_begins_with_two_commands() -> None:
    (commands,) = blocks(text("README.md"))
    (output,) = blocks(text("docs/demo.md"))
    assert len(text("README.md").encode()) <= 9000
    assert [line.split("#")[0].strip() for line in commands.splitlines()] == ["make demo", "make test"]
    assert text("README.md").index(commands) < text("README.md").index("\n## ")
    assert max(map(len, output.splitlines())) <= 100


@pytest.mark.parametrize(
    "wish",
    ["change nothing", "with a prefix", "SCRAM and TLS", "rehearse", "undo", "replicate", "past days", "how far"],
)
def test_first_page_leads_to_what_people_come_for_in_one_step(wish: str) -> None:
    """The row's first link is a section of the page of how-tos, which is all that has to be read."""
    table = text("README.md").partition("| I want to | do this |")[2].partition("\n\n")[0]
    (row,) = [line for line in table.splitlines() if wish in "".join(line.split("|")[1:2])]
    page, _, anchor = re.findall(r"\]\(([^)]+)\)", row)[0].partition("#")
    assert page == "docs/how-do-i.md" and anchor in anchors(text(page))


def test_concepts_are_reasons_and_no_reference() -> None:
    """What exactly is done stands in the reference, once: there it is looked up, and there it is changed."""
    page = text("docs/concepts.md")
    assert len(page.split()) <= 2000 and "\n| " not in page and "\n- " not in page


def test_tutorial_writes_with_the_example_and_ends_what_it_has_begun() -> None:
    page = text("docs/tutorial.md")
    assert "python docs/examples/orders.py 127.0.0.1:19092 1000" in page and "python -m sandbox down" in page


# --- reference -------------------------------------------------------------------------------------------------------


def test_every_field_of_a_mirror_is_documented_and_no_other() -> None:
    table = text("docs/mirror.md").partition("| field |")[2].partition("\n\n")[0]
    assert first_cells(table)[1:] == [f"`{f.name}`" for f in fields(Mirror)]


def needed_by(right: Right) -> str:
    """For which parts of the work, with which Mirrors, on which releases."""
    releases = {"from": right.since, "before": right.before or ()}
    said = [f"{word} {'.'.join(map(str, release))}" for word, release in releases.items() if release]
    every = right.roles[: len(ROLES)] == ROLES
    roles = ", ".join(["all the work", *right.roles[len(ROLES) :]] if every else right.roles)
    return "; ".join([roles, *([right.when] if right.when else []), *said])


def test_the_rights_are_documented_as_the_table_of_the_code_has_them() -> None:
    table = text("docs/mirror.md").partition("| on | resource |")[2].partition("\n\n")[0]
    rows = [f"| {r.side} | {RESOURCES[r.on]} | {r.operation} | {needed_by(r)} | {r.why} |" for r in RIGHTS]
    assert table.splitlines()[2:] == rows


def test_every_option_of_airflows_configuration_is_documented() -> None:
    page = text("docs/mirror.md")
    for option in get_provider_info()["config"]["mirror"]["options"]:
        assert f"`[mirror] {option}`" in page, option


def test_the_steps_of_a_cutover_are_documented_in_their_order() -> None:
    table = text("docs/cutover.md").partition("| step |")[2].partition("\n\n")[0]
    assert first_cells(table)[1:] == [f"`{step.name}`" for step in STEPS]
    drawn = re.findall(r"^    ([A-Z_]+) --> ([A-Z_]+): (\w+)$", text("docs/design.md"), re.MULTILINE)
    assert drawn == [(step.leads_from, step.to, step.name) for step in STEPS]


def test_how_soon_a_guard_lifts_a_fence_is_said_once() -> None:
    """Other pages lead there: a number that stands in five places is wrong in four of them once it changes."""
    said = [
        page.name
        for page in PAGES
        if page.parent.name != "adr"
        for sentence in re.split(r"[.:;] ", " ".join(page.read_text(encoding="utf-8").split()))
        if re.search(r"guard|fence", sentence) and re.search(r"(?<!every )half a minute", sentence)
    ]
    assert said == []
    assert "within half a minute producers write again" in " ".join(text("docs/cutover.md").split())


def test_the_branches_of_errors_are_documented() -> None:
    for branch in (InputError, TryAgain, NeedsHuman):
        assert f"| `{branch.__name__}` |" in text("docs/errors.md")


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse lays its help out differently in other versions")
@pytest.mark.parametrize("job", ["bulk_copy", "streaming_tail", "verify"])
def test_the_shown_help_is_what_the_job_prints(job: str) -> None:
    command = [sys.executable, str(ROOT / "spark_jobs" / f"{job}.py"), "--help"]
    env = {"COLUMNS": "98", "PYTHONPATH": str(ROOT), "PATH": ""}
    printed = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    shown = blocks(text("docs/spark-jobs.md").partition(f"## {job}.py\n")[2])[0]
    assert shown.strip() == printed.strip()


def test_the_shown_script_of_rights_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    command, shown = blocks(text("docs/console.md").partition("## rights\n")[2])[:2]
    assert main(shlex.split(command.replace("\\\n", " "))[1:]) == 0
    assert capsys.readouterr().out == shown


def test_every_key_of_a_copys_summary_is_documented() -> None:
    page = text("docs/spark-jobs.md")
    for key in summarise([], 0):
        assert f"`{key}`" in page, key


def test_pythons_that_pages_name_are_those_of_the_package() -> None:
    """A reader needs them before the installation, so they stand in three places: these must not differ."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = re.findall(r"Python :: (3\.\d+)", config["metadata"]["classifiers"])
    assert config["options"]["python_requires"] == f">={listed[0]}"
    for page in ("README.md", "docs/tutorial.md", "CHANGELOG.md"):
        found = re.findall(r"Python (3\.\d+) to (3\.\d+)", text(page))
        assert found[:1] == [(listed[0], listed[-1])], page


def names_of(requirements: str) -> set[str]:
    return set(re.findall(r"^([A-Za-z][\w-]*)", requirements.strip(), re.MULTILINE))


def test_every_dependency_is_explained_where_it_belongs_and_no_other() -> None:
    """A section for each extra, because who installs one reads what it brings."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = config["options.extras_require"]
    build = "\n".join(tomllib.loads(text("pyproject.toml"))["build-system"]["requires"])
    wanted = {"Always": names_of(config["options"]["install_requires"]), "To build it": names_of(build)}
    wanted |= {f"Extra `{extra}`": names_of(listed) for extra, listed in extras.items()}
    page = text("docs/dependencies.md")
    sections = dict(re.findall(r"^## ([^:\n]+).*?\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    cells = {heading: set(first_cells(said)) - {"package", "---"} for heading, said in sections.items()}
    said = {heading: {name for cell in names for name in cell.split(", ")} for heading, names in cells.items() if names}
    assert said == wanted
    (of_dev,) = re.findall(r"^airflow-mirror\[(.+)\]$", extras["dev"], re.MULTILINE)
    (itself,) = re.findall(r"^\| airflow-mirror \| (.+) \|$", page, re.MULTILINE)
    assert re.findall(r"`([\w-]+)`", itself) == of_dev.split(",")


def test_changelog_begins_with_the_version_of_the_package() -> None:
    assert re.findall(r"^## (.+)$", text("CHANGELOG.md"), re.MULTILINE)[0] == __version__


def test_every_part_of_the_tests_is_documented() -> None:
    table = text("docs/testing.md").partition("| part | folder")[2].partition("\n\n")[0]
    assert first_cells(table)[1:] == [part.name for part in PARTS]


# --- for maintainers -------------------------------------------------------------------------------------------------


def test_every_test_that_holds_an_invariant_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text("docs/design.md"))
    assert len(named) > 20
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in text(file)]
    assert missing == []


def test_every_invariant_names_its_test() -> None:
    section = text("docs/design.md").partition("## Invariants")[2].partition("\n## ")[0]
    assert [item[:60] for item in re.split(r"\n- ", section)[1:] if "`tests/" not in item] == []


def test_the_map_has_every_package_and_no_other() -> None:
    page = text("docs/design.md").partition("## Map")[2]
    mapped = set(re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE))
    package = ROOT / "airflow_mirror"
    assert mapped == {path.parent.name for path in package.glob("*/__init__.py")}
    at_the_root = {path.stem for path in package.glob("*.py")} - {"__init__"}
    assert at_the_root == set(re.findall(r"`(\w+)`", page.partition("At the root stand")[2].partition("[Where")[0]))


def test_each_of_twenty_questions_has_the_path_that_answers_it() -> None:
    rows = re.findall(r"^\| ([^|]+\?) \| ([^|]+) \| `(\w+)` \|$", text("docs/where.md"), re.MULTILINE)
    assert len(rows) == 20
    for question, paths, name in rows:
        found = [text(f"airflow_mirror/{path}") for path in re.findall(r"`([^`]+)`", paths)]
        assert any(re.search(rf"\b{name}\b", one) for one in found), question


def test_the_glossary_defines_at_most_forty_words_once_each() -> None:
    words = [word.strip() for row in first_cells(text("docs/glossary.md"))[2:] for word in row.split(",")]
    assert len(first_cells(text("docs/glossary.md"))[2:]) <= 40 and len(words) == len(set(words))


def test_every_arrow_between_packages_is_an_import() -> None:
    diagram = text("docs/design.md").partition("## Map")[2].partition("```mermaid")[2].partition("```")[0]
    chains = [re.findall(r"(?:^|--> )(\w+)", line.strip()) for line in diagram.splitlines() if "-->" in line]
    drawn = {(a, b) for chain in chains for a, b in pairwise(chain) if b != "values"}
    assert len(drawn) > 15
    assert drawn - set(arrows()) == set()


def test_airflow_is_imported_by_the_packages_that_the_map_says() -> None:
    page = text("docs/design.md").partition("## Map")[2]
    count = ("one", "two", "three", "four", "five", "six").index(re.findall(r"Only the first (\w+) rows", page)[0]) + 1
    rows = re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)[:count]
    package = ROOT / "airflow_mirror"
    with_airflow = {
        path.relative_to(package).parts[0]
        for path in modules(package)
        if any(name.split(".")[0] == "airflow" for name in imported(path))
    }
    assert with_airflow == set(rows)


def test_decisions_are_numbered_without_gaps_and_each_has_its_parts() -> None:
    records = sorted((DOCS / "adr").glob("*.md"))
    assert [int(p.name[:4]) for p in records] == list(range(1, len(records) + 1))
    for number, record in enumerate(records, 1):
        content = record.read_text(encoding="utf-8")
        assert content.startswith(f"# {number}. "), record.name
        assert re.findall(r"^## (.+)$", content, re.MULTILINE) == ["Context", "Decision", "Consequences", "Turned down"]


# --- security ----------------------------------------------------------------------------------------------------------


def test_each_claim_about_security_names_a_test_that_is_there() -> None:
    page = text("docs/security.md")
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| who", "| ---"))]
    promises = [row for row in rows if row.split("|")[3].strip()]
    assert len(promises) >= 10 and all("::" in row for row in promises), "what is not tested is not claimed"
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert [pair for pair in named if f"\ndef {pair[1]}(" not in text(pair[0])] == []


@pytest.fixture(scope="module")
def site() -> Any:
    """The hooks of the site."""
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_first_use_of_a_word_on_a_page_leads_to_the_glossary(site: Any) -> None:
    page = "<h2>Lease</h2><p>A <code>lease</code>, a Lease, <a href='x'>two leases</a>; the lease. It holds; on hold.</p>"
    assert site.linked(page, "../glossary/") == (
        '<h2>Lease</h2><p>A <code>lease</code>, a <a class="word" href="../glossary/#lease">Lease</a>, '
        '<a href=\'x\'>two leases</a>; the lease. It holds; on <a class="word" href="../glossary/#hold">hold</a>.</p>'
    )


def test_links_lead_to_pages_of_the_site(site: Any) -> None:
    """What is none there is named: a link would be dead."""
    page = "[a](../README.md#x) [b](../CHANGELOG.md) [c](../tests/memory/README.md) [d](mirror.md#y) [e](adr/) [f](https://x/y)"
    assert site.links_on_site(page, "tutorial.md") == (
        "[a](index.md#x) [b](changelog.md) c (`tests/memory/README.md`) [d](mirror.md#y) [e](adr/index.md) [f](https://x/y)"
    )
    assert site.links_on_site("[a](../../CONTRIBUTING.md#x) [b](0001-x.md)", "adr/0002-y.md") == (
        "[a](../contributing.md#x) [b](0001-x.md)"
    )
    assert site.links_on_site("[a](docs/errors.md) [b](CONTRIBUTING.md) [c](#z)", "index.md") == (
        "[a](errors.md) [b](contributing.md) [c](#z)"
    )


def test_each_word_of_the_glossary_is_a_place(site: Any) -> None:
    table = text("docs/glossary.md")
    glossary = SimpleNamespace(file=SimpleNamespace(src_uri="glossary.md"))
    places = re.findall(r'<span id="([^"]+)">', site.on_page_markdown(table, glossary, None, None))
    assert places == [word.replace(" ", "-") for word in site.words()] and "way-back" in places
    rows = [cell for cell in first_cells(table) if cell not in ("word", "---")]
    assert len(rows) <= 40 and places == [w.replace(" ", "-") for row in rows for w in row.split(", ")]
