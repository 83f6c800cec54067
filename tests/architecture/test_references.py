"""References of hand-written pages: links, files and classes that are not there are found."""

from pathlib import Path

import pytest

from tests.architecture.floor_plan import ROOT
from tools.pages.references import broken_references


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "headrace" / "core").mkdir(parents=True)
    (tmp_path / "headrace" / "core" / "clock.py").write_text("class Clock: ...\n")
    (tmp_path / "docs" / "adr").mkdir(parents=True)
    (tmp_path / "CONTRIBUTING.md").write_text("# Contributing\n\n## Set up\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("`core/clock.py`", ""),
        ("`clock.py`", ""),
        ("`job.py`", ""),
        ("`Clock` (`core/clock.py`)", ""),
        ("[how](CONTRIBUTING.md#set-up)", ""),
        ("`core/watch.py`", "README.md: names the file core/watch.py, which is not there"),
        ("`watch.py`", "README.md: names the file watch.py, which is not there"),
        (
            "`Watch` (`core/clock.py`)",
            "README.md: looks for Watch in core/clock.py, which does not know it",
        ),
        ("[how](HOW.md)", "README.md: links to HOW.md, which is not there"),
        (
            "[how](CONTRIBUTING.md#tests)",
            "README.md: links to CONTRIBUTING.md#tests, a heading that is not there",
        ),
    ],
)
def test_a_reference_that_leads_nowhere_is_found(root: Path, text: str, complaint: str) -> None:
    (root / "README.md").write_text(text)
    assert broken_references(root) == ([complaint] if complaint else [])


def test_decisions_are_read_too(root: Path) -> None:
    (root / "README.md").write_text("")
    (root / "docs" / "adr" / "0001-time.md").write_text("`core/sundial.py`")
    (found,) = broken_references(root)
    assert found.startswith("docs/adr/0001-time.md: names the file core/sundial.py")


def test_no_page_has_a_reference_that_leads_nowhere() -> None:
    assert broken_references(ROOT) == []
