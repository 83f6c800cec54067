"""The command line: what options mean, what help teaches, how failures look and which code they end with."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headrace.api import executors
from headrace.api.client.program_end import JobLeftBehindError
from headrace.cli.logs import describe
from headrace.cli.main import COMMANDS, cli, main
from headrace.cli.program_options import ProgramOptions
from headrace.cli.run import run
from headrace.core.errors import UserCodeError
from headrace.core.lifecycle import JobStatus

OWN = "pipeline.global-job-parameters.a"


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

    def known_parallelism(self) -> int:
        return self.default_parallelism()

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RecordingExecutor]]:
    RecordingExecutor.made = []
    monkeypatch.setattr("headrace.cli.run.create_executor", RecordingExecutor)
    yield RecordingExecutor.made
    executors.set_active_executor(None)
    executors.set_default_settings({})


def test_the_package_run_as_a_module_is_the_command_line() -> None:
    command = [sys.executable, "-m", "headrace", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("headrace, version ")


PRINTS = "env = headrace.StreamExecutionEnvironment.get_execution_environment()\nenv.from_collection([1]).print()\n"


def ending(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, int]:
    """Run the command line; return the first line on standard error and the exit code."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    first, *_ = [*capsys.readouterr().err.splitlines(), ""]
    assert isinstance(ended.value.code, int)
    return first, ended.value.code


def test_an_option_in_front_of_a_command_is_told_where_it_belongs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line, code = ending(capsys, "-m", "localhost:8081", "list")
    assert code == 1
    assert "-m must come after the command" in line


def program(directory: Path, text: str) -> str:
    path = directory / "program.py"
    path.write_text(text)
    return str(path)


def test_options_become_settings_and_win_over_definitions() -> None:
    definitions = (("parallelism.default", "1"), ("spark.executor.memory", "2g"))
    options = ProgramOptions(definitions, parallelism=4)
    assert options.settings(master="local[3]") == {
        "headrace.spark.master": "local[3]",
        "parallelism.default": "4",
        "spark.executor.memory": "2g",
    }


def test_definitions_are_taken_and_refused_as_a_configuration_is(
    tmp_path: Path, made: list[RecordingExecutor], capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = program(tmp_path, "print('ran')")
    idle = ("-D", "python.fn-execution.bundle.size=10", "-D", "python.execution-mode=thread")
    assert ending(capsys, "run", *idle, quiet) == ("", 0)
    with pytest.raises(SystemExit) as ended:
        main(("run", "-D", "execution.buffer-timeout=-5", quiet))
    assert ended.value.code == 1
    assert "has the value '-5': it must be at least -1 ms" in capsys.readouterr().err
    assert len(made) == 1


def test_help_teaches_with_examples() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    assert "headrace run -p 4 wordcount.py" in result.output
    assert "Exit codes" in result.output


@pytest.mark.parametrize("group", [[], ["cluster"], ["job"]])
def test_without_a_command_there_is_help_and_no_error(
    group: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    first, code = ending(capsys, *group)
    assert first.startswith("Usage: headrace")
    assert code == 1


def test_lists_of_commands_say_each_in_a_whole_sentence() -> None:
    for group in ([], ["checkpoint"], ["savepoint"]):
        _, _, commands = CliRunner().invoke(cli, [*group, "--help"]).output.partition("Commands:")
        assert commands.strip()
        assert "..." not in commands


def test_options_are_found_by_words_of_their_keys_and_meanings() -> None:
    result = CliRunner().invoke(cli, ["options", "restart", "BACKOFF", "longest"])
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "restart-strategy.exponential-delay.max-backoff  (duration, default: 1 min)",
        "    Longest pause before a restart.",
    ]


def test_all_options_are_listed_those_of_the_host_too() -> None:
    result = CliRunner().invoke(cli, ["options"])
    heads = [line for line in result.output.splitlines() if not line.startswith(" ")]
    assert {"headrace.spark.master", "state.backend.type"} <= {head.split()[0] for head in heads}
    assert all("default: " in head for head in heads)


def test_options_as_json_are_one_document() -> None:
    result = CliRunner().invoke(
        cli, ["options", "--json", "restart-strategy.exponential-delay.max"]
    )
    assert json.loads(result.output) == [
        {
            "key": "restart-strategy.exponential-delay.max-backoff",
            "type": "duration",
            "default": "1 min",
            "doc": "Longest pause before a restart.",
            "choices": [],
        }
    ]


def every_command() -> Iterator[tuple[str, ...]]:
    for name in COMMANDS:
        yield (name,)
    for group in ("savepoint", "checkpoint", "trace"):
        command = cli.get_command(click.Context(cli), group)
        assert isinstance(command, click.Group)
        for name in command.list_commands(click.Context(command)):
            yield group, name


def leaves(
    group: click.Group, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that a shell has for it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, (*words, name))
        else:
            yield (*words, name), command


LEAVES = dict(leaves(cli))
WITHOUT_JSON = {("completion",): "it prints a script, which a shell runs"}
"""Commands without `--json`, and why."""


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_takes_json_or_has_a_reason_not_to(words: tuple[str, ...]) -> None:
    command = LEAVES[words]
    # As a shell gives it: an option that is declared and never parsed would not count.
    context = click.Context(command, info_name=" ".join(words), resilient_parsing=True)
    try:
        found, _, _ = command.make_parser(context).parse_args(["--json"])
    except click.NoSuchOption:
        found = {}
    takes_json = True in found.values()
    assert takes_json == (words not in WITHOUT_JSON), " ".join(words)


def test_reasons_are_given_of_commands_that_there_are() -> None:
    assert len(LEAVES) > 40
    assert set(WITHOUT_JSON) <= set(LEAVES)


def test_a_run_as_json_prints_one_document_and_all_else_on_standard_error(
    made: list[RecordingExecutor], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = program(tmp_path, "import os\nprint('of the program')\nos.system('echo of a child')\n")
    with pytest.raises(SystemExit) as ended:
        main(["run", "--json", path])
    told = capfd.readouterr()
    assert json.loads(told.out) == {"exit-code": 0, "jobs": [], "errors": []}
    assert {"of the program", "of a child"} <= set(told.err.splitlines())
    assert (ended.value.code, made[0].is_closed) == (0, True)


def test_a_run_as_json_that_fails_says_why_in_its_document(
    made: list[RecordingExecutor], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = program(tmp_path, "raise ValueError('no such airport')\n")
    with pytest.raises(SystemExit) as ended:
        main(["run", "--json", path])
    told = capfd.readouterr()
    assert json.loads(told.out) == {
        "exit-code": 1,
        "jobs": [],
        "errors": [f"ValueError: no such airport ({path}, line 1, in <module>)"],
    }
    assert ended.value.code == 1
    print("standard output is as it was")
    assert capfd.readouterr().out == "standard output is as it was\n"


def test_json_of_the_program_is_not_that_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = ["--python-files", "rules.py"]
    cases = ((["--json"], True), ([], False), ([*python, "--json"], True), (python, False))
    for before, answered in cases:
        with pytest.raises(SystemExit) as ended:
            main(["run", *before, str(tmp_path / "missing.py"), "--json"])
        told = capsys.readouterr()
        assert (ended.value.code, bool(told.out)) == (1, answered)
        assert told.err.startswith("error: there is no program")


@pytest.mark.parametrize("words", list(every_command()), ids=" ".join)
def test_the_help_of_every_command_has_examples_that_begin_with_its_name(
    words: tuple[str, ...],
) -> None:
    result = CliRunner().invoke(cli, [*words, "--help"])
    assert result.exit_code == 0
    # The commands for snapshots are in two groups.
    name = words[-1] if words[0] in ("savepoint", "checkpoint") else " ".join(words)
    _, _, examples = result.output.partition("Try it")
    examples = examples or result.output.partition("Examples")[2]
    if words[-1] == "trigger":
        name = words[0]
    assert (
        any(
            line.lstrip().startswith("headrace ") and name in line for line in examples.splitlines()
        )
        or f"<(headrace {name}" in examples
    )


def test_the_page_of_the_command_line_names_every_command() -> None:
    page = (Path(__file__).parents[3] / "docs" / "command_line.md").read_text()
    assert [name for name in COMMANDS if f"headrace {name}" not in page] == []


def test_words_that_no_option_has_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    first, code = ending(capsys, "options", "restart", "bananas")
    assert code == 1
    assert first.startswith("error: no option has 'restart' and 'bananas' in its key or meaning")


def test_the_display_shows_the_last_state_before_the_cluster_ends(
    made: list[RecordingExecutor], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    was_closed: list[bool] = []

    class Display:
        def watch(self, client: object) -> None:
            raise AssertionError("no job was submitted")

        def stop(self) -> None:
            was_closed.append(made[0].is_closed)

    monkeypatch.setattr("headrace.cli.progress.ProgressDisplay.choose", lambda wanted: Display())
    (tmp_path / "program.py").write_text("")
    with pytest.raises(SystemExit) as ended:
        main(["run", "--progress", str(tmp_path / "program.py")])
    assert (ended.value.code, was_closed, made[0].is_closed) == (0, [False], True)


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
    result = CliRunner().invoke(
        run, ["-D", f"{OWN}=b", path, "--year", "2013"], standalone_mode=False
    )
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
    result = CliRunner().invoke(run, ["-D", f"{OWN}=b", path], standalone_mode=False)
    assert result.output == f"{{'{OWN}': 'b'}}\n"


def test_a_definition_without_an_equals_sign_is_wrong_usage(
    made: list[RecordingExecutor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, code = ending(capsys, "run", "-D", "nonsense", program(tmp_path, ""))
    assert code == 1
    assert "'nonsense' is not of the form key=value" in first


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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--bogus"], "No such option '--bogus'"),
        (["--paralelism", "2"], "--parallelism"),
        (["-p", "0"], "0 is not in the range"),
        (["-p", "two"], "'two' is not a valid integer"),
        (["-D", "paralelism.default=2"], "did you mean parallelism.default?"),
        (["-D", "jobmanager.rpc.prot=2"], "did you mean jobmanager.rpc.port"),
        (["--master", "foo"], "'foo' is not a Spark master: use local[n]"),
        (["-D", "spark.master=local[0]"], "'local[0]' is not a Spark master"),
        (["-D", "slots=2"], "did you mean headrace.spark.slots?"),
        (["-D", "taskmanager.resource-id=one"], "two with one name would replace each other"),
        (["-D", "parallelism.default=two"], "'two': this is not of type int"),
        (["-D", "slot.request.timeout=soon"], "'soon': this is not a duration"),
        (["-D", "state.backend.type=rocks"], "'rocks': it must be one of hashmap, rocksdb"),
        (["-D", "restart-strategy.type=always"], "'always': it must be one of none, fixed-delay,"),
        (["-D", "execution.checkpointing.interval=5 ms"], "it must be at least 10 ms or 0 ms"),
        (["-D", "execution.checkpointing.timeout=0 s"], "it must be at least 10 ms"),
        (["-D", "shuffle-service-factory.class=nonsense"], "known names: credit-based, remote"),
    ],
)
def test_a_wrong_option_is_told_in_the_first_line_and_is_wrong_usage(
    made: list[RecordingExecutor],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    says: str,
) -> None:
    first, code = ending(capsys, "run", *options, program(tmp_path, "print('ran')"))
    assert (first.startswith("error: "), code) == (True, 1), first
    assert says in first
    assert not made


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("wordcont.py", "there is no program '{}/wordcont.py'; did you mean '{}/wordcount.py'?"),
        ("absent/job.py", "there is no folder '{}/absent'"),
        ("", "'{}' is a folder: name the program in it, such as {}/wordcount.py"),
        ("notes.txt", "'{}/notes.txt' is not a Python program"),
        ("job.jar", "'{}/job.jar' is a Java archive, and Headrace runs Python programs"),
        ("bytes", "'{}/bytes' is not a Python program"),
    ],
)
def test_what_is_no_program_is_told_and_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, says: str
) -> None:
    (tmp_path / "wordcount.py").write_text("")
    (tmp_path / "notes.txt").write_text("Dear reader, this is no program")
    (tmp_path / "job.jar").touch()
    (tmp_path / "bytes").write_bytes(bytes(range(256)))
    path = str(tmp_path / name) if name else str(tmp_path)
    first, code = ending(capsys, "run", path)
    assert says.replace("{}", str(tmp_path)) in first
    assert code == 1


def test_a_program_without_the_command_is_told_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    first, code = ending(capsys, "job.py")
    assert (first, code) == (
        "error: 'job.py' is not a command: run a program with 'headrace run job.py'",
        1,
    )


def test_a_program_that_never_calls_execute_is_refused_at_its_end(
    made: list[RecordingExecutor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = program(tmp_path, "import headrace\n" + PRINTS)
    first, code = ending(capsys, "run", path)
    assert first == (
        f"error: the program ended without running 'Print to Std. Out' ({path}, line 3): call env.execute()"
    )
    assert code == 1


def test_a_program_without_a_sink_that_never_calls_execute_is_refused_too(
    made: list[RecordingExecutor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    maps = "import headrace\n" + PRINTS.replace(".print()", ".map(str)")
    first, code = ending(capsys, "run", program(tmp_path, maps))
    assert "the program ended without running 'Map'" in first
    assert code == 1
    # A program that made a plan may have said more than it needs.
    runs = "import headrace\n" + PRINTS + "env.explain()\nenv.from_collection([1]).map(str)\n"
    assert ending(capsys, "run", program(tmp_path, runs))[1] == 0


def test_a_program_that_only_explains_its_plan_is_fine(
    made: list[RecordingExecutor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = program(tmp_path, "import headrace\n" + PRINTS + "print(env.explain())\n")
    assert ending(capsys, "run", path)[1] == 0


@pytest.mark.parametrize(
    ("ending_of_program", "code"), [("", 1), ("import sys; sys.exit(3)\n", 3), ("1 / 0\n", 1)]
)
def test_a_job_that_the_program_left_behind_is_told_and_is_a_failure(
    made: list[RecordingExecutor],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ending_of_program: str,
    code: int,
) -> None:
    left = JobLeftBehindError("0a", "hours", JobStatus.RUNNING)
    monkeypatch.setattr("headrace.cli.program_run.left_jobs", lambda: [left])
    with pytest.raises(SystemExit) as ended:
        main(("run", program(tmp_path, ending_of_program)))
    assert ended.value.code == code
    assert "error: job 'hours' (0a) was still RUNNING" in capsys.readouterr().err
    assert made[0].is_closed


def test_a_mistake_in_the_program_s_graph_names_the_user_s_line(
    made: list[RecordingExecutor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = program(tmp_path, "import headrace\n" + PRINTS + "env.execute_async()\n")
    Path(path).write_text("import headrace\n" + PRINTS.replace(".print()", ".key_by('k')"))
    first, code = ending(capsys, "run", path)
    assert first.startswith("error: key_by needs a stream with columns")
    assert first.endswith(f"({path}, line 3)")
    assert code == 1


def test_python_files_are_the_same_wherever_the_program_goes(
    made: list[RecordingExecutor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "rules.py").write_text("")
    path = program(
        tmp_path,
        "from headrace.api.executors import default_settings\nprint(default_settings()['python.files'])\n",
    )
    result = CliRunner().invoke(run, ["--python-files", "rules.py", path], standalone_mode=False)
    assert result.output == f"{tmp_path / 'rules.py'}\n"


def test_an_exception_from_python_s_own_library_names_the_user_s_line(
    made: list[RecordingExecutor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = program(tmp_path, "import json\njson.loads('')\n")
    first, _ = ending(capsys, "run", path)
    assert first.startswith("error: JSONDecodeError: Expecting value")
    assert first.endswith(f"({path}, line 2, in <module>)")
