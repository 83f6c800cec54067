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
"""Weight of a batch relative to the next one."""


class Target(Protocol):
    """Receiver of an operator's main or side output.

    `makes_columns`: rows are converted to columns before `receive` returns, so that later changes to them have no
    effect. `reads_rows`: rows are read as Python values.
    """

    makes_columns: bool
    reads_rows: bool

    def receive(self, batch: RecordBatch) -> None:
        """Process rows (num_rows >= 1)."""
        ...

    def receive_watermark(self, timestamp_ms: int) -> None:
        """Process a watermark, which is larger than the previous one."""
        ...

    def receive_status(self, is_idle: bool) -> None:
        """Process a change of idleness."""
        ...

    def receive_latency_marker(self, marker: LatencyMarker) -> None:
        """Process a latency marker, at its position among the rows."""
        ...


class OperatorOutput:
    """Output of one operator: drops empty batches and stale watermarks, and passes the rest to its targets.

    If several targets get the same rows, each gets a copy, unless `reuses_objects`: user code behind one
    may change them. Writers are served first: they convert rows to columns at once, and so need no copy.

    Side outputs are separate streams, so all targets get every watermark. `check_interrupted` raises if the
    task must stop, which a function that emits forever would not notice otherwise.
    A latency marker goes to one target, drawn from `random`. In BATCH mode (`is_batch`) event time does not advance
    until its end, so that no record is late.
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
            # The end of event time must also be sent by an idle output.
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
        """Send a latency marker to one target, or drop it if there is none.

        Source: Flink BroadcastingOutputCollector.
        """
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
        """Pass the batch to the operator by reference."""
        self._process_batch(batch, self._output)

    def receive_watermark(self, timestamp_ms: int) -> None:
        """Let the operator fire timers and forward the watermark."""
        self._operator.process_watermark(timestamp_ms, self._output)

    def receive_status(self, is_idle: bool) -> None:
        """Let the operator forward the change."""
        self._operator.process_status(is_idle, self._output)

    def receive_latency_marker(self, marker: LatencyMarker) -> None:
        """Pass on the marker."""
        self._pass_marker(marker)


class PacedTarget:
    """Passes parts of a source's batches to the next operator, for chains with per-record functions."""

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
    """Passes rows, without markers between them, to `write`, which converts them to columns.

    Errors of `write` name the operator that made the rows.
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
        except USER_EXCEPTIONS as error:  # from pickling or a partitioner
            raise self._blame(error) from error

    def receive_watermark(self, timestamp_ms: int) -> None:
        """Drop the watermark: for readers, the end of the rows is the end of event time."""

    def receive_status(self, is_idle: bool) -> None:
        """Drop the change."""

    def receive_latency_marker(self, marker: LatencyMarker) -> None:
        """Drop the marker."""


class NetworkTarget:
    """Writes to a record writer, and flushes it `hold_ms` after the first element that it holds back.

    Rows are converted to columns here, so that a record which does not fit its declared type is reported for the
    operator that made it. Latency markers go to a channel drawn from `random`; without it they are dropped.
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
        """Partition and write the rows."""
        try:
            batch.columns()
        except USER_EXCEPTIONS as error:  # records are pickled by their own classes
            raise self._blame(error) from error
        self._counters.records_out += batch.num_rows
        self._write(lambda: self._writer.emit(batch))
        self._schedule_flush()

    def receive_watermark(self, timestamp_ms: int) -> None:
        """Write the watermark between the rows."""
        self._counters.output_watermark = timestamp_ms
        self._writer.emit_marker(Watermark(timestamp_ms))
        self._schedule_flush()

    def receive_status(self, is_idle: bool) -> None:
        """Write the change between the rows."""
        self._writer.emit_marker(WatermarkStatus(is_idle))
        self._schedule_flush()

    def receive_latency_marker(self, marker: LatencyMarker) -> None:
        """Write the marker between the rows of one channel."""
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
    """Return a batch with copies of its records; immutable records are shared."""
    if is_unchanging_type(batch.batch_type.value_type):
        return batch
    if batch.is_columnar:
        return batch.without_rows()
    rows = batch.rows()
    return batch if are_unchanging(rows) else batch.with_rows(list(map(private_copy, rows)))


class ChainEnd:
    """Ends a chain from head to tail: each operator's last rows pass through the operators after it."""

    def __init__(self, operators: Sequence[tuple[Operator, Output]]) -> None:
        self._operators = operators
        self._index = 0
        self._is_input_ended = True  # the task ends the head's input

    def proceed(self) -> bool:
        """Finish operators until one is not drained yet (return False) or all have finished (return True)."""
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
    """Estimates from the latest batches the share of a source's rows that reach a writer at the end of its chain.

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
        """Return the most rows for the source to emit at once, so that the writer gets no more than wanted."""
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
        # At least one row counts as arrived: a filter may drop all of the latest batches, but not the next ones.
        return int(wanted * max(1.0, self._emitted_lately / max(1.0, self._arrived_lately)))
