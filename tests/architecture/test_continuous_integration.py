"""`.ci/run` runs what the README promises; its first failure ends it; its check of the demo finds lost flights."""

import os
import re
import shutil
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
    text = (ROOT / ".ci" / "run").read_text()
    steps = re.findall(r"^(?:step )?(make [\w-]+)", text, re.MULTILINE)
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


def test_every_target_is_listed() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    listed = set(re.findall(r"^([a-z][a-z-]*):.*## ", makefile, re.MULTILINE))
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert targets == listed == set(phony[1].replace("\\", "").split())


MAKE = """\
#!/bin/sh
echo "make $* prints"
echo "$*" >> began
case "$1" in
  "$FAILS") until grep -q "^$LASTS" began; do sleep 0.05; done; exit 3 ;;
  "$LASTS") trap 'echo "$1" >> ended; exit 1' INT; while :; do sleep 0.05; done ;;
esac
"""
STEPS = [
    "demo",
    "test",
    "check",
    "docs",
    "dashboard-test",
    "test-browser",
    "test-flink",
    "test-thorough AFTER=test-serialized",
    *(f"test-serialized PART=tests/{part}" for part in ("unit", "integration")),
    "test-integration AFTER=test-serialized",
    "test-spark AFTER=test-serialized",
]


def run_with_another_make(
    folder: Path, fails: str = "-", lasts: str = "-", slow_from_s: int = 300
) -> subprocess.CompletedProcess[str]:
    """Run `.ci/run` with a `make` that runs nothing. `lasts`: the target that ends only when it is interrupted.

    `slow_from_s`: seconds of `make test` from which on the machine counts as slow.
    """
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    commands = folder / "commands"
    (folder / ".venv" / "bin").mkdir(parents=True)
    commands.mkdir()
    names = (
        "npm",
        "initdb",
        "prometheus",
        "prometheus-pushgateway",
        "chromium",
        "zsh",
        "fish",
        "apt-get",
    )
    nothing = (commands / name for name in names)
    for command in (*nothing, folder / ".venv/bin/headrace", folder / ".ci/check-demo"):
        command.write_text("#!/bin/sh\n")
        command.chmod(0o755)
    (commands / "make").write_text(MAKE)
    (commands / "make").chmod(0o755)
    variables = {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "FAILS": fails,
        "LASTS": lasts,
        "SLOW_FROM_S": str(slow_from_s),
    }
    # A shell cannot trap what was ignored when it began, as in a run in the background of a script.
    return subprocess.run(
        ["env", "--default-signal=INT", str(folder / ".ci" / "run")],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_it_runs_each_step_once_and_shows_what_it_prints(tmp_path: Path) -> None:
    done = run_with_another_make(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = re.findall(r"^make (.*) prints$", done.stdout, re.MULTILINE)
    installed = [".venv-docs/.installed .venv-flink/.installed"]
    assert sorted(printed) == sorted([*STEPS, *installed])
    assert done.stdout.rstrip().endswith("==== all passed ====")


def test_on_a_slow_machine_long_tests_on_spark_are_left_out_and_that_is_said(
    tmp_path: Path,
) -> None:
    done = run_with_another_make(tmp_path, slow_from_s=-1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "make test-spark AFTER=test-serialized SLOW=1 prints" in done.stdout
    assert (
        "this machine is slow: tests on Spark that are marked as long are left out" in done.stdout
    )


@pytest.mark.parametrize(
    ("fails", "lasts"),
    [("check", "test-browser"), ("check", "test-flink"), ("test-browser", "check")],
)
def test_the_first_failure_ends_what_runs_beside_it(tmp_path: Path, fails: str, lasts: str) -> None:
    done = run_with_another_make(tmp_path, fails, lasts)
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"make {fails} prints" in done.stdout
    assert "all passed" not in done.stdout
    assert (tmp_path / "ended").read_text().split() == [lasts]
    began = (tmp_path / "began").read_text().splitlines()
    assert "test-spark AFTER=test-serialized" not in began
