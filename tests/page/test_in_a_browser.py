"""The page in a real Airflow, below a path, as a person with a browser sees it."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Locator, Page, expect

from airflow_mirror.page.looks import FRESH_S
from sandbox.airflow import AirflowStandalone
from tests.page.conftest import BASE, BEHIND, DAG, Open, shoot, token_of
from tests.page.measures import CANVAS_MS, FIRST_PAINT_MS, ONE_BYTES, ONE_S, painted, readable
from tests.page.world import HOSTILE, World

LIST, ORDERS = "plugin/mirrors", "plugin/mirrors?target=dc2&mirror=orders"
REPLICA = "plugin/mirrors?target=dc2&mirror=replica"
PATIENCE_MS = 60_000  # a busy machine, and a look at both clusters


@pytest.fixture(scope="module")
def runs(airflow: AirflowStandalone) -> Iterator[dict[str, str]]:
    """A finished run of each DAG, by its id."""
    found = {dag: airflow.trigger(dag, run_id="one") for dag in (DAG, "something_else")}
    for dag, run in found.items():
        assert airflow.wait(dag, run) == "success"
    yield found


def seen(page: Page, text: str | re.Pattern[str]) -> None:
    expect(page.get_by_text(text).first).to_be_visible(timeout=PATIENCE_MS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_mirror_is_listed_with_its_state(open_page: Open, scheme: str) -> None:
    page = open_page("", scheme=scheme)
    page.get_by_role("link", name="Mirrors", exact=True).click(timeout=PATIENCE_MS)
    seen(page, "no broker at 127.0.0.1:1")
    seen(page, "following")
    for words in (
        "source fenced",
        "copying 42 %",
        "in production",
        "at rest",
        "paused by ann@desk",
        "records of somebody",
    ):
        seen(page, words)
    first = page.get_by_role("row").nth(1)
    expect(first).to_contain_text("audit")  # what needs a person comes first
    assert scheme in (page.locator("html").get_attribute("class") or "")
    page.mouse.move(0, 0)
    shoot(page, f"page_list_{scheme}")


def test_first_plan_that_was_refused_is_listed_with_its_task_though_no_ledger_knows_its_mirror(
    airflow: AirflowStandalone, open_page: Open
) -> None:
    run = airflow.trigger("first_night", run_id="one")
    assert airflow.wait("first_night", run) == "failed"
    page = open_page("dags/first_night/runs/one")
    page.get_by_role("link", name="Mirror", exact=True).click(timeout=PATIENCE_MS)
    seen(page, "Its plan was refused")
    page = open_page(LIST)
    seen(page, "<b>too large</b>")
    seen(page, "Raise message.max.bytes.")
    page.get_by_role("link", name="Its task").click()
    expect(page).to_have_url(re.compile(r"/dags/first_night/runs/one/tasks/plan"), timeout=PATIENCE_MS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_one_mirror_tells_all_that_is_known_of_it(open_page: Open, scheme: str) -> None:
    page = open_page(ORDERS, scheme=scheme, height=1250)
    seen(page, "228 partitions, 131 behind")
    for words in ("Source FENCED", "prove_fence", "orders.eu", "3 move", "fraud-detection", "Cutover manual__2026"):
        seen(page, words)
    left = page.get_by_text(re.compile(r"\d+:\d\d left"))
    before = left.inner_text()
    expect(left).not_to_have_text(before)
    if scheme == "light":
        shoot(page, "page_mirror_light")


def test_lag_and_rate_stand_in_the_list_and_are_lines_once_they_were_seen_for_a_while(open_page: Open) -> None:
    page = open_page(LIST)
    expect(page.get_by_role("row").filter(has_text="bigmove")).to_contain_text("20 h", timeout=PATIENCE_MS)
    expect(page.get_by_role("row").filter(has_text="bigmove")).to_contain_text("6 d")
    expect(page.get_by_role("row").filter(has_text="replica")).to_contain_text("level")
    page = open_page(ORDERS)
    for words in (r"behind: \d+\.\d s now, at most \d+\.\d s in .+", r"rate: [\d.]+ MB.s now, at most [\d.]+ MB.s in .+"):
        line = page.get_by_role("img", name=re.compile(words))
        expect(line).to_be_visible(timeout=PATIENCE_MS)
        assert (line.locator("polyline").get_attribute("points") or "").count(",") >= 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_drills_have_a_table_and_their_trend_as_lines(open_page: Open, scheme: str) -> None:
    page = open_page(ORDERS, scheme=scheme, height=2600)
    chart = page.get_by_role("img", name=re.compile(r"^RPO \(s.*: "))
    expect(chart).to_be_visible(timeout=PATIENCE_MS)
    expect(chart.locator("circle")).to_have_count(5)
    expect(page.get_by_role("row").filter(has_text="6.20 s")).to_contain_text("31 records lost")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_groups_unfold_to_their_committed_offsets(open_page: Open, scheme: str) -> None:
    page = open_page(ORDERS, scheme=scheme)
    group = page.locator("summary").filter(has_text="billing")
    expect(group).to_contain_text("48 partitions when it was planned", timeout=PATIENCE_MS)
    expect(page.get_by_role("columnheader", name="on the source")).to_have_count(0)
    group.focus()
    page.keyboard.press("Enter")
    seen(page, re.compile(r"48 partitions, [\d,]+ offsets behind; asked"))
    expect(page.get_by_role("row").filter(has_text=re.compile(r"^orders\.eu-\d+8955–$")).first).to_be_visible()
    group.click()
    expect(page.get_by_role("columnheader", name="on the source")).to_have_count(0)


def test_clients_are_asked_for_by_a_click(open_page: Open) -> None:
    page = open_page(ORDERS)
    seen(page, "228 partitions, 131 behind")
    page.get_by_role("button", name="Ask who reads and writes").click()
    seen(page, re.compile(r"\d+ groups, \d+ producers; asked"))
    seen(page, "not seen: no broker lists")
    page.get_by_role("button", name="Ask again").focus()


def test_a_person_needs_no_mouse(open_page: Open) -> None:
    page = open_page(LIST)
    seen(page, "source fenced")
    page.get_by_label("mirror, cluster or state").focus()
    page.keyboard.type("orders")
    expect(page.get_by_role("row")).to_have_count(3)  # the head, the mirror, the target that is away
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    seen(page, "228 partitions, 131 behind")
    heat = page.locator("canvas")
    heat.focus()
    page.keyboard.press("ArrowRight")
    expect(heat).to_have_attribute("aria-label", re.compile(r"orders\.eu-0: "))
    page.keyboard.press("ArrowRight")
    expect(heat).to_have_attribute("aria-label", re.compile(r"orders\.eu-1: "))


def test_ten_thousand_partitions_are_told_and_painted_in_time(open_page: Open, airflow: AirflowStandalone) -> None:
    """What the API server says once both clusters were asked, and what a browser needs for it until it is seen."""
    ask = urllib.request.Request(f"{airflow.address}/mirrors/one?target=dc2&mirror=huge")
    ask.add_header("Authorization", f"Bearer {token_of(airflow, 'admin')}")
    took, size, told = list[float](), 0, None
    while told is None or len(took) < 3:
        began = time.monotonic()
        with urllib.request.urlopen(ask, timeout=60) as answer:
            size = len(body := answer.read())
        told = json.loads(body)["closely"]
        took = [*took, time.monotonic() - began] if told else []
    assert sum(len(topic["lags"]) for topic in told["topics"]) == 10_000
    assert min(took) < ONE_S and size < ONE_BYTES, f"/one: {took} s, {size:,} bytes"
    page = open_page("plugin/mirrors?target=dc2&mirror=huge")
    seen(page, f"10,000 partitions, {BEHIND} behind")
    first, canvas = painted(page)
    assert first < FIRST_PAINT_MS, f"{first} ms to the first paint"
    assert canvas < CANVAS_MS, f"{canvas} ms from the answer to the canvas"


def test_ten_thousand_partitions_are_drawn_in_less_than_a_second(open_page: Open) -> None:
    page = open_page("plugin/mirrors?target=dc2&mirror=huge")
    seen(page, f"10,000 partitions, {BEHIND} behind")
    heat = page.locator("canvas")
    assert float(heat.get_attribute("data-drawn-ms") or 1e9) < 1000
    box = heat.bounding_box()
    assert box is not None and box["height"] < 700, "all of it is seen at once"
    shoot(page, "page_partitions")
    page.locator("summary").filter(has_text="everything").click()
    seen(page, re.compile("10,000 partitions, [\\d,]+ offsets behind"))
    seen(page, "and 9,800 more partitions, less far behind")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_runs_and_tasks_have_a_tab_with_the_mirrors_of_their_dag(
    open_page: Open, runs: dict[str, str], scheme: str
) -> None:  # fmt: skip
    for path in (f"dags/{DAG}/runs/{runs[DAG]}", f"dags/{DAG}/runs/{runs[DAG]}/tasks/plan"):
        page = open_page(path, scheme=scheme)
        page.get_by_role("link", name="Mirror", exact=True).click(timeout=PATIENCE_MS)
        seen(page, "source fenced")
        expect(page.get_by_text("by-hand")).to_have_count(0)
        readable(page, "source fenced", scheme)
    if scheme == "light":
        shoot(page, "page_tab")
    page = open_page(f"dags/something_else/runs/{runs['something_else']}")
    page.get_by_role("link", name="Mirror", exact=True).click(timeout=PATIENCE_MS)
    seen(page, "No mirror of this DAG.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_home_shows_only_what_needs_a_person(open_page: Open, scheme: str) -> None:
    page = open_page("", scheme=scheme)
    seen(page, "3 mirrors need a person")
    seen(page, "Source FENCED")
    seen(page, "Its preview was refused")
    seen(page, "Resume it, and let it catch up.")
    expect(page.get_by_role("link", name="replica")).to_have_count(0)
    readable(page, "3 mirrors need a person", scheme)
    readable(page, "Resume it, and let it catch up.", scheme)
    if scheme == "light":
        shoot(page, "page_home")


@pytest.mark.parametrize("where", ["home", "tab", "list", "one"])
def test_what_is_old_says_so_where_nobody_answers(open_page: Open, runs: dict[str, str], where: str) -> None:
    """A session that was over, or a network that was gone, left Home and the tab as they were, without a word."""
    page = open_page({"home": "", "tab": f"dags/{DAG}/runs/{runs[DAG]}", "list": LIST, "one": ORDERS}[where])
    if where == "tab":
        page.get_by_role("link", name="Mirror", exact=True).click(timeout=PATIENCE_MS)
    seen(page, "Source FENCED")
    expect(page.get_by_text(re.compile("^as of "))).to_have_count(0, timeout=PATIENCE_MS)
    for route in ("list", "one?**"):
        page.route(f"**/mirrors/{route}", lambda route: route.abort())
    seen(page, "Failed to fetch")
    seen(page, re.compile("^as of "))
    seen(page, "Source FENCED")


def test_report_of_a_task_is_read_without_a_web_server(open_page: Open, runs: dict[str, str]) -> None:
    page = open_page(f"dags/{DAG}/runs/{runs[DAG]}/tasks/cutover")
    page.get_by_role("link", name="Details", exact=True).click(timeout=PATIENCE_MS)
    page.get_by_role("link", name="Report", exact=True).click(timeout=PATIENCE_MS)
    seen(page, "The night is over")
    assert page.url.endswith(f"{BASE}/mirrors/files/orders/runs/by-task/report.html")
    assert page.title() != "ran", "a report runs no script"


def test_report_without_a_file_comes_from_the_ledger(open_page: Open) -> None:
    page = open_page(ORDERS)
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Cutover manual__2026").click(timeout=PATIENCE_MS)
    seen(opened.value, re.compile("^prove_fence$"))


def test_report_that_still_runs_reloads_itself_in_its_sandbox(open_page: Open) -> None:
    page = open_page("mirrors/files/orders/runs/manual__2026-11-27T19_30/report.html")
    seen(page, re.compile("^prove_fence$"))
    for _ in range(2):
        with page.expect_response(re.compile("/report.html$"), timeout=PATIENCE_MS) as again:
            pass
        assert again.value.headers["content-security-policy"].startswith("sandbox;")


def test_approval_that_waits_is_shown_with_the_way_to_its_answer(open_page: Open, airflow: AirflowStandalone) -> None:
    run = airflow.trigger("night_of_bigmove", run_id="asks")
    page = open_page("")
    seen(page, "Cut over bigmove?")
    page.get_by_role("link", name="Answer it").click()
    page.wait_for_url(f"**{BASE}/dags/night_of_bigmove/runs/{run}/tasks/approve_cutover/required_actions")
    page.get_by_role("button", name="Reject").click(timeout=PATIENCE_MS)
    page = open_page("plugin/mirrors?target=dc2&mirror=bigmove")
    seen(page, "copying 42 %")
    expect(page.get_by_text("Cut over bigmove?")).to_have_count(0, timeout=PATIENCE_MS)


def test_remedy_is_copied_where_a_page_over_http_has_no_clipboard(open_page: Open) -> None:
    page = open_page("plugin/mirrors?target=dc2&mirror=reports")
    seen(page, "Resume it, and let it catch up.")
    page.evaluate("""() => {
        Object.defineProperty(navigator, "clipboard", { value: undefined });
        document.addEventListener("copy", () => { globalThis.copied = document.activeElement.value; });
    }""")
    page.get_by_role("button", name="Copy", exact=True).first.click()
    seen(page, "Copied")
    assert page.evaluate("globalThis.copied") == "Resume it, and let it catch up."


def test_names_are_shown_and_never_run(open_page: Open) -> None:
    page = open_page("plugin/mirrors?target=dc2&mirror=by-hand")
    seen(page, HOSTILE)
    page.locator("summary").filter(has_text=HOSTILE).click()
    expect(page.get_by_text("Both clusters are being asked")).to_have_count(0, timeout=PATIENCE_MS)
    assert page.evaluate("globalThis.pwned") is None


def test_fence_is_lifted_by_a_run_that_airflow_starts(open_page: Open, airflow: AirflowStandalone) -> None:
    page = open_page(ORDERS)
    page.get_by_role("button", name="Lift the fence …").click(timeout=PATIENCE_MS)
    seen(page, "Producers may write to dc1 again.")
    seen(page, "kafka_lift_fence is turned off: the run begins once somebody turns it on.")
    page.get_by_role("button", name="Lift the fence", exact=True).click()
    seen(page, "kafka_lift_fence runs")
    (run,) = airflow.api("GET", "dags/kafka_lift_fence/dagRuns")["dag_runs"]
    assert run["conf"] == {"name": "orders", "source": "dc1", "target": "dc2", "fence": "acl"}
    assert run["triggering_user_name"] == "admin"


def test_rate_is_set_by_keyboard_and_not_before_the_effect_was_read(open_page: Open, airflow: AirflowStandalone) -> None:
    page = open_page(REPLICA)
    button = page.get_by_role("button", name="Set the rate …")
    button.focus(timeout=PATIENCE_MS)
    page.keyboard.press("Enter")
    seen(page, "All jobs of replica together copy at most so many bytes per second")
    page.keyboard.press("Escape")
    expect(page.get_by_text("All jobs of replica")).to_have_count(0)
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("rate", exact=True)).to_be_focused()
    page.keyboard.type("fast")
    page.keyboard.press("Enter")
    assert airflow.api("GET", "dags/kafka_pace/dagRuns")["total_entries"] == 0, "the form knows what is a rate"
    page.get_by_label("rate", exact=True).fill("7000000")
    page.keyboard.press("Enter")
    seen(page, "kafka_pace runs")
    (run,) = airflow.api("GET", "dags/kafka_pace/dagRuns")["dag_runs"]
    assert run["conf"] == {"name": "replica", "target": "dc2", "action": "rate", "rate": "7000000"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_can_be_done_stands_on_the_mirror(open_page: Open, scheme: str) -> None:
    page = open_page(REPLICA, scheme=scheme)
    page.get_by_role("button", name="Pause …").click(timeout=PATIENCE_MS)
    seen(page, "replica copies nothing until it is resumed.")
    page.get_by_role("button", name="Leave it").click()
    expect(page.get_by_text("replica copies nothing")).to_have_count(0)
    page = open_page("plugin/mirrors?target=dc2&mirror=analytics", scheme=scheme)
    page.get_by_role("button", name="Fail back …").click(timeout=PATIENCE_MS)
    seen(page, "Applications return to dc1")
    expect(page.get_by_role("button", name="Pause …")).to_have_count(0)


def test_connection_is_made_field_by_field_and_tried(open_page: Open, airflow: AirflowStandalone, world: World) -> None:
    page = open_page("connections", height=1150)

    def choose(name: str, value: str) -> None:
        page.get_by_role("combobox", name=name).click()
        page.keyboard.type(value)
        page.keyboard.press("Enter")

    def field(name: str) -> Locator:
        return page.get_by_role("group").filter(has_text=re.compile(f"^{name}")).get_by_role("textbox")

    page.get_by_role("button", name="Add Connection").click(timeout=PATIENCE_MS)
    page.get_by_label("Connection ID").fill("by_form")
    choose("Connection Type", "Kafka cluster")
    expect(page.get_by_role("textbox", name="User")).to_be_visible()  # which no other type calls so
    page.get_by_role("button", name="Extra Fields", exact=True).click()
    expect(field("Brokers")).to_be_visible()
    field("Brokers").fill(world.target.config.bootstrap)
    expect(page.get_by_role("combobox", name="Log in by")).to_be_visible()
    shoot(page, "connection_form")
    choose("Log in by", "none")
    page.get_by_role("button", name="Save").click()
    seen(page, "by_form")
    made = airflow.api("GET", "connections/by_form")
    extra = json.loads(made["extra"])
    assert (made["conn_type"], extra["log_in"]) == ("kafka_cluster", "none")
    assert extra["bootstrap_servers"] == world.target.config.bootstrap
    body = {"connection_id": "by_form", "conn_type": "kafka_cluster", "extra": made["extra"]}
    tried = airflow.api("POST", "connections/test", body)
    assert tried["status"] is True and world.target.cluster_id in tried["message"]
    airflow.api("DELETE", "connections/by_form")  # the page would list its mirrors twice


def test_viewer_sees_mirrors_and_nobody_else_does(open_page: Open, airflow: AirflowStandalone) -> None:
    page = open_page(REPLICA, who="vera")
    seen(page, "dc1 → dc2")
    expect(page.get_by_role("button", name="…")).to_have_count(0)
    page = open_page(LIST, who="vera")
    seen(page, "Source FENCED")
    expect(page.get_by_role("button", name="Lift the fence")).to_have_count(0)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{airflow.address}/mirrors/list", timeout=60)


def test_fifty_browsers_are_one_reader_for_the_target(airflow: AirflowStandalone, world: World) -> None:
    """Each look at the ledger asks for its topic's settings once."""
    ask = urllib.request.Request(f"{airflow.address}/mirrors/list")
    ask.add_header("Authorization", f"Bearer {token_of(airflow, 'admin')}")

    def looks() -> int:
        return len(world.target.asked("DescribeConfigs"))

    def browse(_: int) -> int:
        answered, end = 0, time.monotonic() + 12
        while time.monotonic() < end:
            with urllib.request.urlopen(ask, timeout=60) as answer:
                assert answer.status == 200
            answered += 1
        return answered

    time.sleep(FRESH_S + 15)  # a look at one mirror, of a test before, ends
    before, began = looks(), time.monotonic()
    with ThreadPoolExecutor(50) as pool:
        answered = sum(pool.map(browse, range(50)))
    most = (time.monotonic() - began) / FRESH_S + 2
    assert 1 <= looks() - before <= most < answered
