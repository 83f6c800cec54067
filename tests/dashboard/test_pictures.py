"""Pictures of the documentation whose jobs are made up, for what no small job shows in a moment: each test takes one.

Those of real jobs are taken by `test_real_pages`.
"""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.dashboard.fake_cluster import FakeCluster
from tests.dashboard.golden_jobs import JOBS, TASK_MANAGERS
from tests.dashboard.golden_state import OPERATOR
from tests.dashboard.pictures import take_picture
from tests.dashboard.watched_page import WatchedPage

pytestmark = pytest.mark.browser

_SLOW = JOBS["back-pressured"].id
PICTURES = {
    "subtasks": f"/job/{_SLOW}/overview?vertex={'3' * 32}",
    "why_is_there_no_output": f"/job/{_SLOW}/no-output",
    "checkpoints": f"/job/{_SLOW}/checkpoints",
    "state": f"/job/{_SLOW}/state?operator={OPERATOR}&table=keyed&state=customer",
    "flame_graph": f"/job/{JOBS['running'].id}/flame-graph?type=FULL",
    "metrics": f"/job/{JOBS['running'].id}/metrics?vertex={'2' * 32}",
    "metrics_over_time": f"/job/{JOBS['finished'].id}/metrics",
    "task_manager": f"/task-manager/{TASK_MANAGERS[0]}",
    "logs": "/job-manager/logs",
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_the_page_is_small(
    cluster: FakeCluster, watched: WatchedPage, tmp_path: Path, name: str
) -> None:
    page = watched.page
    page.emulate_media(color_scheme="dark" if name in ("flame_graph", "logs") else "light")
    watched.open(cluster.address, PICTURES[name])
    if name == "logs":
        page.set_viewport_size({"width": 1280, "height": 520})
    expect(page.locator(".panel h2").first).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    if name == "metrics":
        expect(page.locator(".metrics .chart canvas")).to_have_count(4)
        for _ in range(8):
            with page.expect_response(re.compile("subtasks/metrics")):
                pass  # Each answer is one more point of the charts.
    take_picture(page, tmp_path, name)
    assert watched.problems == []
