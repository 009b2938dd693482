"""One Airflow below a path, a target with mirrors in every state, and Debian's chromium; started once."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from sandbox.airflow import AirflowStandalone
from tests.driven.cluster import DrivenCluster
from tests.page.world import World, a_night, keep_alive


def behind(topic: int, partition: int) -> int:
    """Return what the target lacks of a partition of the mirror with 10,000."""
    return {17: 3, 18: 1}.get(topic, 0) or (9 if (topic * 50 + partition) % 131 == 0 else 0)


BEHIND = sum(behind(topic, p) > 0 for topic in range(200) for p in range(50))
BASE = "/af"
DAG = "night_of_orders"
IMAGES = Path(__file__).parents[2] / "docs" / "images"
_EVERY_S = 4.0  # a sign of life


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """What the page shows; those mirrors that live give signs."""
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        one, over = World(source, target), threading.Event()
        a_night(one, DAG)
        huge = {f"events.{n:03}": 50 for n in range(200)}
        one.create({topic: [behind(n, p) for p in range(50)] for n, topic in enumerate(huge)})
        one.own("huge", *huge)
        stands = {topic: dict.fromkeys(range(50), 0) for topic in huge}
        one.commit("source", "everything", {(topic, p): 0 for topic in huge for p in range(50)})
        one.says(
            one.tail(one.plan("huge", huge, DAG, positions={"everything": stands})),
            phase="copying",
            summary={"lag": 868, "records_per_s": 9_400, "bytes_per_s": 3_100_000, "eta_s": 0},
        )

        def live() -> None:
            while not over.wait(_EVERY_S):
                keep_alive(one)

        thread = threading.Thread(target=live)
        thread.start()
        yield one
        over.set()
        thread.join()
        one.close()


@pytest.fixture(scope="session")
def airflow(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowStandalone]:
    """Airflow, served below a path, with a viewer besides the admin."""
    settings = {name: dict(one.config.properties) for name, one in (("dc1", world.source), ("dc2", world.target))}
    connections = {name: {**one, "security.protocol": "PLAINTEXT"} for name, one in settings.items()}
    gone = {"archive": {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "PLAINTEXT"}}
    running = AirflowStandalone(
        tmp_path_factory.mktemp("airflow"), dags=Path(__file__).parent / "dags", connections={**connections, **gone},
        env={
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,vera:viewer",
            "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        },
        path=BASE,
    )  # fmt: skip
    try:
        yield running.start(900)
    finally:
        running.stop()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's; Playwright's own would have to be downloaded."""
    where = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if where is None:
        pytest.fail("no chromium on the PATH: 'apt-get install chromium', or name one in CHROMIUM", pytrace=False)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=where, args=["--no-sandbox"])
        yield browser
        browser.close()


Open = Callable[..., Page]


@pytest.fixture
def open_page(chromium: Browser, airflow: AirflowStandalone) -> Iterator[Open]:
    """Open a page of Airflow as somebody; the test fails where the page's own code does."""
    contexts, wrong = [], list[str]()

    def opened(path: str, who: str = "admin", scheme: str = "light", height: int = 800) -> Page:
        context = chromium.new_context(viewport={"width": 1280, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        context.add_cookies([{"name": "_token", "value": token_of(airflow, who), "url": airflow.address}])
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"{airflow.address}/{path}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def token_of(airflow: AirflowStandalone, who: str) -> str:
    """Log somebody in."""
    passwords = json.loads((airflow.home / "simple_auth_manager_passwords.json.generated").read_text())
    answer = airflow._send("POST", "/auth/token", {"username": who, "password": passwords[who]}, {}, None)
    return str(answer["access_token"])


def shoot(page: Page, name: str) -> None:
    """Keep what is seen for the docs, if that is wished."""
    if os.environ.get("UPDATE_IMAGES"):
        page.screenshot(path=IMAGES / f"{name}.png")
