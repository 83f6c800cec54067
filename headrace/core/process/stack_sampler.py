"""Stack sampler: samples the call stacks of threads, and tells whether each thread was on a processor.

A sample is the stack of Python frames that a thread has at one moment; time in a C function counts for the line that
called it. It is taken while the sampler holds the interpreter, so that a thread which computes in Python does not run
at that moment, and its state in the kernel says nothing. Therefore the sampler looks at the thread's own processor
clock right after the stack and again 2 ms later: the share of that time that the thread was on a processor is the
weight with which the sample counts as on the processor, and the rest counts as off it. Weights are added up for each
stack and rounded once.

A thread that requests the interpreter gets it when another thread releases it voluntarily, as around each write to a
file, and forces a switch only after 5 ms (0.5 ms in TaskManagers). A simple sampler would see only those places. So the
sampler, once it has woken up, shortens this time to a microsecond, releases the interpreter for up to a millisecond,
and samples when it has it again: at any line that the thread has reached, or at the end of its C function.

Limits: a thread that starts or stops waiting within the 2 ms is told apart only in proportion; a thread that
waits for the interpreter or for a free processor counts as off the processor; and a place where a thread lets others
run is still seen too often by the share of time that the 60 µs before it have, which is what waking up takes.

Cost: per sample three wake-ups of one thread, and the walk along the stacks. Nothing runs between samplings.
Source: Flink ThreadInfoSampleService, VertexFlameGraphFactory; FLIP-165.
"""

import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Final

import msgspec

from headrace.core.clock import Clock
from headrace.core.process.flame_graph import EMPTY, FlameGraphNode, Stack, flame_graph, merged
from headrace.core.process.thread_dump import thread_cpu_ns
from headrace.core.threads import ThreadIds, current_frames

DEPTH_MAX: Final = 300
"""Largest number of sampled frames of a stack, because trees of stacks are walked by recursion."""
DURATION_MAX_MS: Final = 60_000
"""Maximum duration of one sampling."""
_WINDOW_S: Final = 0.002
_SHORTEST_SWITCH_INTERVAL_S: Final = 1e-6
_ABSENCE_MAX_S: Final = 0.001
_GOLDEN_RATIO: Final = 0.618033988749895
"""Its multiples modulo one are spread evenly, so that pauses of these lengths do not keep step with a task's loop."""
_THREAD_STARTS: Final = ("threading", "headrace.core.threads", "headrace.task.task_runner")
"""Modules whose frames begin the stack of every task thread, and are omitted there."""

# The switch interval is the process's: two samplings must not take each other's for the usual one.
_SWITCHING: Final = threading.Lock()

_Place = tuple[int, int]
"""Identity of a code object, and a line in it."""


class StackSamples(msgspec.Struct, frozen=True):
    """Call stacks of the subtasks of one vertex. `sample_count`: number of samples of each thread.

    It is 0 if none of `subtask_indexes` runs, or none has a thread.
    """

    begin_ms: int
    end_ms: int
    sample_count: int = 0
    subtask_indexes: tuple[int, ...] = ()
    on_cpu: FlameGraphNode = EMPTY
    off_cpu: FlameGraphNode = EMPTY

    @property
    def full(self) -> FlameGraphNode:
        """Return the graph of both on-processor and off-processor samples."""
        return merged((self.on_cpu, self.off_cpu))


@dataclass
class _Weights:
    """Samples of one stack: their number, and the part of them on the processor."""

    count: int = 0
    on_cpu: float = 0.0


@dataclass
class StackSampler:
    """One sampling of some threads; used once, on a thread of its own, which it blocks.

    `cpu_ns` reads the processor clock of a thread by its native id.
    """

    clock: Clock
    depth_max: int
    duration_max_ms: int = DURATION_MAX_MS
    cpu_ns: Callable[[int], int | None] = thread_cpu_ns
    _names: dict[_Place, tuple[str, str]] = field(default_factory=dict[_Place, tuple[str, str]])
    _codes: dict[int, CodeType] = field(default_factory=dict[int, CodeType])

    def sample(
        self, threads: Callable[[], Sequence[ThreadIds]], sample_count: int, delay_ms: float
    ) -> tuple[FlameGraphNode, FlameGraphNode, int]:
        """Sample the threads that `threads` returns `sample_count` times, every `delay_ms`, within `duration_max_ms`.

        Return the graphs on and off the processor, and the number of samples taken before all threads had ended.
        """
        weights: defaultdict[tuple[_Place, ...], _Weights] = defaultdict(_Weights)
        pause = threading.Event()
        begin_ns = self.clock.monotonic_ns()
        taken = 0
        for number in range(sample_count):
            due_ns, now_ns = begin_ns + int(number * delay_ms * 1e6), self.clock.monotonic_ns()
            if max(due_ns, now_ns) - begin_ns > self.duration_max_ms * 1_000_000:
                break
            pause.wait(max(0.0, (due_ns - now_ns) / 1e9))
            absence_s = number * _GOLDEN_RATIO % 1 * _ABSENCE_MAX_S
            if not self._take(threads(), weights, pause, absence_s):
                break
            taken += 1
        return *self._graphs(weights), taken

    def _take(
        self,
        threads: Sequence[ThreadIds],
        weights: defaultdict[tuple[_Place, ...], _Weights],
        pause: threading.Event,
        absence_s: float,
    ) -> bool:
        """Take one sample; return whether a thread was there."""
        # The clocks first: an ended thread's id may soon be reused, but its clock no longer exists.
        living = [each for each in threads if self.cpu_ns(each.native_id) is not None]
        frames = _frames_at_any_place(pause, absence_s)
        stacks = [
            (each, self._places(frames[each.ident])) for each in living if each.ident in frames
        ]
        del frames  # the frames would keep objects alive that the threads have finished with
        if not stacks:
            return False
        before_ns = self.clock.monotonic_ns()
        used_ns = [self.cpu_ns(each.native_id) for each, _ in stacks]
        pause.wait(_WINDOW_S)
        after = [self.cpu_ns(each.native_id) for each, _ in stacks]
        elapsed_ns = max(1, self.clock.monotonic_ns() - before_ns)
        for (_, places), begin, end in zip(stacks, used_ns, after, strict=True):
            weight = weights[places]
            weight.count += 1
            if begin is not None and end is not None:
                weight.on_cpu += min(1.0, (end - begin) / elapsed_ns)
        return True

    def _places(self, frame: FrameType | None) -> tuple[_Place, ...]:
        """Return the innermost frames, innermost first."""
        found: list[_Place] = []
        while frame is not None and len(found) < self.depth_max:
            code, line = frame.f_code, frame.f_lineno
            place = (id(code), line or code.co_firstlineno)
            if place not in self._names:
                # Keep a reference, because the identity of a freed object is reused.
                self._codes[id(code)] = code
                module = str(frame.f_globals.get("__name__", "?"))
                self._names[place] = (module, f"{module}.{code.co_qualname}:{place[1]}")
            found.append(place)
            frame = frame.f_back
        return tuple(found)

    def _graphs(
        self, weights: defaultdict[tuple[_Place, ...], _Weights]
    ) -> tuple[FlameGraphNode, FlameGraphNode]:
        totals: defaultdict[Stack, _Weights] = defaultdict(_Weights)
        for places, weight in weights.items():
            total = totals[self._stack(places)]
            total.count += weight.count
            total.on_cpu += weight.on_cpu
        on_cpu: Counter[Stack] = Counter()
        off_cpu: Counter[Stack] = Counter()
        for stack, total in totals.items():
            on_cpu[stack] = min(total.count, round(total.on_cpu))
            off_cpu[stack] = total.count - on_cpu[stack]
        return flame_graph(on_cpu), flame_graph(off_cpu)

    def _stack(self, places: tuple[_Place, ...]) -> Stack:
        """Return the names of the frames, outermost first, without those with which every task thread begins."""
        names = [self._names[place] for place in reversed(places)]
        begin = 0
        while begin < len(names) - 1 and names[begin][0] in _THREAD_STARTS:
            begin += 1
        return tuple(name for _, name in names[begin:])


def _frames_at_any_place(pause: threading.Event, absence_s: float) -> dict[int, FrameType]:
    """Return all threads' frames at a moment that is independent of where threads release the interpreter."""
    with _SWITCHING:
        usual_s = sys.getswitchinterval()
        sys.setswitchinterval(_SHORTEST_SWITCH_INTERVAL_S)
        try:
            pause.wait(absence_s)
            return current_frames()
        finally:
            sys.setswitchinterval(usual_s)


def sample_stacks(
    threads: dict[int, ThreadIds],
    clock: Clock,
    sample_count: int,
    delay_ms: int,
    depth_max: int,
) -> StackSamples:
    """Sample the threads of subtasks, given by subtask index. Blocks for `sample_count` times `delay_ms`."""
    begin_ms = clock.now_ms()
    if not threads:
        return StackSamples(begin_ms, begin_ms)
    sampler = StackSampler(clock, max(1, min(depth_max, DEPTH_MAX)))
    looked_at = tuple(threads.values())
    on_cpu, off_cpu, taken = sampler.sample(
        lambda: looked_at, max(0, sample_count), max(0, delay_ms)
    )
    return StackSamples(begin_ms, clock.now_ms(), taken, tuple(sorted(threads)), on_cpu, off_cpu)


def merged_samples(parts: Iterable[StackSamples], now_ms: int) -> StackSamples:
    """Return the merged samples of all parts of a vertex; parts without a subtask are left out."""
    sampled = [part for part in parts if part.subtask_indexes]
    if not sampled:
        return StackSamples(now_ms, now_ms)
    return StackSamples(
        min(part.begin_ms for part in sampled),
        max(part.end_ms for part in sampled),
        max(part.sample_count for part in sampled),
        tuple(sorted({index for part in sampled for index in part.subtask_indexes})),
        merged(part.on_cpu for part in sampled),
        merged(part.off_cpu for part in sampled),
    )
