"""The command line of the chaos suite: what it hands to the processes that run its parts."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.chaos import __main__ as command_line
from testkit.chaos.groups import GROUPS


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments of each process that was started, of which all end well; this one runs nothing itself."""
    commands: list[list[str]] = []

    def call(command: list[str]) -> int:
        assert command[:2] == [sys.executable, "-m"]
        is_part = command[2] == "testkit.chaos"
        commands.append(command[3:] if is_part else command[2:])
        return 0

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("Spark was to be started in this process")

    monkeypatch.setattr(subprocess, "call", call)
    monkeypatch.setattr(command_line, "ChaosRunner", refuse)
    return commands


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["chaos", *arguments])
    return command_line.main()


def test_all_is_every_group_but_the_smoke_test_and_the_bugs(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, "all") == 0
    others = {"leaders", "takeovers", "dataframes", "bugs"}
    assert {command[0] for command in started} == {*GROUPS, *others} - {"smoke"}


@pytest.mark.parametrize("part", ["leaders", "takeovers", "dataframes"])
def test_kills_of_drivers_are_runs_of_the_tests_own_programs(
    part: str, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, part, "--only", "metadata", "--repeats", "2") == 0
    ((module, *arguments),) = started
    assert arguments == ["--repeats", "2", "--only", "metadata"]
    assert importlib.util.find_spec(module) is not None


def test_only_parts_with_a_run_of_that_name_are_started(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, "all", "--only", "mid restore") == 0
    having = [name for name, group in GROUPS.items() if group.count(1, "mid restore")]
    assert [command[0] for command in started] == [name for name in having if name != "smoke"]
    assert {"kills-rocksdb", "events-unaligned"} < {*having} < {*GROUPS}
    assert all(command[command.index("--only") + 1] == "mid restore" for command in started)


@pytest.mark.parametrize("group", ["all", "bugs", "kills"])
def test_a_name_that_nothing_has_is_a_mistake_of_the_command_line(
    group: str,
    started: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        run(monkeypatch, group, "--only", "no such run")
    assert end.value.code == 2
    assert "no run or bug is called 'no such run'" in capsys.readouterr().err
    assert started == []


def test_every_part_and_every_bug_keeps_its_files_in_a_folder_of_its_own(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(monkeypatch, "damage", "bugs", "--directory", str(tmp_path))
    assert [command[-2:] for command in started] == [
        ["--directory", str(tmp_path / name)] for name in ("damage", "bugs")
    ]
    started.clear()
    run(monkeypatch, "bugs", "--directory", str(tmp_path), "--only", "use-ids-again")
    assert [command[:2] for command in started] == [["--bug", "use-ids-again"]]
    assert started[0][-2:] == ["--directory", str(tmp_path / "use-ids-again")]
