"""SIGTERM: a program that is told to end does so in order, with its jobs, workers and Spark.

Python's own way is to vanish on the spot: nobody would be told from which checkpoint to go on.
"""

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

_LOG: Final = logging.getLogger(__name__)

EXIT_TERMINATED: Final = 128 + signal.SIGTERM


class Terminated(SystemExit):
    """SIGTERM has come: raised in the main thread, once."""

    def __init__(self) -> None:
        super().__init__(EXIT_TERMINATED)


def end_in_order_when_terminated() -> Callable[[], None]:
    """Raise Terminated at the first SIGTERM from now on, unless somebody else handles it; return what takes that back.

    Later ones change nothing: the program ends already. Without effect outside of the main thread.
    """
    if not _is_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return _nothing
    signal.signal(signal.SIGTERM, _raise_once)
    return _take_back


def ignore_termination() -> Callable[[], None]:
    """Let SIGTERM change nothing from now on, where it would end the program in order; return what takes that back.

    For whoever ends jobs, workers or Spark already, and must not be left half-way. Without effect outside of the main
    thread: no signal leaves another one half-way.
    """
    if not _is_main_thread() or signal.getsignal(signal.SIGTERM) is not _raise_once:
        return _nothing
    signal.signal(signal.SIGTERM, _ends_already)
    return _resume


def _raise_once(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, _ends_already)
    _LOG.warning("terminated: jobs are given up, and what they can go on from is kept")
    raise Terminated


def _ends_already(_number: int, _frame: FrameType | None) -> None:
    pass


def _resume() -> None:
    if _is_main_thread() and signal.getsignal(signal.SIGTERM) is _ends_already:
        signal.signal(signal.SIGTERM, _raise_once)


def _take_back() -> None:
    if _is_main_thread() and signal.getsignal(signal.SIGTERM) in (_raise_once, _ends_already):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _is_main_thread() -> bool:
    """Whether handlers of signals can be set here: Python allows it in no other thread."""
    return threading.current_thread() is threading.main_thread()


def _nothing() -> None:
    pass
