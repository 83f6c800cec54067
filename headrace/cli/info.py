"""`headrace info`: the plan of a program, which is run up to its first `execute()` and no further."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
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
from headrace.cli.run_settings import ProgramPath, run_settings, target_settings
from headrace.core.errors import ProgramError
from headrace.graph.pipeline_options import (
    PYTHON_ARCHIVES,
    PYTHON_EXECUTABLE,
    PYTHON_FILES,
    PYTHON_REQUIREMENTS,
)

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


_PYTHON_OPTIONS: Final = (
    (PYTHON_FILES, ("-pyfs", "--pyFiles", "--python-files"), "Modules for the workers."),
    (PYTHON_ARCHIVES, ("-pyarch", "--pyArchives"), "Archives for the workers."),
    (PYTHON_REQUIREMENTS, ("-pyreq", "--pyRequirements"), "Packages for the workers."),
    (PYTHON_EXECUTABLE, ("-pyexec", "--pyExecutable"), "Interpreter of the workers."),
)


def _python_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command Flink's options that stand for a setting each; arguments are called as its key, with `_`."""
    for setting, names, text in reversed(_PYTHON_OPTIONS):
        name = setting.key.replace(".", "_")
        command = click.option(*names, name, metavar="PATHS", help=text)(command)
    return command


class _InfoCommand(click.Command):
    """A command whose options end at the first word that is none, once an option has named the program, as Flink's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = {
            name: each
            for each in self.params
            if isinstance(each, click.Option)
            for name in each.opts
        }
        at, names_program = 0, False
        while at < len(args) and (option := options.get(args[at])) is not None:
            names_program = names_program or option.name in ("python", "module")
            at += 1 if option.is_flag else 2
        if names_program and args[at : at + 1] != ["--"]:
            args = [*args[:at], "--", *args[at:]]
        return super().parse_args(ctx, args)


def _program_in(
    words: tuple[str, ...], python: str | None, module: str | None
) -> tuple[Path, tuple[str, ...]]:
    """Return the program, or the folder whose module is named, and the arguments. UsageError."""
    context = click.get_current_context()
    if python is not None and module is not None:
        raise click.UsageError("-py and -pym both name the program: give one of them", context)
    if module is not None:
        return Path(), words
    if python is None and not words:
        raise click.UsageError("Missing argument 'PROGRAM'.", context)
    named, arguments = (words[0], words[1:]) if python is None else (python, words)
    return ProgramPath().convert(named, None, context), arguments


# What follows the name of the program is the program's.
@click.command(cls=_InfoCommand, help=_HELP, context_settings={"allow_interspersed_args": False})
@click.option(
    "-c", "--class", "entry_class", metavar="MODULE", help="Module to run inside an archive."
)
@click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Default parallelism.")
@click.option("-D", "definitions", type=KeyValue(), multiple=True, help="A setting, as of run.")
@click.option("-py", "--python", "python", metavar="PATH", help="The program, as Flink names it.")
@click.option("-pym", "--pyModule", "module", metavar="MODULE", help="Module to run as program.")
@_python_options
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
    program, arguments = _program_in(words, python, module)
    settings = run_settings(None, parallelism, dict(definitions), None)
    settings |= namespace_settings(namespace, settings)
    settings |= target_settings(target, None, address, is_detached=False, finds_session=False)
    given = {name.replace("_", "."): value for name, value in of_python.items()}
    settings |= {key: value for key, value in given.items() if value is not None}
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
