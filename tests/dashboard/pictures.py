"""Pictures of the documentation: kept in `docs/pictures/dashboard` where PICTURES=1 is set, else in a test's folder."""

import os
from pathlib import Path
from typing import Final

from playwright.sync_api import Page

from tests.dashboard.fake_cluster import ROOT

KEPT: Final = ROOT / "docs" / "pictures" / "dashboard"
_BYTES_MAX: Final = 200_000


def take_picture(page: Page, folder: Path, name: str) -> None:
    """Write the page as it is, and assert that it is neither empty nor large."""
    path = (KEPT if os.environ.get("PICTURES") == "1" else folder) / f"{name}.png"
    page.screenshot(path=path, animations="disabled")
    assert 5_000 < path.stat().st_size < _BYTES_MAX
