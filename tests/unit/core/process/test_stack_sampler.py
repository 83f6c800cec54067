"""Samples of threads that compute, wait, call deeply and end, with their own clocks and with made-up ones."""

import os
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from headrace.core.clock import SystemClock
from headrace.core.process.flame_graph import FlameGraphNode
from headrace.core.process.stack_sampler import (
    StackSampler,
    StackSamples,
    merged_samples,
    sample_stacks,
)
from headrace.core.threads import ThreadIds, own_thread_ids, start_thread

CLOCK = SystemClock()


class Sampled:
    """A thread that runs `body` until the test ends it."""

    def __init__(self, body: Callable[[threading.Event], None]) -> None:
        self._began, self._end = threading.Event(), threading.Event()
        self.ids = ThreadIds(0, 0)

        def run() -> None:
            self.ids = own_thread_ids()
            self._began.set()
            body(self._end)

        self._thread = start_thread("sampled", run)
        self._began.wait()

    def end(self) -> None:
        self._end.set()
        self._thread.join()


def it_waits(end: threading.Event) -> None:
    end.wait()


def it_computes(end: threading.Event) -> None:
    while not end.is_set():
        sum(range(1000))


def it_goes_down(end: threading.Event, depth: int = 50) -> None:
    if depth:
        it_goes_down(end, depth - 1)
    else:
        end.wait()


def it_computes_and_writes(end: threading.Event) -> None:
    """A thread that lets others run at one place alone, where it is for a hundredth of its time."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    while not end.is_set():
        sum(range(20_000))
        os.write(nowhere, b"x")
    os.close(nowhere)


@pytest.fixture
def waiting() -> Iterator[Sampled]:
    thread = Sampled(it_waits)
    yield thread
    thread.end()


def names(graph: FlameGraphNode) -> Iterator[str]:
    for child in graph.children:
        yield child.name
        yield from names(child)


def depth(graph: FlameGraphNode) -> int:
    return 1 + max((depth(child) for child in graph.children), default=0)


def test_a_thread_that_waits_is_off_the_processor(waiting: Sampled) -> None:
    samples = sample_stacks({0: waiting.ids}, CLOCK, 5, 1, 100)
    assert (samples.sample_count, samples.subtask_indexes) == (5, (0,))
    assert samples.off_cpu.value == samples.full.value == 5
    assert samples.on_cpu.value == 0
    assert samples.begin_ms <= samples.end_ms


def test_a_thread_that_computes_is_on_the_processor_and_named_by_module_function_and_line() -> None:
    thread = Sampled(it_computes)
    samples = sample_stacks({3: thread.ids}, CLOCK, 30, 2, 100)
    thread.end()
    assert samples.subtask_indexes == (3,)
    # Other programs may take the processor from it for a while, but hardly all the time.
    assert samples.on_cpu.value > 0
    assert samples.full.value == 30
    function = f"{it_computes.__module__}.it_computes:"
    assert any(name.startswith(function) for name in names(samples.on_cpu))


def test_the_frames_that_start_a_thread_are_left_off_and_what_follows_is_kept(
    waiting: Sampled,
) -> None:
    samples = sample_stacks({0: waiting.ids}, CLOCK, 1, 1, 100)
    (outermost,) = samples.full.children
    assert outermost.name.startswith(f"{__name__}.Sampled.__init__.<locals>.run:")
    assert any(name.startswith("threading.Event.wait:") for name in names(samples.full))


def test_a_thread_is_seen_where_it_spends_its_time_and_not_where_it_lets_others_run() -> None:
    interval_s = sys.getswitchinterval()
    thread = Sampled(it_computes_and_writes)
    full = sample_stacks({0: thread.ids}, CLOCK, 40, 2, 100).full
    thread.end()
    (run,) = full.children
    first = it_computes_and_writes.__code__.co_firstlineno
    by_line = {int(each.name.rpartition(":")[2]) - first: each.value for each in run.children}
    assert by_line[4] > full.value / 2, by_line
    assert sys.getswitchinterval() == interval_s


def test_the_share_on_the_processor_is_added_up_and_rounded_once(waiting: Sampled) -> None:
    class Used:
        """A clock of a thread that is on a processor for a quarter of each look."""

        def __init__(self) -> None:
            self.times = 0

        def __call__(self, _: int) -> int:
            self.times += 1
            return self.times // 3 * 500_000

    class Steps(SystemClock):
        """A clock by which each look takes 2 ms."""

        def __init__(self) -> None:
            self.now = 0

        def monotonic_ns(self) -> int:
            self.now += 2_000_000
            return self.now

    sampler = StackSampler(Steps(), 100, cpu_ns=Used())
    on_cpu, off_cpu, taken = sampler.sample(lambda: (waiting.ids,), 8, 0)
    assert (taken, on_cpu.value, off_cpu.value) == (8, 2, 6)


def test_no_more_frames_are_kept_than_asked_for_and_they_are_the_innermost() -> None:
    thread = Sampled(it_goes_down)
    samples = sample_stacks({0: thread.ids}, CLOCK, 1, 1, 5)
    thread.end()
    assert depth(samples.full) == 6, "with the root"
    assert any(name.startswith("threading.Condition.wait:") for name in names(samples.full))


def test_sampling_ends_with_the_last_thread() -> None:
    thread = Sampled(it_waits)
    thread.end()
    samples = sample_stacks({0: thread.ids}, CLOCK, 1000, 50, 100)
    assert samples.sample_count == 0
    assert samples.full.value == 0


def test_no_threads_are_no_work() -> None:
    samples = sample_stacks({}, CLOCK, 1000, 50, 100)
    assert samples == StackSamples(samples.begin_ms, samples.begin_ms)


@pytest.mark.parametrize(("delay_ms", "count"), [(0, 4), (61_000, 1)])
def test_sampling_is_over_after_a_minute_whatever_was_asked_for(
    waiting: Sampled, delay_ms: int, count: int
) -> None:
    class Hurried(SystemClock):
        """A clock by which 5 seconds pass between two looks at it."""

        def __init__(self) -> None:
            self.now = 0

        def monotonic_ns(self) -> int:
            self.now += 5_000_000_000
            return self.now

    samples = sample_stacks({0: waiting.ids}, Hurried(), 1 << 40, delay_ms, 100)
    assert samples.sample_count == count


def test_samples_of_several_task_managers_are_merged() -> None:
    on_cpu = FlameGraphNode("root", 2, (FlameGraphNode("m.f:1", 2),))
    off_cpu = FlameGraphNode("root", 1, (FlameGraphNode("m.g:1", 1),))
    empty = StackSamples(5, 5)
    one = StackSamples(10, 20, 3, (0,), on_cpu, off_cpu)
    other = StackSamples(12, 30, 2, (4, 1), on_cpu)
    both = merged_samples([one, empty, other], 99)
    assert (both.begin_ms, both.end_ms, both.sample_count) == (10, 30, 3)
    assert both.subtask_indexes == (0, 1, 4)
    assert both.on_cpu == FlameGraphNode("root", 4, (FlameGraphNode("m.f:1", 4),))
    assert both.full.value == 5
    assert merged_samples([empty], 99) == StackSamples(99, 99)
