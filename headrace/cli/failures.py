"""How a failure of a command is shown, and which exit code it has."""

from typing import Final

import click

from headrace.core.error_text import describe, wants_details

EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130


def report_failure(error: BaseException) -> int:
    """Print `error` to standard error and return the exit code."""
    first, *rest = describe(error, wants_details=wants_details())
    click.secho(f"error: {first}", fg="red", bold=True, err=True)
    for line in rest:
        click.echo(line, err=True)
    return EXIT_FAILED


def report_usage(error: click.UsageError) -> int:
    """Print what was wrong with the command line first, then how it is used; return the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()  # the help itself
        return error.exit_code
    click.secho(f"error: {error.format_message()}", fg="red", bold=True, err=True)
    if error.ctx is not None:
        if isinstance(error, click.NoSuchOption) and "PROGRAM" in error.ctx.get_usage():
            click.echo("options of the program itself come after its name", err=True)
        click.echo(error.ctx.get_usage(), err=True)
        click.echo(f"try '{error.ctx.command_path} --help'", err=True)
    return error.exit_code
