"""ReceivedQueue: the task takes while the transport clears, and neither counts what the other had."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from headrace.core.barriers import CheckpointBarrier, CheckpointOptions
from headrace.core.threads import start_thread
from headrace.network.flow.credit import Charge
from headrace.network.gates.remote_channel import QueuedBatch, ReceivedQueue
from headrace.network.wire.frames import Data


class InterruptedBody(bytes):
    """A body at whose counting another thread has its turn, once `then` was given."""

    then: Callable[[], object] | None = None

    def __len__(self) -> int:
        then, self.then = self.then, None
        if then is not None:
            then()
        return super().__len__()


def batch(number: int, body: bytes = bytes(100)) -> QueuedBatch:
    """One that costs `number`, which says whose cost was returned."""
    return QueuedBatch(Data(0, number, 1, 0, 0, 0, (), body), Charge(number, 0), None, None, False)


def filled(*batches: QueuedBatch) -> ReceivedQueue:
    queue = ReceivedQueue("a peer")
    for one in batches:
        queue.add_batch(one)
    return queue


def numbers_of(charges: list[Charge]) -> list[int]:
    return [one.exclusive_count for one in charges]


@contextmanager
def threads_that_change_often() -> Generator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_what_is_cleared_while_the_task_takes_is_counted_once() -> None:
    body = InterruptedBody(bytes(100))
    queue = filled(batch(0, body), batch(1), batch(2))
    cleared: list[Charge] = []
    body.then = lambda: cleared.extend(queue.clear())
    assert queue.take() is not None
    assert numbers_of(cleared) == [1, 2]
    assert (len(queue), queue.size_bytes) == (0, 0)
    queue.add_batch(batch(3))
    assert queue.size_bytes == 100


def test_what_the_task_takes_while_it_is_cleared_is_left_to_the_task() -> None:
    body = InterruptedBody(bytes(100))
    queue = filled(batch(0, body), batch(1), batch(2))
    taken: list[object] = []
    body.then = lambda: taken.append(queue.take())
    assert numbers_of(queue.clear()) == [0, 2]
    assert taken == [batch(1)]
    assert queue.size_bytes == 0


def test_between_two_threads_each_batch_is_taken_or_dropped() -> None:
    with threads_that_change_often():
        for _ in range(200):
            queue = filled(*map(batch, range(50)))
            taken: list[Charge] = []

            def take_all(queue: ReceivedQueue = queue, taken: list[Charge] = taken) -> None:
                while isinstance(item := queue.take(), QueuedBatch):
                    taken.append(item.charge)

            task = start_thread("task", take_all)
            while len(queue) > 40:
                pass
            dropped = queue.clear()
            task.join()
            assert sorted(numbers_of([*taken, *dropped])) == list(range(50))
            assert queue.size_bytes == 0


def test_only_batches_cost_something() -> None:
    queue = filled(batch(0))
    queue.add_event(CheckpointBarrier(1, 0, CheckpointOptions()), 1, has_priority=False)
    queue.add_batch(batch(2))
    assert (len(queue), queue.size_bytes) == (3, 200)
    assert numbers_of(queue.clear()) == [0, 2]
