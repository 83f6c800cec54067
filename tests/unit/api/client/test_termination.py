"""The first SIGTERM ends the program in order; those after it change nothing; nobody's own handler is taken away."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.api.client.program_end import (
    EXIT_TERMINATED,
    Terminated,
    end_in_order_when_terminated,
    ignore_termination,
)


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_the_first_is_raised_and_the_next_are_nothing_new(
    caplog: pytest.LogCaptureFixture,
) -> None:
    take_back = end_in_order_when_terminated()
    with pytest.raises(Terminated) as raised:
        terminate()
    assert raised.value.code == EXIT_TERMINATED == 143
    terminate()
    assert "terminated: the jobs end" in caplog.text
    take_back()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_program_that_ends_already_is_not_disturbed() -> None:
    take_back = end_in_order_when_terminated()
    resume = ignore_termination()
    terminate()
    resume()
    with pytest.raises(Terminated):
        terminate()
    take_back()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_of_the_program_s_own_stays() -> None:
    heard: list[int] = []
    own = lambda number, _: heard.append(number)  # noqa: E731
    signal.signal(signal.SIGTERM, own)
    take_back = end_in_order_when_terminated()
    ignore_termination()
    terminate()
    take_back()
    assert heard == [signal.SIGTERM] and signal.getsignal(signal.SIGTERM) is own


def test_other_threads_than_the_main_one_set_no_handler() -> None:
    thread = threading.Thread(target=end_in_order_when_terminated)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_other_threads_than_the_main_one_change_no_handler() -> None:
    take_back = end_in_order_when_terminated()
    before = signal.getsignal(signal.SIGTERM)

    def close() -> None:
        ignore_termination()()
        take_back()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(close).result()
    assert signal.getsignal(signal.SIGTERM) is before
    resume = ignore_termination()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(resume).result()
    take_back()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
