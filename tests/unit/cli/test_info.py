"""`headrace info`: the plan of a program, which goes no further than its first `execute()`."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headrace.api.executors import active_executor, default_settings
from tests.unit.cli.shell import Shell

ROOT = Path(__file__).parents[3]
EXAMPLES = [
    path
    for path in sorted((ROOT / "examples").glob("*.py"))
    if "env.execute(" in path.read_text() and "pyspark" not in path.read_text()
]
"""Programs with a job and without DataFrames."""
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
    for words in (("-p", "3"), ("-t", "yarn", "-p", "3")):
        shell("info", *words, str(program))
        assert active_executor() is None
        assert default_settings() == {}


def test_json_is_the_plan_alone(shell: Shell, program: Path) -> None:
    assert "nodes" in json.loads(shell("info", "--json", str(program)).out)


def test_it_takes_flink_s_options_of_python(
    shell: Shell, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = json.loads(shell("info", "--json", str(program)).out)
    # Options that look like ours are the program's, behind its name.
    words = ["--input", "a.csv", "-p", "7", "--json"]
    named = shell("info", "--json", "-d", "-sae", "-py", str(program), *words)
    assert (named.err, json.loads(named.out)) == (f"said by the program {words}\n", plan)
    monkeypatch.chdir(tmp_path)
    for name in ("a.zip", "all.txt"):
        (tmp_path / name).touch()
    others = ("-pyarch", "a.zip", "-pyreq", "all.txt", "-pyexec", sys.executable)
    folder = tmp_path / "modules"
    folder.mkdir()
    module = program.rename(folder / "program_of_a_module.py")
    monkeypatch.setattr(sys, "path", list(sys.path))
    of_module = shell("info", "--json", *others, "-pyfs", str(module), "-pym", module.stem, *words)
    assert (of_module.err, json.loads(of_module.out)) == (named.err, plan)


def test_a_program_is_named_once(shell: Shell, program: Path) -> None:
    outcome = shell("info", "-py", str(program), "-pym", "numbers")
    assert (outcome.code, outcome.err.splitlines()[0]) == (
        1,
        "error: -py and -pym both name the program: give one of them",
    )


def test_it_takes_flink_s_general_options_and_asks_no_cluster(shell: Shell, program: Path) -> None:
    plan = json.loads(shell("info", "--json", "-p", "3", str(program)).out)
    nobody = ("-m", "127.0.0.1:1", "-t", "remote")
    highly_available = ("-D", "high-availability.type=file", "-z", "nightly")
    outcome = shell("info", "-v", *nobody, *highly_available, "--json", "-p", "3", str(program))
    assert (outcome.code, json.loads(outcome.out)) == (0, plan), outcome.err
    assert json.loads(shell("info", "--json", "-t", "session", "-p", "3", str(program)).out) == plan


def test_a_program_sees_where_it_would_run(shell: Shell, program: Path) -> None:
    program.write_text(
        "from headrace.api.executors import default_settings\nprint(default_settings())\n" + PROGRAM
    )
    outcome = shell("info", "-m", "127.0.0.1:1", str(program))
    assert "'execution.target': 'remote', 'rest.address': '127.0.0.1:1'" in outcome.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--bogus",), "No such option '--bogus'"),
        (("-t", "yarn"), "'execution.target' has the value 'yarn'"),
        (("-m", "127.0.0.1:1", "-t", "local"), "-m needs --target remote"),
        (("-z", "nightly"), "-z needs high availability"),
    ],
)
def test_wrong_usage_ends_it_as_flink_s(
    shell: Shell, program: Path, words: tuple[str, ...], says: str
) -> None:
    outcome = shell("info", *words, str(program))
    assert (outcome.code, says in outcome.err.splitlines()[0]) == (1, True), outcome.err


def test_a_module_is_looked_for_in_its_folder_and_not_around_it(
    shell: Shell, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = program.parent / "inside"
    folder.mkdir()
    (folder / "program_inside.py").write_text("import sys\nprint(sys.path[:2])\n" + PROGRAM)
    monkeypatch.chdir(folder)
    shown = shell("info", "-pym", "program_inside").err.splitlines()[0]
    assert repr(str(folder)) in shown
    assert repr(str(folder.parent)) not in shown


def test_a_program_s_own_error_of_usage_is_not_ours(shell: Shell, program: Path) -> None:
    program.write_text("import click\nraise click.UsageError('give a year')\n")
    outcome = shell("info", str(program))
    assert outcome.code == 1
    assert outcome.err.startswith("error: the program failed: UsageError: give a year")


def test_json_without_a_program_says_what_is_missing_in_its_document(shell: Shell) -> None:
    outcome = shell("info", "--json")
    assert outcome.code == 1
    assert json.loads(outcome.out) == {"errors": ["Missing argument 'PROGRAM'."]}
    assert outcome.err.startswith("error: Missing argument 'PROGRAM'.\nUsage: headrace info")


def test_json_of_a_program_without_a_job_is_its_error(shell: Shell, program: Path) -> None:
    for text, says in (("1 / 0", "ZeroDivisionError: division by zero"), ("0", "it never called")):
        program.write_text(text)
        outcome = shell("info", "--json", str(program))
        (error,) = json.loads(outcome.out)["errors"]
        assert (outcome.code, says in error) == (1, True)


def test_a_module_of_an_archive_is_run_by_its_name(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    archive = tmp_path / "jobs.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("flights_of_an_archive.py", PROGRAM)
    words = ("-pyfs", str(archive), "-pym", "flights_of_an_archive")
    assert "nodes" in json.loads(shell("info", "--json", *words).out)


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


def imported_by_info(program: Path, *options: str) -> tuple[str, list[str]]:
    """Plan a program in a new interpreter; return the plan's document, and what it has imported of PySpark."""
    script = (
        "import sys\nfrom headrace.cli.main import main\n"
        f"try:\n    main(['info', '--json', *{list(options)!r}, {str(program)!r}])\n"
        "except SystemExit as ended:\n    code = ended.code\n"
        "names = sorted({'pyspark', 'py4j'} & set(sys.modules))\n"
        "print(code, *names, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    code, *names = done.stderr.splitlines()[-1].split()
    assert code == "0", done.stderr
    return done.stdout, names


def test_a_plan_needs_no_pyspark(program: Path) -> None:
    plan, names = imported_by_info(program, "-D", "headrace.spark.master=local[4]")
    # Of four threads one is kept for Spark's own jobs.
    assert {node["parallelism"] for node in json.loads(plan)["nodes"]} == {1, 3}
    assert names == []


def test_a_program_that_has_imported_pyspark_has_its_plan_too(program: Path) -> None:
    program.write_text(f"import pyspark\n{PROGRAM}")
    plan, names = imported_by_info(program, "-p", "2")
    assert {node["parallelism"] for node in json.loads(plan)["nodes"]} == {1, 2}
    assert "pyspark" in names


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_plan_of_an_example_without_dataframes_imports_no_pyspark(example: Path) -> None:
    plan, names = imported_by_info(example)
    assert json.loads(plan)["nodes"]
    assert names == []


def test_there_are_examples_without_dataframes() -> None:
    assert len(EXAMPLES) >= 4


def test_files_that_the_job_would_take_along_must_be_there(
    shell: Shell, program: Path, tmp_path: Path
) -> None:
    gone = shell("info", "-pyarch", f"{tmp_path}/models.zip#models", str(program))
    assert gone.code == 1
    assert "'python.archives' has the value" in gone.err and "models.zip" in gone.err
