"""A job with known output: paced numbers, counted per key after a shuffle, and recorded for the check."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from headrace.api.environment import StreamExecutionEnvironment
from headrace.connectors.files.formats.text_lines import StreamFormat
from headrace.connectors.files.source.file_source import FileSource
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import Types
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import Sink, SinkWriter
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.watermarks import WatermarkStrategy
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph

KEY_COUNT: Final = 7
BATCH_ROWS: Final = 10
_SPLIT_SIZE: Final = 20

Counted = tuple[int, int]

# Output of sink subtasks at their end, by job name; the last attempt of each counts.
_outputs: Final[dict[str, dict[int, list[Counted]]]] = {}


class PacedSource(Source):
    """Source whose subtask i of n emits i, i+n, i+2n … below `count`, ten rows per `interval_ms` of processing time.

    `fail_at`: the number at which it fails once; `is_checkpoint_awaited`: it fails only after a checkpoint is complete,
    and so after all tasks run.
    """

    def __init__(
        self,
        count: int,
        interval_ms: int,
        fail_at: int | None = None,
        *,
        is_checkpoint_awaited: bool = False,
    ) -> None:
        self.count = count
        self.interval_ms = interval_ms
        self.fail_at = fail_at
        self.is_checkpoint_awaited = is_checkpoint_awaited

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return _PacedReader(self, context)


class _PacedReader(SourceReader):
    """Reader whose splits are (next number, step); unfinished splits take turns."""

    def __init__(self, source: PacedSource, context: SubtaskContext) -> None:
        self._source = source
        self._context = context
        self._splits = deque([(context.subtask_index, context.parallelism)])
        self._due_ms = context.clock.now_ms()
        self._is_checkpoint_awaited = source.is_checkpoint_awaited

    def poll_next(self, output: SourceOutput) -> InputStatus:
        while self._splits and self._splits[0][0] >= self._source.count:
            self._splits.popleft()
        if not self._splits:
            return InputStatus.END_OF_INPUT
        if self._context.clock.now_ms() < self._due_ms:
            return InputStatus.NOTHING_AVAILABLE
        first, step = self._splits[0]
        rows = list(range(first, min(first + BATCH_ROWS * step, self._source.count), step))
        if self._source.fail_at in rows and self._context.attempt_number == 0:
            if self._is_checkpoint_awaited:
                return InputStatus.NOTHING_AVAILABLE
            raise ValueError(f"number {self._source.fail_at} has to fail")
        self._splits.popleft()
        self._splits.append((first + len(rows) * step, step))
        output.emit(RecordBatch.of_rows(self._context.types.output, rows))
        self._due_ms += self._source.interval_ms
        self._context.timers.schedule(self._due_ms, lambda _: self._context.wake())
        return InputStatus.NOTHING_AVAILABLE

    def pending_record_count(self) -> int:
        # Any thread asks.
        splits = list(self._splits)
        return sum(len(range(first, self._source.count, step)) for first, step in splits)

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        return [msgspec.msgpack.encode(split) for split in self._splits]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._is_checkpoint_awaited = False
        self._context.wake()

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        self._splits = deque(
            msgspec.msgpack.decode(split, type=tuple[int, int]) for split in splits
        )


class RecordingSink(Sink):
    """Keeps rows until the end of input and then records them under the job's name."""

    def __init__(self, job_name: str) -> None:
        self.job_name = job_name

    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        return _RecordingWriter(self.job_name, context.subtask_index)


class _RecordingWriter(SinkWriter):
    def __init__(self, job_name: str, subtask_index: int) -> None:
        self._job_name = job_name
        self._subtask_index = subtask_index
        self._rows: list[Counted] = []

    def write_batch(self, batch: RecordBatch) -> None:
        self._rows.extend(batch.rows())

    def flush(self, end_of_input: bool) -> None:
        if end_of_input:
            _outputs.setdefault(self._job_name, {})[self._subtask_index] = self._rows

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        return [msgspec.msgpack.encode(_tuples(self._rows))]

    def restore_state(self, items: Sequence[bytes]) -> None:
        for item in items:
            self._rows += msgspec.msgpack.decode(item, type=list[Counted])


def counting_job(
    job_id: JobId,
    name: str,
    *,
    count: int,
    interval_ms: int,
    parallelism: int,
    settings: dict[str, str],
    fail_at: int | None = None,
    is_checkpoint_awaited: bool = False,
    numbers_path: str | None = None,
    is_sliced: bool = False,
) -> JobGraph:
    """Return the job: for each number it emits its key and the count of that key's numbers so far.

    `fail_at`, `is_checkpoint_awaited`: see PacedSource. `numbers_path`: a file of the numbers, one per
    line, instead of the paced source; it is cut into many splits.
    `is_sliced`: no subtask exchanges rows with another slice, so that each slice restarts separately.
    """
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    source: Source = PacedSource(
        count, interval_ms, fail_at, is_checkpoint_awaited=is_checkpoint_awaited
    )
    if numbers_path is not None:
        lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), numbers_path)
        source = lines.with_split_size(_SPLIT_SIZE).build()
    pair = Types.TUPLE([Types.INT(), Types.INT()])
    numbers = env.from_source(
        source, WatermarkStrategy.no_watermarks(), "Paced", source.produced_type or Types.INT()
    )
    if is_sliced:
        numbers.map(_counted, output_type=pair).disable_chaining().sink_to(RecordingSink(name))
    else:
        (
            numbers.map(_with_key if numbers_path is None else _line_with_key, output_type=pair)
            .key_by(_key_of, key_type=Types.INT())
            .reduce(_add)
            .sink_to(RecordingSink(name))
        )
    return generate_job_graph(env.get_stream_graph(name), job_id, Settings(settings))


def expected_output(count: int) -> Counter[Counted]:
    """Return the expected output of the job, which does not depend on the order of arrival."""
    per_key = Counter(number % KEY_COUNT for number in range(count))
    return Counter((key, n) for key, total in per_key.items() for n in range(1, total + 1))


def output_of(job_name: str) -> Counter[Counted]:
    """Return the output of the job's sinks."""
    return Counter(row for rows in _outputs.get(job_name, {}).values() for row in _tuples(rows))


def forget_output(job_name: str) -> None:
    """Forget the recorded output of a job of that name."""
    _outputs.pop(job_name, None)


def _tuples(rows: Iterable[Any]) -> list[Counted]:
    return [(int(row[0]), int(row[1])) for row in rows]


def _with_key(number: int) -> Counted:
    return number % KEY_COUNT, 1


def _line_with_key(line: str) -> Counted:
    return _with_key(int(line))


def _counted(number: int) -> Counted:
    """Return the counted row expected for a number, computed from the number alone."""
    return number % KEY_COUNT, number // KEY_COUNT + 1


def _key_of(pair: Counted) -> int:
    return pair[0]


def _add(one: Counted, other: Counted) -> Counted:
    return one[0], one[1] + other[1]
