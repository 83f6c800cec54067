"""Something to do before a Spark session ends, whoever stops it."""

import logging
from collections.abc import Callable
from typing import Final

from pyspark.core.context import SparkContext

_LOG: Final = logging.getLogger(__name__)


def before_stop(context: SparkContext, action: Callable[[], None]) -> Callable[[], None]:
    """Run `action` once, right before `context` is stopped, on the thread that stops it; return what takes that back.

    Spark tells Python of a session's end only afterwards, if at all: so the context's own `stop` stands behind ours.
    Errors of `action` are logged, and the context is stopped.
    """
    stop = context.stop

    def act_and_stop() -> None:
        take_back()
        try:
            action()
        except Exception:
            _LOG.exception("what runs in the SparkSession could not be ended before it")
        finally:
            stop()

    def take_back() -> None:
        if context.__dict__.get("stop") is act_and_stop:
            del context.stop

    context.stop = act_and_stop
    return take_back
