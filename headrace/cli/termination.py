"""Termination of commands that run until they are interrupted."""

import contextlib
import os
import signal
from collections.abc import Callable, Generator
from types import FrameType
from typing import TypeVar

import click

T = TypeVar("T")


@contextlib.contextmanager
def asked_to_end() -> Generator[Callable[[], None], None, None]:
    """Yield a function that blocks until SIGTERM or SIGINT; those that come later, while it ends, change nothing.

    A handler runs between any two lines of this thread, another handler's among them: it may take no lock, as that of
    an Event, which whoever it interrupts may hold.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writing, False)

    is_asked = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal is_asked
        is_asked = True
        # Full, it says enough.
        with contextlib.suppress(BlockingIOError):
            os.write(writing, b".")

    def wait() -> None:
        os.read(reading, 1)

    previous = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield wait
    finally:
        # Also what comes while the interpreter ends changes nothing.
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_IGN if is_asked else handler)
        os.close(reading)
        os.close(writing)


@contextlib.contextmanager
def interrupted_by_sigterm() -> Generator[None, None, None]:
    """Let SIGTERM interrupt this thread as Ctrl-C does, so that what is open, as a screen, is closed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def to_its_end(step: Callable[[], T]) -> T:
    """Do a step that a second Ctrl-C must not leave half done; it may be called again."""
    while True:
        try:
            return step()
        except KeyboardInterrupt:
            click.echo("still stopping", err=True)
