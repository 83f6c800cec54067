"""A sink that throws records away and says how many came, to the process in which it runs."""

from typing import Final

from headrace.core.record_batch import RecordBatch
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import DiscardingSink, SinkWriter


class RowCount:
    """How many rows have come to the sinks of this process."""

    def __init__(self) -> None:
        self.rows = 0


COUNT: Final = RowCount()


class CountingSink(DiscardingSink):
    """Throws every record away, and counts it in COUNT. For one subtask: additions of two could get lost."""

    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        return _Counted()


class _Counted(SinkWriter):
    def write_batch(self, batch: RecordBatch) -> None:
        COUNT.rows += batch.num_rows

    def flush(self, end_of_input: bool) -> None:
        pass
