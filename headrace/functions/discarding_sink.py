"""DiscardingSink: takes records and throws them away, to see how fast a program is without its sink."""

from headrace.core.record_batch import RecordBatch
from headrace.functions.sink import Sink, SinkWriter
from headrace.functions.subtask_context import SubtaskContext


class DiscardingSink(Sink):
    """Throws every record away; the job still counts what it was given. Source: Flink DiscardingSink.

    Example:
        >>> from headrace.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> sink = env.from_collection([1, 2]).sink_to(DiscardingSink())
    """

    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        return _Discard()


class _Discard(SinkWriter):
    def write_batch(self, batch: RecordBatch) -> None:
        pass

    def flush(self, end_of_input: bool) -> None:
        pass
