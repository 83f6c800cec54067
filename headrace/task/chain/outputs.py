"""Outputs of operators: to the next operator of the chain, to the network, to side outputs, or to several of these.

Source: Flink ChainingOutput, BroadcastingOutputCollector, RecordWriterOutput.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from headrace.core.clock import Clock
from headrace.core.elements import (
    MAX_WATERMARK,
    MIN_TIMESTAMP,
    LatencyMarker,
    Watermark,
    WatermarkStatus,
)
from headrace.core.errors import USER_EXCEPTIONS
from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import RecordBatch
from headrace.core.types.record_copies import (
    are_unchanging,
    is_unchanging_type,
    private_copy,
)
from headrace.network.errors import RecordTooLargeError
from headrace.network.flow.buffer_debloater import UNLIMITED_ROWS
from headrace.network.writers.record_writer import RecordWriter
from headrace.operators.runtime.operator import OneInputOperator, Operator, Output
from headrace.task.mailbox import MailboxTimers
from headrace.task.metrics import TaskCounters
from headrace.task.paced_rows import PacedRows

_MEMORY: Final = 0.5
"""Weight of a batch against the next one."""


class Target(Protocol):
    """Target of an operator's main or side output.

    `makes_columns`: rows become columns before `receive` returns, so that later changes of them have no effect.
    `reads_rows`: rows are read as Python values.
    """

    makes_columns: bool
    reads_rows: bool

    def receive(self, batch: RecordBatch) -> None:
        """Take rows (num_rows >= 1)."""
        ...

    def receive_watermark(self, timestamp_ms: int) -> None:
        """Take a watermark that grew."""
        ...

    def receive_status(self, is_idle: bool) -> None:
        """Take a change of idleness."""
        ...

    def receive_latency_marker(self, marker: LatencyMarker) -> None:
        """Take a latency marker, in its place among the rows."""
        ...


class OperatorOutput:
    """The Output that one operator holds: filters empty batches and stale watermarks, then serves its targets.

    Where several targets get the same rows, each has rows of its own, unless `reuses_objects`: user code behind one
    may change them. Writers are served first: they make columns at once, and so need no copy.

    Side outputs are streams of their own, so that all targets get every watermark. `check_interrupted` raises if the
    task is to stop, which a function that emits forever would not notice otherwise.
    A latency marker goes to one target, drawn from `random`. In BATCH mode (`is_batch`) event time stands still until
    its end, so that no record is late.
    """

    def __init__(
        self,
        check_interrupted: Callable[[], None] = lambda: None,
        *,
        reuses_objects: bool = False,
        random: SeededRandom | None = None,
        is_batch: bool = False,
    ) -> None:
        self._is_batch: Final = is_batch
        self.check_interrupted: Final = check_interrupted
        self._random: Final = random or SeededRandom(0)
        self._reuses_objects = reuses_objects
        self._main: list[Target] = []
        self._sides: dict[str, list[Target]] = {}
        self._all: list[Target] = []
        self.watermark = MIN_TIMESTAMP
        """Last watermark that was sent."""
        self._is_idle = False
        self.records_out = 0
        self.reads_rows = False

    def add_target(self, target: Target, side_output_tag: str | None) -> None:
        """Connect a target while the chain is built."""
        targets = (
            self._main if side_output_tag is None else self._sides.setdefault(side_output_tag, [])
        )
        targets.append(target)
        self.reads_rows = any(each.reads_rows for each in self._main)
        targets.sort(key=lambda one: not one.makes_columns)
        self._all.append(target)

    def emit(self, batch: RecordBatch) -> None:
        self.check_interrupted()
        if batch.num_rows:
            self.records_out += batch.num_rows
            self._serve(self._main, batch)

    def emit_side(self, tag_id: str, batch: RecordBatch) -> None:
        if batch.num_rows:
            self._serve(self._sides.get(tag_id, ()), batch)

    def _serve(self, targets: Sequence[Target], batch: RecordBatch) -> None:
        last = len(targets) - 1
        for index, target in enumerate(targets):
            is_shared = index < last and not target.makes_columns and not self._reuses_objects
            target.receive(with_private_rows(batch) if is_shared else batch)

    def emit_watermark(self, timestamp_ms: int) -> None:
        if timestamp_ms <= self.watermark or (self._is_batch and timestamp_ms != MAX_WATERMARK):
            return
        if self._is_idle:
            if timestamp_ms != MAX_WATERMARK:
                return
            # The end of event time must not be swallowed by an idle output.
            self.emit_status(False)
        self.watermark = timestamp_ms
        for target in self._all:
            target.receive_watermark(timestamp_ms)

    def emit_status(self, is_idle: bool) -> None:
        if is_idle != self._is_idle:
            self._is_idle = is_idle
            for target in self._all:
                target.receive_status(is_idle)

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        """Send a latency marker one way; it ends where nothing follows. Source: Flink BroadcastingOutputCollector."""
        if self._all:
            self._random.choice(self._all).receive_latency_marker(marker)


class ChainedTarget:
    """Calls the next operator of the chain. `pass_marker` reports a latency marker and sends it on."""

    makes_columns = False

    def __init__(
        self,
        operator: OneInputOperator,
        output: Output,
        pass_marker: Callable[[LatencyMarker], None],
    ) -> None:
        self.reads_rows = operator.is_per_record
        self._operator = operator
        self._process_batch = operator.process_batch
        self._output = output
        self._pass_marker = pass_marker

    def receive(self, batch: RecordBatch) -> None:
        """Hand the batch over by reference."""
        self._process_batch(batch, self._output)

    def receive_watermark(self, timestamp_ms: int) -> None:
        """Let the operator fire timers and forward."""
        self._operator.process_watermark(timestamp_ms, self._output)

    def receive_status(self, is_idle: bool) -> None:
        """Let the operator forward."""
        self._operator.process_status(is_idle, self._output)

    def receive_latency_marker(self, marker: LatencyMarker) -> None:
        """Pass the marker on."""
        self._pass_marker(marker)


class PacedTarget:
    """Calls the next operator behind a source with parts of batches, for chains with per-record functions."""

    makes_columns = False

    def __init__(self, target: ChainedTarget, clock: Clock) -> None:
        self.reads_rows = target.reads_rows
        self.rows: Final = PacedRows(
            clock,
            target.receive,
            target.receive_watermark,
            target.receive_status,
            target.receive_latency_marker,
        )
        self.receive = self.rows.batch
        self.receive_watermark = self.rows.watermark
        self.receive_status = self.rows.status
        self.receive_latency_marker = self.rows.latency_marker


class WrittenTarget:
    """Hands rows to `write`, which makes columns of them; there are no markers between them.

    What `write` refuses is blamed on the operator that made the rows.
    """

    makes_columns = True
    reads_rows = False

    def __init__(
        self,
        write: Callable[[RecordBatch], None],
        blame: Callable[[BaseException], BaseException],
    ) -> None:
        self._write = write
        self._blame = blame

    def receive(self, batch: RecordBatch) -> None:
        """Write the rows."""
        try:
            self._write(batch)
        except USER_EXCEPTIONS as error:  # of pickling, and of a partitioner
            raise self._blame(error) from error

    def receive_watermark(self, timestamp_ms: int) -> None:
        """Drop it: readers know the end of event time by the end of the rows."""

    def receive_status(self, is_idle: bool) -> None:
        """Drop it."""

    def receive_latency_marker(self, marker: LatencyMarker) -> None:
        """Drop it."""


class NetworkTarget:
    """Writes to a record writer, and flushes it `hold_ms` after the first element that waits in it.

    Rows become columns here, so that a record which does not fit its declared type is blamed on the operator that
    made it. Latency markers go to a channel drawn from `random`; without one they end here.
    """

    makes_columns = True
    reads_rows = False

    def __init__(
        self,
        writer: RecordWriter,
        timers: MailboxTimers,
        counters: TaskCounters,
        blame: Callable[[BaseException], BaseException],
        random: SeededRandom | None = None,
    ) -> None:
        self._writer = writer
        self._random = random
        self._timers = timers
        self._counters = counters
        self._blame = blame
        self._is_flush_scheduled = False

    def receive(self, batch: RecordBatch) -> None:
        """Partition and write."""
        try:
            batch.columns()
        except USER_EXCEPTIONS as error:  # records are pickled by their own classes
            raise self._blame(error) from error
        self._counters.records_out += batch.num_rows
        self._write(lambda: self._writer.emit(batch))
        self._schedule_flush()

    def receive_watermark(self, timestamp_ms: int) -> None:
        """Write in band."""
        self._counters.output_watermark = timestamp_ms
        self._writer.emit_marker(Watermark(timestamp_ms))
        self._schedule_flush()

    def receive_status(self, is_idle: bool) -> None:
        """Write in band."""
        self._writer.emit_marker(WatermarkStatus(is_idle))
        self._schedule_flush()

    def receive_latency_marker(self, marker: LatencyMarker) -> None:
        """Write in band, to one of the channels."""
        if self._random is not None:
            channel = self._random.randrange(self._writer.partition.subpartition_count)
            self._writer.emit_latency_marker(marker, channel)
            self._schedule_flush()

    def _schedule_flush(self) -> None:
        if self._is_flush_scheduled:
            return
        hold_ms = self._writer.hold_ms
        if hold_ms > 0:
            self._is_flush_scheduled = True
            self._timers.schedule(self._timers.nearest_ms(hold_ms), self._flush)

    def _flush(self, _time_ms: int) -> None:
        self._is_flush_scheduled = False
        self._write(self._writer.flush_all)

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except RecordTooLargeError as error:
            raise self._blame(error) from error


def with_private_rows(batch: RecordBatch) -> RecordBatch:
    """Return the records in a batch with rows of its own; records that cannot be changed are shared."""
    if is_unchanging_type(batch.batch_type.value_type):
        return batch
    if batch.is_columnar:
        return batch.without_rows()
    rows = batch.rows()
    return batch if are_unchanging(rows) else batch.with_rows(list(map(private_copy, rows)))


class ChainEnd:
    """Ends a chain from head to tail: each operator's last rows pass through those behind it."""

    def __init__(self, operators: Sequence[tuple[Operator, Output]]) -> None:
        self._operators = operators
        self._index = 0
        self._is_input_ended = True  # the head's, by the task

    def proceed(self) -> bool:
        """Finish operators until one is not drained yet (False) or all have finished (True)."""
        while self._index < len(self._operators):
            operator, output = self._operators[self._index]
            if not self._is_input_ended:
                operator.end_input(0, output)
                self._is_input_ended = True
            if not operator.is_drained:
                return False
            operator.finish(output)
            self._index += 1
            self._is_input_ended = False
        return True


class RowsWanted:
    """Learns from the latest batches the share of a source's rows that come to a writer at the end of its chain.

    A checkpoint waits for the rows that a source has emitted, so that a slow consumer wants few rows. If filters or
    aggregations lie between source and network, only some of its rows reach the network, and it may emit more.
    """

    def __init__(self, writer: RecordWriter, source: OperatorOutput) -> None:
        self._writer: Final = writer
        self._source: Final = source
        self._emitted_before = 0
        self._arrived_before = 0
        self._emitted_lately = 0.0
        self._arrived_lately = 0.0

    def rows(self) -> int:
        """Return the limit of rows that the source emits at once, so that the writer gets no more than wanted."""
        wanted = self._writer.rows_wanted
        if wanted >= UNLIMITED_ROWS:
            return UNLIMITED_ROWS
        emitted, arrived = self._source.records_out, self._writer.records_out
        if emitted > self._emitted_before:
            self._emitted_lately *= _MEMORY
            self._arrived_lately *= _MEMORY
            self._emitted_lately += emitted - self._emitted_before
            self._arrived_lately += arrived - self._arrived_before
            self._emitted_before, self._arrived_before = emitted, arrived
        # At least one row counts as arrived: a filter may drop all of the latest batches, and not the next ones.
        return int(wanted * max(1.0, self._emitted_lately / max(1.0, self._arrived_lately)))
