"""The job that is measured: a source on a schedule, one keyed shuffle, a count in keyed state, a stopwatch behind it.

Source and keyed function are separate TaskManager processes of one machine where parallelism is 2, so that both read
the same clock. Latencies are gathered at the end of the chain and leave the job as arrays, two a second and subtask:
what carries results to the program must not be part of what is measured.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.common import Configuration, Types, WatermarkStrategy
from headrace.core.record_batch import RecordBatch
from headrace.datastream import (
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from headrace.datastream.state import ValueStateDescriptor
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
TICK_MS = 1
LAP_NS = 500_000_000
"""How much one array of latencies covers."""


@dataclass(frozen=True)
class Load:
    """What comes in, all subtasks together: `rate` records per second for so long; with 0 as many as are taken.

    As many as are taken come in the same portions as at `portion_rate`: one for each millisecond and subtask.
    """

    rate: int
    seconds: float
    parallelism: int = 2
    key_count: int = 1000
    portion_rate: int = 20_000


@dataclass(frozen=True)
class Lap:
    """Latencies of one subtask, in microseconds, of records that came between two moments of the wall clock."""

    subtask_index: int
    started_ns: int
    ended_ns: int
    latencies_us: np.ndarray[Any, np.dtype[np.int64]]


class SteadySource(Source):
    """Records of (key, stamp), each stamped with the moment it was due, or taken where there is no schedule."""

    def __init__(self, load: Load) -> None:
        self.load = load

    @property
    def boundedness(self) -> Boundedness:
        """Ends after its seconds."""
        return Boundedness.BOUNDED

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        """One per subtask."""
        return (
            SteadyReader(self.load, context) if self.load.rate else EagerReader(self.load, context)
        )


class _Reader(SourceReader):
    """Emits numbers modulo the key count, and knows how far it is."""

    def __init__(self, load: Load, context: SubtaskContext) -> None:
        self.load, self.context = load, context
        self.emitted = 0
        self.start_ns = 0

    def start(self) -> None:
        """Begin to count the time."""
        self.start_ns = time.time_ns()

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        """Return the number of records that were emitted."""
        return [self.emitted.to_bytes(8, "big")]

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        """Go on from there."""
        self.emitted = sum(int.from_bytes(split, "big") for split in splits)

    def emit(self, output: SourceOutput, stamps: "np.ndarray[Any, np.dtype[np.int64]]") -> None:
        """Emit the next records with these stamps."""
        numbers = np.arange(self.emitted, self.emitted + len(stamps), dtype=np.int64)
        columns = pa.RecordBatch.from_arrays(
            [pa.array(numbers % self.load.key_count), pa.array(stamps)], names=["f0", "f1"]
        )
        output.emit(RecordBatch.of_columns(self.context.types.output, columns))
        self.emitted += len(stamps)


class SteadyReader(_Reader):
    """Emits what is due at every tick; never ahead of time, and all that is due where it could not for a while."""

    def __init__(self, load: Load, context: SubtaskContext) -> None:
        super().__init__(load, context)
        rate = load.rate / load.parallelism
        self._interval_ns = int(1e9 / rate)
        self._total = int(rate * load.seconds)

    def start(self) -> None:
        """The first record is due now, and those before a restored position were."""
        self.start_ns = time.time_ns() - self.emitted * self._interval_ns

    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit the records that are due."""
        due = min(self._total, (time.time_ns() - self.start_ns) // self._interval_ns + 1)
        if due > self.emitted:
            numbers = np.arange(self.emitted, due, dtype=np.int64)
            self.emit(output, self.start_ns + numbers * self._interval_ns)
        if self.emitted == self._total:
            return InputStatus.END_OF_INPUT
        timers = self.context.timers
        timers.schedule(timers.now_ms() + TICK_MS, lambda _: self.context.wake())
        return InputStatus.NOTHING_AVAILABLE


class EagerReader(_Reader):
    """Emits portion after portion, as fast as they are taken."""

    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit a portion."""
        now_ns = time.time_ns()
        if now_ns - self.start_ns > self.load.seconds * 1e9:
            return InputStatus.END_OF_INPUT
        portion = max(1, self.load.portion_rate * TICK_MS // 1000 // self.load.parallelism)
        self.emit(output, np.full(portion, now_ns))
        return InputStatus.MORE_AVAILABLE


class Count(KeyedProcessFunction):
    """Counts the records of each key in value state, and hands each on."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Ask for the state."""
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: tuple[int, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int]]:
        """Key and stamp in, the same out."""
        self._count.update((self._count.value() or 0) + 1)
        yield value


class Stopwatch(FlatMapFunction):
    """The sink: reads the clock for each record; gives the fields of a lap, latencies as bytes, when one is full."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Begin with an empty lap."""
        self._subtask_index = runtime_context.get_index_of_this_subtask()
        self._started_ns = 0
        self._latencies: list[int] = []

    def flat_map(self, value: tuple[int, int]) -> Iterator[tuple[int, int, int, bytes]]:
        """Key and stamp in, a lap out now and then."""
        now_ns = time.time_ns()
        if not self._started_ns:
            self._started_ns = now_ns
        self._latencies.append((now_ns - value[1]) // 1000)
        if now_ns - self._started_ns >= LAP_NS:
            latencies = np.array(self._latencies, dtype=np.int64).tobytes()
            yield self._subtask_index, self._started_ns, now_ns, latencies
            self._started_ns, self._latencies = now_ns, []


def keyed_counts(environment: StreamExecutionEnvironment, load: Load) -> DataStream:
    """Return the stream of laps, whose program is what is measured."""
    steady = environment.from_source(
        SteadySource(load), WatermarkStrategy.no_watermarks(), "steady", PAIR
    )
    return (
        steady.key_by(lambda value: value[0], key_type=Types.LONG())
        .process(Count(), output_type=PAIR)
        .flat_map(Stopwatch(), output_type=Types.PICKLED_BYTE_ARRAY())
    )


def run_job(
    name: str, load: Load, settings: dict[str, str], buffer_timeout_ms: int | None
) -> list[Lap]:
    """Run the job to its end on Spark; return all full laps in the order of their start."""
    configuration = Configuration()
    for key, text in settings.items():
        configuration.set_string(key, text)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(load.parallelism)
    if buffer_timeout_ms is not None:
        environment.set_buffer_timeout(buffer_timeout_ms)
    with keyed_counts(environment, load).execute_and_collect(name) as collected:
        found = [
            Lap(subtask_index, started_ns, ended_ns, np.frombuffer(latencies, dtype=np.int64))
            for subtask_index, started_ns, ended_ns, latencies in collected
        ]
    return sorted(found, key=lambda lap: lap.started_ns)


def warm_laps(laps: Sequence[Lap], warm_up_seconds: float) -> list[Lap]:
    """Return those that began after the warm-up."""
    if not laps:
        return []
    begin_ns = laps[0].started_ns + warm_up_seconds * 1e9
    return [lap for lap in laps if lap.started_ns >= begin_ns]


def latency_figures(laps: Sequence[Lap]) -> dict[str, float]:
    """Return the percentiles of all records of these laps (at least one), in milliseconds."""
    return percentiles_of(np.concatenate([lap.latencies_us for lap in laps]))


def percentiles_of(latencies_us: "np.ndarray[Any, np.dtype[np.int64]]") -> dict[str, float]:
    """Return how many latencies there are (at least one), and their percentiles in milliseconds."""
    latencies = latencies_us / 1000
    percentiles = {
        f"p{p}_ms": round(float(np.percentile(latencies, p)), 3) for p in (50, 90, 99, 99.9)
    }
    return {"records": len(latencies), **percentiles, "max_ms": round(float(latencies.max()), 3)}


def records_per_second(laps: Sequence[Lap]) -> float:
    """Return how many records came in a second: each subtask's rate over its laps, added up."""
    rate = 0.0
    for subtask_index in {lap.subtask_index for lap in laps}:
        own = [lap for lap in laps if lap.subtask_index == subtask_index]
        duration_ns = sum(lap.ended_ns - lap.started_ns for lap in own)
        rate += sum(len(lap.latencies_us) for lap in own) / duration_ns * 1e9
    return rate
