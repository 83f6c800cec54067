"""Unpickles user code, each payload once, on the thread of the task that runs it. No other module unpickles it.

Unpickling usually fails because a module is installed on the driver but not on this worker.
"""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from headrace.core.config import Settings
from headrace.core.errors import UNKNOWN_LOCATION, USER_EXCEPTIONS, UserCodeError
from headrace.core.operator_spec import OperatorTypes
from headrace.core.process.interpreter import put_on_path
from headrace.core.record_batch import RecordBatch
from headrace.core.types.pickles import unpickle_value
from headrace.graph.function_location import user_location_of
from headrace.graph.job_graph import (
    ChainedOperator,
    JobVertex,
    PartitionerSpec,
    Payload,
    VertexPayloads,
)
from headrace.graph.pipeline_options import PYTHON_FILES
from headrace.network.batches.channel_selectors import (
    Channels,
    ChannelSelector,
    CustomSelector,
    Selection,
    create_selector,
)
from headrace.network.errors import InvalidChannelError
from headrace.network.partitions.pipelined_partition import PipelinedResultPartition
from headrace.network.writers.record_writer import RecordWriter, create_record_writer
from headrace.operators.runtime.user_code import user_error
from headrace.task.environment import PartitionOutput, TaskEnvironment

T = TypeVar("T")


def find_modules(settings: Settings) -> None:
    """Put the job's Python files on the import path, if they exist on this host.

    A worker may have started before the job was written; files shipped by Spark are on the path already.
    """
    named = [text.strip() for text in settings.get_option(PYTHON_FILES).split(",")]
    put_on_path(path for path in map(Path, filter(None, named)) if path.exists())


def load_types(vertex: JobVertex, payloads: VertexPayloads) -> list[OperatorTypes]:
    """Load the types of the operators, in order. UserCodeError with the operator's name if that fails."""
    return [
        _load(operator, "types", payload)
        for operator, payload in zip(vertex.operators, payloads.types, strict=True)
    ]


def load_specs(vertex: JobVertex, payloads: VertexPayloads) -> list[Any]:
    """Load the functions and collections of the operators, in order.

    UserCodeError with the operator's name if that fails.
    """
    return [
        _load(operator, "function", payload)
        for operator, payload in zip(vertex.operators, payloads.specs, strict=True)
    ]


def create_writers(environment: TaskEnvironment, payloads: VertexPayloads) -> list[RecordWriter]:
    """Return a writer per output, with the user's partitioner if there is one.

    UserCodeError with the operator's name if the partitioner cannot be loaded.
    """
    return [
        create_record_writer(
            output.partition,
            _create_selector(environment, output, payload),
            output.edge.buffer_timeout_ms,
            environment.clock,
            environment.settings,
        )
        for output, payload in zip(environment.outputs, payloads.partitioners, strict=True)
    ]


def _create_selector(
    environment: TaskEnvironment, output: PartitionOutput, payload: Payload
) -> ChannelSelector:
    source_id = output.edge.source_operator_id
    source = next(o for o in environment.vertex.operators if o.operator_id == source_id)
    partition = output.partition
    try:
        selector = create_selector(
            PartitionerSpec(output.edge.partitioner.kind, bytes(payload)),
            output.partition.subpartition_count,
            output.consumer_max_parallelism,
            environment.random,
            environment.settings,
            partition.load_of if isinstance(partition, PipelinedResultPartition) else None,
        )
    except USER_EXCEPTIONS as error:
        raise _not_loadable(error, "partitioner", source) from error
    return _BlamingSelector(selector, source) if isinstance(selector, CustomSelector) else selector


class _BlamingSelector:
    """Reports errors of the user's partitioner as errors of the operator whose rows it distributes."""

    is_broadcast = False
    deals_rows = True

    def __init__(self, selector: CustomSelector, operator: ChainedOperator) -> None:
        self._selector = selector
        self._operator_name = operator.name
        self._location = user_location_of([selector.partitioner], operator.location)

    def select(self, batch: RecordBatch) -> Selection:
        return self._blame(self._selector.select, batch)

    def channels_of(self, batch: RecordBatch) -> Channels:
        return self._blame(self._selector.channels_of, batch)

    def _blame(self, ask: Callable[[RecordBatch], T], batch: RecordBatch) -> T:
        try:
            return ask(batch)
        except InvalidChannelError as error:
            # No user code is on the stack: the result was wrong, not the call.
            raise UserCodeError(
                type(error).__name__, str(error), self._operator_name, self._location, ""
            ) from error
        except USER_EXCEPTIONS as error:
            raise user_error(error, self._operator_name) from error


def _load(operator: ChainedOperator, what: str, payload: Payload) -> Any:
    try:
        return unpickle_value(payload)
    except USER_EXCEPTIONS as error:
        raise _not_loadable(error, what, operator) from error


def _not_loadable(error: BaseException, what: str, operator: ChainedOperator) -> UserCodeError:
    return UserCodeError(
        type(error).__name__,
        f"{error}; the {what} cannot be loaded on the worker; ship its modules with --python-files",
        operator.name,
        operator.location or UNKNOWN_LOCATION,
        traceback.format_exc(),
    )
