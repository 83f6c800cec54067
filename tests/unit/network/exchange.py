"""Environments, an edge between two subtasks, and batches to send over it, for the tests of the exchange."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    IntermediateDataSetId,
    JobId,
    JobVertexId,
    ResourceId,
    ResultPartitionId,
)
from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.security.tls import TlsIdentity
from headrace.core.shuffle_descriptors import (
    InputChannelDescriptor,
    InputGateDescriptor,
    ResultPartitionDescriptor,
    ResultPartitionType,
    ShuffleDescriptor,
    TaskManagerLocation,
)
from headrace.core.types.type_info import Types
from headrace.graph.job_graph import PartitionerKind, PartitionerSpec
from headrace.network.batches.channel_selectors import create_selector
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.gates.gate import BatchElement, EventElement, GateElement
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.sessions.transport import Transport
from headrace.network.stored.spill_files import FileLayer
from headrace.network.writers.record_writer import RecordWriter, create_record_writer

SECRET = b"s" * 32
NUMBERS = BatchType(Types.LONG())
DATA_SET = IntermediateDataSetId(b"d" * 16)


def attempt(name: str, subtask_index: int = 0, attempt_number: int = 0) -> ExecutionAttemptId:
    vertex = ExecutionVertexId(JobVertexId(name.encode().ljust(16, b"_")), subtask_index)
    return ExecutionAttemptId(JobId(b"j" * 16), vertex, attempt_number)


def partition_id(
    number: int = 0, attempt_number: int = 0, data_set: IntermediateDataSetId = DATA_SET
) -> ResultPartitionId:
    return ResultPartitionId(data_set, number, attempt("producer", number, attempt_number))


def environment(
    name: str,
    socket_directory: Path | None = None,
    secret: bytes = SECRET,
    tls: TlsIdentity | None = None,
    files: FileLayer | None = None,
    transport: Transport | None = None,
    **options: Any,
) -> CreditBasedShuffleEnvironment:
    settings = {
        key.replace("__", "-").replace("_", "."): str(value) for key, value in options.items()
    }
    return CreditBasedShuffleEnvironment(
        resource_id=ResourceId(name),
        settings=Settings(settings),
        secret=secret,
        bind_host="127.0.0.1",
        advertised_host="127.0.0.1",
        clock=SystemClock(),
        random=SeededRandom(name),
        socket_directory=socket_directory,
        tls=tls,
        files=files,
        transport=transport,
    )


def numbers(start: int, count: int) -> RecordBatch:
    columns = pa.RecordBatch.from_arrays(
        [pa.array(np.arange(start, start + count))], names=["value"]
    )
    return RecordBatch.of_columns(NUMBERS, columns)


def writer(
    env: CreditBasedShuffleEnvironment,
    channel_count: int = 1,
    kind: PartitionerKind = PartitionerKind.REBALANCE,
    buffer_timeout_ms: int = -1,
    number: int = 0,
    result_type: ResultPartitionType = ResultPartitionType.PIPELINED_BOUNDED,
    data_set: IntermediateDataSetId = DATA_SET,
) -> RecordWriter:
    written = partition_id(number, data_set=data_set)
    descriptor = ResultPartitionDescriptor(written, result_type, channel_count)
    selector = create_selector(PartitionerSpec(kind), channel_count, 128, SeededRandom(number))
    partition = env.create_result_partition(descriptor)
    return create_record_writer(partition, selector, buffer_timeout_ms, env.clock, env.settings)


def gate(
    env: CreditBasedShuffleEnvironment,
    producers: Sequence[TaskManagerLocation],
    subpartition_index: int = 0,
    batch_type: BatchType = NUMBERS,
    first_number: int = 0,
) -> SingleInputGate:
    channels = tuple(
        InputChannelDescriptor(
            ShuffleDescriptor(partition_id(number), location), subpartition_index
        )
        for number, location in enumerate(producers, first_number)
    )
    descriptor = InputGateDescriptor(DATA_SET, 0, channels)
    made = env.create_input_gate(descriptor, attempt("consumer", subpartition_index))
    made.read_as(batch_type)
    return made


def next_element(source: SingleInputGate, timeout_s: float = 10) -> GateElement | None:
    """The next element, waited for; None once the gate is finished."""
    while True:
        element = source.poll()
        if element is not None or source.is_finished:
            return element
        available = threading.Event()
        source.on_available(available.set)
        assert available.wait(timeout_s), "nothing came"


def drain(source: SingleInputGate, timeout_s: float = 10) -> list[GateElement]:
    """Everything until the gate is finished."""
    elements: list[GateElement] = []
    while (element := next_element(source, timeout_s)) is not None:
        elements.append(element)
    return elements


def values_of(elements: Sequence[GateElement]) -> list[int]:
    return [
        value
        for element in elements
        if isinstance(element, BatchElement)
        for value in element.batch.columns().column(0).to_pylist()
    ]


def events_of(elements: Sequence[GateElement]) -> list[Any]:
    return [element.event for element in elements if isinstance(element, EventElement)]
