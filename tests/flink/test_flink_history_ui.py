"""Flink's own web UI, unchanged, before a history server: it shows jobs from their archives without an error."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import expect

from headrace import StreamExecutionEnvironment, Types
from headrace.common import Configuration
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.rest.history.history_server import HistoryServer
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.dashboard.watched_page import WatchedPage
from tests.integration.rest.counting_program import SETTINGS

pytestmark = pytest.mark.browser

FINISHED, FAILED = "a job that has finished", "a job that has failed"
SOON_MS = 60_000
JOB_PAGES = [
    ("overview", "Parallelism: 2"),
    ("timeline", "Vertex TimeLine"),
    ("exceptions", "No Root Exception"),
    ("configuration", "Max. number of execution retries"),
]


@dataclass(frozen=True)
class ShownHistory:
    """A history server, and the ids of the jobs that it has."""

    address: str
    finished: str
    failed: str


def problems_of(watched: WatchedPage) -> list[str]:
    """Return what went wrong, but for figures that only a running job has: no history server answers them."""
    live = re.compile(
        r"404: GET \S+/(subtasks/metrics\?\S+|watermarks)|.*status of 404 \(Not Found\)"
    )
    return [each for each in watched.problems if not live.fullmatch(each)]


def run_program(name: str, fails_at: int = -1) -> str:
    """Count numbers, and return the id of the job."""

    def counted(number: int) -> int:
        if number == fails_at:
            raise ValueError(f"{number} is not wanted")
        return number + 1

    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure(Configuration.from_dict({"restart-strategy.type": "none"}))
    env.set_parallelism(2)
    numbers = env.from_collection(list(range(100)), type_info=Types.LONG())
    keyed = numbers.key_by(lambda number: number % 4, key_type=Types.LONG())
    keyed.map(counted, output_type=Types.LONG()).print()
    return str(env.execute_async(name).get_job_id())


@pytest.fixture(scope="module")
def history(web_ui: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShownHistory]:
    archives = tmp_path_factory.mktemp("archives")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(tmp_path_factory.mktemp("home")))
        settings = SETTINGS | {"jobmanager.archive.fs.dir": str(archives)}
        with MiniClusterExecutor(slot_count=2, settings=settings):
            jobs = run_program(FINISHED), run_program(FAILED, fails_at=70)
            wait_until(lambda: all((archives / job).exists() for job in jobs), what="the archives")
        server = HistoryServer(
            Settings(
                {
                    "historyserver.archive.fs.dir": str(archives),
                    "historyserver.web.port": "0",
                    "rest.authentication": "none",
                    "headrace.rest.dashboard-directory": str(web_ui),
                }
            ),
            SystemClock(),
        )
        try:
            assert server.first_look.wait(30)
            yield ShownHistory(server.address, *jobs)
        finally:
            server.close()


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("/overview", "SingleJobApplication({})"),
        ("/application/completed", "SingleJobApplication({})"),
        ("/job/completed", "{}"),
    ],
)
def test_both_jobs_are_listed(
    history: ShownHistory, watched: WatchedPage, place: str, shown: str
) -> None:
    watched.open(history.address, place)
    for name, status in ((FINISHED, "FINISHED"), (FAILED, "FAILED")):
        row = watched.page.locator("tr", has_text=shown.format(name))
        expect(row.first).to_be_visible(timeout=SOON_MS)
        expect(row.first).to_contain_text(status)
    assert problems_of(watched) == []


@pytest.mark.parametrize(("page_name", "text"), JOB_PAGES)
def test_a_page_of_a_finished_job_is_shown(
    history: ShownHistory, watched: WatchedPage, page_name: str, text: str
) -> None:
    watched.open(history.address, f"/job/completed/{history.finished}/{page_name}")
    expect(watched.page.get_by_text(text).first).to_be_visible(timeout=SOON_MS)
    assert problems_of(watched) == []


def test_a_failed_job_is_shown_with_its_error(history: ShownHistory, watched: WatchedPage) -> None:
    watched.open(history.address, f"/job/completed/{history.failed}/exceptions")
    expect(watched.page.get_by_text("70 is not wanted").first).to_be_visible(timeout=SOON_MS)
    assert problems_of(watched) == []


@pytest.mark.parametrize("page_name", ["overview", "exceptions"])
def test_an_application_is_shown_with_its_job(
    history: ShownHistory, watched: WatchedPage, page_name: str
) -> None:
    watched.open(history.address, f"/application/completed/{history.failed}/{page_name}")
    text = {"overview": FAILED, "exceptions": "70 is not wanted"}[page_name]
    expect(watched.page.get_by_text(text, exact=page_name == "overview").first).to_be_visible(
        timeout=SOON_MS
    )
    assert problems_of(watched) == []
