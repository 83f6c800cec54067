"""The pictures of the documentation: pages of the jobs of `shop.py`, which run in `headrace run` on a Spark.

`PICTURES=1`, which `make pictures` sets, keeps them in `docs/pictures/dashboard`.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from playwright.sync_api import Locator, Page, expect

from headrace.rest.client import RestClient
from headrace.rest.home.connections import ClusterConnection
from testkit.waiting import wait_until
from tests.dashboard.pictures import KEPT, take_picture
from tests.dashboard.watched_page import WatchedPage
from tests.spark.java_options import FIRST_COMPILER
from tests.spark.programs import start_headrace

pytestmark = [pytest.mark.browser, pytest.mark.spark, pytest.mark.timeout(600)]

PATIENCE_S: Final = 180.0
SETTINGS: Final = {
    "rest.port": "0",
    "rest.flamegraph.enabled": "true",
    "web.refresh-interval": "1 s",
    "metrics.fetcher.update-interval": "1 s",
    "execution.checkpointing.interval": "5 s",
    "execution.checkpointing.dir": "checkpoints",
    "execution.checkpointing.savepoint-dir": "savepoints",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "1 h",
}
ORDERS, VISITS, PAYMENTS, REPORT = (
    "orders_by_customer",
    "visits_per_page",
    "payments",
    "report_of_yesterday",
)


@dataclass(frozen=True)
class Shop:
    """The cluster of `shop.py`."""

    folder: Path
    address: str
    token: str
    rest: RestClient

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return the newest job of each name."""
        found = sorted(self.rest.get("/jobs/overview")["jobs"], key=lambda job: job["start-time"])
        return {job["name"]: job for job in found}

    def page_of(self, name: str, page: str) -> str:
        return f"/job/{self.jobs()[name]['jid']}/{page}"

    def await_state(self, name: str, state: str) -> None:
        wait_until(
            lambda: self.jobs().get(name, {}).get("state") == state,
            PATIENCE_S,
            f"the job {name} is {state}",
        )

    def vertex(self, name: str, part: str) -> str:
        """Return the id of the vertex of a job whose name has this part."""
        vertices = self.rest.get(f"/jobs/{self.jobs()[name]['jid']}")["vertices"]
        (found,) = [each["id"] for each in vertices if part in each["name"]]
        return found


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    shutil.copy(Path(__file__).with_name("shop.py"), folder)
    given = {
        key: str(folder / value) if value in ("checkpoints", "savepoints") else value
        for key, value in SETTINGS.items()
    }
    options = [word for key, value in given.items() for word in ("-D", f"{key}={value}")]
    home = folder / "home"
    program = start_headrace(
        folder,
        "run",
        "--master",
        "local[8]",
        *options,
        "shop.py",
        environment={"HEADRACE_HOME": str(home), "SPARK_SUBMIT_OPTS": FIRST_COMPILER},
    )
    try:
        wait_until(
            lambda: bool(list(home.glob("clusters/*.json"))) or program.process.poll() is not None,
            PATIENCE_S,
            "the cluster of the shop",
        )
        files = list(home.glob("clusters/*.json"))
        assert files, program.report()
        connection = msgspec.json.decode(files[0].read_bytes(), type=ClusterConnection)
        rest = RestClient(connection.address, connection.token)
        found = Shop(folder, connection.address, connection.token, rest)
        for name, state in {ORDERS: "RUNNING", VISITS: "RUNNING", PAYMENTS: "RESTARTING"}.items():
            found.await_state(name, state)
        yield found
    finally:
        print(program.report())
        program.end()


def loaded(page: Page) -> None:
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def scroll_to(heading: Locator) -> None:
    """Scroll a heading to the upper edge, below the bar that stays there."""
    heading.evaluate("(each) => scrollTo(0, each.getBoundingClientRect().top + scrollY - 80)")


def overview(watched: WatchedPage, shop: Shop) -> None:
    watched.open(shop.address, "/overview")
    expect(watched.page.get_by_role("link", name=PAYMENTS)).to_be_visible()


def job_graph(watched: WatchedPage, shop: Shop) -> None:
    watched.open(shop.address, shop.page_of(ORDERS, "overview"))
    edge = watched.page.locator("g.edge.high")
    expect(edge).to_contain_text(re.compile(r"waits \d{3,4} ms/s"))
    expect(edge).to_contain_text("lag")


def subtasks(watched: WatchedPage, shop: Shop) -> None:
    watched.open(shop.address, shop.page_of(ORDERS, "overview"))
    watched.page.get_by_role("button", name=re.compile("^enrich with customer")).click()
    drawer = watched.page.get_by_role("dialog")
    expect(drawer).to_contain_text(re.compile(r"the fullest subtask has 2\.\d times its share"))
    expect(drawer.get_by_role("img", name=re.compile(r"^busy \d+ %")).first).to_be_visible()


def why_is_it_slow(watched: WatchedPage, shop: Shop) -> None:
    watched.open(shop.address, shop.page_of(ORDERS, "slow"))
    page = watched.page
    expect(page.locator(".headline")).to_contain_text("“enrich with customer")
    expect(page.locator(".headline")).to_contain_text("is the bottleneck")
    expect(page.locator(".evidence")).to_contain_text("some keys are hot")
    expect(page.locator(".evidence")).to_contain_text("It has been so since")
    page.get_by_role("button", name="Count them").click()
    keys = page.get_by_role("table", name="Keys with the most bytes")
    expect(keys.locator("tbody tr").first).to_contain_text("guest")


def why_is_there_no_output(watched: WatchedPage, shop: Shop) -> None:
    watched.open(shop.address, shop.page_of(VISITS, "no-output"))
    cause = watched.page.locator(".findings > li.cause", has_text="The watermark is held back by")
    expect(cause).to_contain_text(re.compile(r"subtask 0, split \S+ of “Source: app visits"))
    expect(cause.locator(".since")).to_have_text(re.compile(r"^Since [-\d]+ [:\d]+, .* ago\.$"))
    expect(cause.get_by_role("link")).to_have_text("Its subtask 0")


def checkpoints(watched: WatchedPage, shop: Shop) -> None:
    watched.open(shop.address, shop.page_of(ORDERS, "checkpoints"))
    page = watched.page
    expect(page.locator(".bar.completed").nth(2)).to_be_visible()
    page.locator(".bar.completed").last.click()
    expect(page.get_by_role("img", name=re.compile("^Subtask 0: start delay"))).to_have_count(2)
    scroll_to(page.get_by_role("heading", name=re.compile(r"^Checkpoint \d+$")))


def state(watched: WatchedPage, shop: Shop) -> None:
    watched.open(shop.address, shop.page_of(ORDERS, "state"))
    page = watched.page
    page.get_by_role("link", name="enrich", exact=True).click()
    page.get_by_role("link", name="products", exact=True).click()
    sizes = page.locator(".panel", has=page.get_by_role("heading", name="Sizes of products"))
    expect(sizes).to_contain_text("Largest keys")
    expect(sizes).to_contain_text("guest")
    page.get_by_role("link", name="timers", exact=True).click()
    expect(page.locator(".facts", has_text="event timers")).to_contain_text("the next is due")
    page.get_by_role("link", name="products", exact=True).click()
    scroll_to(page.get_by_role("heading", name="States of enrich"))


def flame_graph(watched: WatchedPage, shop: Shop) -> None:
    vertex = shop.vertex(ORDERS, "enrich")
    place = f"{shop.page_of(ORDERS, 'flame-graph')}?vertex={vertex}&type=ON_CPU"
    watched.page.emulate_media(color_scheme="dark")
    watched.open(shop.address, place)
    expect(watched.page.locator("canvas.flame")).to_be_visible()
    expect(watched.page.locator("main")).to_contain_text("edit_distance")


def metrics(watched: WatchedPage, shop: Shop) -> None:
    vertex = shop.vertex(ORDERS, "enrich")
    watched.open(shop.address, f"{shop.page_of(ORDERS, 'metrics')}?vertex={vertex}")
    page = watched.page
    expect(page.locator(".metrics .chart canvas")).to_have_count(4)
    for _ in range(10):
        with page.expect_response(re.compile("subtasks/metrics")):
            pass  # Each answer is one more point of the charts.


def exceptions(watched: WatchedPage, shop: Shop) -> None:
    watched.open(shop.address, shop.page_of(PAYMENTS, "exceptions"))
    line = watched.page.locator(".user-line").first
    expect(line).to_contain_text(re.compile(r"shop\.py, line \d+ in parse_payment"))
    expect(watched.page.locator(".job-head .state")).to_have_text("RESTARTING")


def task_manager(watched: WatchedPage, shop: Shop) -> None:
    found = shop.rest.get("/taskmanagers")["taskmanagers"]
    watched.open(shop.address, f"/task-manager/{found[0]['id']}")
    expect(watched.page.get_by_role("img", name=re.compile("^Budget of"))).to_be_visible()
    expect(watched.page.get_by_text("slots are in use")).to_be_visible()


def logs(watched: WatchedPage, shop: Shop) -> None:
    watched.page.emulate_media(color_scheme="dark")
    watched.open(shop.address, "/job-manager/logs")
    expect(watched.page.locator(".log .line").filter(has_text=PAYMENTS).first).to_be_attached()
    watched.page.set_viewport_size({"width": 1280, "height": 520})


def metrics_over_time(watched: WatchedPage, shop: Shop) -> None:
    shop.await_state(REPORT, "FINISHED")
    watched.open(shop.address, shop.page_of(REPORT, "metrics"))
    expect(watched.page.locator(".chart canvas")).to_have_count(6)


PICTURES: Final[dict[str, Callable[[WatchedPage, Shop], None]]] = {
    each.__name__: each
    for each in (
        overview,
        exceptions,
        task_manager,
        logs,
        job_graph,
        subtasks,
        why_is_it_slow,
        checkpoints,
        why_is_there_no_output,
        state,
        flame_graph,
        metrics,
        metrics_over_time,
    )
}
"""Opens the page of each picture and waits until it shows what the picture is for."""


def sign_in(watched: WatchedPage, shop: Shop) -> None:
    watched.page.goto(f"{shop.address}/#token={shop.token}")
    expect(watched.page.get_by_role("heading", name="Overview")).to_be_visible()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_a_job_that_really_runs(
    shop: Shop, watched: WatchedPage, tmp_path: Path, name: str
) -> None:
    sign_in(watched, shop)
    PICTURES[name](watched, shop)
    loaded(watched.page)
    take_picture(watched.page, tmp_path, name)
    assert watched.problems == []


def test_spark_s_own_page_is_a_link_of_the_dashboard_and_its_scripts_run(
    shop: Shop, watched: WatchedPage
) -> None:
    sign_in(watched, shop)
    page = watched.page
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Spark", exact=True).click()
    expect(opened.value.locator("td:visible", has_text="TaskManager ").first).to_be_visible()
    page.goto(opened.value.url)
    page.get_by_role("link", name="Executors").click()
    # Filled by a script, from Spark's own API.
    expect(page.get_by_role("cell", name="driver", exact=True)).to_be_visible()
    assert watched.problems == []


def test_a_job_is_stopped_with_a_savepoint_and_goes_on_from_it(
    shop: Shop, watched: WatchedPage, tmp_path: Path
) -> None:
    sign_in(watched, shop)
    page = watched.page
    watched.open(shop.address, shop.page_of(ORDERS, "overview"))
    page.get_by_role("button", name="Stop with savepoint", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Takes a savepoint and ends the job.")
    take_picture(page, tmp_path, "stop_with_savepoint")
    dialog.get_by_role("button", name="Stop with savepoint", exact=True).click()
    notice = page.locator(".notice.done")
    expect(notice).to_contain_text("Stop with savepoint: done")
    path = re.search(r"It is in (\S+?)\.?$", notice.locator("p").inner_text())
    assert path is not None
    shop.await_state(ORDERS, "FINISHED")
    (shop.folder / "going").write_text(path[1])
    (shop.folder / "going").rename(shop.folder / "go_on")
    shop.await_state(ORDERS, "RUNNING")
    watched.open(shop.address, shop.page_of(ORDERS, "checkpoints"))
    restored = page.locator(".figure", has_text="Restored")
    expect(restored).to_have_text("Restored1")
    expect(page.locator(".facts div", has_text="restored from")).to_contain_text(path[1])
    expect(page.locator(".bar.completed").first).to_be_visible()
    expect(page.get_by_role("region", name=re.compile(r"^Checkpoint \d+$"))).to_contain_text(
        "COMPLETED"
    )
    page.set_viewport_size({"width": 1280, "height": 1400})
    take_picture(page, tmp_path, "restored_from_savepoint")
    assert watched.problems == []


def test_every_picture_of_the_documentation_is_taken_here_and_shown_there() -> None:
    kept = {file.stem for file in KEPT.glob("*.png")}
    pages = "".join(page.read_text("utf-8") for page in KEPT.parents[1].glob("*.md"))
    assert kept == {*PICTURES, "stop_with_savepoint", "restored_from_savepoint"}
    assert {name for name in kept if f"(pictures/dashboard/{name}.png)" not in pages} == set()
