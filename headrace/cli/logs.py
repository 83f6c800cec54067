"""What `headrace run` says on standard error: errors, findings about its Spark session; all with `--verbose`."""

import logging
import sys
from typing import Final

ALWAYS_HEARD: Final = (
    "headrace.api.environment",
    "headrace.api.interruption",
    "headrace.api.termination",
    "headrace.cluster.job_master.checkpointing.lineage",
    "headrace.cluster.resource_manager.workers",
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


def configure_logs(*, verbose: bool) -> None:
    """Send Headrace's logs to standard error; the program's own loggers are left alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")
    )
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
