"""How a failure is shown: the line that names the cause first, the user's own frames, and the rest on demand."""

import os
import traceback
from typing import Final

import click

from headrace.core.errors import ErrorDomain, HeadraceError, is_user_file

EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130

DETAILS_VARIABLE: Final = "HEADRACE_DETAILS"
"""Set to 1 to see whole tracebacks."""


def report_failure(error: BaseException) -> int:
    """Print `error` to standard error and return the exit code."""
    first, *rest = describe(error, wants_details=os.environ.get(DETAILS_VARIABLE) == "1")
    click.secho(f"error: {first}", fg="red", bold=True, err=True)
    for line in rest:
        click.echo(line, err=True)
    return EXIT_FAILED


def report_usage(error: click.UsageError) -> int:
    """Print what was wrong with the command line first, then how it is used; return the exit code."""
    click.secho(f"error: {error.format_message()}", fg="red", bold=True, err=True)
    if error.ctx is not None:
        if isinstance(error, click.NoSuchOption) and "PROGRAM" in error.ctx.get_usage():
            click.echo("options of the program itself come after its name", err=True)
        click.echo(error.ctx.get_usage(), err=True)
        click.echo(f"try '{error.ctx.command_path} --help'", err=True)
    return error.exit_code


def describe(error: BaseException, *, wants_details: bool) -> list[str]:
    """Return the lines to show: first the one that names the cause.

    Of our own errors that is their first line, and what follows explains it; of others the class, the text and where
    in the user's program it was raised.
    """
    whole = traceback.format_exception(error)
    if isinstance(error, HeadraceError):
        first, *rest = str(error).split("\n")
        frames = user_frames(error)
        if frames and not error.recoverable and error.domain is ErrorDomain.USER:
            # Such an error is raised where the program says something wrong; a line that it names itself is better.
            place = frames[-1].rpartition(", in ")[0]
            first += "" if ", line " in first else f" ({place})"
        lines = [first, *(line for line in rest if line.strip())]
        return lines + "".join(whole).splitlines() if wants_details else lines
    name = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = user_frames(error)
    lines = [f"{name} ({frames[-1]})" if frames else name]
    if wants_details:
        return lines + "".join(whole).splitlines()
    if frames:
        lines += ["in the program:", *(f"  {frame}" for frame in frames)]
    return [*lines, f"({DETAILS_VARIABLE}=1 shows the whole traceback)"]


def user_frames(error: BaseException) -> list[str]:
    """Return `file, line n, in function` of the frames in the user's own files, outermost first."""
    return [
        f"{frame.filename}, line {frame.lineno}, in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if is_user_file(frame.filename)
    ]
