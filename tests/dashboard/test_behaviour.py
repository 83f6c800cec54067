"""Signing in, polling, errors, keys and colours of the dashboard."""

import json
import re
import threading

import pytest
from playwright.sync_api import Page, Route, expect

from tests.dashboard.fake_cluster import FakeCluster
from tests.dashboard.golden_jobs import JOBS
from tests.dashboard.watched_page import WatchedPage

pytestmark = pytest.mark.browser

HIDE = """() => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => window.isHidden === true });
  window.isHidden = true;
  document.dispatchEvent(new Event("visibilitychange"));
}"""
SHOW = """() => {
  window.isHidden = false;
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def overview(page: Page) -> None:
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_the_login_page_takes_the_token_once(page: Page) -> None:
    with FakeCluster(token="open sesame") as cluster:
        page.goto(f"{cluster.address}/")
        page.get_by_label("Token of the cluster").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_have_text("This is not the token of this cluster.")
        page.get_by_label("Token of the cluster").fill("open sesame")
        page.keyboard.press("Enter")
        overview(page)
        page.reload()
        overview(page)
        assert cluster.count(r"sesame") == 0
        assert [body for body in cluster.bodies if body] == [
            '{"token":"wrong"}',
            '{"token":"open sesame"}',
        ]


def test_the_token_of_an_address_is_taken_and_erased(watched: WatchedPage) -> None:
    with FakeCluster(token="open sesame") as cluster:
        watched.page.goto(f"{cluster.address}/#token=open%20sesame")
        overview(watched.page)
        assert "sesame" not in watched.page.url
        assert cluster.count("sesame") == 0
        assert watched.problems == []


def test_signing_out_ends_the_session(page: Page) -> None:
    with FakeCluster(token="t") as cluster:
        page.goto(f"{cluster.address}/#token=t")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token of the cluster")).to_be_visible()
        page.reload()
        expect(page.get_by_label("Token of the cluster")).to_be_visible()
        assert cluster.count("DELETE /session") == 1


def test_a_session_that_ends_leads_to_the_login_page(page: Page) -> None:
    with FakeCluster(token="t") as cluster:
        page.goto(f"{cluster.address}/#token=t")
        overview(page)
        page.context.clear_cookies()
        expect(page.get_by_label("Token of the cluster")).to_be_visible()


def test_nothing_is_asked_while_the_page_is_hidden(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    page = watched.page
    page.clock.install()
    watched.open(cluster.address)
    with page.expect_response(re.compile("/jobs/overview")):
        pass
    page.evaluate(HIDE)
    page.wait_for_load_state("networkidle")
    before = len(cluster.requests)
    page.clock.run_for(60_000)
    page.wait_for_load_state("networkidle")
    assert len(cluster.requests) == before
    with page.expect_response(re.compile("/jobs/overview")):
        page.evaluate(SHOW)


def test_requests_do_not_pile_up_behind_a_slow_cluster_and_the_reader_is_told(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    page = watched.page
    page.clock.install()
    watched.open(cluster.address)
    overview(page)
    cluster.held = threading.Event()
    before = cluster.count("GET /jobs/overview")
    page.clock.run_for(60_000)
    assert cluster.count("GET /jobs/overview") <= before + 1
    expect(page.locator(".notice")).to_have_count(1)
    expect(page.locator(".notice")).to_contain_text("The cluster does not answer")
    with page.expect_response(re.compile("/jobs/overview")):
        cluster.held.set()
    expect(page.locator(".notice")).to_have_count(0)


def test_what_a_cluster_says_is_text_and_never_markup(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>"

    def renamed(route: Route) -> None:
        answer = route.fetch().json()
        for job in answer["jobs"]:
            job["name"] = hostile
        route.fulfill(json=answer)

    watched.page.route("**/jobs/overview", renamed)
    watched.open(cluster.address)
    expect(watched.page.locator("tbody strong").first).to_have_text(hostile)
    assert watched.page.locator("main img, main script").count() == 0
    assert watched.problems == []


def test_an_error_is_shown_once_by_name_and_goes_when_it_is_over(
    cluster: FakeCluster, page: Page
) -> None:
    cluster.broken = "/checkpoints$"
    page.goto(f"{cluster.address}/#/job/{JOBS['running'].id}/checkpoints")
    notice = page.locator(".notice")
    expect(notice).to_contain_text("Checkpoints could not be loaded")
    expect(notice).to_contain_text("BrokenOnPurposeError: no answer (500")
    before = cluster.count("/checkpoints$")
    with page.expect_response(re.compile("/checkpoints$")):
        pass
    assert cluster.count("/checkpoints$") > before
    expect(notice).to_have_count(1)
    cluster.broken = None
    page.get_by_role("button", name="Try again").click()
    expect(notice).to_have_count(0)
    expect(page.get_by_role("heading", name="Last checkpoints")).to_be_visible()


def test_a_cluster_that_is_gone_is_told_once_and_its_last_answers_stay(page: Page) -> None:
    with FakeCluster() as cluster:
        page.goto(f"{cluster.address}/")
        expect(page.get_by_role("link", name="new_york_departures")).to_be_visible()
    page.context.set_offline(True)
    expect(page.locator(".notice")).to_have_count(1)
    expect(page.locator(".notice")).to_contain_text("The cluster does not answer")
    expect(page.get_by_role("link", name="new_york_departures")).to_be_visible()


def test_the_graph_is_walked_with_keys_alone(cluster: FakeCluster, watched: WatchedPage) -> None:
    watched.open(cluster.address, f"/job/{JOBS['running'].id}/overview")
    page = watched.page
    page.get_by_role("button", name=re.compile("^Source: flights")).focus()
    page.keyboard.press("ArrowRight")
    window = page.get_by_role("button", name=re.compile("^Window: delays per hour"))
    expect(window).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Window: delays per hour")).to_be_visible()
    expect(page.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(window).to_be_focused()


def test_the_first_key_offers_the_content_and_the_next_ones_the_pages(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address)
    page = watched.page
    overview(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.get_by_role("link", name="Skip to the content").focus()
    for _ in range(3):
        page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Ended jobs")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Ended jobs")).to_be_visible()


def test_what_opens_above_a_page_fits_a_telephone_and_has_a_name(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    page = watched.page
    watched.open(cluster.address, f"/job/{JOBS['failing'].id}/overview?vertex={'2' * 32}")
    drawer = page.get_by_role("dialog")
    drawer.get_by_text("Earlier attempts").click()
    drawer.get_by_text("Times of states").click()
    expect(drawer.get_by_role("table")).to_have_count(3)
    assert (watched.wide_elements(), watched.nameless_elements()) == ([], [])
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Stop with savepoint").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert (watched.wide_elements(), watched.nameless_elements()) == ([], [])
    page.keyboard.press("Escape")
    watched.open(cluster.address, "/job-manager/configuration")
    page.get_by_text("Module path").click()
    expect(page.locator(".fold li").first).to_be_visible()
    assert watched.wide_elements() == []
    with FakeCluster(token="t") as locked:
        watched.open(locked.address)
        expect(page.get_by_label("Token of the cluster")).to_be_visible()
        assert (watched.wide_elements(), watched.nameless_elements()) == ([], [])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_enough_contrast_in_both_themes(
    cluster: FakeCluster, watched: WatchedPage, theme: str
) -> None:
    watched.open(cluster.address)
    watched.page.get_by_label("Colours").select_option(theme)
    ratios = watched.page.evaluate(
        """() => {
          const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
          const light = (hex) => [1, 3, 5]
            .map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
            .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
            .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
          const ratio = (a, b) => {
            const [x, y] = [light(value(a)), light(value(b))].sort((p, q) => q - p);
            return (x + 0.05) / (y + 0.05);
          };
          const pairs = [["--text", "--bg"], ["--text", "--panel"], ["--muted", "--panel"], ["--muted", "--bg"],
            ["--muted", "--raised"], ["--accent", "--panel"], ["--accent-text", "--accent"], ["--good", "--good-bg"],
            ["--bad", "--bad-bg"], ["--warn", "--warn-bg"], ["--wait", "--wait-bg"], ["--bad", "--raised"],
            ["--warn", "--raised"], ["--flame-text", "--flame-foreign"], ["--text", "--mark"]];
          return Object.fromEntries(pairs.map(([a, b]) => [`${a} on ${b}`, ratio(a, b)]));
        }"""
    )
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < 4.5} == {}
    assert len(ratios) == 15


def test_colours_follow_the_system_until_the_reader_chooses(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    page = watched.page
    background = "getComputedStyle(document.documentElement).getPropertyValue('--bg').trim()"
    page.emulate_media(color_scheme="dark")
    watched.open(cluster.address)
    overview(page)
    assert page.evaluate(background) == "#10151c"
    page.get_by_label("Colours").select_option("light")
    assert page.evaluate(background) == "#f4f6f9"
    page.reload()
    overview(page)
    assert page.evaluate(background) == "#f4f6f9"


def test_a_job_is_canceled_only_after_a_question(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    job_id = JOBS["running"].id
    watched.open(cluster.address, f"/job/{job_id}/overview")
    page = watched.page
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Keep it as it is").click()
    assert cluster.count("PATCH") == 0
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.locator("dialog").get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator(".notice.done")).to_contain_text("The job is being canceled.")
    assert cluster.count(rf"PATCH /jobs/{job_id}\?mode=cancel") == 1


def test_a_savepoint_whose_state_nobody_tells_has_not_failed_and_is_asked_for_again(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"/job/{JOBS['running'].id}/overview")
    page = watched.page
    cluster.broken = "savepoints/f+$"
    page.get_by_role("button", name="Savepoint", exact=True).click()
    page.locator("dialog").get_by_role("button", name="Savepoint", exact=True).click()
    unknown = page.locator(".notice", has_text="Savepoint: its state is not known")
    expect(unknown).to_contain_text("the cluster is asked again by itself")
    expect(unknown).to_contain_text("BrokenOnPurposeError: no answer")
    expect(page.locator(".notice.error")).to_have_count(0)
    with page.expect_response(re.compile("savepoints/f+$")):
        pass
    cluster.broken = None
    expect(page.locator(".notice.done")).to_contain_text("file:/data/savepoints/savepoint-aaaaaa")
    expect(unknown).to_have_count(0)
    assert cluster.count("POST .*savepoints") == 1


def test_a_savepoint_tells_where_it_is(cluster: FakeCluster, watched: WatchedPage) -> None:
    watched.open(cluster.address, f"/job/{JOBS['running'].id}/overview")
    page = watched.page
    page.get_by_role("button", name="Savepoint", exact=True).click()
    page.get_by_label("Folder").fill("/data/savepoints")
    page.locator("dialog").get_by_role("button", name="Savepoint", exact=True).click()
    expect(page.locator(".notice.done")).to_contain_text("file:/data/savepoints/savepoint-aaaaaa")
    (body,) = [one for one in cluster.bodies if "target-directory" in one]
    assert json.loads(body) == {
        "target-directory": "/data/savepoints",
        "formatType": "CANONICAL",
        "cancel-job": False,
    }
