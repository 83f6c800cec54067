"""Flink's own web UI, unchanged: each page shows what is asked of it, without a script error or a failed request."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from headrace.rest.client import RestClient
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.dashboard.watched_page import WatchedPage
from tests.integration.rest.counting_program import (
    SETTINGS,
    Program,
    await_running,
    completed,
    vertices,
)
from tests.unit.rest.sample_cluster import LOG_NAME, TASK_MANAGER
from tests.unit.rest.served_cluster import served_cluster

pytestmark = pytest.mark.browser

NAME = "a job of somebody"
SOON_MS = 60_000
"""Figures and samples of a job come some seconds after it has started."""
# Pages with a text that each shows once its routes have answered.
CLUSTER_PAGES = [
    ("/overview", f"SingleJobApplication({NAME})"),
    ("/job/running", NAME),
    ("/application/running", f"SingleJobApplication({NAME})"),
    ("/submit", "Uploaded Jars"),
    ("/task-manager", "mini-tm-1"),
    ("/task-manager/mini-tm-1/metrics", "Garbage Collection"),
    ("/task-manager/mini-tm-1/thread-dump", "MainThread"),
    ("/job-manager/metrics", "Garbage Collection"),
    ("/job-manager/config", "web.refresh-interval"),
    ("/job-manager/thread-dump", "MainThread"),
]
JOB_PAGES = [
    ("overview", "Parallelism: 2"),
    ("timeline", "Vertex TimeLine"),
    ("exceptions", "No Root Exception"),
    ("checkpoints", "Completed: 1"),
    ("configuration", "Restart with fixed delay"),
    ("dataskew", "Source: numbers"),
]
VERTEX_PAGES = [
    ("detail", "Max Parallelism"),
    ("subtasks", "127.0.0.1:"),
    ("taskmanagers", "127.0.0.1:"),
    ("watermarks", "No Watermark"),
    ("accumulators", "counted"),
    ("backpressure", "Back Pressure Status: OK"),
    ("metrics", "Add Metric"),
]
LOG_PAGES = [
    ("/job-manager/logs", "cluster-has-started"),
    ("/job-manager/log", "jobmanager.log"),
    ("/job-manager/stdout", "said-by-the-driver"),
    (f"/task-manager/{TASK_MANAGER}/log-list", LOG_NAME),
]


@pytest.fixture(scope="module")
def executor(
    web_ui: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MiniClusterExecutor]:
    settings = SETTINGS | {
        "web.refresh-interval": "500 ms",
        "rest.authentication": "none",
        "headrace.rest.dashboard-directory": str(web_ui),
        "web.submit.enable": "true",
        "rest.profiling.enabled": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(tmp_path_factory.mktemp("home")))
        with MiniClusterExecutor(slot_count=4, settings=settings) as one:
            yield one


@contextmanager
def running(
    executor: MiniClusterExecutor, folder: Path, name: str = NAME, fails_at: int = -1
) -> Iterator[tuple[RestClient, Program]]:
    rest = RestClient(executor.rest_address, "")
    program = Program(name, folder, fails_at)
    await_running(rest, program.job)
    yield rest, program
    if rest.get(f"{program.job}/status")["status"] == "RUNNING":
        rest.patch(program.job, mode="cancel")
    wait_until(lambda: rest.get(f"{program.job}/status")["status"] in ("CANCELED", "FAILED"))


@pytest.fixture(scope="module")
def program(
    executor: MiniClusterExecutor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Program]:
    with running(executor, tmp_path_factory.mktemp("job")) as (rest, started):
        started.gate.open_to(40)
        trigger = rest.post(f"{started.job}/checkpoints")["request-id"]
        completed(rest, f"{started.job}/checkpoints/{trigger}")
        yield started


@pytest.mark.parametrize(("place", "text"), CLUSTER_PAGES)
def test_a_page_of_the_cluster_is_shown(
    executor: MiniClusterExecutor, program: Program, watched: WatchedPage, place: str, text: str
) -> None:
    watched.open(executor.rest_address, place)
    expect(watched.page.get_by_text(text).first).to_be_visible(timeout=SOON_MS)
    assert watched.problems == []


@pytest.mark.parametrize(("page_name", "text"), JOB_PAGES)
def test_a_page_of_a_running_job_is_shown(
    executor: MiniClusterExecutor,
    program: Program,
    watched: WatchedPage,
    page_name: str,
    text: str,
) -> None:
    job = program.job.removeprefix("/jobs/")
    watched.open(executor.rest_address, f"/job/running/{job}/{page_name}")
    expect(watched.page.get_by_text(NAME, exact=True)).to_be_visible(timeout=SOON_MS)
    expect(watched.page.get_by_text(text).first).to_be_visible(timeout=SOON_MS)
    assert watched.problems == []


@pytest.mark.parametrize(("page_name", "text"), VERTEX_PAGES)
def test_a_page_of_a_vertex_is_shown(
    executor: MiniClusterExecutor,
    program: Program,
    watched: WatchedPage,
    page_name: str,
    text: str,
) -> None:
    job = program.job.removeprefix("/jobs/")
    counter = vertices(RestClient(executor.rest_address, ""), program.job)[1]["id"]
    watched.open(executor.rest_address, f"/job/running/{job}/overview/{counter}/{page_name}")
    expect(watched.page.get_by_text(text).first).to_be_visible(timeout=SOON_MS)
    assert watched.problems == []


def test_a_flame_graph_is_drawn(
    executor: MiniClusterExecutor, program: Program, watched: WatchedPage
) -> None:
    job = program.job.removeprefix("/jobs/")
    counter = vertices(RestClient(executor.rest_address, ""), program.job)[1]["id"]
    watched.open(executor.rest_address, f"/job/running/{job}/overview/{counter}/flamegraph")
    watched.page.get_by_text("Mixed", exact=True).click()
    expect(watched.page.locator("g.frame, .d3-flame-graph g").first).to_be_visible(timeout=SOON_MS)
    assert watched.problems == []


@pytest.mark.parametrize("process", ["job-manager", "task-manager/mini-tm-1"])
def test_a_profile_is_taken_on_its_profiler_page(
    executor: MiniClusterExecutor, program: Program, watched: WatchedPage, process: str
) -> None:
    page = watched.page
    watched.open(executor.rest_address, f"/{process}/profiler")
    page.locator("nz-input-number input").fill("1")
    page.get_by_role("button", name="Create Profiling Instance").click()
    expect(page.get_by_text("FINISHED").first).to_be_visible(timeout=SOON_MS)
    assert watched.problems == []


def test_a_browser_that_has_signed_in_needs_no_token_for_it(
    web_ui: Path, watched: WatchedPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"headrace.rest.dashboard-directory": str(web_ui)}
    with served_cluster(tmp_path / "home", monkeypatch, settings) as served:
        page = watched.page
        page.goto(f"{served.server.address}/")
        page.get_by_label("Token of the cluster").fill(served.token)
        page.keyboard.press("Enter")
        expect(page.get_by_text("Apache Flink Dashboard").first).to_be_visible(timeout=SOON_MS)
        expect(page.get_by_text("Running Jobs").first).to_be_visible(timeout=SOON_MS)
        assert urlsplit(page.url).path == "/"
        watched.problems.clear()
        for place, text in (
            ("/task-manager", str(TASK_MANAGER)),
            ("/job-manager/config", "rest.port"),
        ):
            watched.open(served.server.address, place)
            expect(page.get_by_text(text).first).to_be_visible(timeout=SOON_MS)
        # Our own stands beside it.
        page.goto(f"{served.server.address}/headrace#/task-manager")
        expect(page.get_by_role("heading", name="TaskManagers").first).to_be_visible()
        assert watched.problems == []
        page.goto("about:blank")


def test_the_address_that_a_cluster_prints_signs_in_and_leads_to_it(
    web_ui: Path, watched: WatchedPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"headrace.rest.dashboard-directory": str(web_ui)}
    with served_cluster(tmp_path / "home", monkeypatch, settings) as served:
        watched.page.goto(f"{served.server.address}/#token={served.token}")
        expect(watched.page.get_by_text("Apache Flink Dashboard").first).to_be_visible(
            timeout=SOON_MS
        )
        assert served.token not in watched.page.url
        assert watched.problems == []
        watched.page.goto("about:blank")


PROGRAM = """\
from headrace import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.from_collection([1, 2, 3]).map(lambda number: number + 1).print()
env.execute("uploaded by a browser")
"""


def test_a_program_is_uploaded_planned_and_run_on_its_submit_page(
    executor: MiniClusterExecutor, watched: WatchedPage, tmp_path: Path
) -> None:
    program = tmp_path / "uploaded.py"
    program.write_text(PROGRAM)
    page = watched.page
    watched.open(executor.rest_address, "/submit")
    # Its picker offers .jar files first; "all files" takes any other.
    page.locator("input[type=file]").set_input_files(program)
    row = page.locator("tr", has_text="uploaded.py")
    expect(row.first).to_be_visible(timeout=SOON_MS)
    row.first.click()
    page.get_by_role("button", name="Show Plan").click()
    expect(page.get_by_text("REBALANCE").first).to_be_visible(timeout=SOON_MS)
    watched.open(executor.rest_address, "/submit")
    page.locator("tr", has_text="uploaded.py").first.click()
    page.get_by_role("button", name="Submit").click()
    rest = RestClient(executor.rest_address, "")
    wait_until(
        lambda: (
            ("uploaded by a browser", "FINISHED")
            in {(one["name"], one["state"]) for one in rest.get("/jobs/overview")["jobs"]}
        )
    )
    watched.open(executor.rest_address, "/overview")
    expect(page.get_by_text("uploaded by a browser").first).to_be_visible(timeout=SOON_MS)
    assert watched.problems == []


def test_a_job_that_failed_is_shown_with_its_error(
    executor: MiniClusterExecutor, watched: WatchedPage, tmp_path: Path
) -> None:
    with running(executor, tmp_path, "a job that fails", fails_at=3) as (rest, program):
        program.gate.open_to(40)
        wait_until(lambda: rest.get(f"{program.job}/status")["status"] == "FAILED")
    job = program.job.removeprefix("/jobs/")
    watched.open(executor.rest_address, f"/job/completed/{job}/exceptions")
    expect(watched.page.get_by_text("3 is not wanted").first).to_be_visible(timeout=SOON_MS)
    assert watched.problems == []


@pytest.mark.parametrize(("place", "text"), LOG_PAGES)
def test_a_page_of_logs_is_shown(
    web_ui: Path,
    watched: WatchedPage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    text: str,
) -> None:
    log_folder = tmp_path / "log"
    log_folder.mkdir()
    (log_folder / "jobmanager.log").write_text("INFO cluster-has-started\n")
    (log_folder / "jobmanager.out").write_text("said-by-the-driver\n")
    settings = {
        "rest.authentication": "none",
        "headrace.rest.dashboard-directory": str(web_ui),
    }
    with served_cluster(tmp_path / "home", monkeypatch, settings, log_folder) as served:
        watched.open(served.server.address, place)
        expect(watched.page.get_by_text(text).first).to_be_visible(timeout=SOON_MS)
        assert watched.problems == []
        watched.page.goto("about:blank")
