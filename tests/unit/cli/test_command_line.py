"""The command line: what options mean, what help teaches, how failures look and which code they end with."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.api import executors
from headrace.cli.failures import describe
from headrace.cli.main import cli
from headrace.cli.run import run, run_settings
from headrace.core.errors import UserCodeError


class RecordingExecutor:
    """An executor that runs nothing."""

    name = "recording"
    made: "list[RecordingExecutor]" = []  # noqa: RUF012

    def __init__(self, settings: object) -> None:
        self.settings = settings
        self.is_closed = False
        self.made.append(self)

    def submit(self, job_graph: object) -> object:
        raise AssertionError("nothing is submitted here")

    def default_parallelism(self) -> int:
        return 1

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[RecordingExecutor]:
    RecordingExecutor.made = []
    monkeypatch.setattr("headrace.cli.run.create_executor", RecordingExecutor)
    yield RecordingExecutor.made
    executors.set_active_executor(None)
    executors.set_default_settings({})


def program(directory: Path, text: str) -> str:
    path = directory / "program.py"
    path.write_text(text)
    return str(path)


def test_options_become_settings_and_win_over_definitions() -> None:
    settings = run_settings(
        "local[3]", 4, {"parallelism.default": "1", "spark.executor.memory": "2g"}, "lib,rules.py"
    )
    assert settings == {
        "headrace.spark.master": "local[3]",
        "parallelism.default": "4",
        "spark.executor.memory": "2g",
        "python.files": "lib,rules.py",
    }


def test_help_teaches_with_examples() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    assert "headrace run -p 4 wordcount.py" in result.output
    assert "Exit codes" in result.output


def test_help_does_not_load_spark() -> None:
    script = (
        "import sys\nfrom click.testing import CliRunner\nfrom headrace.cli.main import cli\n"
        "CliRunner().invoke(cli, ['--help'])\nprint('pyspark' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_program_sees_its_arguments_and_its_own_folder(
    made: list[RecordingExecutor], tmp_path: Path
) -> None:
    (tmp_path / "rules.py").write_text("LIMIT = 3\n")
    path = program(tmp_path, "import sys, rules\nprint(__name__, sys.argv[1:], rules.LIMIT)\n")
    result = CliRunner().invoke(run, ["-D", "a=b", path, "--year", "2013"], standalone_mode=False)
    assert result.output == "__main__ ['--year', '2013'] 3\n"
    assert result.return_value == 0
    assert made[0].is_closed


def test_definitions_reach_the_environments_of_the_program(
    made: list[RecordingExecutor], tmp_path: Path
) -> None:
    path = program(
        tmp_path,
        "from headrace.api.executors import default_settings\nprint(default_settings())\n",
    )
    result = CliRunner().invoke(run, ["-D", "a=b", path], standalone_mode=False)
    assert result.output == "{'a': 'b'}\n"


def test_a_definition_without_an_equals_sign_is_wrong_usage(
    made: list[RecordingExecutor], tmp_path: Path
) -> None:
    result = CliRunner().invoke(cli, ["run", "-D", "nonsense", program(tmp_path, "")])
    assert result.exit_code == 2
    assert "'nonsense' is not of the form key=value" in result.output


def test_an_exception_names_the_user_s_line_first_and_the_executor_is_closed(
    made: list[RecordingExecutor], tmp_path: Path
) -> None:
    path = program(tmp_path, "x = 1\nraise ValueError('no such airport')\n")
    result = CliRunner().invoke(run, [path], standalone_mode=False)
    assert result.return_value == 1
    first = result.stderr.splitlines()[0]
    assert first == f"error: ValueError: no such airport ({path}, line 2, in <module>)"
    assert made[0].is_closed


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit()", 0),
        ("raise KeyboardInterrupt", 130),
    ],
)
def test_the_program_s_own_exit_is_passed_on(
    made: list[RecordingExecutor], tmp_path: Path, statement: str, code: int
) -> None:
    result = CliRunner().invoke(run, [program(tmp_path, statement)], standalone_mode=False)
    assert result.return_value == code
    assert made[0].is_closed


def test_our_own_errors_are_shown_as_they_speak() -> None:
    error = UserCodeError("KeyError", "'JFK'", "Map", "job.py, line 9", "Traceback\n  ...")
    first, *rest = describe(error, wants_details=False)
    assert first == "KeyError: 'JFK' (in operator 'Map', job.py, line 9)"
    assert rest == ["Traceback", "  ..."]
