"""Every page opens for every kind of job, without an error of script, console or request."""

import re

import pytest
from playwright.sync_api import Route, expect

from tests.dashboard.fake_cluster import FakeCluster
from tests.dashboard.golden_jobs import JOBS, TASK_MANAGERS
from tests.dashboard.watched_page import JOB_PAGES, WatchedPage

pytestmark = pytest.mark.browser

PROCESS_PAGES = {
    "/overview": "Running",
    "/ended-jobs": "Find a job",
    "/task-manager": "TaskManagers",
    f"/task-manager/{TASK_MANAGERS[0]}": "Memory by part",
    f"/task-manager/{TASK_MANAGERS[0]}/metrics": "Metrics",
    f"/task-manager/{TASK_MANAGERS[0]}/logs": "Logs",
    f"/task-manager/{TASK_MANAGERS[0]}/stdout": "Stdout",
    f"/task-manager/{TASK_MANAGERS[0]}/thread-dump": "Threads",
    f"/task-manager/{TASK_MANAGERS[0]}/profiler": "Profiler",
    "/job-manager": "Metrics",
    "/job-manager/configuration": "Environment",
    "/job-manager/logs": "Logs",
    "/job-manager/stdout": "Stdout",
    "/job-manager/thread-dump": "Threads",
    "/job-manager/profiler": "Profiler",
}


def check_page(watched: WatchedPage, cluster: FakeCluster, place: str, heading: str) -> None:
    """Open a place from the beginning, and assert that it shows its heading and that nothing is wrong with it."""
    watched.open(cluster.address, place)
    found = watched.page.get_by_role("heading", name=heading, exact=True)
    expect(found.last, place).to_be_visible()
    expect(watched.page.locator("[aria-busy=true]"), place).to_have_count(0)
    assert (watched.wide_elements(), watched.nameless_elements()) == ([], []), place
    assert watched.problems == [], place


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", JOBS)
def test_every_page_of_every_kind_of_job_opens_without_an_error(
    cluster: FakeCluster, watched: WatchedPage, kind: str
) -> None:
    for name, heading in JOB_PAGES.items():
        found = watched.page.get_by_role("heading", name=heading, exact=True)
        check_page(watched, cluster, f"/job/{JOBS[kind].id}/{name}", heading)
        expect(found, name).to_have_count(1)


@pytest.mark.timeout(300)
def test_every_page_of_the_cluster_opens_without_an_error(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    for place, heading in PROCESS_PAGES.items():
        check_page(watched, cluster, place, heading)


def test_the_graph_shows_rates_waits_and_event_time_on_its_edges(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"/job/{JOBS['back-pressured'].id}/overview")
    edge = watched.page.locator("g.edge.high")
    expect(edge).to_contain_text("HASH")
    expect(edge).to_contain_text("waits 910 ms/s")
    expect(edge).to_contain_text("lag 6 min 52 s")
    expect(watched.page.locator("g.edge").last).to_contain_text("rec/s")


def test_a_click_on_a_vertex_opens_its_subtasks_with_their_skew(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"/job/{JOBS['back-pressured'].id}/overview")
    watched.page.get_by_role("button", name=re.compile("^KeyedProcess: enrich")).click()
    drawer = watched.page.get_by_role("dialog")
    expect(drawer).to_contain_text("the fullest subtask has 3.1 times its share")
    expect(drawer.get_by_role("row")).to_have_count(1 + 4)
    expect(drawer.get_by_role("img", name="busy 99 %")).to_be_visible()
    watched.page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    assert watched.problems == []


def test_earlier_attempts_of_a_restarted_vertex_are_listed_where_they_are_kept(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"/job/{JOBS['failing'].id}/overview?vertex={'2' * 32}")
    drawer = watched.page.get_by_role("dialog")
    drawer.get_by_text("Earlier attempts").click()
    table = drawer.get_by_role("table", name="Earlier attempts")
    expect(table.get_by_role("row")).to_have_count(1 + 2)


def test_why_is_it_slow_names_the_bottleneck_and_its_hot_subtask(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"/job/{JOBS['back-pressured'].id}/slow")
    page = watched.page
    expect(page.locator(".headline")).to_have_text(
        "“KeyedProcess: enrich with customer” is the bottleneck"
    )
    evidence = page.locator(".evidence")
    expect(evidence).to_contain_text("the busiest 990 ms of each second")
    expect(evidence).to_contain_text(
        "“Source: orders -> Map: parse”, in front of it, waits for room 910 ms"
    )
    expect(evidence).to_contain_text("Subtask 2 has received 76 % of the records of 4 subtasks")
    expect(evidence).to_contain_text("its barriers came 12.4 s late, it aligned for 6.1 s")


def test_why_is_it_slow_says_since_when_and_names_the_largest_keys_when_asked(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"/job/{JOBS['back-pressured'].id}/slow")
    page = watched.page
    expect(page.locator(".evidence")).to_contain_text("It has been so since")
    assert cluster.count("/state") == 0, "state is read when somebody asks"
    page.get_by_role("button", name="Count them").click()
    table = page.get_by_role("table", name="Keys with the most bytes")
    expect(table.get_by_role("row").nth(1)).to_contain_text("'everyone'")
    table.get_by_role("link", name="enrich, customer").first.click()
    expect(page.get_by_role("heading", name="Sizes of customer")).to_be_visible()
    assert watched.problems == []


def test_why_is_it_slow_finds_no_fault_with_a_job_that_has_finished(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"/job/{JOBS['finished'].id}/slow")
    expect(watched.page.locator(".headline")).to_contain_text("The job has ended (FINISHED)")
    expect(watched.page.locator(".verdict.ended")).to_be_visible()


def test_why_is_there_no_output_names_the_split_that_holds_the_watermark_back(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"/job/{JOBS['back-pressured'].id}/no-output")
    cause = watched.page.locator(".findings > li.cause").first
    expect(cause).to_contain_text(
        "held back by subtask 1, split orders-7 of “Source: orders -> Map: parse”"
    )
    expect(cause.locator(".since")).to_have_text(re.compile(r"^Since .*, 6 min 28 s ago\.$"))
    cause.get_by_role("link", name="Its subtask 1").click()
    drawer = watched.page.get_by_role("dialog")
    expect(drawer.get_by_role("table", name="Subtasks").locator("tr.current")).to_have_count(1)
    expect(drawer.locator("tr.current td").first).to_have_text("1")


def test_an_exception_shows_the_line_of_the_program_and_folds_the_stack(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"/job/{JOBS['failing'].id}/exceptions")
    first = watched.page.locator(".failure").first
    expect(first.locator(".user-line").first).to_contain_text(
        "payments/pipeline.py, line 42 in parse"
    )
    expect(first.locator(".stack").first).to_be_hidden()
    first.get_by_text("Stack of 3 frames").click()
    expect(first.locator(".stack").first).to_contain_text("stream_task.py")


def test_a_checkpoint_shows_the_phases_of_each_subtask(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"/job/{JOBS['back-pressured'].id}/checkpoints")
    watched.page.get_by_role("link", name="checkpoint 73, completed").click()
    expect(watched.page.get_by_role("heading", name="Checkpoint 73")).to_be_visible()
    bar = watched.page.get_by_role(
        "img", name="Subtask 2: start delay 12.4 s, alignment 210 ms, sync 3 ms"
    )
    expect(bar).to_be_visible()


def test_a_checkpoint_is_asked_for_until_its_own_answer_says_that_it_is_over(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    path = f"/jobs/{JOBS['back-pressured'].id}/checkpoints/details/73"
    early = True

    def answered(route: Route) -> None:
        nonlocal early
        answer = route.fetch().json()
        route.fulfill(json=answer | ({"status": "IN_PROGRESS"} if early else {}))
        early = False

    watched.page.route(f"**{path}", answered)
    watched.open(cluster.address, f"/job/{JOBS['back-pressured'].id}/checkpoints?checkpoint=73")
    details = watched.page.get_by_role("region", name="Checkpoint 73")
    expect(details.locator(".state")).to_have_text("COMPLETED")
    asked = cluster.count(f"{path}$")
    with watched.page.expect_response(re.compile("/checkpoints$")):
        pass
    with watched.page.expect_response(re.compile("/checkpoints$")):
        pass
    assert cluster.count(f"{path}$") <= asked + 1, "what is over is not asked for again and again"


def test_a_search_in_a_log_leaves_the_lines_that_match(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, "/job-manager/logs")
    watched.page.get_by_role("searchbox", name="Search in the log").fill("expired")
    expect(watched.page.locator(".log .line")).to_have_count(1)
    expect(watched.page.locator(".log .line mark")).to_have_text("expired")


def test_a_picked_metric_gets_a_chart(cluster: FakeCluster, watched: WatchedPage) -> None:
    watched.open(cluster.address, f"/job/{JOBS['running'].id}/metrics?vertex={'2' * 32}")
    page = watched.page
    expect(page.locator(".metrics .chart")).to_have_count(4)
    page.get_by_role("checkbox", name="numRecordsIn", exact=True).check()
    expect(page.locator(".metrics .chart canvas")).to_have_count(5)
    page.reload()
    expect(page.locator(".metrics .chart canvas")).to_have_count(5)
    assert watched.problems == []


@pytest.mark.parametrize("is_history", [False, True])
@pytest.mark.parametrize("place", ["overview", "metrics"])
def test_an_ended_job_shows_its_metrics_from_start_to_end(
    watched: WatchedPage, place: str, is_history: bool
) -> None:
    with FakeCluster(is_history=is_history) as cluster:
        watched.open(cluster.address, f"/job/{JOBS['finished'].id}/{place}")
        charts = watched.page.locator(".chart")
        expect(charts.locator("canvas")).to_have_count(6)
        expect(charts.nth(0)).to_contain_text("Records received per second")
        expect(charts.nth(1)).to_contain_text("Source: lines -> FlatMap: words at most 1.36 k/s")
        expect(charts.nth(2)).to_contain_text("Reduce: count at most 480 ms/s")
        expect(charts.nth(3)).to_contain_text("Back-pressured")
        expect(charts.nth(4)).to_contain_text("Watermark behind the clock")
        expect(charts.nth(5)).to_contain_text("Duration of the last checkpoints")
        assert watched.problems == []


def test_a_running_job_shows_its_metrics_since_the_start(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"/job/{JOBS['running'].id}/metrics?vertex={'2' * 32}")
    panel = watched.page.get_by_role("region", name="Since the start")
    expect(panel.locator(".chart").first).to_contain_text("Window: delays per hour")
    expect(panel.locator(".chart").first).not_to_contain_text("Sink: departures")


def test_a_click_on_a_frame_of_the_flame_graph_widens_it(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"/job/{JOBS['running'].id}/flame-graph?type=FULL")
    page = watched.page
    expect(page.locator(".flame-name")).to_contain_text("root: 1,000 samples")
    page.locator("canvas.flame").click(position={"x": 60, "y": 50})
    page.mouse.move(5, 5)
    expect(page.locator(".flame-name")).not_to_contain_text("root")
    page.get_by_role("button", name="Whole graph").click()
    expect(page.locator(".flame-name")).to_contain_text("root")


def test_ended_jobs_are_found_by_name_and_state(cluster: FakeCluster, watched: WatchedPage) -> None:
    watched.open(cluster.address, "/ended-jobs")
    page = watched.page
    expect(page.get_by_role("link", name="words_of_the_day")).to_be_visible()
    page.get_by_role("combobox", name="State").select_option("FAILED")
    expect(page.get_by_text("No ended job matches.")).to_be_visible()
    page.get_by_role("combobox", name="State").select_option("FINISHED")
    page.get_by_role("searchbox").fill("words")
    page.get_by_role("link", name="words_of_the_day").click()
    expect(page.get_by_role("heading", name="words_of_the_day")).to_be_visible()


def test_a_history_server_shows_no_pages_of_processes(watched: WatchedPage) -> None:
    with FakeCluster(is_history=True) as history:
        watched.open(history.address, "/task-manager")
        expect(watched.page.get_by_role("heading", name="Ended jobs")).to_be_visible()
        expect(watched.page.get_by_role("link", name="TaskManagers")).to_have_count(0)
        assert watched.problems == []
