"""`headrace info`: the plan of a program, which is run up to its first `execute()` and no further."""

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Final, NoReturn

import click

from headrace.api.executors import (
    known_parallelism,
    set_active_executor,
    set_default_settings,
)
from headrace.cli.logs import configure_logs
from headrace.cli.options import KeyValue, json_option, print_json, refuse_unusable
from headrace.cli.run import ProgramPath, provide_python_files, run_as_main, run_settings
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.graph.execution_plan import plan_json
from headrace.graph.job_graph import JobGraph
from headrace.graph.stream_graph import StreamGraph

_TITLE: Final = "----------------------- Execution Plan -----------------------"
_RULE: Final = "--------------------------------------------------------------"
_HELP: Final = """\
Print the plan of PROGRAM as JSON: its operators, their parallelism, and how rows travel between them.

The program runs up to its first env.execute(), with its ARGUMENTS. No job is started, and Spark only where the program
itself asks for a session.

\b
Try it:
  headrace info departures.py --year 2013
  headrace info -p 4 departures.py
  headrace info --json departures.py | jq -r '.nodes[].type'
"""


class _PlanMade(BaseException):
    """Leaves the program at its `execute()`; no `except Exception` of a program holds it up."""

    def __init__(self, plan: str) -> None:
        super().__init__()
        self.plan = plan


@click.command(help=_HELP, context_settings={"allow_interspersed_args": False})
@click.option(
    "-c", "--class", "entry_class", metavar="MODULE", help="Module to run inside an archive."
)
@click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Default parallelism.")
@click.option("-D", "definitions", type=KeyValue(), multiple=True, help="A setting, as of run.")
@click.option(
    "-pyfs",
    "--pyFiles",
    "--python-files",
    "python_files",
    metavar="PATHS",
    help="Modules for the workers.",
)
@json_option
@click.argument("program", type=ProgramPath())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def info(
    entry_class: str | None,
    parallelism: int | None,
    definitions: tuple[tuple[str, str], ...],
    python_files: str | None,
    is_json: bool,
    program: Path,
    arguments: tuple[str, ...],
) -> int:
    """Print a plan; the help text is `_HELP`."""
    configure_logs(verbose=False)
    settings = run_settings(None, parallelism, dict(definitions), python_files)
    refuse_unusable(settings)
    provide_python_files(settings)
    try:
        # What the program prints is no part of the plan.
        with contextlib.redirect_stdout(sys.stderr):
            plan = plan_of_program(program, arguments, settings, entry_class)
    except SystemExit as ended:
        raise ProgramError(
            f"the program exited ({ended.code}) before it called env.execute()"
        ) from ended
    if is_json:
        print_json(json.loads(plan))
    else:
        click.echo(f"{_TITLE}\n{plan}\n{_RULE}\n\nNo description provided.")
    return 0


def plan_of_program(
    program: Path, arguments: tuple[str, ...], settings: dict[str, str], entry_class: str | None
) -> str:
    """Run a program up to its first `execute()` and return its plan. ProgramError where it never comes to one."""
    set_default_settings(settings)
    parallelism = known_parallelism(Settings(settings)) or os.cpu_count() or 1
    set_active_executor(_PlanningExecutor(parallelism), on_planned=_leave)
    try:
        run_as_main(program, arguments, entry_class)
    except _PlanMade as made:
        return made.plan
    finally:
        set_active_executor(None)
        set_default_settings({})
    raise ProgramError("the program ended without a job: it never called env.execute()")


def _leave(graph: StreamGraph, settings: Settings) -> NoReturn:
    raise _PlanMade(plan_json(graph, settings))


class _PlanningExecutor:
    """An executor that runs nothing."""

    name = "plan"

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism

    def submit(self, job_graph: JobGraph) -> NoReturn:
        raise ProgramError("'headrace info' runs no job")

    def default_parallelism(self) -> int:
        return self._parallelism

    def known_parallelism(self) -> int | None:
        return self._parallelism

    def list_data_sets(self) -> tuple[()]:
        return ()

    def release_data_set(self, data_set: object) -> None:
        """Nothing was left."""

    def close(self) -> None:
        """Nothing was started."""
