"""Dumps of faulthandler, as the watcher of the interpreter lock reads them."""

import faulthandler
import os

import pytest

from headrace.cluster.task_executor.lock_watcher import (
    DUMP_MAX_BYTES,
    RELEASED,
    HeldStacks,
    dump_period_s,
    library_folders,
)
from headrace.core.config import Settings
from headrace.rpc.options import HEARTBEAT_TIMEOUT

S = 1_000_000_000
DUMP = b"""Timeout (0:00:02)!
Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/srv/jobs/program.py", line 3 in main

Thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/re.py", line 5 in match
  File "/srv/jobs/program.py", line 12 in hold
  File "/usr/lib/headrace/task/mailbox.py", line 8 in run

"""


def stacks() -> HeldStacks:
    return HeldStacks(2 * S, ["/usr/lib/"])


def test_a_dump_says_since_when_the_lock_is_held_and_in_which_function_of_the_user() -> None:
    held = stacks()
    held.receive(DUMP[:50], 10 * S)
    held.receive(DUMP[50:], 10 * S)
    assert held.held_ms(11 * S) == 3_000
    assert held.function == "hold (/srv/jobs/program.py:12)"


def test_the_time_goes_on_from_dump_to_dump() -> None:
    held = stacks()
    for second in (10, 12, 14):
        held.receive(DUMP, second * S)
    assert held.held_ms(15 * S) == 7_000


def test_a_lock_that_was_released_is_not_held() -> None:
    held = stacks()
    held.receive(DUMP, 10 * S)
    held.receive(RELEASED, 11 * S)
    assert held.held_ms(11 * S) is None
    assert held.function == ""


def test_a_process_of_which_no_dump_comes_any_more_does_not_hold_the_lock_but_is_stopped() -> None:
    held = stacks()
    held.receive(DUMP, 10 * S)
    assert held.held_ms(17 * S) is None


def test_no_more_of_a_dump_is_kept_than_the_bound() -> None:
    held = stacks()
    held.receive(DUMP, 10 * S)
    for _ in range(3):
        held.receive(b"x" * DUMP_MAX_BYTES, 10 * S)
    assert held.function == "hold (/srv/jobs/program.py:12)"


def test_stacks_that_faulthandler_itself_has_written_are_read() -> None:
    reading, writing = os.pipe()
    try:
        faulthandler.dump_traceback(writing)
        written = os.read(reading, 1 << 16)
    finally:
        os.close(reading)
        os.close(writing)
    # Other threads of the process that runs the tests are in libraries.
    held = HeldStacks(2 * S, library_folders())
    held.receive(b"Timeout (0:00:02)!\n" + written.replace(b"Current thread", b"Thread"), 10 * S)
    assert "test_held_stacks.py" in held.function


@pytest.mark.parametrize(("timeout", "period_s"), [("50 s", 20.0), ("10 s", 4.0), ("2 s", 2.0)])
def test_a_dump_comes_twice_before_a_silent_process_counts_as_lost(
    timeout: str, period_s: float
) -> None:
    assert dump_period_s(Settings({HEARTBEAT_TIMEOUT.key: timeout})) == period_s
