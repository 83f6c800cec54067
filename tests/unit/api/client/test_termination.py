"""The first SIGTERM ends the program in order; those after it change nothing; nobody's own handler is taken away."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.api.client.program_end import (
    EXIT_TERMINATED,
    Terminated,
    end_in_order_when_terminated,
    fate_of_jobs,
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


def job(job_id: str, *, outlives_program: bool, has_told_end: bool = False) -> Any:
    return SimpleNamespace(
        get_job_id=lambda: job_id, outlives_program=outlives_program, has_told_end=has_told_end
    )


GOES_ON = job("ab1", outlives_program=True)
OTHER_GOES_ON = job("cd2", outlives_program=True)
TIED = job("ef3", outlives_program=False)
KNOWN_TO_HAVE_ENDED = job("ab1", outlives_program=True, has_told_end=True)


@pytest.mark.parametrize(
    ("jobs", "is_elsewhere", "told"),
    [
        ([TIED], False, "the jobs end, and their last checkpoints are kept"),
        ([GOES_ON], True, "job ab1 goes on: 'headrace cancel ab1' ends it"),
        ([GOES_ON, OTHER_GOES_ON], True, "jobs ab1, cd2 go on: 'headrace cancel ID' ends one"),
        ([TIED], True, "job ef3 is cancelled, as execution.shutdown-on-attached-exit says"),
        ([], True, ""),
        ([], False, ""),
        ([KNOWN_TO_HAVE_ENDED], True, ""),
    ],
)
def test_what_becomes_of_jobs_is_told_by_where_they_run(
    jobs: list[Any], is_elsewhere: bool, told: str
) -> None:
    assert fate_of_jobs(jobs, is_elsewhere=is_elsewhere) == told


@pytest.mark.parametrize(
    ("jobs", "text"), [([GOES_ON], "terminated: job ab1 goes on"), ([], "terminated")]
)
def test_the_log_tells_it_when_the_signal_comes(
    caplog: pytest.LogCaptureFixture, jobs: list[Any], text: str
) -> None:
    known: list[Any] = []
    take_back = end_in_order_when_terminated(lambda: fate_of_jobs(known, is_elsewhere=True))
    known += jobs
    with pytest.raises(Terminated):
        terminate()
    take_back()
    (message,) = caplog.messages
    assert message.startswith(text) and ("job" in message) is bool(jobs)
