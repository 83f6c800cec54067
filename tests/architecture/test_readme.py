"""The README fits on two screens, and it and the guides name the wheel of this version."""

import re
from typing import Final

from headrace import __version__
from tests.architecture.floor_plan import ROOT

LINES_MAX: Final = 120
_WHEEL: Final = re.compile(r"headrace-([\w.]+)-py3-none-any\.whl")


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LINES_MAX


def test_the_wheel_that_documents_name_is_that_of_this_version() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs" / "getting_started").glob("*.md"))]
    named = {page.name: _WHEEL.findall(page.read_text(encoding="utf-8")) for page in pages}
    assert named == {page.name: [__version__] for page in pages}


def test_the_version_that_documents_name_is_this_one() -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "status.md"):
        assert f"ersion {__version__}" in page.read_text(encoding="utf-8"), page.name
