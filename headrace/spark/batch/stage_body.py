"""The body of a stage's Spark tasks: runs a StageTask on the partition's rows, and passes its failure to the driver."""

import base64
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from headrace.cluster.error_reports import error_info_of
from headrace.core.config import Settings
from headrace.core.ids import JobVertexId
from headrace.core.process.interpreter import settle_interpreter
from headrace.core.process.process_log import PRINT_PREFIX, print_prefix
from headrace.gateways.messages import ErrorInfo
from headrace.spark.batch.stage_files import StageFiles
from headrace.spark.batch.stage_memory import memory_watched
from headrace.spark.batch.subtask_reports import ReportSender, SubtaskReporter
from headrace.spark.workers.worker_output import redirect_standard_output
from headrace.spark.workers.worker_process import external_resources
from headrace.task.batch.stage_rows import RECEIVER, START_ROW
from headrace.task.batch.stage_task import StageSpec, StageTask

_MARK: Final = "headrace-failure:"
"""Text before a base64-encoded ErrorInfo, in the exception that Spark carries to the driver."""
_END_OF_MARK: Final = ":"


class StageFailure(msgspec.Struct, frozen=True):
    """An error of a subtask. `vertex_id`: hexadecimal."""

    error: ErrorInfo
    vertex_id: str
    subtask_index: int


class StageFailedError(Exception):
    """Carries an error through Spark as text; the message for users comes first."""

    def __init__(self, error: BaseException, vertex_id: JobVertexId, subtask_index: int) -> None:
        failure = StageFailure(error_info_of(error), vertex_id.hex(), subtask_index)
        encoded = base64.b64encode(msgspec.msgpack.encode(failure)).decode()
        super().__init__(f"{failure.error.text}\n{_MARK}{encoded}{_END_OF_MARK}")


def failure_in(text: str) -> StageFailure | None:
    """Return the StageFailure in the text of a Spark exception; None if there is none."""
    _, mark, rest = text.rpartition(_MARK)
    if not mark:
        return None
    encoded = base64.b64decode(rest.partition(_END_OF_MARK)[0])
    return msgspec.msgpack.decode(encoded, type=StageFailure)


def run_stage(
    spec: StageSpec,
    output_pipe: str,
    sender: ReportSender | None,
    files: StageFiles | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Run the subtask of this partition. Printed lines go to `output_pipe`, or if it is empty to Spark's own output.

    `sender` receives its reports, if they are wanted. `files` are those that its functions find.
    """
    context = TaskContext.get()
    assert context is not None, "a stage runs only in a Spark task"
    # A full collection would walk through all modules each time that a few batches of rows were made.
    settle_interpreter()
    with redirect_standard_output(output_pipe), ExitStack() as held:
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return  # a share of a DataFrame that has no rows
        subtask_index = first.column(RECEIVER if RECEIVER in first.schema.names else START_ROW)[
            0
        ].as_py()
        task: StageTask | None = None
        vertex_id = spec.vertex.vertex_id
        PRINT_PREFIX.set(print_prefix(subtask_index, spec.vertex.parallelism))
        reporter: SubtaskReporter | None = None
        rows: Iterator[pa.RecordBatch] = chain([first], filled)
        try:
            if files is not None:
                settings = held.enter_context(files.settings(spec.settings))
                spec = replace(spec, settings=settings)
            failure = partial(StageFailedError, vertex_id=vertex_id, subtask_index=subtask_index)
            held.enter_context(memory_watched(spec.vertex.name, Settings(spec.settings), failure))
            task = StageTask(
                spec, subtask_index, context.taskAttemptId(), external_resources(context)
            )
            if sender is not None:
                reporter = SubtaskReporter(sender, vertex_id, subtask_index, task.counts)
                yield from reporter.writing(task.run(reporter.reading(rows)))
            else:
                yield from task.run(rows)
            for _ in rows:
                pass  # a source reads none, and Spark gives this process another task only where all was read
        except GeneratorExit:
            raise
        except BaseException as error:
            if reporter is not None:
                reporter.failed()
            located = error if task is None else task.located(error)
            raise StageFailedError(located, vertex_id, subtask_index) from None
        finally:
            if reporter is not None:
                reporter.close()
            if task is not None:
                task.close()
            # This process may run another stage on the same thread.
            PRINT_PREFIX.set("")
