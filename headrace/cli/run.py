"""`headrace run program.py`: runs a program in this process, on its own Spark application (application mode)."""

import contextlib
import difflib
import os
import runpy
import sys
import zipfile
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import click

from headrace.api.client.job_client import JobClient
from headrace.api.client.program_end import (
    EXIT_TERMINATED,
    Terminated,
    await_left_jobs,
    end_in_order_when_terminated,
    forget_jobs,
    ignore_termination,
    left_jobs,
    program_begins,
    unexecuted_operator,
    unexecuted_text,
)
from headrace.api.executors import (
    ATTACHED,
    TARGET,
    PipelineExecutor,
    create_executor,
    executor_name,
    runs_elsewhere,
    set_active_executor,
    set_default_settings,
)
from headrace.api.settings.python_files import python_files
from headrace.checkpoint.options import (
    IGNORE_UNCLAIMED_STATE,
    RECOVERY_CLAIM_MODE,
    RECOVERY_PATH,
)
from headrace.checkpoint.storage.file_systems import absolute_uri
from headrace.cli.logs import EXIT_FAILED, EXIT_INTERRUPTED, configure_logs, report_failure
from headrace.cli.options import KeyValue, json_option, print_json, refuse_unusable
from headrace.cli.progress import ProgressDisplay
from headrace.core.config import Settings
from headrace.core.error_text import describe
from headrace.core.errors import HeadraceError, ProgramError
from headrace.core.process.interpreter import put_on_path
from headrace.graph.pipeline_options import PARALLELISM, PYTHON_FILES
from headrace.rest.connections import find_session
from headrace.rest.options import REST_ADDRESS

REMOTE: Final = "remote"
"""Name of the executor of clusters that run already."""
SESSION: Final = "session"
_ASK_TIMEOUT_S: Final = 10.0
_PYTHON_SUFFIXES: Final = (".py", ".pyc", ".pyw")


class ProgramPath(click.ParamType[Path]):
    """An existing file that Python can run. Python itself reports mistakes inside it."""

    name = "program"

    def convert(
        self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        path = Path(value)
        problem = _problem_of(path)
        if problem:
            raise click.UsageError(problem, ctx)
        return path


def _problem_of(path: Path) -> str:
    try:
        if path.is_dir():
            programs = sorted(one.name for one in path.glob("*.py"))[:3]
            inside = f", such as {path / programs[0]}" if programs else ""
            return f"'{path}' is a folder: name the program in it{inside}"
        if not path.exists():
            return f"there is no program '{path}'{_suggestion(path)}"
        if not path.is_file():
            return ""
        source = path.read_bytes()
    except OSError as error:
        return f"the program '{path}' cannot be read: {error.strerror}"
    if path.suffix == ".jar":
        return f"'{path}' is a Java archive, and Headrace runs Python programs"
    if path.suffix in _PYTHON_SUFFIXES or zipfile.is_zipfile(path):
        return ""
    return "" if _is_python(source) else f"'{path}' is not a Python program"


def _is_python(source: bytes) -> bool:
    try:
        compile(source, "program", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _suggestion(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f": there is no folder '{folder}'"
    names = [one.name for one in folder.glob("*.py")]
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean '{folder / near[0]}'?" if near else f" in {folder.resolve()}"


_HELP: Final = """\
Run PROGRAM with its ARGUMENTS.

The program is plain Python. Its jobs run on Spark; everything that it prints appears here.

\b
Examples:
  headrace run departures.py
  headrace run -p 2 --progress departures.py --year 2013
  headrace run --master 'local-cluster[2,2,2048]' departures.py
  headrace run -s savepoints/savepoint-1a2b3c-4d5e6f708192 departures.py
  headrace run -d departures.py                          goes on when you log out
  headrace run --target session departures.py            on the session that 'headrace cluster start' started
  headrace run --target remote -m host:8081 -d departures.py
  headrace run --target per-job -d departures.py         a cluster for the job alone, made for it
  headrace run -d --json departures.py | jq -r '.jobs[0]["job-id"]'     for a script
"""


# What follows the program is the program's, so options end there.
@click.command(help=_HELP, context_settings={"allow_interspersed_args": False})
@click.option(
    "--master",
    metavar="URL",
    help="Spark master: local[n], local-cluster[…], spark://…, yarn, k8s://…",
)
@click.option(
    "-t",
    "--target",
    metavar="NAME",
    help="Where jobs run: application (default) on a cluster of the program's own; per-job on a cluster for each job, "
    "which ends with it; session on one of this machine that 'headrace cluster start' started; remote on one that is "
    "named by -m.",
)
@click.option(
    "--cluster",
    "cluster_name",
    metavar="NAME",
    help="Session of --target session (default: the only one of this machine).",
)
@click.option(
    "-m",
    "--jobmanager",
    "address",
    metavar="HOST:PORT",
    help="Cluster of --target remote (default: the only one of this machine).",
)
@click.option(
    "-p",
    "--parallelism",
    type=click.IntRange(min=1),
    help="Default parallelism of the program's operators.",
)
@click.option(
    "-D",
    "definitions",
    type=KeyValue(),
    multiple=True,
    help="A setting. Keys that begin with spark. go to Spark, those with pipeline.global-job-parameters. to the "
    "program; any other must be listed by 'headrace options'.",
)
@click.option(
    "--python-files",
    metavar="PATHS",
    help="Modules, packages or archives for the workers, comma-separated.",
)
@click.option(
    "-s",
    "--from-savepoint",
    metavar="PATH",
    help="Start from this savepoint or checkpoint.",
)
@click.option(
    "-n",
    "--allow-non-restored-state",
    is_flag=True,
    help="Ignore state of the snapshot that no operator of the program claims.",
)
@click.option(
    "--claim-mode",
    type=click.Choice(["no-claim", "claim"], case_sensitive=False),
    help="Whether the snapshot belongs to the job from then on, which may delete it.",
)
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Show the job while it runs (default: on a terminal).",
)
@click.option(
    "-d",
    "--detached",
    "is_detached",
    is_flag=True,
    help="Do not wait for the end of jobs: print the id of the first, and leave the program running with a cluster "
    "of its own, or the jobs to the session or remote cluster.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log the work of Headrace itself.")
@json_option
@click.argument("program", type=ProgramPath())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    master: str | None,
    target: str | None,
    cluster_name: str | None,
    address: str | None,
    parallelism: int | None,
    definitions: tuple[tuple[str, str], ...],
    python_files: str | None,
    from_savepoint: str | None,
    allow_non_restored_state: bool,
    claim_mode: str | None,
    progress: bool | None,
    is_detached: bool,
    verbose: bool,
    is_json: bool,
    program: Path,
    arguments: tuple[str, ...],
) -> int:
    """Run a program; the help text is `_HELP`."""
    configure_logs(verbose=verbose)
    given = dict(definitions)
    settings = {
        **target_settings(
            target or given.get(TARGET.key), cluster_name, address, is_detached=is_detached
        ),
        **run_settings(master, parallelism, given, python_files),
        **recovery_settings(from_savepoint, allow_non_restored_state, claim_mode),
    }
    refuse_unusable(settings)
    provide_python_files(settings)
    set_default_settings(settings)
    if is_detached and not runs_elsewhere(Settings(settings)):
        # Imported late: nobody else needs it.
        from headrace.cli.daemon.detached_run import run_detached

        return run_detached(program, arguments, settings, is_verbose=verbose, is_json=is_json)
    if is_json:
        answer = RunAnswer()
        with _only_answer_on_standard_output():
            code = _run_shown(program, arguments, settings, progress, is_detached, answer)
        print_json(answer.document(code))
        return code
    return _run_shown(program, arguments, settings, progress, is_detached)


class RunAnswer:
    """The jobs and errors of a program, for the document that `--json` prints at its end."""

    def __init__(self) -> None:
        self._clients: list[JobClient] = []
        self._jobs: list[dict[str, str]] = []
        self._errors: list[str] = []

    def take_job(self, client: JobClient) -> None:
        """Remember a job that was submitted."""
        self._clients.append(client)

    def take_error(self, error: BaseException) -> int:
        """Remember an error and print it; return the exit code."""
        self._errors.append(describe(error, wants_details=False)[0])
        return report_failure(error)

    def ask_jobs(self) -> None:
        """Ask for names and states of the jobs, while their cluster answers."""
        self._jobs = [_job_facts(client) for client in self._clients]

    def document(self, code: int) -> dict[str, Any]:
        """Return the document."""
        return {"exit-code": code, "jobs": self._jobs, "errors": self._errors}


def _job_facts(client: JobClient) -> dict[str, str]:
    facts = {"job-id": str(client.get_job_id())}
    with contextlib.suppress(HeadraceError, TimeoutError):
        details = client.get_job_details().result(_ASK_TIMEOUT_S)
        facts |= {"name": details.name, "state": details.status.name}
    return facts


@contextmanager
def _only_answer_on_standard_output() -> Generator[None, None, None]:
    """Have all that is printed meanwhile on standard error, by Spark's JVM and other children as well."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _run_shown(
    program: Path,
    arguments: tuple[str, ...],
    settings: dict[str, str],
    progress: bool | None,
    is_detached: bool,
    answer: RunAnswer | None = None,
) -> int:
    """Run the program here with what shows its jobs: the id, the display, the answer of `--json`."""
    display = ProgressDisplay.choose(progress)

    def submitted(client: JobClient) -> None:
        if answer is not None:
            answer.take_job(client)
        if is_detached:
            click.echo(f"Job has been submitted with JobID {client.get_job_id()}")
        elif display is not None:
            display.watch(client)

    def end_shows() -> None:
        if display is not None:
            display.stop()
        if answer is not None:
            answer.ask_jobs()

    on_error = report_failure if answer is None else answer.take_error
    try:
        executor = create_executor(Settings(settings))
    except HeadraceError as error:
        return on_error(error)
    return run_here(
        program,
        arguments,
        settings,
        executor,
        on_submitted=submitted,
        before_close=end_shows,
        on_error=on_error,
    )


def run_here(
    program: Path,
    arguments: tuple[str, ...],
    settings: dict[str, str],
    executor: PipelineExecutor,
    *,
    on_submitted: Callable[[JobClient], None] | None = None,
    before_close: Callable[[], None] | None = None,
    on_error: Callable[[BaseException], int] = report_failure,
    awaits_jobs: bool = False,
) -> int:
    """Run the program in this process and thread, close the executor, and return the exit code.

    `before_close` is called when the program has ended, while the cluster still answers; after a Ctrl-C perhaps twice.

    Jobs that the program leaves running end with it, which is an error, or are awaited.
    """
    # The program's own modules lie beside it; on the workers they need --python-files.
    set_active_executor(executor, on_submitted=on_submitted)
    program_begins()
    forget_jobs()
    take_back = end_in_order_when_terminated()
    find_left = await_left_jobs if awaits_jobs else left_jobs
    try:
        with _program_sessions(settings):
            run_as_main(program, arguments)
        _refuse_unexecuted()
        return _with_left_jobs(0, find_left, on_error)
    except Terminated:
        return EXIT_TERMINATED
    except SystemExit as ended:
        return _with_left_jobs(_exit_code(ended), find_left, on_error)
    except KeyboardInterrupt:
        if not runs_elsewhere(Settings(settings)):
            click.echo("interrupted: the job is cancelled", err=True)
        return EXIT_INTERRUPTED
    except Exception as error:
        return _with_left_jobs(on_error(error), left_jobs, on_error)
    finally:
        ignore_termination()
        try:
            _close(executor, before_close)
        finally:
            take_back()


def target_settings(
    target: str | None, cluster_name: str | None, address: str | None, *, is_detached: bool
) -> dict[str, str]:
    """Return the settings that the options of the target stand for, once a session that is meant was found.

    UsageError where they do not fit each other; NoSuchClusterError; SeveralClustersError.
    """
    if target is None and (address is not None or cluster_name is not None):
        target = SESSION if address is None else REMOTE
    for option, value, needed in (("-m", address, REMOTE), ("--cluster", cluster_name, SESSION)):
        if value is not None and target != needed:
            raise click.UsageError(
                f"{option} is for --target {needed}, and the target is {target}",
                click.get_current_context(silent=True),
            )
    settings: dict[str, str] = {}
    if target is not None:
        settings[TARGET.key] = executor_name(Settings({TARGET.key: target}))
    if address is not None:
        settings[REST_ADDRESS.key] = address
    if target == SESSION:
        # Imported late: nobody else needs it.
        from headrace.client.remote_executor import CONNECTION_FILE

        found = find_session(cluster_name, lambda text: click.echo(text, err=True))
        settings[CONNECTION_FILE.key] = str(found.file)
    if is_detached and runs_elsewhere(Settings(settings)):
        settings[ATTACHED.key] = "false"
    return settings


def run_settings(
    master: str | None,
    parallelism: int | None,
    definitions: dict[str, str],
    python_files: str | None,
) -> dict[str, str]:
    """Return the settings that the options stand for; an option wins over a `-D` of the same meaning."""
    settings = dict(definitions)
    if master is not None:
        settings["headrace.spark.master"] = master
    if parallelism is not None:
        settings[PARALLELISM.key] = str(parallelism)
    if python_files is not None:
        settings[PYTHON_FILES.key] = python_files
    return settings


def recovery_settings(
    from_savepoint: str | None, allows_non_restored_state: bool, claim_mode: str | None
) -> dict[str, str]:
    """Return the settings that the options of recovery stand for. A path is meant from here, not from the program."""
    settings: dict[str, str] = {}
    if from_savepoint is not None:
        settings[RECOVERY_PATH.key] = absolute_uri(from_savepoint)
    if allows_non_restored_state:
        settings[IGNORE_UNCLAIMED_STATE.key] = "true"
    if claim_mode is not None:
        settings[RECOVERY_CLAIM_MODE.key] = claim_mode.upper().replace("-", "_")
    return settings


def _refuse_unexecuted() -> None:
    """Raise ProgramError where a program ended without a job, or with a sink that no job has, as in Flink."""
    operator = unexecuted_operator()
    if operator is not None:
        raise ProgramError(unexecuted_text(operator))


def _with_left_jobs(
    code: int,
    find_left: Callable[[], Sequence[HeadraceError]],
    on_error: Callable[[BaseException], int],
) -> int:
    """Tell of jobs that end with the program, and of those that failed unseen; return the exit code."""
    for error in find_left():
        on_error(error)
        code = code or EXIT_FAILED
    return code


def provide_python_files(settings: dict[str, str]) -> None:
    """Make `python.files` importable here, and their paths absolute: the program may change its working folder."""
    files = python_files(Settings(settings))
    put_on_path(files)
    if files:
        settings[PYTHON_FILES.key] = ",".join(map(str, files))


def _program_sessions(settings: dict[str, str]) -> AbstractContextManager[None]:
    """Have the sessions that the program makes itself obey the command line."""
    if runs_elsewhere(Settings(settings)):
        return nullcontext()
    # Imported late, as above.
    from headrace.spark.session.program_sessions import (
        program_sessions,
        settings_of_program_sessions,
    )

    return program_sessions(settings_of_program_sessions(settings, os.cpu_count() or 1))


@contextmanager
def program_environment(program: Path, arguments: tuple[str, ...]) -> Generator[None, None, None]:
    """`sys.argv` and the import path as `python program.py` would have them."""
    previous_argv, previous_path = sys.argv, list(sys.path)
    sys.argv = [str(program), *arguments]
    sys.path.insert(0, str(program.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = previous_argv, previous_path


def run_as_main(program: Path, arguments: tuple[str, ...], entry_class: str | None = None) -> None:
    """Run a program as `python program.py` would, or a module (`entry_class`) inside an archive."""
    with program_environment(program, arguments):
        if entry_class is None:
            runpy.run_path(str(program), run_name="__main__")
        else:
            sys.path.insert(0, str(program.resolve()))
            runpy.run_module(entry_class, run_name="__main__", alter_sys=True)


def _exit_code(ended: SystemExit) -> int:
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    click.echo(str(ended.code), err=True)
    return 1


def _close(executor: PipelineExecutor, before_close: Callable[[], None] | None) -> None:
    """End the display and the cluster; a second Ctrl-C during this does not leave the cluster half ended."""
    set_active_executor(None)
    while True:
        try:
            if before_close is not None:
                before_close()
            executor.close()
            return
        except KeyboardInterrupt:
            click.echo("still stopping", err=True)
