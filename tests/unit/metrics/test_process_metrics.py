"""Process metrics: names, units, and waits that are measured."""

import gc
import os
import threading
from collections.abc import Callable

from headrace.core.clock import ManualClock, SystemClock
from headrace.metrics.metric_name import MetricScope
from headrace.metrics.names import METRIC_NAMES
from headrace.metrics.process_metrics import (
    GarbageCollections,
    LookPeriods,
    ProcessWatcher,
    RecentRates,
    RecentWaits,
    process_metrics,
)

TIMEOUT_S = 20.0
LAG, LAG_MAX = "Status.Headrace.ControlThread.LagMs", "Status.Headrace.ControlThread.LagMaxMs"


def test_every_metric_of_a_process_stands_in_the_table() -> None:
    known = {row.name for row in METRIC_NAMES if row.scope is MetricScope.PROCESS}
    assert len(process_metrics()) > 15
    assert process_metrics().keys() <= known


def test_memory_is_what_the_process_has_and_may_have() -> None:
    values = process_metrics(memory_limit_bytes=123)
    assert values["Status.JVM.Memory.Heap.Max"] == 123
    assert values["Status.JVM.Memory.Heap.Used"] > 10 << 20
    assert process_metrics()["Status.JVM.Memory.Heap.Max"] > 1 << 28


def test_threads_and_files_are_counted() -> None:
    before, end = process_metrics(), threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    values = process_metrics()
    end.set()
    for thread in threads:
        thread.join()
    name = "Status.JVM.Threads.Count"
    assert values[name] >= before[name] + 3
    assert 0 < values["Status.JVM.FileDescriptor.Open"] < values["Status.JVM.FileDescriptor.Max"]


def test_collections_are_counted_with_their_time() -> None:
    before = process_metrics()
    gc.collect()
    after = process_metrics()
    count, time_ms = (f"Status.JVM.GarbageCollector.All.{name}" for name in ("Count", "Time"))
    assert after[count] > before[count] and after[time_ms] > before[time_ms]


def test_the_load_is_a_share_of_all_processors() -> None:
    assert 0 <= process_metrics()["Status.JVM.CPU.Load"] <= 1
    assert process_metrics()["Status.JVM.CPU.Time"] > 1_000_000


def test_the_first_load_is_that_since_the_beginning_and_not_since_the_machine_started() -> None:
    booted_ns, worked_ns, second_ns = 86_400 * 10**9, 5 * 10**9, 10**9
    rates = RecentRates(booted_ns, worked_ns)
    busy_ns = second_ns * (os.cpu_count() or 1)
    load, gc_ms_per_s = rates.read(booted_ns + 2 * second_ns, worked_ns + busy_ns, second_ns // 10)
    assert (load, gc_ms_per_s) == (0.5, 50)


def test_readers_within_a_second_get_the_same_load() -> None:
    rates = RecentRates(0, 0)
    first = rates.read(10**9, 10**9, 0)
    assert rates.read(10**9 + 1, 2 * 10**9, 10**9) == first != (0, 0)


def test_threads_that_come_first_together_have_each_collection_counted_once() -> None:
    collections, before = GarbageCollections(), list(gc.callbacks)
    gate = threading.Barrier(8)

    def come() -> None:
        gate.wait(TIMEOUT_S)
        collections.count()

    threads = [threading.Thread(target=come) for _ in range(gate.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    added = [each for each in gc.callbacks if each not in before]
    for each in added:
        gc.callbacks.remove(each)
    assert len(added) == 1


def test_waits_are_told_by_mean_and_maximum_of_the_last_ones() -> None:
    waits = RecentWaits()
    assert waits.snapshot("mean", "most") == {}
    waits.add(100.0, 0)
    for index in range(60):
        waits.add(2.0 + (-1) ** index, (index + 1) * 10**9)
    assert waits.snapshot("mean", "most")["most"] == 100, "a minute is not over"
    waits.add(2.0, 60 * 10**9 + 1)
    assert waits.snapshot("mean", "most") == {"mean": 2, "most": 3}


def test_a_wait_that_ended_early_is_none() -> None:
    waits = RecentWaits()
    waits.add(-0.5, 0)
    assert waits.snapshot("mean", "most") == {"mean": 0, "most": 0}


def test_a_process_that_does_next_to_nothing_is_looked_at_less_often_until_it_works_again() -> None:
    periods = LookPeriods()
    assert [periods.next_s(0.01) for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]
    assert [periods.next_s(0.5) for _ in range(2)] == [0.1, 0.1]
    assert periods.next_s(0.0) == 0.2


def test_the_lag_of_the_control_thread_is_the_time_until_it_runs_a_call() -> None:
    clock, calls = ManualClock(), list[Callable[[], None]]()
    watcher = ProcessWatcher(clock, calls.append)
    watcher.ask()
    clock.advance_ms(4)
    calls.pop()()
    watcher.ask()
    clock.advance_ms(6)
    calls.pop()()
    assert watcher.snapshot() == {LAG: 5, LAG_MAX: 6}


def test_while_the_control_thread_does_not_answer_its_lag_grows_and_it_is_not_asked_again() -> None:
    clock, calls = ManualClock(), list[Callable[[], None]]()
    watcher = ProcessWatcher(clock, calls.append)
    for _ in range(10):
        watcher.ask()
        clock.advance_ms(100)
    assert len(calls) == 1
    assert watcher.snapshot() == {LAG: 1000, LAG_MAX: 1000}


def test_a_watcher_is_read_while_it_runs() -> None:
    asked = threading.Semaphore(0)

    def post(call: Callable[[], None]) -> None:
        call()
        asked.release()

    watcher = ProcessWatcher(SystemClock(), post).start()
    try:
        assert asked.acquire(timeout=TIMEOUT_S)
        values = process_metrics()
    finally:
        watcher.stop()
        watcher.stop()
    wait = "Status.Headrace.InterpreterLock.WaitMs"
    assert LAG in values and 0 <= values[wait] < 1000 * TIMEOUT_S
    assert LAG not in process_metrics()


def test_a_loop_that_is_closed_is_asked_in_vain() -> None:
    def post(call: Callable[[], None]) -> None:
        raise RuntimeError("the loop is closed")

    watcher = ProcessWatcher(ManualClock(), post)
    watcher.ask()
    assert watcher.snapshot() == {}
