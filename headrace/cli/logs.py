"""What `headrace run` says on standard error: errors, findings about its Spark session; all with `--verbose`."""

import logging
from typing import Final

import click

from headrace.core.private_values import DiscreetFormatter

ALWAYS_HEARD: Final = (
    "headrace.api.cached_streams",
    "headrace.api.checkpoint_checks",
    "headrace.api.environment",
    "headrace.api.interruption",
    "headrace.api.slot_sharing_group",
    "headrace.api.termination",
    "headrace.api.window_settings",
    "headrace.cluster.job_master.checkpointing.lineage",
    "headrace.cluster.resource_manager.workers",
    "headrace.cluster.job_master.job_notices",
    "headrace.cluster.job_master.result_promotion",
    "headrace.connectors",
    "headrace.spark.executor",
    "headrace.spark.program_sessions",
    "headrace.spark.session",
)
"""Loggers whose warnings are shown without `--verbose`."""

MILESTONES: Final = (
    "headrace.spark.executor",
    "headrace.spark.program_sessions",
    "headrace.spark.session",
)
"""Loggers that say what takes long as it begins: shown without `--verbose`, else there is nothing to see for long."""


class _StandardError(logging.Handler):
    """Writes to standard error as it is at that moment: above the live display while there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(self.format(record), err=True)
        except Exception:  # standard error is closed: logging says what it does then
            self.handleError(record)


def configure_logs(*, verbose: bool) -> None:
    """Send Headrace's logs to standard error; the program's own loggers are left alone."""
    handler = _StandardError()
    handler.setFormatter(DiscreetFormatter())
    logger = logging.getLogger("headrace")
    logger.handlers = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.ERROR)
    logger.propagate = False
    if not verbose:
        # Findings of the start-up checklist, such as secrets that would cross a network in clear, settings that nobody
        # reads, and what Ctrl-C waits for, are for everybody.
        for name in ALWAYS_HEARD:
            logging.getLogger(name).setLevel(logging.WARNING)
        for name in MILESTONES:
            logging.getLogger(name).setLevel(logging.INFO)
