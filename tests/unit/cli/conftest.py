"""Commands set up the process's logs; tests that follow must not notice."""

import logging
from collections.abc import Iterator

import pytest

from headrace.cli.logs import ALWAYS_HEARD, MILESTONES


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Put the package's logger back as it was before the command."""
    logger = logging.getLogger("headrace")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers, level, logger.propagate = before
    logger.setLevel(level)
    for name in {*ALWAYS_HEARD, *MILESTONES}:
        logging.getLogger(name).setLevel(logging.NOTSET)
