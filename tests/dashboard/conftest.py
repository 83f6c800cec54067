"""The fake cluster and a browser: Debian's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.dashboard.fake_cluster import FakeCluster
from tests.dashboard.watched_page import WatchedPage

PATIENCE_MS = 60_000
"""Time until something must be there, on a machine that others use too."""
expect.set_options(timeout=PATIENCE_MS)


def chromium() -> str:
    """Find the browser; tests that need one fail without it, with what to do."""
    path = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    )
    if path is None:
        pytest.fail(
            "no Chromium is installed: apt-get install chromium, or set CHROMIUM to its path"
        )
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=chromium(),
            args=["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"],
        )
        yield found
        found.close()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in a browser without memory, whose clock has a zone that pictures show."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 800},
        timezone_id="UTC",
        locale="en-US",
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()


@pytest.fixture
def watched(page: Page) -> WatchedPage:
    return WatchedPage(page)
