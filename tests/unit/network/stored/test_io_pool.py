"""ThreadIoPool: what its threads keep while they wait, and what ends them."""

import threading
import weakref

from headrace.network.stored.io_pool import ThreadIoPool
from testkit.waiting import wait_until


class Job:
    """May refer to batches in network memory, as jobs of a partition do."""

    def __call__(self) -> None:
        """Do nothing."""


def refuse() -> None:
    raise ValueError("a mistake in a job")


def test_a_thread_that_waits_keeps_nothing_of_its_last_job() -> None:
    pool = ThreadIoPool("test", thread_count=1)
    try:
        job = Job()
        kept = weakref.ref(job)
        pool.submit(job)
        del job
        wait_until(lambda: kept() is None, 10, "the job is forgotten")
        assert kept() is None
    finally:
        pool.close()


def test_a_thread_goes_on_after_a_job_that_raised_and_ends_with_the_pool() -> None:
    before = set(threading.enumerate())
    failures: list[str] = []
    pool = ThreadIoPool("test", 1, lambda error: failures.append(repr(error)))
    done = threading.Event()
    pool.submit(refuse)
    pool.submit(done.set)
    assert done.wait(10)
    pool.close()
    assert failures == ["ValueError('a mistake in a job')"], "its owner hears of it"
    assert set(threading.enumerate()) <= before
