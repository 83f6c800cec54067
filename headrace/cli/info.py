"""`headrace info`: the plan of a program, which is run up to its first `execute()` and no further."""

import contextlib
import json
import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Final, NoReturn

import click

from headrace.api.client.program_end import without_job_text
from headrace.api.executors import (
    create_executor,
    refuse_unknown_target,
)
from headrace.cli.general_options import print_json, refuse_unusable
from headrace.cli.logs import configure_logs
from headrace.cli.program_options import ProgramCommand, ProgramOptions, program_options
from headrace.cli.program_run import (
    planned_by,
    provide_python_files,
    run_alone,
)
from headrace.client.program import Program
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, HostError, ProgramError

if TYPE_CHECKING:
    from headrace.graph.job_graph import JobGraph
    from headrace.graph.stream_graph import StreamGraph

_TITLE: Final = "----------------------- Execution Plan -----------------------"
_RULE: Final = "--------------------------------------------------------------"
_HELP: Final = """\
Print the plan of PROGRAM as JSON: its operators, their parallelism, and how rows travel between them.

The program runs up to its first env.execute(), with its ARGUMENTS. No job is started, no cluster is asked, and Spark is
started only if the program itself asks for a session. The options -d and -sae of `headrace run` are accepted and
ignored, as by `flink info`.

\b
Try it:
  headrace info departures.py --year 2013
  headrace info -p 4 departures.py
  headrace info --json departures.py | jq -r '.nodes[].type'
"""


# What follows the name of the program is the program's.
@click.command(cls=ProgramCommand, help=_HELP, context_settings={"allow_interspersed_args": False})
@program_options
# As in Flink, which takes these options of `run` here, too, and does not list them.
@click.option("-d", "--detached", is_flag=True, hidden=True, expose_value=False)
@click.option("-sae", "--shutdownOnAttachedExit", is_flag=True, hidden=True, expose_value=False)
def info(options: ProgramOptions) -> int:
    """Print a plan; the help text is `_HELP`."""
    configure_logs(verbose=options.is_verbose)
    program, settings = options.program(), options.settings(finds_session=False)
    refuse_unusable(settings)
    provide_python_files(settings)
    try:
        # The program's output does not belong to the plan.
        with contextlib.redirect_stdout(sys.stderr):
            plan = _plan_of(program, settings)
    except SystemExit as ended:
        raise ProgramError(
            f"the program exited ({ended.code}) before it called env.execute(), so there is no plan"
        ) from ended
    except (click.ClickException, BrokenPipeError) as error:
        raise ProgramError(f"the program failed: {type(error).__name__}: {error}") from error
    if options.is_json:
        print_json(json.loads(plan))
    else:
        click.echo(f"{_TITLE}\n{plan}\n{_RULE}\n\nNo description provided.")
    return 0


def _plan_of(program: Program, settings: dict[str, str]) -> str:
    """Run a program up to its first `execute()` and return its plan. ProgramError if the program never calls it."""
    given = Settings(settings)
    refuse_unknown_target(given)
    plan = planned_by(
        _plan_json,
        lambda leave: run_alone(program, settings, _PlanningExecutor(given), on_planned=leave),
    )
    if plan is None:
        raise ProgramError(without_job_text())
    if isinstance(plan, ConfigurationError):
        raise plan
    return plan


def _plan_json(graph: "StreamGraph", settings: Settings) -> str | ConfigurationError:
    """Return the plan of a job, or the error in the files that it would ship."""
    # Imported late: a program that fails before it has a graph needs neither numpy nor Arrow.
    from headrace.api.settings.job_artifacts import job_artifacts
    from headrace.graph.execution_plan import plan_json

    try:
        job_artifacts(settings)
    except ConfigurationError as error:
        return error
    return plan_json(graph, settings)


class _PlanningExecutor:
    """An executor that runs nothing, with the parallelism of the executor that `settings` name."""

    name = "plan"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _parallelism(self) -> int:
        # Only when a plan is made: this imports the executor.
        with contextlib.suppress(HostError):
            return create_executor(self._settings).known_parallelism() or os.cpu_count() or 1
        return os.cpu_count() or 1

    def submit(self, job_graph: "JobGraph") -> NoReturn:
        raise ProgramError("headrace info only prints the plan; this call needs a running job")

    def default_parallelism(self) -> int:
        return self._parallelism

    def known_parallelism(self) -> int | None:
        return self._parallelism

    def list_data_sets(self) -> tuple[()]:
        return ()

    def release_data_set(self, data_set: object) -> None:
        """Do nothing: no job left a data set."""

    def close(self) -> None:
        """Do nothing: no cluster was started."""
