"""The page of Flink's options that are not taken over: none of them is taken, and what it names instead is."""

import re
from typing import Final

from tests.architecture.floor_plan import ROOT

PAGE: Final = (ROOT / "docs" / "flink_options.md").read_text()
OPTIONS: Final = (ROOT / "docs" / "generated" / "configuration.md").read_text()
TAKEN: Final = frozenset(re.findall(r"^\| `([^`]+)`", OPTIONS, re.MULTILINE))
ROWS: Final = re.findall(r"^\| (`.+?) \| (.+) \|$", PAGE, re.MULTILINE)


def test_no_option_on_the_page_is_taken() -> None:
    named = {key for first, _ in ROWS for key in re.findall(r"`([^`]+)`", first)}
    assert len(named) > 10
    assert named & TAKEN == set()


def test_each_option_that_is_to_be_used_instead_is_taken() -> None:
    named = {key for _, second in ROWS for key in re.findall(r"`([a-z][a-z0-9.-]+)[`:]", second)}
    ours = {key for key in named if "." in key and not key.startswith("spark.")}
    assert len(ours) > 5
    assert ours <= TAKEN
