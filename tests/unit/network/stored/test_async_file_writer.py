"""AsyncFileWriter: order, the limit, errors and the end, with an I/O pool that runs a job when it is told to."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.network.errors import StorageError
from headrace.network.stored.chunk_writer import AsyncFileWriter
from headrace.network.stored.io_pool import InlineIo, ThreadIoPool
from tests.unit.network.stored.held_io import HeldIo


@given(sizes=st.lists(st.integers(1, 9), max_size=12), runs=st.lists(st.booleans(), max_size=30))
def test_chunks_are_written_in_order_one_at_a_time(sizes: list[int], runs: list[bool]) -> None:
    io = HeldIo()
    behind = AsyncFileWriter(io, 1000)
    written: list[int] = []
    for number, size in enumerate(sizes):
        behind.submit(size, lambda number=number: written.append(number))
        if runs and runs.pop() and io.jobs:
            io.run_one()
        assert len(io.jobs) <= 1
        assert behind.pending_bytes == sum(sizes[len(written) : number + 1])
    io.close()
    behind.drain()
    assert written == list(range(len(sizes)))


def test_the_task_waits_only_where_more_than_the_limit_would_be_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    io = HeldIo()
    behind = AsyncFileWriter(io, 10)
    pending_at_waits: list[int] = []

    def write_one_while_waiting(timeout: float | None = None) -> bool:
        pending_at_waits.append(behind.pending_bytes)
        io.run_one()
        return True

    condition = behind._condition  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(condition, "wait", write_one_while_waiting)
    behind.await_room(100)  # alone, however large
    behind.submit(6, lambda: None)
    behind.await_room(4)
    assert pending_at_waits == []
    behind.await_room(5)
    assert pending_at_waits == [6]
    assert behind.pending_bytes == 0


def test_a_write_wakes_the_task_that_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    io = HeldIo()
    behind = AsyncFileWriter(io, 10)
    behind.submit(6, lambda: None)
    condition = behind._condition  # pyright: ignore[reportPrivateUsage]
    wait = condition.wait
    is_about_to_wait = threading.Event()

    def wait_and_say_so(timeout: float | None = None) -> bool:
        # The lock is held until the wait has begun: a write gets it only after that.
        is_about_to_wait.set()
        return wait(timeout)

    monkeypatch.setattr(condition, "wait", wait_and_say_so)
    task = threading.Thread(target=lambda: behind.await_room(5), daemon=True)
    task.start()
    assert is_about_to_wait.wait(10)
    io.run_one()
    task.join(10)
    assert not task.is_alive()


def test_an_error_of_the_disk_reaches_the_task_and_nothing_is_written_after_it() -> None:
    io = HeldIo()
    behind = AsyncFileWriter(io, 10)
    written: list[int] = []

    def fail() -> None:
        raise StorageError("x", "No space left on device")

    behind.submit(1, fail)
    behind.submit(1, lambda: written.append(1))
    io.close()
    for call in (
        lambda: behind.await_room(1),
        lambda: behind.submit(1, lambda: written.append(2)),
        behind.drain,
    ):
        with pytest.raises(StorageError, match="No space left"):
            call()
    assert written == []
    assert not io.jobs


def test_where_jobs_do_not_run_beside_the_task_it_writes_itself() -> None:
    behind = AsyncFileWriter(InlineIo(), 1)
    written: list[int] = []
    for number in range(3):
        behind.await_room(10)
        behind.submit(10, lambda number=number: written.append(number))
        assert written[-1] == number
    behind.drain()


def test_a_pool_that_closes_writes_what_it_was_given() -> None:
    io = ThreadIoPool("writes", 2)
    behind = AsyncFileWriter(io, 1 << 20)
    written: list[int] = []
    for number in range(200):
        behind.submit(1, lambda number=number: written.append(number))
    io.close()
    behind.drain()
    assert written == list(range(200))
