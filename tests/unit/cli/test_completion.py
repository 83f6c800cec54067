"""Completion of command lines: the scripts, the words that they ask for, and ids of jobs from the cluster."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from headrace.cli.completion import PROGRAM, VARIABLE
from headrace.cli.main import cli
from tests.unit.cli.jobs.answers import ONE_RUNNING
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import JOB, fake_cluster, home_of


def words(*arguments: str, incomplete: str = "") -> list[str]:
    completion = ShellComplete(cli, {}, PROGRAM, VARIABLE)
    return [one.value for one in completion.get_completions(list(arguments), incomplete)]


@pytest.mark.parametrize(
    ("name", "sign"),
    [
        ("bash", "complete -o nosort -F"),
        ("zsh", "#compdef headrace"),
        ("fish", "complete --no-files"),
    ],
)
def test_the_script_of_each_shell_is_printed(shell: Shell, name: str, sign: str) -> None:
    outcome = shell("completion", name)
    assert (outcome.code, sign in outcome.out, VARIABLE in outcome.out) == (0, True, True)


def test_bash_takes_the_script_and_completes_with_it(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(shell("completion", "bash").out)
    program = tmp_path / "headrace"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m headrace "$@"\n')
    program.chmod(0o755)
    asked = (
        f"source {script}; COMP_WORDS=({program} sav); COMP_CWORD=1; _headrace_completion {program}; "
        "echo ${COMPREPLY[@]}"
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "savepoint"


def test_commands_and_options_are_completed() -> None:
    assert words(incomplete="c") == ["cancel", "checkpoint", "cluster", "completion"]
    assert words("savepoint") == ["dispose", "list", "show", "trigger", "verify"]
    assert "--drain" in words("stop", incomplete="--")


def test_ids_of_jobs_and_addresses_come_from_the_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_cluster(ONE_RUNNING) as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        assert words("top", incomplete="0a") == [JOB]
        assert words("top", incomplete="ff") == []
        assert words("top", "-m") == [cluster.authority]
    # It has ended, and nobody waits for it.
    assert words("top", incomplete="0a") == []


def test_a_job_is_completed_where_flink_s_commands_take_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_cluster(ONE_RUNNING) as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        for command in ("cancel", "stop"):
            assert words(command, incomplete="0a") == [JOB]
        assert words("savepoint", "trigger", incomplete="0a") == [JOB]
        assert words("savepoint", incomplete="0a") == [JOB]
    assert "--detached" in words("savepoint", JOB, incomplete="--")


def test_completion_imports_no_command() -> None:
    script = (
        "import sys\nfrom click.shell_completion import ShellComplete\nfrom headrace.cli.main import cli\n"
        "ShellComplete(cli, {}, 'headrace', 'X').get_completions([], '')\n"
        "print([name for name in sys.modules if name.startswith('headrace.cli.jobs')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
