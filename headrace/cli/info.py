"""`headrace info`: the plan of a program, which is run up to its first `execute()` and no further."""

import contextlib
import json
import sys
from typing import Final

import click

from headrace.cli.logs import configure_logs
from headrace.cli.options import (
    KeyValue,
    json_option,
    namespace_option,
    namespace_settings,
    print_json,
    refuse_unusable,
)
from headrace.cli.program_plan import plan_of_program
from headrace.cli.program_run import provide_python_files
from headrace.cli.run_settings import (
    ProgramCommand,
    program_in,
    python_options,
    python_settings,
    run_settings,
    target_settings,
)
from headrace.core.errors import ProgramError

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


# What follows the name of the program is the program's.
@click.command(cls=ProgramCommand, help=_HELP, context_settings={"allow_interspersed_args": False})
@click.option(
    "-c", "--class", "entry_class", metavar="MODULE", help="Module to run inside an archive."
)
@click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Default parallelism.")
@click.option("-D", "definitions", type=KeyValue(), multiple=True, help="A setting, as of run.")
@python_options
@click.option(
    "-t", "--target", metavar="NAME", help="Where the program would run, as of run; none is asked."
)
@click.option(
    "-m",
    "--jobmanager",
    "address",
    metavar="HOST:PORT",
    help="Cluster of --target remote; it is not asked.",
)
@namespace_option
@click.option("-v", "--verbose", is_flag=True, help="Log the work of Headrace itself.")
@json_option
@click.argument("words", metavar="PROGRAM [ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
def info(
    entry_class: str | None,
    parallelism: int | None,
    definitions: tuple[tuple[str, str], ...],
    python: str | None,
    module: str | None,
    target: str | None,
    address: str | None,
    namespace: str | None,
    verbose: bool,
    is_json: bool,
    words: tuple[str, ...],
    **of_python: str | None,
) -> int:
    """Print a plan; the help text is `_HELP`."""
    configure_logs(verbose=verbose)
    program, arguments = program_in(words, python, module)
    settings = run_settings(None, parallelism, dict(definitions))
    settings |= namespace_settings(namespace, settings)
    settings |= target_settings(target, None, address, is_detached=False, finds_session=False)
    settings |= python_settings(of_python)
    refuse_unusable(settings)
    provide_python_files(settings)
    try:
        # What the program prints is no part of the plan.
        with contextlib.redirect_stdout(sys.stderr):
            plan = plan_of_program(program, arguments, settings, module or entry_class)
    except SystemExit as ended:
        raise ProgramError(
            f"the program exited ({ended.code}) before it called env.execute()"
        ) from ended
    except (click.ClickException, BrokenPipeError) as error:
        raise ProgramError(f"the program failed: {type(error).__name__}: {error}") from error
    if is_json:
        print_json(json.loads(plan))
    else:
        click.echo(f"{_TITLE}\n{plan}\n{_RULE}\n\nNo description provided.")
    return 0
