"""Real bash, zsh and fish complete lines with the scripts that `headrace completion` prints."""

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.main import COMMANDS

PATIENCE_S = 60.0
"""Time until a shell must have answered, on a machine that others use too."""
LINES = (
    ("headrace ", {"savepoint", "job", "run", "completion"}),
    ("headrace job ", {"savepoint", "list", "top"}),
    ("headrace job sav", {"savepoint"}),
    ("headrace list --", {"--running", "--jobmanager", "--json"}),
)
"""Lines as far as somebody has typed them, and words among those that the shell must offer."""


def program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is missing: install Debian's package {name}"
    return found


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables with which `headrace` is the command of this checkout, and no cluster is found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "headrace"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m headrace "$@"\n')
    command.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    return {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "HOME": str(home),
        "HEADRACE_HOME": str(home),
        "TERM": "dumb",
        "COLUMNS": "200",
    }


def script_of(shell: str, environment: dict[str, str], folder: Path) -> Path:
    printed = subprocess.run(
        ["headrace", "completion", shell],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    script = folder / f"completion.{shell}"
    script.write_text(printed.stdout)
    return script


def run(arguments: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    return done.stdout


def offered_by_bash(line: str, script: Path, environment: dict[str, str]) -> set[str]:
    *words, last = line.split(" ")
    asked = (
        f"source {script}; COMP_WORDS=({' '.join(words)} '{last}'); COMP_CWORD={len(words)}; "
        '_headrace_completion headrace; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return set(run([program("bash"), "--norc", "-c", asked], environment).split())


def offered_by_fish(line: str, script: Path, environment: dict[str, str]) -> set[str]:
    asked = f"source {script}; complete -C '{line}'"
    shown = run([program("fish"), "--no-config", "-c", asked], environment)
    return {each.partition("\t")[0] for each in shown.splitlines()}


def offered_by_zsh(line: str, script: Path, environment: dict[str, str]) -> set[str]:
    """Type the line and a tabulator on a terminal, and return the words that the shell writes then."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(program("zsh"), ["zsh", "-f", "-i"], environment)
    try:
        set_up = f"PS1=; LISTMAX=1000; autoload -Uz compinit; compinit -u -D; source {script}; print rea''dy\n"
        os.write(terminal, set_up.encode())
        read_until(terminal, "ready")
        # Menus and lists end with the line, so the word behind it says that all is there.
        os.write(terminal, f"{line}\t".encode())
        shown = read_until(terminal, "savepoint" if "--" not in line else "--running")
        return set(shown.split())
    finally:
        os.close(terminal)
        os.kill(child, 9)
        os.waitpid(child, 0)


def read_until(terminal: int, word: str) -> str:
    """Read what a shell writes until it has written a word and then nothing for a second."""
    shown = ""
    # `select.select` takes no descriptor from 1024 on, and the tests of a process may have opened as many.
    poll = select.poll()
    poll.register(terminal, select.POLLIN)
    while True:
        is_there = word in shown
        if not poll.poll(1000 * (1.0 if is_there else PATIENCE_S)):
            assert is_there, f"the shell has written {shown!r}"
            return shown
        shown += os.read(terminal, 65536).decode()


@pytest.mark.parametrize(("line", "wanted"), LINES)
@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_a_shell_completes(
    tmp_path: Path, environment: dict[str, str], shell: str, line: str, wanted: set[str]
) -> None:
    offered = {"bash": offered_by_bash, "fish": offered_by_fish, "zsh": offered_by_zsh}[shell]
    found = offered(line, script_of(shell, environment, tmp_path), environment)
    assert wanted <= found, found
    if line == "headrace ":
        assert set(COMMANDS) <= found
