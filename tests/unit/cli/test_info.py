"""`headrace info`: the plan of a program, which goes no further than its first `execute()`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.api.executors import active_executor, default_settings
from tests.unit.cli.shell import Shell

PROGRAM = """\
import sys
from headrace import StreamExecutionEnvironment
print("said by the program", sys.argv[1:])
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2]).map(str).print()
try:
    env.execute("numbers")
except Exception:
    print("caught")
print("never said")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.py"
    path.write_text(PROGRAM)
    return path


def test_the_plan_stands_under_flink_s_title(shell: Shell, program: Path) -> None:
    outcome = shell("info", "-p", "3", str(program), "--year", "2013")
    title, plan, *rest = outcome.lines
    assert title == "----------------------- Execution Plan -----------------------"
    assert rest == ["-" * 62, "", "No description provided."]
    nodes = json.loads(plan)["nodes"]
    assert {node["parallelism"] for node in nodes} <= {1, 3}
    assert [node["pact"] for node in nodes][-1] == "Data Sink"
    assert outcome.err == "said by the program ['--year', '2013']\n"
    assert outcome.code == 0


def test_nothing_is_left_behind(shell: Shell, program: Path) -> None:
    shell("info", "-p", "3", str(program))
    assert active_executor() is None
    assert default_settings() == {}


def test_json_is_the_plan_alone(shell: Shell, program: Path) -> None:
    assert "nodes" in json.loads(shell("info", "--json", str(program)).out)


def test_a_module_of_an_archive_is_run_by_its_name(shell: Shell, tmp_path: Path) -> None:
    import zipfile

    archive = tmp_path / "jobs.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("flights.py", PROGRAM)
    assert "nodes" in json.loads(shell("info", "--json", "-c", "flights", str(archive)).out)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("print(1)", "it never called env.execute()"),
        ("import sys; sys.exit(3)", "the program exited (3) before it called env.execute()"),
        ("1 / 0", "error: ZeroDivisionError: division by zero"),
    ],
)
def test_a_program_without_a_job_is_told(
    shell: Shell,
    program: Path,
    text: str,
    says: str,
) -> None:
    program.write_text(text)
    outcome = shell("info", str(program))
    assert (outcome.code, says in outcome.err) == (1, True), outcome.err
    assert active_executor() is None


@pytest.mark.slow
def test_spark_is_not_started(program: Path) -> None:
    script = (
        "import sys\nfrom headrace.cli.main import main\n"
        f"try:\n    main(['info', {str(program)!r}])\nexcept SystemExit: pass\n"
        "gateway = sys.modules.get('pyspark')\n"
        "print(gateway is None or gateway.SparkContext._active_spark_context is None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "True"
