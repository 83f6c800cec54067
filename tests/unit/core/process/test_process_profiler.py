"""Profiles of this process: what computes, what waits, what takes memory; one at a time, the newest are kept."""

import threading
import tracemalloc
from collections.abc import Iterator

import pytest

from headrace.core.clock import SystemClock
from headrace.core.process.flame_graph import FlameGraphNode
from headrace.core.process.process_profiler import (
    ProcessProfiler,
    ProfileNotFoundError,
    ProfilerBusyError,
    ProfilingInfo,
    ProfilingMode,
    ProfilingStatus,
)
from headrace.core.process.stack_sampler import StackSampler
from headrace.core.threads import start_thread
from testkit.waiting import wait_until


def it_computes(end: threading.Event) -> None:
    while not end.is_set():
        sum(range(1000))


def it_waits(end: threading.Event) -> None:
    end.wait()


def it_takes_memory(end: threading.Event, kept: list[bytearray]) -> None:
    while not end.wait(0.01):
        kept.append(bytearray(10_000))


@pytest.fixture
def threads() -> Iterator[None]:
    end, kept = threading.Event(), list[bytearray]()
    started = [
        start_thread("it computes", lambda: it_computes(end)),
        start_thread("it waits", lambda: it_waits(end)),
        start_thread("it takes memory", lambda: it_takes_memory(end, kept)),
    ]
    yield
    end.set()
    for each in started:
        each.join()


def profiler_of(name: str, history_size: int = 10) -> ProcessProfiler:
    return ProcessProfiler(name, SystemClock(), history_size)


def finished(profiler: ProcessProfiler) -> ProfilingInfo:
    wait_until(lambda: profiler.profiles()[0].status is not ProfilingStatus.RUNNING)
    return profiler.profiles()[0]


def names(node: FlameGraphNode) -> Iterator[str]:
    yield node.name
    for child in node.children:
        yield from names(child)


def seen(profiler: ProcessProfiler, function: str) -> bool:
    graph = profiler.profile(finished(profiler).file_name)
    return any(f".{function}:" in name for name in names(graph))


@pytest.mark.usefixtures("threads")
def test_a_profile_shows_what_computes_what_waits_or_what_takes_memory() -> None:
    profiler = profiler_of("tm-1")
    for mode in (ProfilingMode.CPU, ProfilingMode.ITIMER, ProfilingMode.WALL, ProfilingMode.ALLOC):
        begun = profiler.start(mode, 1)
        assert (begun.status, begun.file_name, begun.finished_ms) == (
            ProfilingStatus.RUNNING,
            "",
            None,
        )
        info = finished(profiler)
        if mode is not ProfilingMode.ALLOC:
            assert seen(profiler, "it_computes")
            assert seen(profiler, "it_waits") == (mode is ProfilingMode.WALL)
    assert (info.message, info.mode.unit) == ("Profiling Successful", "bytes")
    assert info.finished_ms is not None
    assert 1_000 <= info.finished_ms - info.trigger_ms < 30_000
    allocated = profiler.profile(info.file_name)
    assert any(name.startswith(f"{__file__}:") for name in names(allocated))
    assert allocated.value >= 10_000
    assert not tracemalloc.is_tracing()


def test_one_profile_is_taken_at_a_time_and_the_newest_are_kept() -> None:
    profiler = profiler_of("tm-1", history_size=2)
    first = profiler.start(ProfilingMode.WALL, 1)
    with pytest.raises(ProfilerBusyError, match="tm-1 is still under profiling"):
        profiler.start(ProfilingMode.CPU, 1)
    kept = finished(profiler)
    assert (kept.trigger_ms, kept.file_name) == (
        first.trigger_ms,
        f"tm-1_WALL_{first.trigger_ms}.html",
    )
    assert profiler.profile(kept.file_name).value > 0
    for _ in range(2):
        assert profiler.start(ProfilingMode.LOCK, 1).status is ProfilingStatus.FAILED
    assert [each.mode for each in profiler.profiles()] == [ProfilingMode.LOCK] * 2
    with pytest.raises(ProfileNotFoundError, match="only the newest are kept"):
        profiler.profile(kept.file_name)


def test_what_cannot_be_profiled_says_why() -> None:
    profiler = profiler_of("tm-1")
    assert "WALL shows both" in profiler.start(ProfilingMode.LOCK, 1).message
    tracemalloc.start()
    try:
        assert "traces allocations already" in profiler.start(ProfilingMode.ALLOC, 1).message
    finally:
        tracemalloc.stop()
    with pytest.raises(ProfileNotFoundError):
        profiler.profile("")


def test_a_profile_that_fails_says_so_and_the_next_one_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a thread")

    profiler = profiler_of("tm-1")
    with monkeypatch.context() as patch:
        patch.setattr(StackSampler, "sample", broken)
        profiler.start(ProfilingMode.CPU, 1)
        failed = finished(profiler)
    assert (failed.status, failed.message) == (
        ProfilingStatus.FAILED,
        "Profiling failed: KeyError('a thread')",
    )
    assert profiler.start(ProfilingMode.CPU, 1).status is ProfilingStatus.RUNNING
    finished(profiler)
