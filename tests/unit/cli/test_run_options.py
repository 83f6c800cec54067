"""Options of `flink run` that `headrace run` takes under the same names, and those that it refuses with a remedy."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.api import executors
from headrace.cli.daemon.daemon_cluster_descriptor import DaemonClusterDescriptor
from headrace.client.deployed_cluster import DeployedCluster
from headrace.client.program import Program
from tests.unit.cli.shell import Shell

PROGRAM = """\
import sys
from headrace.api.executors import default_settings
print(sys.argv[1:], __name__)
print(sorted(default_settings().items()))
"""


class IdleExecutor:
    """An executor that nobody gives a job."""

    name = "idle"

    def __init__(self, settings: object) -> None:
        self.settings = settings

    def submit(self, job_graph: object) -> object:
        raise AssertionError("nothing is submitted here")

    def default_parallelism(self) -> int:
        return 1

    def known_parallelism(self) -> int:
        return self.default_parallelism()

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("headrace.cli.run.create_executor", IdleExecutor)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    executors.set_active_executor(None)
    executors.set_default_settings({})


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "departures_to_run.py"
    path.write_text(PROGRAM)
    return path


def test_the_program_may_be_named_by_an_option_and_what_follows_is_its_own(
    shell: Shell, program: Path
) -> None:
    words = ["--input", "a.csv", "-p", "7", "--json"]
    outcome = shell("run", "-py", str(program), *words)
    assert (outcome.code, outcome.lines[0]) == (0, f"{words} __main__"), outcome.err
    assert shell("run", "--python", str(program), *words).lines == outcome.lines
    assert shell("run", str(program), *words).lines == outcome.lines


@pytest.mark.parametrize(
    "options",
    [
        ("-Dparallelism.default=2",),
        ("-D", "parallelism.default=2"),
        ("--parallelism=2",),
        ("-p2", "--no-progress"),
        ("--no-progress", "-p", "2"),
        ("-vp", "2"),
        ("-vp2",),
    ],
)
def test_options_stand_before_and_behind_the_one_that_names_the_program(
    shell: Shell, program: Path, options: tuple[str, ...]
) -> None:
    named = ("-py", str(program))
    shown = ["['--year', '2013'] __main__", str([("parallelism.default", "2")])]
    assert shell("run", *options, *named, "--year", "2013").lines == shown
    assert shell("run", *named, *options, "--year", "2013").lines == shown
    assert shell("run", *options, str(program), "--year", "2013").lines == shown


@pytest.mark.parametrize("command", ["run", "info"])
def test_an_option_wins_over_a_setting_of_the_same_meaning(
    shell: Shell, program: Path, command: str
) -> None:
    options = ("-t", "remote", "-m", "a:1", "-p", "3")
    given = ("execution.target=local", "rest.address=b:2", "parallelism.default=2")
    words = [word for one in given for word in ("-D", one)]
    outcome = shell(command, *options, *words, str(program))
    settings = [
        ("execution.target", "remote"),
        ("parallelism.default", "3"),
        ("rest.address", "a:1"),
    ]
    # `info` prints the plan alone on standard output.
    assert str(settings) in (outcome.out if command == "run" else outcome.err).splitlines()


def test_detached_is_stronger_than_the_setting_that_waits(shell: Shell, program: Path) -> None:
    elsewhere = ("-t", "remote", "-m", "a:1", "-d", "-D", "execution.attached=true")
    assert "('execution.attached', 'false')" in shell("run", *elsewhere, str(program)).out


@pytest.mark.parametrize("command", ["run", "info"])
def test_a_target_of_a_setting_must_fit_the_options_too(
    shell: Shell, program: Path, command: str
) -> None:
    outcome = shell(command, "-m", "a:1", "-D", "execution.target=application", str(program))
    assert "-m needs --target remote, but the target is application" in outcome.err
    assert outcome.code == 1


@pytest.mark.parametrize(
    ("words", "option"),
    [(["-py"], "-py"), (["-py", "PROGRAM", "-p"], "-p"), (["-py", "PROGRAM", "-s"], "-s")],
)
def test_an_option_at_the_end_that_misses_its_value_is_named(
    shell: Shell, program: Path, words: list[str], option: str
) -> None:
    outcome = shell("run", *(str(program) if word == "PROGRAM" else word for word in words))
    assert outcome.code == 1
    assert f"Option '{option}' requires an argument" in outcome.err


def test_a_module_of_this_folder_or_of_the_python_files_is_run_as_main(
    shell: Shell, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shell("run", "-pyfs", str(program), "-pym", program.stem, "-x").lines[0] == (
        "['-x'] __main__"
    )
    package = tmp_path / "package_to_run"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "words.py").write_text("HELLO = 'hello'\n")
    (package / "__main__.py").write_text("from .words import HELLO\nprint(HELLO, __name__)\n")
    monkeypatch.chdir(tmp_path)
    outcome = shell("run", "--pyModule", package.name)
    assert (outcome.code, outcome.lines) == (0, ["hello __main__"]), outcome.err


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        (("-pyarch", "a.zip#data"), "python.archives", "a.zip#data"),
        (("--pyArchives", "a.zip"), "python.archives", "a.zip"),
        (("-pyreq", "all.txt"), "python.requirements", "all.txt"),
        (("--pyRequirements", "all.txt#wheels"), "python.requirements", "all.txt#wheels"),
        (("-pyexec", sys.executable), "python.executable", sys.executable),
        (("--pyExecutable", sys.executable), "python.executable", sys.executable),
        (("--fromSavepoint", "/saved"), "execution.state-recovery.path", "/saved"),
        (
            ("--allowNonRestoredState",),
            "execution.state-recovery.ignore-unclaimed-state",
            "true",
        ),
        (("-cm", "NO_CLAIM"), "execution.state-recovery.claim-mode", "NO_CLAIM"),
        (("--claimMode", "claim"), "execution.state-recovery.claim-mode", "CLAIM"),
        (("-sae",), "execution.shutdown-on-attached-exit", "true"),
    ],
)
def test_an_option_stands_for_its_setting(
    shell: Shell, program: Path, options: tuple[str, ...], key: str, value: str
) -> None:
    outcome = shell("run", *options, str(program))
    assert outcome.code == 0, outcome.err
    assert outcome.lines[1] == str([(key, value)])


def test_the_names_of_python_files_mean_the_same(
    shell: Shell, program: Path, tmp_path: Path
) -> None:
    (tmp_path / "rules_to_use.py").write_text("")
    shown = [
        shell("run", name, str(tmp_path / "rules_to_use.py"), str(program)).lines[1]
        for name in ("-pyfs", "--pyFiles", "--python-files")
    ]
    assert set(shown) == {str([("python.files", str(tmp_path / "rules_to_use.py"))])}


@pytest.mark.parametrize(
    ("options", "begins", "remedy"),
    [
        (("-c", "org.Job"), "-c/--class: Java classes are not supported", "-pym"),
        (("--class", "org.Job"), "-c/--class: Java classes are not supported", "-pyfs"),
        (("-C", "file:a.jar"), "-C/--classpath: Java classes are not supported", "spark.jars"),
        (
            ("-pyclientexec", "python3"),
            "-pyclientexec/--pyClientExecutable: the program runs in the interpreter",
            "run '-m headrace' with the other interpreter",
        ),
        (("-pypath", "lib"), "-pypath/--pyPythonPath: add the modules", "-pyfs"),
        (("-cm", "LEGACY"), "Invalid value for '-cm'", "'no-claim', 'claim'"),
        (("-pym", "another"), "-py and -pym both name the program", "give one of them"),
    ],
)
def test_what_has_no_meaning_here_is_refused_with_what_to_do(
    shell: Shell, program: Path, options: tuple[str, ...], begins: str, remedy: str
) -> None:
    for command in ("run",) if options[0] == "-cm" else ("run", "info"):
        outcome = shell(command, *options, "-py", str(program))
        first = outcome.err.splitlines()[0]
        assert (outcome.code, outcome.out) == (1, "")
        assert first.startswith(f"error: {begins}"), first
        assert remedy in first


def test_the_help_has_flink_s_names_without_those_that_are_refused(shell: Shell) -> None:
    of_python = ("-py", "-pym", "-pyfs", "-pyarch", "-pyreq", "-pyexec")
    of_jobs = ("-cm", "-d", "-sae")
    for command, names, others in (
        ("run", (*of_python, *of_jobs), ()),
        ("info", of_python, of_jobs),
    ):
        text = shell(command, "--help").out
        assert [name for name in names if f"  {name}, --" not in text] == []
        assert [name for name in others if f"  {name}, --" in text] == []
        for name in ("--class", "--pyClientExecutable", "--pyPythonPath"):
            assert name not in text


def test_a_script_finds_the_id_of_the_job_of_a_daemon_in_flink_s_line(
    shell: Shell, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = DeployedCluster("http://127.0.0.1:8081", job_id="0a" * 16, pid=7, log_folder="/logs")
    waits = DeployedCluster(leader="first", pid=7, log_folder="/logs")
    deployed = iter([runs, runs, waits])
    monkeypatch.setattr(
        DaemonClusterDescriptor, "deploy_application_cluster", lambda *_, **__: next(deployed)
    )
    line = f"Job has been submitted with JobID {'0a' * 16}"
    shown = shell("run", "-d", str(program))
    assert (shown.code, shown.lines[0]) == (0, line), shown.err
    assert f"job {'0a' * 16} runs in process 7" in shown.lines
    assert json.loads(shell("run", "-d", "--json", str(program)).out)["jobs"] == [
        {"job-id": "0a" * 16}
    ]
    # No job, no line.
    assert "submitted" not in shell("run", "-d", str(program)).out


def test_a_daemon_is_told_the_module(
    shell: Shell, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Program] = []

    def note(of: Program, *_: Any, **__: Any) -> int:
        told.append(of)
        return 0

    monkeypatch.setattr("headrace.cli.daemon.detached_run.run_detached", note)
    assert shell("run", "-d", "-pyfs", str(program), "-pym", program.stem).code == 0
    assert shell("run", "-d", str(program)).code == 0
    assert told == [Program(Path(), (), program.stem), Program(program)]
