"""The dashboard before Headrace's own REST server: what it answers is what the pages read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs
from playwright.sync_api import expect

from tests.dashboard.watched_page import WatchedPage
from tests.unit.rest.sample_cluster import FAILED_JOB, RUNNING_JOB, TASK_MANAGER
from tests.unit.rest.served_cluster import ServedCluster, served_cluster

pytestmark = pytest.mark.browser

JOB_PAGES = (
    "overview", "slow", "no-output", "checkpoints", "state", "exceptions", "metrics", "flame-graph", "configuration",
)  # fmt: skip
PROCESS_PAGES = ("metrics", "logs", "stdout", "thread-dump", "profiler")
PAGES = [
    "/overview",
    "/ended-jobs",
    "/task-manager",
    "/job-manager/configuration",
    *(f"/job/{job.hex()}/{page}" for job in (RUNNING_JOB, FAILED_JOB) for page in JOB_PAGES),
    *(f"/task-manager/{TASK_MANAGER}/{page}" for page in ("overview", *PROCESS_PAGES)),
    *(f"/job-manager/{page}" for page in PROCESS_PAGES),
]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedCluster]:
    log_folder = tmp_path / "log"
    log_folder.mkdir()
    (log_folder / "jobmanager.log").write_text("INFO the cluster has started\n")
    settings = {
        "web.refresh-interval": "500 ms",
        "rest.flamegraph.enabled": "true",
        "rest.profiling.enabled": "true",
    }
    with served_cluster(tmp_path / "home", monkeypatch, settings, log_folder) as found:
        yield found


def sign_in(watched: WatchedPage, served: ServedCluster) -> None:
    """Open the address that a cluster prints, with its token."""
    watched.page.goto(f"{served.server.address}/#token={served.token}")
    expect(watched.page.get_by_role("heading", name="Overview")).to_be_visible()
    assert served.token not in watched.page.url


@pytest.mark.timeout(300)
def test_every_page_reads_what_the_server_answers(
    served: ServedCluster, watched: WatchedPage
) -> None:
    sign_in(watched, served)
    for place in PAGES:
        watched.open(served.server.address, place)
        expect(watched.page.locator(".panel").first, place).to_be_visible()
        expect(watched.page.locator("[aria-busy=true]"), place).to_have_count(0)
        expect(watched.page.locator(".notice"), place).to_have_count(0)
        assert watched.problems == [], place


def test_a_job_cannot_be_cancelled_where_the_cluster_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watched: WatchedPage
) -> None:
    for value, count in (("true", 1), ("false", 0)):
        settings = {"web.cancel.enable": value}
        with served_cluster(tmp_path / value, monkeypatch, settings) as served:
            sign_in(watched, served)
            watched.page.goto(f"{served.server.address}/#/job/{RUNNING_JOB.hex()}/overview")
            expect(watched.page.locator(".job-head h1")).to_be_visible()
            button = watched.page.get_by_role("button", name="Cancel", exact=True)
            expect(button).to_have_count(count)


def test_a_profile_is_taken_and_its_flame_graph_is_shown(
    served: ServedCluster, watched: WatchedPage
) -> None:
    sign_in(watched, served)
    page = watched.page
    page.goto(f"{served.server.address}/#/job-manager/profiler")
    page.get_by_label("Mode").select_option("WALL")
    page.get_by_label("Seconds").fill("1")
    page.get_by_role("button", name="Take a profile").click()
    with page.expect_popup() as shown:
        page.get_by_role("link", name="open").click()
    expect(shown.value.locator("svg title").first).to_contain_text("jobmanager_WALL")
    expect(shown.value.locator("svg")).to_contain_text("threading")
    page.get_by_label("Seconds").fill("3600")
    page.get_by_role("button", name="Take a profile").click()
    expect(page.locator(".notice")).to_contain_text("A profile may take 5 min at most")
    assert [each for each in watched.problems if "400" not in each] == []


def test_the_server_wants_the_token_and_takes_it(
    served: ServedCluster, watched: WatchedPage
) -> None:
    page = watched.page
    page.goto(f"{served.server.address}/")
    page.get_by_label("Token of the cluster").fill("not it")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("This is not the token of this cluster.")
    page.get_by_label("Token of the cluster").fill(served.token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    (cookie,) = page.context.cookies()
    assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token of the cluster")).to_be_visible()


def test_a_task_manager_that_the_host_takes_away_is_shown_as_leaving(
    served: ServedCluster, watched: WatchedPage
) -> None:
    sign_in(watched, served)
    page = watched.page
    figure = page.locator(".figure", has_text="TaskManagers")
    expect(figure).to_have_text("TaskManagers1")
    manager = served.resource_manager
    cause = "decommissioned: Spark takes its executor 3 away"
    manager.info = structs.replace(manager.info, decommissioned=cause)
    expect(figure).to_have_text("TaskManagers11 leaving: its executor is decommissioned")
    page.get_by_role("link", name="TaskManagers", exact=True).click()
    leaving = page.locator(".problem", has_text=f"leaving: its executor is {cause}")
    expect(page.get_by_role("row", name=str(TASK_MANAGER)).locator(leaving)).to_be_visible()
    page.get_by_role("link", name=str(TASK_MANAGER)).click()
    expect(page.get_by_role("heading", name="Memory by part")).to_be_visible()
    expect(leaving).to_be_visible()
    assert watched.problems == []


def test_a_vertex_of_the_server_opens_its_subtasks(
    served: ServedCluster, watched: WatchedPage
) -> None:
    sign_in(watched, served)
    watched.page.goto(f"{served.server.address}/#/job/{RUNNING_JOB.hex()}/overview")
    watched.page.locator(".vertex").first.click()
    expect(watched.page.get_by_role("dialog").get_by_role("row").first).to_be_visible()
    assert watched.problems == []
