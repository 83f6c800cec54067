"""Flink's command line and web UI, and the browser of the dashboard's tests."""

from pathlib import Path

import pytest

from tests.dashboard.conftest import browser, page, watched
from tests.flink.flink_distribution import HOME, unpack_web_ui

__all__ = ["browser", "page", "watched"]


@pytest.fixture(scope="session", autouse=True)
def flink_home() -> Path:
    if not HOME.is_dir():
        pytest.fail("Flink's distribution is not installed: `make test-flink` does that")
    return HOME


@pytest.fixture(scope="session")
def web_ui(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files of Flink's web UI."""
    return unpack_web_ui(tmp_path_factory.mktemp("ui"))
