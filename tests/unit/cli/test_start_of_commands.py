"""Commands start quickly, because they import next to nothing before they need it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import headrace.__main__
from headrace.cli.main import COMMANDS, job
from tests.unit.cli.jobs.answers import COMMAND_LINES, OF_EVERY_COMMAND, ONE_RUNNING
from tests.unit.rest.fake_cluster import fake_cluster, home_of

HEAVY = (
    "pyspark",
    "py4j",
    "pyarrow",
    "numpy",
    "pandas",
    "pydantic",
    "fastapi",
    "uvicorn",
    "uvloop",
    "cloudpickle",
)
ENTRY = headrace.__main__.__file__
OF_CLUSTERS = sorted(name for name, entry in COMMANDS.items() if ".cli.jobs." in entry.place)


def imported_by(*arguments: str, wanted_code: int = 0) -> list[str]:
    """Run a command in a new interpreter, and return which of HEAVY it has imported by its end."""
    script = (
        "import sys\nfrom headrace.cli.main import main\n"
        f"try:\n    main({list(arguments)!r})\nexcept SystemExit as ended:\n    code = ended.code\n"
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    code, _, names = done.stderr.splitlines()[-1].partition(" ")
    assert code == str(wanted_code), done.stderr
    return names.strip("[]").replace("'", "").split(", ") if names != "[]" else []


def test_a_list_of_jobs_imports_neither_spark_nor_arrow_nor_pydantic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_cluster(ONE_RUNNING) as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        assert imported_by("list") == []
        assert imported_by("list", "--json", "-D", "client.timeout=5 s") == []


def test_there_is_a_line_of_every_command_for_jobs() -> None:
    assert sorted(COMMAND_LINES) == OF_CLUSTERS


@pytest.mark.parametrize("command", COMMAND_LINES)
def test_no_command_for_jobs_imports_them_while_it_does_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    with fake_cluster(OF_EVERY_COMMAND) as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        assert imported_by(command, *COMMAND_LINES[command]) == []
        assert len(cluster.requests) > 0


def test_a_word_in_front_leads_to_the_same_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(job.list_commands(click.Context(job))) == OF_CLUSTERS
    with fake_cluster(OF_EVERY_COMMAND) as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        assert imported_by("job", "list") == []


@pytest.mark.parametrize("command", ["list", "info", "stop"])
def test_of_the_commands_for_whole_clusters_only_the_start_of_one_does(command: str) -> None:
    assert imported_by("cluster", command, "--help") == []


@pytest.mark.parametrize("command", ["list", "info"])
def test_a_list_of_clusters_imports_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    with fake_cluster(OF_EVERY_COMMAND) as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        assert imported_by("cluster", command) == []


@pytest.mark.parametrize(
    "arguments", [("--help",), ("completion", "bash"), ("savepoint", "--help")]
)
def test_neither_do_help_and_completion(arguments: tuple[str, ...]) -> None:
    assert imported_by(*arguments) == []


@pytest.mark.parametrize("command", ["info", "run"])
def test_a_command_for_programs_imports_none_of_them_before_it_has_a_program(
    tmp_path: Path, command: str
) -> None:
    missing = str(tmp_path / "missing.py")
    assert imported_by(command, "--help") == []
    assert imported_by(command, missing, wanted_code=1) == []
    assert imported_by(command, "-Dpipeline.name=mine", missing, wanted_code=1) == []
    assert imported_by(command, "-c", "Main", missing, wanted_code=1) == []


def test_the_plan_of_a_program_without_streams_imports_none_of_them(tmp_path: Path) -> None:
    program, noted = tmp_path / "program.py", tmp_path / "noted.txt"
    program.write_text(
        "import sys\n"
        f"found = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "with open(sys.argv[1], 'w') as out:\n    print(found, file=out)\n"
    )
    words = ("-p", "2", "-Dpipeline.operator-chaining.enabled=false")
    assert imported_by("info", *words, str(program), str(noted), wanted_code=1) == []
    assert noted.read_text() == "[]\n"


def modules_after(*arguments: str) -> set[str]:
    """Run an interpreter on a command's or a program's file, and return the modules that it has at its end."""
    script = (
        "import runpy, sys\nsys.argv = sys.argv[1:]\n"
        "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally:\n    print('MODULES', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    [line] = [line for line in done.stderr.splitlines() if line.startswith("MODULES ")]
    return set(line.split()[1:])


def test_a_command_for_jobs_imports_fewer_than_400_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds are measured by `benchmarks/commands.py`; modules are what takes them, on any machine."""
    with fake_cluster(OF_EVERY_COMMAND) as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        counts = {
            command: len(modules_after(ENTRY, command, *words))
            for command, words in COMMAND_LINES.items()
        }
    assert {command: count for command, count in counts.items() if count >= 400} == {}


PROGRAM = """
from headrace import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3]).map(lambda number: number + 1).print()
"""


def test_a_plan_needs_no_spark(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"{PROGRAM}env.execute()\n")
    assert {"pyspark", "py4j", "pydantic", "fastapi", "uvicorn"}.isdisjoint(
        imported_by("info", str(program))
    )


def test_a_plan_imports_fewer_than_150_modules_more_than_its_program(tmp_path: Path) -> None:
    program, alone = tmp_path / "program.py", tmp_path / "alone.py"
    program.write_text(f"{PROGRAM}env.execute()\n")
    alone.write_text(PROGRAM)
    more = modules_after(ENTRY, "info", str(program)) - modules_after(str(alone))
    assert 0 < len(more) < 150


def test_ctrl_c_ends_a_command_whose_modules_are_still_being_imported(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "list"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        # As in a terminal, also where these tests run in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
