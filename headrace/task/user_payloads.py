"""The one place where user code is unpickled: on the thread of the task that runs it, each payload once.

What cannot be loaded is most often a module that the driver has and this worker has not.
"""

import pickle
import traceback
from typing import Any, Final

from headrace.core.errors import UserCodeError
from headrace.core.operator_types import OperatorTypes
from headrace.graph.job_graph import ChainedOperator, JobVertex, PartitionerSpec
from headrace.graph.payloads import Payload, VertexPayloads
from headrace.network.partitioner import ChannelSelector, create_selector
from headrace.network.record_writer import RecordWriter
from headrace.task.environment import PartitionOutput, TaskEnvironment

UNKNOWN_LOCATION: Final = "unknown location"


def load_types(vertex: JobVertex, payloads: VertexPayloads) -> list[OperatorTypes]:
    """The types of each operator, in order. UserCodeError names the operator."""
    return [
        _load(operator, "types", payload)
        for operator, payload in zip(vertex.operators, payloads.types, strict=True)
    ]


def load_specs(vertex: JobVertex, payloads: VertexPayloads) -> list[Any]:
    """What each operator is made from, functions and collections, in order. UserCodeError names the operator."""
    return [
        _load(operator, "function", payload)
        for operator, payload in zip(vertex.operators, payloads.specs, strict=True)
    ]


def create_writers(environment: TaskEnvironment, payloads: VertexPayloads) -> list[RecordWriter]:
    """A writer for each output, with the user's partitioner where there is one. UserCodeError names the operator."""
    return [
        RecordWriter(
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
    try:
        return create_selector(
            PartitionerSpec(output.edge.partitioner.kind, bytes(payload)),
            output.partition.subpartition_count,
            environment.attempt_id.subtask_index,
            output.consumer_max_parallelism,
            environment.random,
            environment.settings,
        )
    except Exception as error:
        source_id = output.edge.source_operator_id
        source = next(o for o in environment.vertex.operators if o.operator_id == source_id)
        raise _not_loadable(error, "partitioner", source) from error


def _load(operator: ChainedOperator, what: str, payload: Payload) -> Any:
    try:
        return pickle.loads(payload)
    except Exception as error:
        raise _not_loadable(error, what, operator) from error


def _not_loadable(error: Exception, what: str, operator: ChainedOperator) -> UserCodeError:
    return UserCodeError(
        type(error).__name__,
        f"{error}; the {what} cannot be loaded on the worker, ship its modules with --python-files",
        operator.name,
        operator.location or UNKNOWN_LOCATION,
        traceback.format_exc(),
    )
