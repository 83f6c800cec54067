"""The questions of `benchmarks.quick`: each gives what takes our seconds and the rival's, for the same work once."""

import os
import pickle
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.exchange import DISTINCT_BATCHES, Consumer, Exchange, raw_seconds
from benchmarks.growth.columnar import (
    count_in_one_window,
    count_in_sessions,
    pair_with_itself,
    seconds_of,
    write_rows,
)
from benchmarks.network.endpoints import RowMaker, key_group_selector
from benchmarks.programs.exchange_consumer import make_batch
from benchmarks.state.filled import FilledState, write
from headrace import StreamExecutionEnvironment
from headrace.common import Types, WatermarkStrategy
from headrace.core.config import Settings
from headrace.core.record_batch import RecordBatch
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.state import ValueStateDescriptor
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import DiscardingSink
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.state import ValueStateDescriptor as StateDescriptor
from headrace.spark.workers.cpu_affinity import take_place
from headrace.testing.minicluster_executor import MiniClusterExecutor

Pair = tuple[Callable[[], float], Callable[[], float]]
"""Seconds that we take, and that the rival takes, for the same work once."""
SESSION_GAP_MS: Final = 10_000
PORTION_ROWS: Final = 10
PORTION_COUNT: Final = 5_000


def timed(work: Callable[[], object]) -> float:
    """Return the processor seconds that `work` takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


@contextmanager
def exchange() -> Generator[Pair]:
    """Batches of 360 KB from process to process over a Unix socket; raw blocking sockets."""
    count, kept = 300, os.sched_getaffinity(0)
    place = take_place(Settings())
    consumer = Consumer()
    batches = [make_batch(4096, seed) for seed in range(DISTINCT_BATCHES)]
    with tempfile.TemporaryDirectory() as directory:
        sender = Exchange("unix", consumer, directory)
        sender.seconds(batches, count)
        yield (
            lambda: sender.seconds(batches, count),
            lambda: raw_seconds(consumer, batches, count, directory),
        )
        sender.close()
    consumer.close()
    if place is not None:
        place.release()
    os.sched_setaffinity(0, kept)


@contextmanager
def split() -> Generator[Pair]:
    """Rows of 200 bytes dealt out to 128 channels by their keys; numpy's sort and one `take`, without cutting."""
    rows, selector = RowMaker(200), key_group_selector(128)
    batch = rows.batch()
    arrow, hashes = batch.to_arrow(), batch.key_hashes
    assert hashes is not None

    def rival() -> None:
        for _ in range(50):
            arrow.take(pa.array(np.argsort(hashes % 128, kind="stable")))

    def ours() -> None:
        for _ in range(50):
            list(selector.select(batch))

    yield lambda: timed(ours), lambda: timed(rival)


@contextmanager
def state() -> Generator[Pair]:
    """A read and a write of one of 100,000 counts in keyed state on the heap; a dictionary."""
    keys = np.random.default_rng(7).integers(0, 100_000, 200_000).tolist()
    plain = dict.fromkeys(range(100_000), 0)

    def rival() -> None:
        for key in keys:
            plain[key] = (plain.get(key) or 0) + 1

    with FilledState("heap") as filled:
        scope = filled.backend.key_scope
        count: Any = filled.backend.get_state(StateDescriptor("count", Types.LONG()), scope)

        def ours() -> None:
            for key in keys:
                scope.entry = key
                count.update((count.value() or 0) + 1)

        ours()
        yield lambda: timed(ours), lambda: timed(rival)


@contextmanager
def snapshot() -> Generator[Pair]:
    """A checkpoint's file of 100,000 values of 100 bytes; pickle of a dictionary, into a file."""
    key_count, checkpoint = 100_000, iter(range(1, 1000))
    with FilledState("heap") as filled:
        filled.fill(key_count)
        values = {key: os.urandom(100) for key in range(key_count)}
        path = Path(filled.directory, "rival")

        def ours() -> None:
            write(*filled.freeze(next(checkpoint)))

        yield lambda: timed(ours), lambda: timed(lambda: path.write_bytes(pickle.dumps(values)))


@contextmanager
def group_by() -> Generator[Pair]:
    """A job that counts two million rows of a file per key, on columns; pyarrow's group_by of the same file."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_rows(directory, 2_000_000, 10_000, duration_ms=1_000_000)

        def rival() -> None:
            pq.read_table(directory).group_by("key", use_threads=False).aggregate(
                [([], "count_all")]
            )

        yield lambda: seconds_of(directory, count_in_one_window), lambda: timed(rival)


@contextmanager
def sessions() -> Generator[Pair]:
    """A job that counts two million rows of a file per session, on columns; numpy's sort and its differences."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_rows(directory, 2_000_000, 10_000, duration_ms=1_000_000)

        def rival() -> None:
            rows = pq.read_table(directory)
            keys, times = rows["key"].to_numpy(), rows["time"].to_numpy()
            order = np.lexsort((times, keys))
            keys, times = keys[order], times[order]
            begins = (np.diff(keys) != 0) | (np.diff(times) > SESSION_GAP_MS)
            np.diff(np.flatnonzero(begins))

        yield (
            lambda: seconds_of(directory, count_in_sessions(SESSION_GAP_MS)),
            lambda: timed(rival),
        )


@contextmanager
def join() -> Generator[Pair]:
    """A job that pairs 500,000 rows of a file with themselves, on columns, both sides kept; pyarrow's join of two."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_rows(directory, 500_000, 500_000, duration_ms=1_000_000)

        def rival() -> None:
            rows = pq.read_table(directory)
            rows.join(
                rows.rename_columns(["key", "again"]), "key", join_type="inner", use_threads=False
            )

        yield lambda: seconds_of(directory, pair_with_itself), lambda: timed(rival)


class _Count(KeyedProcessFunction):
    """Counts per key; gives nothing."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Ask for the state."""
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """Something in."""
        self._count.update((self._count.value() or 0) + 1)
        yield from ()


def _seconds_to_count(
    source: Any, record_type: Any, key: Callable[[Any], int], buffer_timeout_ms: int | None = None
) -> float:
    """Run a job that counts a source's records per key, one by one; return its processor seconds."""
    with MiniClusterExecutor(slot_count=1):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(1)
        if buffer_timeout_ms is not None:
            env.set_buffer_timeout(buffer_timeout_ms)
        records = env.from_source(source, WatermarkStrategy.no_watermarks(), "records", record_type)
        keyed = records.key_by(key, key_type=Types.LONG())
        keyed.process(_Count(), output_type=Types.LONG()).sink_to(DiscardingSink())
        return timed(lambda: env.execute("quick"))


@contextmanager
def function() -> Generator[Pair]:
    """A job that counts 300,000 numbers per key, one by one, in keyed state; a loop over a dictionary."""
    number_count = 300_000

    def rival() -> None:
        counts: dict[int, int] = {}
        for number in range(number_count):
            key = number % 1000
            counts[key] = (counts.get(key) or 0) + 1

    numbers = NumberSequenceSource(0, number_count - 1)
    yield (
        lambda: _seconds_to_count(numbers, Types.LONG(), lambda number: number % 1000),
        lambda: timed(rival),
    )


def _portion(first: int) -> pa.RecordBatch:
    """Return records of (key, number) from this number on."""
    numbers = np.arange(first, first + PORTION_ROWS, dtype=np.int64)
    return pa.RecordBatch.from_arrays(
        [pa.array(numbers % 1000), pa.array(numbers)], names=["f0", "f1"]
    )


class _Portions(Source):
    """A few records at once, again and again, as where they are few in a millisecond."""

    @property
    def boundedness(self) -> Boundedness:
        """Ends."""
        return Boundedness.BOUNDED

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        """One."""
        return _PortionReader(context)


class _PortionReader(SourceReader):
    def __init__(self, context: SubtaskContext) -> None:
        self._context, self._emitted = context, 0

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        """Nothing: no checkpoints are taken here."""
        return []

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        """Nothing is ever restored here."""
        raise NotImplementedError

    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit a portion."""
        columns = _portion(self._emitted)
        output.emit(RecordBatch.of_columns(self._context.types.output, columns))
        self._emitted += PORTION_ROWS
        is_over = self._emitted == PORTION_ROWS * PORTION_COUNT
        return InputStatus.END_OF_INPUT if is_over else InputStatus.MORE_AVAILABLE


@contextmanager
def portions() -> Generator[Pair]:
    """A job that counts per key in portions of ten that are handed on at once; the same on a dictionary."""

    def rival() -> None:
        counts: dict[int, int] = {}
        for first in range(0, PORTION_ROWS * PORTION_COUNT, PORTION_ROWS):
            for key in _portion(first).column(0).to_pylist():
                counts[key] = (counts.get(key) or 0) + 1

    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    yield (
        lambda: _seconds_to_count(_Portions(), pair, lambda pair: pair[0], buffer_timeout_ms=0),
        lambda: timed(rival),
    )


QUESTIONS: Final[dict[str, Callable[[], Any]]] = {
    one.__name__: one
    for one in (exchange, split, state, snapshot, group_by, sessions, join, function, portions)
}
