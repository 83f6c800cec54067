"""The package's logger, as it was before a command set it up."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

from headrace.cli.logs import ALWAYS_HEARD, MILESTONES


@contextmanager
def restored_logs() -> Generator[None]:
    """Put the package's logger back as it was before the command."""
    logger = logging.getLogger("headrace")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers, level, logger.propagate = before
    logger.setLevel(level)
    for name in {*ALWAYS_HEARD, *MILESTONES}:
        logging.getLogger(name).setLevel(logging.NOTSET)
