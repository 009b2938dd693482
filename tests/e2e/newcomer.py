"""A person at Airflow's UI, with Debian's chromium: what he types into its forms, and what he then reads."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Locator, Page, expect, sync_playwright

from sandbox.airflow import AirflowStandalone

DAG = "kafka_migration"
IMAGES = Path(__file__).parents[2] / "docs" / "images"
_PATIENCE_MS = 180_000  # a busy machine


class Person:
    """Who uses Airflow by its forms. Runs are awaited by its API: to look at a page over and over proves no more."""

    def __init__(self, airflow: AirflowStandalone, page: Page) -> None:
        self.airflow, self.page = airflow, page
        self.page.set_default_timeout(_PATIENCE_MS)
        expect.set_options(timeout=_PATIENCE_MS)

    def go(self, path: str) -> None:
        """Open a page of Airflow."""
        self.page.goto(f"{self.airflow.address}/{path}")

    # --- connections --------------------------------------------------------------------------------------------------

    def connect(self, conn_id: str, brokers: str, user: str, password: str) -> None:
        """Add a connection, as docs/how-do-i.md says it: a user and a password by SCRAM, the rest as the form has it."""
        self.go("connections")
        self.page.get_by_role("button", name="Add Connection").click()
        self.page.get_by_label("Connection ID").fill(conn_id)
        self._choose(self.page.get_by_role("combobox", name="Connection Type"), "Kafka cluster")
        self.page.get_by_role("textbox", name="User").fill(user)
        self.page.get_by_label("Password", exact=True).fill(password)
        self.page.get_by_role("button", name="Extra Fields", exact=True).click()
        self._extra("Brokers").get_by_role("textbox").fill(brokers)
        self._choose(self.page.get_by_role("combobox", name="Log in by"), "SCRAM-SHA-512")
        self._save(conn_id)

    def turn_tls_off(self, conn_id: str) -> None:
        """Edit a connection: it is on until somebody turns it off."""
        self._edit(conn_id)
        self.page.get_by_role("button", name="Extra Fields", exact=True).click()
        self._extra("Encrypt").locator("label[data-scope=switch]").click()
        self._save(conn_id)

    def correct(self, conn_id: str, password: str) -> None:
        """Type another password into a connection."""
        self._edit(conn_id)
        self.page.get_by_label("Password", exact=True).fill(password)
        self._save(conn_id)

    def _edit(self, conn_id: str) -> None:
        self.go("connections")
        row = self.page.get_by_role("row").filter(has=self.page.get_by_text(conn_id, exact=True))
        row.get_by_role("button", name="Edit Connection").click()
        expect(self.page.get_by_role("dialog")).to_be_visible()

    def _save(self, conn_id: str) -> None:
        self.page.get_by_role("button", name="Save").click()
        expect(self.page.get_by_role("dialog")).to_have_count(0)
        expect(self.page.get_by_text(conn_id, exact=True)).to_be_visible()

    def _extra(self, name: str) -> Locator:
        return self.page.get_by_role("group").filter(has_text=re.compile(f"^{name}"))

    def _choose(self, field: Locator, value: str) -> None:
        field.click()
        self.page.keyboard.type(value)
        self.page.keyboard.press("Enter")

    # --- runs ---------------------------------------------------------------------------------------------------------

    def open_form(self) -> None:
        """Open the form of ``kafka_migration``."""
        self.go(f"dags/{DAG}")
        self.page.get_by_role("button", name="Trigger").first.click()
        expect(self.page.locator("#element_topics")).to_be_visible()

    def fill(self, fields: Mapping[str, str]) -> None:
        """Fill in fields of the form, by their ids; what the form has by itself stays."""
        for name, value in fields.items():
            field = self.page.locator(f"#element_{name}")
            if not field.count():  # a number
                field = self.page.locator(f"input[name=element_{name}]")
            self._unfold(field)
            choice = field.locator("input[role=combobox]")
            if choice.count():
                self._choose(choice, value)
            else:
                field.fill(value)

    def _unfold(self, field: Locator) -> None:
        """Open the section in which a field is, which closes the others."""
        section = field.locator("xpath=ancestor::*[@data-part='item-content'][1]")
        if section.get_attribute("hidden") is not None:
            name = (section.get_attribute("id") or "").rpartition(":")[2]
            self.page.get_by_role("button", name=name, exact=True).click()
            expect(section).to_be_visible()

    def start(self) -> str:
        """Press the form's button, and return the id of the run."""
        before = self._runs()
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_role("button", name="Trigger", exact=True).click()
        expect(dialog).to_have_count(0)
        deadline = time.monotonic() + 60
        while not (new := self._runs() - before):
            assert time.monotonic() < deadline, "no run has begun"
            time.sleep(0.2)
        (run,) = new
        return run

    def _runs(self) -> set[str]:
        return {run["dag_run_id"] for run in self.airflow.api("GET", f"dags/{DAG}/dagRuns", limit=100)["dag_runs"]}

    def trigger(self, **fields: str) -> str:
        """Fill in the form, press its button, and return the id of the run."""
        self.open_form()
        self.fill(fields)
        return self.start()

    def read_error(self, run: str, task: str) -> str:
        """Open a task that has failed, as the UI shows it, and return the error at the end of its log.

        That is what it scrolls to. The frames of Airflow's own below it are left out.
        """
        self.go(f"dags/{DAG}/runs/{quote(run)}/tasks/{task}")
        error = self.page.get_by_test_id(re.compile("^summary-Airflow.*Exception"))
        expect(error).to_be_in_viewport()
        return error.inner_text().strip().removeprefix("\u25bc").removeprefix("\u25b6").strip()

    def find_in_log(self, run: str, task: str, text: str) -> str:
        """Type a text into the search above the log of a task, and return the entry to which it goes."""
        self.go(f"dags/{DAG}/runs/{quote(run)}/tasks/{task}")
        self.page.get_by_test_id("log-search-input").fill(text)
        entry = self.page.get_by_test_id(re.compile("^virtualized-item-")).filter(has_text=text).first
        expect(entry).to_be_in_viewport()
        return re.sub(r"^\d+\s*\[[^]]*\]\s*\w+ - ", "", entry.inner_text())

    def show_graph(self, run: str) -> None:
        """Look at the run as a graph."""
        self.go(f"dags/{DAG}/runs/{quote(run)}")
        expect(self.page.get_by_test_id("grid-view-button")).to_be_visible()
        self.page.keyboard.press("g")  # the button beside it has no name of its own
        expect(self.page.get_by_test_id("rf__wrapper")).to_be_visible()
        self.page.wait_for_timeout(2000)  # it is laid out
        self.shoot("run_graph")

    def approve(self, run: str) -> None:
        """Answer the cutover's question, by the page on which it stands."""
        self.go("plugin/mirrors")
        self.page.get_by_role("link", name="Answer it").click()
        button = self.page.get_by_role("button", name="Approve")
        expect(button).to_be_visible()
        button.click()
        self.airflow.wait_for_task(DAG, run, "approve_cutover", ("success",))

    def shoot(self, name: str) -> None:
        """Keep what is seen for the docs, if that is wished."""
        if os.environ.get("UPDATE_IMAGES"):
            self.page.mouse.move(0, 0)
            self.page.screenshot(path=IMAGES / f"{name}.png")


@contextmanager
def person(airflow: AirflowStandalone) -> Iterator[Person]:
    """Somebody with a browser, who has logged in."""
    where = os.environ.get("CHROMIUM") or shutil.which("chromium")
    assert where is not None, "no chromium on the PATH: 'apt-get install chromium', or name one in CHROMIUM"
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=where, args=["--no-sandbox"]) as browser,
    ):
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        one = Person(airflow, page)
        one.go("")
        page.get_by_label("Username").fill(airflow.user)
        page.get_by_label("Password").fill(airflow.password)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("link", name="Mirrors", exact=True)).to_be_visible()
        yield one
