"""Runs a program as `__main__` in this process, with its Python files, and handles the jobs that it leaves."""

import os
import runpy
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypeVar

import click

from headrace.api.client.program_end import (
    EXIT_TERMINATED,
    Terminated,
    await_left_jobs,
    end_in_order_when_terminated,
    fate_of_jobs,
    forget_jobs,
    ignore_termination,
    left_jobs,
    program_begins,
    unexecuted_operator,
    unexecuted_text,
)
from headrace.api.executors import (
    PipelineExecutor,
    runs_elsewhere,
    set_active_executor,
    set_default_settings,
)
from headrace.api.settings.job_artifacts import python_files
from headrace.cli.logs import EXIT_FAILED, EXIT_INTERRUPTED, report_failure
from headrace.cli.termination import to_its_end
from headrace.client.program import Program
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError, ProgramError
from headrace.core.process.interpreter import put_on_path
from headrace.graph.pipeline_options import PYTHON_FILES

if TYPE_CHECKING:
    from headrace.api.client.job_client import JobClient, JobExecutionResult
    from headrace.graph.stream_graph import StreamGraph

T = TypeVar("T")
OnPlanned: TypeAlias = Callable[["StreamGraph", Settings], NoReturn]


def run_here(
    program: Program,
    settings: dict[str, str],
    executor: PipelineExecutor,
    *,
    on_submitted: "Callable[[JobClient], None] | None" = None,
    on_finished: "Callable[[JobExecutionResult], None] | None" = None,
    before_close: Callable[[], None] | None = None,
    on_error: Callable[[BaseException], int] = report_failure,
    awaits_jobs: bool = False,
    on_ended: Callable[[int], int] = lambda code: code,
) -> int:
    """Run the program in this process and thread, close the executor, and return the exit code.

    `before_close` is called when the program has ended, while the cluster still answers. `on_ended` is called with the
    exit code before `before_close`, and may replace it; not after SIGTERM. After a second Ctrl-C, the interrupted one
    is called again.

    Jobs that the program leaves running end with it, which is an error, or are awaited.
    """
    # All that SIGTERM may end: `remember_job` knows those alone that the program does not wait for.
    jobs: list[JobClient] = []

    def submitted(client: "JobClient") -> None:
        jobs.append(client)
        if on_submitted is not None:
            on_submitted(client)

    set_active_executor(executor, on_submitted=submitted, on_finished=on_finished)
    program_begins()
    forget_jobs()
    is_elsewhere = runs_elsewhere(Settings(settings))
    take_back = end_in_order_when_terminated(lambda: fate_of_jobs(jobs, is_elsewhere=is_elsewhere))
    find_left = await_left_jobs if awaits_jobs else left_jobs
    try:
        try:
            code = _exit_code_of(program, settings, find_left, on_error)
        except KeyboardInterrupt:  # while it looked at the end
            code = EXIT_INTERRUPTED
        return to_its_end(lambda: on_ended(code))
    except Terminated:
        return EXIT_TERMINATED
    finally:
        ignore_termination()
        try:
            to_its_end(lambda: _close(executor, before_close))
        finally:
            take_back()


def _exit_code_of(
    program: Program,
    settings: dict[str, str],
    find_left: Callable[[], Sequence[HeadraceError]],
    on_error: Callable[[BaseException], int],
) -> int:
    """Run the program to its end, and return its exit code. Terminated, if SIGTERM arrives."""
    try:
        with _program_sessions(settings):
            run_as_main(program)
        _refuse_unexecuted()
        return _with_left_jobs(0, find_left, on_error)
    except Terminated:
        raise
    except SystemExit as ended:
        return _with_left_jobs(_exit_code(ended), find_left, on_error)
    except KeyboardInterrupt:
        if not runs_elsewhere(Settings(settings)):
            click.echo("interrupted: the job is cancelled", err=True)
        return EXIT_INTERRUPTED
    except Exception as error:
        return _with_left_jobs(on_error(error), left_jobs, on_error)


def run_alone(
    program: Program,
    settings: dict[str, str],
    executor: PipelineExecutor,
    *,
    on_submitted: "Callable[[JobClient], None] | None" = None,
    on_planned: OnPlanned | None = None,
) -> None:
    """Run the program with its executor, then close the executor; errors of the program are raised and not printed."""
    set_default_settings(settings)
    set_active_executor(executor, on_submitted=on_submitted, on_planned=on_planned)
    program_begins()
    forget_jobs()
    try:
        run_as_main(program)
    finally:
        set_active_executor(None)
        set_default_settings({})
        executor.close()


def run_as_main(program: Program) -> None:
    """Run a program like `python program.py`, or its module like `python -m`."""
    with program_environment(program):
        if program.module is None:
            runpy.run_path(str(program.path), run_name="__main__")
        else:
            runpy.run_module(program.module, run_name="__main__", alter_sys=True)


@contextmanager
def program_environment(program: Program) -> Generator[None, None, None]:
    """Set `sys.argv` as `python program.py` would, and put the program's own modules first on the import path."""
    previous_argv, previous_path = sys.argv, list(sys.path)
    sys.argv = [str(program.path), *program.arguments]
    # Not the folder around that of a module: others may write there.
    modules = program.path.parent if program.module is None else program.path
    sys.path.insert(0, str(modules.resolve()))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = previous_argv, previous_path


class _PlanMade(BaseException):
    """Leaves the program at its `execute()`; no `except Exception` of the program catches it."""


def planned_by(
    make: "Callable[[StreamGraph, Settings], T]", run: Callable[[OnPlanned], object]
) -> T | None:
    """Run a program up to its first `execute()`; return the result of `make` for its graph, or None without one."""
    made: list[T] = []

    def leave(graph: "StreamGraph", settings: Settings) -> NoReturn:
        made.append(make(graph, settings))
        raise _PlanMade

    with suppress(_PlanMade):
        run(leave)
    # A program may have caught it, with all that there is.
    return made[0] if made else None


def provide_python_files(settings: dict[str, str]) -> None:
    """Make `python.files` importable here, and their paths absolute: the program may change its working folder."""
    files = python_files(Settings(settings))
    put_on_path(files)
    if files:
        settings[PYTHON_FILES.key] = ",".join(map(str, files))


def _program_sessions(settings: dict[str, str]) -> AbstractContextManager[None]:
    """Apply the settings of the command line to the Spark sessions that the program makes itself."""
    if runs_elsewhere(Settings(settings)):
        return nullcontext()
    # Imported late: a client of another cluster needs no Spark.
    from headrace.spark.session.program_sessions import (
        program_sessions,
        settings_of_program_sessions,
    )

    return program_sessions(settings_of_program_sessions(settings, os.cpu_count() or 1))


def _refuse_unexecuted() -> None:
    """Raise ProgramError if a program ended without a job, or with a sink that no job has, as in Flink."""
    operator = unexecuted_operator()
    if operator is not None:
        raise ProgramError(unexecuted_text(operator))


def _with_left_jobs(
    code: int,
    find_left: Callable[[], Sequence[HeadraceError]],
    on_error: Callable[[BaseException], int],
) -> int:
    """Report jobs that end with the program, and jobs that failed unnoticed; return the exit code."""
    for error in find_left():
        on_error(error)
        code = code or EXIT_FAILED
    return code


def _exit_code(ended: SystemExit) -> int:
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    click.echo(str(ended.code), err=True)
    return 1


def _close(executor: PipelineExecutor, before_close: Callable[[], None] | None) -> None:
    """End the display and the cluster. Idempotent."""
    set_active_executor(None)
    if before_close is not None:
        before_close()
    executor.close()
