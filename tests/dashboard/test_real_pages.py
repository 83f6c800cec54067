"""Every page before a running, a back-pressured, a restarting, a failed and a finished job of a real cluster."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from headrace import StreamExecutionEnvironment, WatermarkStrategy
from headrace.common import Configuration
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.types.type_info import Types
from headrace.rest.client import RestClient
from headrace.rest.history.history_server import HistoryServer
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.dashboard.watched_page import JOB_PAGES, WatchedPage

pytestmark = pytest.mark.browser

SETTINGS = {
    "rest.enabled": "true",
    "rest.port": "0",
    "rest.authentication": "none",
    "web.refresh-interval": "500 ms",
    "rest.profiling.enabled": "true",
    "execution.checkpointing.interval": "1 s",
    "restart-strategy.type": "none",
}
RESTARTS_IN_AN_HOUR = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1",
    "restart-strategy.fixed-delay.delay": "1 h",
}
STATUSES = {
    "running": "RUNNING",
    "back-pressured": "RUNNING",
    "restarting": "RESTARTING",
    "failed": "FAILED",
    "finished": "FINISHED",
}
FACTS = [
    ("overview", "running", "g.edge", r"[45]\d(\.\d)? rec/s"),
    ("overview", "back-pressured", "g.edge.high", r"waits \d{3,4} ms/s"),
    ("overview", "failed restarting", "tr", r"refuse.*FAILED"),
    ("overview", "finished", "tr", r"seen.*FINISHED1––200"),  # 20 received, 0 sent
    ("checkpoints", "running back-pressured", "tr", r"^(?:[2-9]|\d\d) ?checkpoint ?COMPLETED"),
    ("exceptions", "running back-pressured finished", "main", r"Nothing has failed\."),
    ("no-output", "running", ".findings", r"Records stop at “seen|Records reach “seen"),
    ("slow", "running", ".headline", r"Nothing holds this job up"),
    ("slow", "back-pressured", ".headline", r"“busy.*” is the bottleneck"),
    ("no-output", "back-pressured", ".findings", r"“Source: numbers” is held up"),
    (
        "exceptions",
        "failed restarting",
        ".user-line",
        r"test_real_pages\.py, line \d+ in refuse_seven",
    ),
    ("no-output", "failed", ".findings", r"The job has failed"),
    ("no-output", "restarting", ".findings", r"The job is RESTARTING"),
    (
        "no-output",
        "restarting failed finished",
        ".findings > li",
        r"^The job .*Since [-\d]+ [:\d]+, .* ago\.",
    ),
    ("slow", "restarting", ".headline", r"The job is RESTARTING: it processes nothing now"),
    ("slow", "finished", ".headline", r"The job has ended \(FINISHED\)"),
    ("no-output", "finished", ".findings", r"It put out all it had"),
    ("configuration", " ".join(STATUSES), "tr", r"^restart-strategy\.type(none|fixed-delay)$"),
]
"""A page, kinds of jobs, an element of the page, and what stands there for these kinds and no others."""
PROCESS_PAGES = {
    "/overview": "Running",
    "/ended-jobs": "Find a job",
    "/task-manager": "TaskManagers",
    "/job-manager": "Metrics",
    "/job-manager/configuration": "Environment",
    "/job-manager/logs": "Logs",
    "/job-manager/stdout": "Stdout",
    "/job-manager/thread-dump": "Threads",
    "/job-manager/profiler": "Profiler",
}
TASK_MANAGER_PAGES = {
    "": "Memory by part",
    "/metrics": "Metrics",
    "/logs": "Logs",
    "/stdout": "Stdout",
    "/thread-dump": "Threads",
    "/profiler": "Profiler",
}


def refuse_seven(number: int) -> int:
    if number == 7:
        raise ValueError("nobody wants a 7")
    return number


def work(number: int) -> int:
    sum(one * one for one in range(2_000))
    return number


def submit(kind: str) -> str:
    """Submit the job of a kind, and return its id."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    ends = kind in ("restarting", "failed", "finished")
    if ends:
        env.configure(Configuration.from_dict({"execution.checkpointing.interval": "1 h"}))
    if kind == "restarting":
        env.configure(Configuration.from_dict(RESTARTS_IN_AN_HOUR))
    source = DataGeneratorSource(
        lambda index: index,
        count=20 if ends else None,
        type_info=Types.LONG(),
        rows_per_second=None if kind == "back-pressured" else 50,
    )
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").rebalance()
    function, name = {
        "restarting": (refuse_seven, "refuse"),
        "failed": (refuse_seven, "refuse"),
        "back-pressured": (work, "busy"),
    }.get(kind, (lambda number: number, "seen"))
    numbers.map(function, output_type=Types.LONG()).name(name).filter(lambda _: False).print()
    return str(env.execute_async(kind).get_job_id())


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archives")


@pytest.fixture(scope="module")
def jobs(archives: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a cluster, and the ids of its jobs by their kind, once each is what it is called."""
    settings = {**SETTINGS, "jobmanager.archive.fs.dir": str(archives)}
    with MiniClusterExecutor(slot_count=4, settings=settings) as executor:
        rest = RestClient(executor.rest_address, "")
        ids = {kind: submit(kind) for kind in STATUSES}
        for kind, status in STATUSES.items():
            path = f"/jobs/{ids[kind]}/status"
            wait_until(
                lambda path=path, status=status: rest.get(path)["status"] == status,
                what=f"the job '{kind}' is {status}",
            )
        path = f"/jobs/{ids['running']}/checkpoints"
        wait_until(lambda: rest.get(path)["counts"]["completed"] > 0)
        yield executor.rest_address, ids


def assert_page(watched: WatchedPage, kind: str, name: str, heading: str) -> None:
    """Assert that the page of a job of a kind says what is true of it, and is in order."""
    page = watched.page
    expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    expect(page.locator(".job-head .state")).to_have_text(STATUSES[kind])
    for page_name, kinds, place, said in FACTS:
        if page_name != name:
            continue
        found = page.locator(place).filter(has_text=re.compile(said, re.DOTALL))
        if kind in kinds.split():
            expect(found.first).to_be_visible()
        else:
            expect(found).to_have_count(0)
    assert (watched.wide_elements(), watched.nameless_elements()) == ([], []), name
    assert watched.problems == [], name


@pytest.mark.parametrize("kind", STATUSES)
def test_every_page_of_a_real_job_opens_and_says_what_is_true_of_it(
    jobs: tuple[str, dict[str, str]], watched: WatchedPage, kind: str
) -> None:
    address, ids = jobs
    for name, heading in JOB_PAGES.items():
        watched.open(address, f"/job/{ids[kind]}/{name}")
        assert_page(watched, kind, name, heading)


def test_every_page_of_a_real_cluster_opens(
    jobs: tuple[str, dict[str, str]], watched: WatchedPage
) -> None:
    address, _ = jobs
    page = watched.page
    manager = RestClient(address, "").get("/taskmanagers")["taskmanagers"][0]["id"]
    of_manager = {
        f"/task-manager/{manager}{place}": text for place, text in TASK_MANAGER_PAGES.items()
    }
    for place, heading in {**PROCESS_PAGES, **of_manager}.items():
        watched.open(address, place)
        expect(page.get_by_role("heading", name=heading, exact=True).last).to_be_visible()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        assert (watched.wide_elements(), watched.nameless_elements()) == ([], []), place
        assert watched.problems == [], place
    watched.open(address, "/ended-jobs")
    expect(page.get_by_role("link", name=re.compile("finished"))).to_be_visible()


@pytest.fixture
def history(
    jobs: tuple[str, dict[str, str]],
    archives: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    """The address of a history server that has the jobs which have ended."""
    ended = [id for kind, id in jobs[1].items() if STATUSES[kind] in ("FAILED", "FINISHED")]
    wait_until(lambda: all((archives / each).exists() for each in ended), what="the archives")
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    settings = {
        "historyserver.archive.fs.dir": str(archives),
        "historyserver.web.port": "0",
        "rest.authentication": "none",
    }
    server = HistoryServer(Settings(settings), SystemClock())
    try:
        assert server.first_look.wait(30)
        yield server.address
    finally:
        server.close()


@pytest.mark.parametrize("kind", ["failed", "finished"])
def test_every_page_of_an_archived_job_says_the_same_of_it(
    jobs: tuple[str, dict[str, str]], history: str, watched: WatchedPage, kind: str
) -> None:
    page = watched.page
    watched.open(history, "/ended-jobs")
    expect(page.get_by_role("link", name=re.compile(kind))).to_be_visible()
    for name, heading in JOB_PAGES.items():
        if name == "state":  # Files of state are no part of an archive.
            continue
        watched.open(history, f"/job/{jobs[1][kind]}/{name}")
        assert_page(watched, kind, name, heading)
