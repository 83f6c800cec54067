"""Operators at the end of a pipeline: print and collect. Sinks have `sink_writer`.

Source: Flink PrintSinkOutputWriter, CollectSinkFunction.
"""

import sys

import pyarrow as pa

from headrace.core.errors import USER_EXCEPTIONS
from headrace.core.operator_events import END, PIECE_SIZE_MAX, cut, mark_of
from headrace.core.record_batch import RecordBatch, stream_bytes
from headrace.core.types.java_text import text_function
from headrace.functions.specs.operator_specs import CollectSinkSpec, PrintSinkSpec
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.runtime.user_code import user_error


class PrintOperator(OneInputOperator):
    """Writes one line per row to standard output, all lines of a batch at once.

    Prefix: nothing, `id> `, `2> ` or `id:2> `, where 2 is the subtask's index plus one and stands only where the
    operator runs in parallel.
    """

    def __init__(self, spec: PrintSinkSpec) -> None:
        self._identifier = spec.identifier

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._text_of = text_function(context.types.inputs[0].value_type)
        parts = [self._identifier] if self._identifier else []
        if context.parallelism > 1:
            parts.append(str(context.subtask_index + 1))
        self._prefix = f"{':'.join(parts)}> " if parts else ""

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        prefix, text_of = self._prefix, self._text_of
        try:
            lines = [f"{prefix}{text_of(row)}\n" for row in batch.rows()]
        except USER_EXCEPTIONS as error:  # the user's own __str__
            raise user_error(error, self.context.operator_name) from error
        sys.stdout.write("".join(lines))
        sys.stdout.flush()


class CollectOperator(OneInputOperator):
    """Sends its rows to the coordinator `collect`, in order, as Arrow IPC streams of the data columns.

    Batches are split until a stream is about one piece; what is larger still, a single row, goes in several
    (`headrace.core.operator_events`). Nothing is kept here.
    """

    def __init__(self, spec: CollectSinkSpec) -> None:
        pass

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        self._send(batch.columns())

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int, output: Output) -> None:
        self.context.send_event(mark_of(checkpoint_id))

    def finish(self, output: Output) -> None:
        self.context.send_event(END)

    def _send(self, columns: pa.RecordBatch) -> None:
        row_count = columns.num_rows
        if row_count > 1 and columns.nbytes > PIECE_SIZE_MAX:
            half = row_count // 2
            self._send(columns.slice(0, half))
            self._send(columns.slice(half))
        else:
            for event in cut(stream_bytes(columns.schema, [columns])):
                self.context.send_event(event)
