"""Printed lines of a TaskManager's process arrive in the driver, in order, and hold nobody up for ever."""

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from headrace.cluster.printed_output import OutputReceiver, OutputSender, PrintedOutput
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.randomness import SeededRandom
from headrace.core.threads import EventLoopThread, run_in_thread
from headrace.rpc.loopback import LoopbackNetwork


@pytest.fixture
def control() -> Iterator[EventLoopThread]:
    one = EventLoopThread("control")
    yield one
    one.stop()


class World:
    """A driver that shows lines by `show`, and a pipe whose lines are sent there."""

    def __init__(
        self, control: EventLoopThread, show: Callable[[bytes], None], *, is_there: bool = True
    ) -> None:
        reading, self.writing = os.pipe()
        network = LoopbackNetwork(
            SystemClock(), SeededRandom(1), loop=control.loop, settings=Settings({})
        )

        async def start() -> str:
            receiver = OutputReceiver(network.create_service("driver"), run_in_thread, show)
            if is_there:
                receiver.start()
                self.receiver = receiver
            return receiver.address if is_there else "driver/nobody"

        output = PrintedOutput(reading, control.run(start()), lambda: os.close(self.writing))
        self.sender = OutputSender(output, control, network.create_service("worker"))


def test_lines_come_whole_and_in_order_and_what_was_begun_at_the_end(
    control: EventLoopThread,
) -> None:
    shown: list[bytes] = []
    world = World(control, shown.append)
    with open(world.writing, "wb", closefd=False) as printing:
        for text in (b"a\nb", b"c\n", b"x" * 100_000, b"\nlast"):
            # A full pipe takes a part of what one call writes where a signal comes; this goes on with the rest.
            printing.write(text)
            printing.flush()
    world.sender.close()
    assert b"".join(shown) == b"a\nbc\n" + b"x" * 100_000 + b"\nlast"
    assert all(one.endswith(b"\n") for one in shown[:-1])


def test_lines_are_shown_after_something_has_failed_within_the_receiver(
    control: EventLoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    shown: list[bytes] = []
    world = World(control, shown.append)

    def bug() -> None:
        raise LookupError("a bug in the receiver")

    async def fail() -> None:
        world.receiver.run_async(bug)

    control.run(fail())
    os.write(world.writing, b"line\n")
    world.sender.close()
    assert b"".join(shown) == b"line\n"
    assert "could not show printed lines" in caplog.text


def test_whoever_prints_waits_for_whoever_reads(control: EventLoopThread) -> None:
    may_go_on, is_shown = threading.Event(), threading.Event()

    def show(lines: bytes) -> None:
        is_shown.set()
        may_go_on.wait(30)

    world = World(control, show)
    os.write(world.writing, b"first\n")
    assert is_shown.wait(30)
    os.set_blocking(world.writing, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(world.writing, b"more\n" * 1_000)
    may_go_on.set()
    world.sender.close()


def test_where_nobody_takes_lines_printing_goes_on_and_it_is_logged_once(
    control: EventLoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(control, lambda lines: None, is_there=False)
    for _ in range(100):
        os.write(world.writing, b"to nobody\n" * 1_000)
    world.sender.close()
    (told,) = [one.getMessage() for one in caplog.records if "printed lines" in one.getMessage()]
    assert told.startswith("printed lines no longer reach the driver: ")
