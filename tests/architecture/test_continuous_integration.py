"""`.ci/run` runs what the README promises, and its check of the demo finds a demo that lost flights."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.architecture.floor_plan import ROOT

DEMO = """\
Spark starts
22:27:08 INFO headrace.rest.rest_server: the dashboard is at http://127.0.0.1:8081
airport   hours  flights  cancelled  mean delay  alerts
EWR       7,150  120,830       2.7%    15.1 min     112
JFK       7,281  111,279       1.7%    12.1 min      75
LGA       6,717  104,662       3.0%    10.3 min     105
late flights, beyond the watermark and in no window: 5
41.0 s; results and departures.png in out/departures
Look at it again: .venv/bin/headrace history-server .venv/demo_archives
"""


def check_demo(directory: Path, text: str) -> subprocess.CompletedProcess[str]:
    (directory / "out" / "departures").mkdir(parents=True)
    (directory / "out" / "departures" / "departures.png").write_text("a picture")
    (directory / "demo.txt").write_text(text)
    return subprocess.run(
        [str(ROOT / ".ci" / "check-demo"), "demo.txt"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_begins_with_the_commands_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.search(r"^## Two commands\n\n```\n(make \w+).*\n(make \w+)", readme, re.MULTILINE)
    assert commands is not None
    steps = re.findall(r"^make [\w-]+", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert steps[:2] == list(commands.groups())


def test_a_demo_with_every_flight_is_taken(tmp_path: Path) -> None:
    done = check_demo(tmp_path, DEMO)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("present", "instead"),
    [
        ("120,830", "120,829"),
        ("LGA ", "LAG "),
        ("late flights", "some flights"),
        ("out/departures", "departures"),
        ("no window: 5", "no window: 6"),
    ],
)
def test_a_demo_that_lost_something_is_not(tmp_path: Path, present: str, instead: str) -> None:
    done = check_demo(tmp_path, DEMO.replace(present, instead))
    assert done.returncode != 0
    assert "expected 3 and 336776" in done.stderr


ADDRESS = "22:27:08 INFO headrace.rest.rest_server: the dashboard is at http://127.0.0.1:8081\n"
HISTORY = DEMO.splitlines(keepends=True)[-1]


@pytest.mark.parametrize(
    "text",
    [
        DEMO.replace(ADDRESS, ""),
        DEMO.replace(ADDRESS, "").replace(HISTORY, ADDRESS + HISTORY),
        DEMO.replace(HISTORY, ""),
        HISTORY + DEMO.replace(HISTORY, ""),
    ],
    ids=["no address", "an address after the results", "no history", "history at the beginning"],
)
def test_a_demo_that_does_not_tell_where_to_look_is_not_taken(tmp_path: Path, text: str) -> None:
    done = check_demo(tmp_path, text)
    assert done.returncode != 0
    assert "address of the dashboard before the results" in done.stderr


def test_it_runs_the_dashboards_own_tests_and_every_target_is_listed() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "make dashboard-test" in (ROOT / ".ci" / "run").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    listed = set(re.findall(r"^([a-z][a-z-]*):.*## ", makefile, re.MULTILINE))
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert targets == listed == set(phony[1].replace("\\", "").split())
