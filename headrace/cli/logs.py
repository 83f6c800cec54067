"""What `headrace run` says of its own work on standard error: errors only, or everything with `--verbose`."""

import logging
import sys


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
