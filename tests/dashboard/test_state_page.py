"""The page of a job's state: what it lists, counts and reads, and edits that become a new savepoint."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.dashboard.fake_cluster import FakeCluster
from tests.dashboard.golden_jobs import JOBS
from tests.dashboard.golden_state import EDITED, OPERATOR
from tests.dashboard.watched_page import WatchedPage

pytestmark = pytest.mark.browser

STATE = f"/job/{JOBS['back-pressured'].id}/state"
OF_CUSTOMER = f"operator={OPERATOR}&table=keyed&state=customer"


def test_nothing_is_counted_or_read_before_it_is_asked_for(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, STATE)
    page = watched.page
    page.get_by_role("link", name="enrich", exact=True).wait_for()
    # The job itself is polled meanwhile.
    with page.expect_response(re.compile(rf"{JOBS['back-pressured'].id}$")):
        pass
    assert cluster.count("state/operators") == 0
    assert cluster.count(r"/state$") == 1
    page.get_by_role("link", name="enrich", exact=True).click()
    page.get_by_role("link", name="customer", exact=True).click()
    expect(page.get_by_role("heading", name="Rows of customer")).to_be_visible()
    expect(page.get_by_text("Nothing was read yet.")).to_be_visible()
    assert cluster.count("/rows") == 0
    assert cluster.count(rf"operators/{OPERATOR}$") == 1
    assert watched.problems == []


def test_sizes_show_the_hot_subtask_key_group_and_key_and_timers(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"{STATE}?{OF_CUSTOMER}")
    page = watched.page
    expect(page.get_by_role("row", name=re.compile("^customer keyed value"))).to_contain_text(
        "3.5 ×"
    )
    sizes = page.locator(".panel", has=page.get_by_role("heading", name="Sizes of customer"))
    expect(sizes.get_by_role("img", name=re.compile("^subtask 2: "))).to_be_visible()
    expect(
        sizes.get_by_role("img", name=re.compile(r"^key group 71 \(subtask 2\)"))
    ).to_be_visible()
    expect(sizes).to_contain_text("'everyone'")
    page.get_by_role("link", name="user-timers", exact=True).click()
    expect(page.get_by_text("event timers")).to_be_visible()
    expect(page.locator(".facts").last).to_contain_text("957 timers")
    assert watched.problems == []


def test_rows_are_read_by_key_and_pickles_are_named(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"{STATE}?{OF_CUSTOMER}")
    page = watched.page
    page.get_by_role("searchbox", name="Keys").fill("anna")
    page.get_by_role("button", name="Read rows").click()
    table = page.get_by_role("table", name=re.compile("^Rows, "))
    expect(table.get_by_role("row")).to_have_count(1 + 1)
    expect(table).to_contain_text('{"orders":12,"total":"1803.40"}')
    assert cluster.count(r"rows\?.*keys=%5B%22anna%22%5D") == 1
    page.get_by_role("searchbox", name="Keys").fill("")
    page.get_by_role("button", name="Read rows").click()
    expect(table.get_by_role("row")).to_have_count(1 + 3)
    expect(page.get_by_text("There are more than 3 rows")).to_be_visible()
    expect(page.get_by_text("A running job is not edited.")).to_be_visible()
    expect(page.get_by_role("button", name="Edit", exact=True)).to_have_count(0)
    page.get_by_role("link", name="seen", exact=True).click()
    page.get_by_role("button", name="Read rows").click()
    expect(page.get_by_text("map_key: stored as pickles of no declared type")).to_be_visible()
    expect(page.get_by_role("table", name=re.compile("^Rows, "))).to_contain_text("(pickle)")
    assert watched.problems == []


def test_snapshots_are_offered_with_their_kind_and_the_format_of_savepoints(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, STATE)
    options = watched.page.get_by_role("combobox", name="As of").get_by_role("option")
    expect(options).to_have_text(
        [
            re.compile("^now, "),
            re.compile("^savepoint, canonical 74, "),
            re.compile("^checkpoint 73, "),
            re.compile("^restored from savepoint, native 9, "),
        ]
    )
    watched.page.get_by_text("1 snapshot cannot be read from here").click()
    expect(watched.page.get_by_text("checkpoint 72, ")).to_be_visible()
    assert watched.problems == []


def test_edits_of_a_snapshot_become_a_new_savepoint_that_is_named_with_what_to_type(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"{STATE}?{OF_CUSTOMER}")
    page = watched.page
    page.get_by_role("combobox", name="As of").select_option("74")
    page.get_by_role("button", name="Read rows").click()
    page.get_by_role("row", name=re.compile("anna")).get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("textbox", name="Key")).to_have_value('"anna"')
    dialog.get_by_role("textbox", name="Value").fill("{not json")
    dialog.get_by_role("button", name="Add to the edits").click()
    expect(dialog.get_by_role("alert")).to_contain_text("are JSON")
    dialog.get_by_role("textbox", name="Value").fill('{"orders": 13, "total": "1.00"}')
    dialog.get_by_role("button", name="Add to the edits").click()
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Edit a key").click()
    dialog.get_by_role("textbox", name="Key").fill('"bela"')
    dialog.get_by_role("radio", name="Delete all that the operator keeps of it").check()
    dialog.get_by_role("button", name="Add to the edits").click()
    page.get_by_role("textbox", name="Reason").fill("orders were counted twice")
    page.get_by_role("button", name="Write a new savepoint with 2 edits").click()
    expect(page.get_by_text("The new savepoint is written")).to_be_visible()
    expect(page.get_by_text(f"headrace run -s {EDITED} program.py")).to_be_visible()
    (body,) = [one for one in cluster.bodies if "edits" in one]
    assert json.loads(body) == {
        "snapshot": 74,
        "reason": "orders were counted twice",
        "edits": [
            {
                "action": "set",
                "operator": OPERATOR,
                "key": "anna",
                "state": "customer",
                "value": {"orders": 13, "total": "1.00"},
            },
            {"action": "delete-key", "operator": OPERATOR, "key": "bela"},
        ],
    }
    assert watched.problems == []


def test_edits_whose_savepoint_nobody_tells_of_have_not_failed_and_stay_until_it_is_known(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"{STATE}?{OF_CUSTOMER}")
    page = watched.page
    page.get_by_role("combobox", name="As of").select_option("74")
    page.get_by_role("button", name="Edit a key").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Key").fill('"anna"')
    dialog.get_by_role("radio", name="Delete all that the operator keeps of it").check()
    dialog.get_by_role("button", name="Add to the edits").click()
    page.get_by_role("textbox", name="Reason").fill("a test")
    cluster.broken = "state/edits/d+$"
    page.get_by_role("button", name="Write a new savepoint with 1 edit").click()
    unknown = page.get_by_role("alert").filter(has_text="its state is not known")
    expect(unknown).to_contain_text("To write the edits again would make a second one.")
    expect(unknown).to_contain_text("BrokenOnPurposeError: no answer")
    expect(page.get_by_text('key "anna" is deleted from all states')).to_be_visible()
    cluster.broken = None
    expect(page.get_by_text("The new savepoint is written")).to_be_visible()
    expect(unknown).to_have_count(0)
    assert cluster.count("POST .*state/edits") == 1


def test_a_failure_to_read_is_told_beside_the_question(
    cluster: FakeCluster, watched: WatchedPage
) -> None:
    watched.open(cluster.address, f"{STATE}?{OF_CUSTOMER}")
    page = watched.page
    expect(page.get_by_role("heading", name="Rows of customer")).to_be_visible()
    cluster.broken = "/rows"
    page.get_by_role("button", name="Read rows").click()
    expect(page.get_by_role("alert").filter(has_text="BrokenOnPurposeError")).to_be_visible()


def test_a_history_server_has_no_page_of_state(watched: WatchedPage) -> None:
    with FakeCluster(is_history=True) as history:
        watched.open(history.address, f"/job/{JOBS['finished'].id}/overview")
        expect(watched.page.get_by_role("link", name="Checkpoints", exact=True)).to_be_visible()
        expect(watched.page.get_by_role("link", name="State", exact=True)).to_have_count(0)
