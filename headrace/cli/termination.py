"""Ends commands that run until they are interrupted."""

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
    """Yield a function that blocks until SIGTERM or SIGINT; later signals are ignored.

    A signal handler may interrupt this thread at any line, even in another handler: it must not take a lock, such as
    that of an Event, which the interrupted code may hold.
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
        # Signals that arrive while the interpreter ends are ignored too.
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_IGN if is_asked else handler)
        os.close(reading)
        os.close(writing)


@contextlib.contextmanager
def interrupted_by_sigterm() -> Generator[None, None, None]:
    """Let SIGTERM interrupt this thread as Ctrl-C does, so that open resources, such as a screen, are closed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def to_its_end(step: Callable[[], T]) -> T:
    """Run a step that a second Ctrl-C must not leave half done; it may be called again."""
    while True:
        try:
            return step()
        except KeyboardInterrupt:
            click.echo("still stopping", err=True)
