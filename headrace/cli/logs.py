"""Log output of the command line on standard error, and messages and exit codes of failures.

`headrace run` logs errors and findings about its Spark session, and everything with `--verbose`.
"""

import logging
from collections.abc import Sequence
from typing import Final

import click

from headrace.core.error_text import describe, wants_details, without_controls
from headrace.core.redaction import DiscreetFormatter

ALWAYS_HEARD: Final = (
    "headrace.api.streams.cached_streams",
    "headrace.api.settings.checkpoint_config",
    "headrace.api.environment",
    "headrace.api.client.program_end",
    "headrace.api.settings.slot_sharing_group",
    "headrace.api.streams.window_settings",
    "headrace.cli.daemon.supervisor",
    "headrace.client.rest_cluster_client",
    "headrace.cluster.job_master.checkpointing.job_lineage",
    "headrace.cluster.resource_manager.workers",
    "headrace.cluster.job_master.job_notices",
    "headrace.cluster.job_master.connections.cached_results",
    "headrace.connectors",
    "headrace.core.process.log_files",
    "headrace.rest",
    "headrace.spark.application",
    "headrace.spark.batch.batch_jobs",
    "headrace.spark.executor",
    "headrace.spark.host",
    "headrace.spark.session.program_sessions",
    "headrace.spark.session.session",
)
"""Loggers whose warnings are shown without `--verbose`."""

MILESTONES: Final = (
    "headrace.rest.rest_server",
    "headrace.spark.executor",
    "headrace.spark.session.program_sessions",
    "headrace.spark.session.session",
)
"""Loggers that report the beginning of long steps; shown without `--verbose`."""


class _StandardError(logging.Handler):
    """Writes to the current standard error, which is above the live display if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(without_controls(self.format(record)), err=True)
        except Exception:  # standard error is closed: logging handles that itself
            self.handleError(record)


def configure_logs(*, verbose: bool) -> None:
    """Send Headrace's logs to standard error; the program's own loggers are not changed."""
    handler = _StandardError()
    handler.setFormatter(DiscreetFormatter())
    logger = logging.getLogger("headrace")
    logger.handlers = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.ERROR)
    logger.propagate = False
    if not verbose:
        # Findings of the start-up checklist, such as secrets that would cross a network in clear, unused settings,
        # and what Ctrl-C waits for, are shown to everybody.
        for name in ALWAYS_HEARD:
            logging.getLogger(name).setLevel(logging.WARNING)
        for name in MILESTONES:
            logging.getLogger(name).setLevel(logging.INFO)


EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130


def report_failure(error: BaseException) -> int:
    """Print `error` to standard error and return the exit code."""
    print_error(describe(error, wants_details=wants_details()))
    if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] == "pyflink":
        click.echo(
            "the program imports PyFlink: import the same names from headrace instead "
            "(headrace.datastream, headrace.common)",
            err=True,
        )
    return EXIT_FAILED


def print_error(lines: Sequence[str]) -> int:
    """Print the lines of an error to standard error, the first one highlighted; return the exit code."""
    click.secho(f"error: {lines[0]}", fg="red", bold=True, err=True)
    for line in lines[1:]:
        click.echo(line, err=True)
    return EXIT_FAILED


def report_usage(error: click.UsageError) -> int:
    """Print the mistake in the command line, then the usage; return the exit code, which is Flink's."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()  # the help itself
        return EXIT_FAILED
    print_error([error.format_message()])
    if error.ctx is not None:
        if isinstance(error, click.NoSuchOption) and "PROGRAM" in error.ctx.get_usage():
            click.echo("write options of the program itself after its name", err=True)
        click.echo(error.ctx.get_usage(), err=True)
        click.echo(f"try '{error.ctx.command_path} --help'", err=True)
    return EXIT_FAILED
