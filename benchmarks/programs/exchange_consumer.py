"""The other end of the exchange benchmark: a TaskManager process that consumes, and what both ends share.

One JSON order per line on standard input, one JSON answer per line on standard output.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
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
from headrace.core.threads import share_interpreter
from headrace.core.types.type_info import Types
from headrace.graph.job_graph import PartitionerKind, PartitionerSpec
from headrace.network.batches.channel_selectors import create_selector
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.gates.gate import BatchElement
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.writers.record_writer import RecordWriter, create_record_writer
from headrace.spark.workers.cpu_affinity import take_place

ALL_CORES = os.sched_getaffinity(0)
SECRET = b"benchmark".ljust(32, b".")
DATA_SET = IntermediateDataSetId(b"exchange".ljust(16, b"."))
TYPE = BatchType(
    Types.ROW_NAMED(
        [f"c{index}" for index in range(8)],
        [Types.LONG()] * 3 + [Types.DOUBLE()] * 2 + [Types.INT()] + [Types.STRING()] * 2,
    )
)


def make_batch(rows: int, seed: int = 0) -> RecordBatch:
    numbers = np.arange(rows) + seed * rows
    texts = [f"{index:018d}" for index in numbers.tolist()]
    arrays = [pa.array(numbers + step) for step in range(3)]
    arrays += [
        pa.array(numbers * 0.5),
        pa.array(numbers * 0.25),
        pa.array(numbers.astype(np.int32)),
    ]
    arrays += [pa.array(texts), pa.array(texts[::-1])]
    columns = pa.RecordBatch.from_arrays(arrays, names=[f"c{index}" for index in range(8)])
    return RecordBatch.of_columns(TYPE, columns)


@contextmanager
def on_all_cores() -> Generator[None]:
    """For raw sockets: they keep to no cores of their own, and are faster so."""
    kept = os.sched_getaffinity(0)
    os.sched_setaffinity(0, ALL_CORES)
    try:
        yield
    finally:
        os.sched_setaffinity(0, kept)


def start_environment(
    name: str, directory: str | None, tls: TlsIdentity | None = None
) -> tuple[CreditBasedShuffleEnvironment, TaskManagerLocation]:
    share_interpreter()  # as a TaskManager's process does
    environment = CreditBasedShuffleEnvironment(
        resource_id=ResourceId(name),
        settings=Settings(),
        secret=SECRET,
        bind_host="127.0.0.1",
        advertised_host="127.0.0.1",
        clock=SystemClock(),
        random=SeededRandom(name),
        socket_directory=None if directory is None else Path(directory),
        tls=tls,
    )
    return environment, environment.start()


def partition_id(number: int) -> ResultPartitionId:
    attempt = ExecutionAttemptId(
        JobId(b"j" * 16), ExecutionVertexId(JobVertexId(b"v" * 16), number), 0
    )
    return ResultPartitionId(DATA_SET, number, attempt)


def open_writer(
    environment: CreditBasedShuffleEnvironment, number: int, buffer_timeout_ms: int
) -> RecordWriter:
    descriptor = ResultPartitionDescriptor(
        partition_id(number), ResultPartitionType.PIPELINED_BOUNDED, 1
    )
    selector = create_selector(PartitionerSpec(PartitionerKind.FORWARD), 1, 128, SeededRandom(0))
    return create_record_writer(
        environment.create_result_partition(descriptor), selector, buffer_timeout_ms, SystemClock()
    )


def open_gate(
    environment: CreditBasedShuffleEnvironment, location: TaskManagerLocation, number: int
) -> SingleInputGate:
    channel = InputChannelDescriptor(ShuffleDescriptor(partition_id(number), location), 0)
    gate = environment.create_input_gate(
        InputGateDescriptor(DATA_SET, 0, (channel,)), partition_id(number).producer
    )
    gate.read_as(TYPE)
    gate.request_partitions()
    return gate


def consume(gate: SingleInputGate, with_latency: bool) -> dict[str, Any]:
    """Read to the end; rows, and the latencies in ns where the first column holds the time of sending."""
    rows, latencies = 0, []
    available = threading.Event()
    while not gate.is_finished:
        element = gate.poll()
        if element is None:
            available.clear()
            gate.on_available(available.set)
            available.wait()
        elif isinstance(element, BatchElement):
            rows += element.batch.num_rows
            if with_latency:
                now_ns = time.monotonic_ns()
                latencies.append(now_ns - int(element.batch.timestamps[0]))
    gate.close()
    return {"rows": rows, "latencies": latencies}


def serve_consumer() -> None:
    """The consumer process: one JSON order per line, one JSON answer per line."""
    place = take_place(Settings())  # as a TaskManager's process does
    environment, _ = start_environment(f"consumer-{os.getpid()}", None)
    for line in sys.stdin:
        order = json.loads(line)
        match order["do"]:
            case "consume":
                location = msgspec.json.decode(order["location"], type=TaskManagerLocation)
                answer = consume(
                    open_gate(environment, location, order["number"]), order["latency"]
                )
            case "tls":
                environment.close()
                certificate, key = (pem.encode() for pem in order["pem"])
                identity = TlsIdentity(certificate, key)
                environment, _ = start_environment(f"consumer-{os.getpid()}", None, identity)
                answer = {}
            case "cpu":
                answer = {"seconds": time.process_time()}
            case "raw latency":
                with on_all_cores():
                    answer = raw_latencies(order["address"], order["count"], order["size"])
            case _:
                with on_all_cores():
                    answer = raw_receive(order["address"], order["size"])
        print(json.dumps(answer), flush=True)
    environment.close()
    if place is not None:
        place.release()


def connect(address: Any) -> socket.socket:
    """A blocking connection with a Unix path or a host and port."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    connection = socket.socket(family)
    connection.connect(address if isinstance(address, str) else tuple(address))
    return connection


def raw_latencies(address: Any, count: int, size: int) -> dict[str, Any]:
    """Receive `count` messages: the time of sending in 8 bytes, then `size` bytes of a batch."""
    schema = make_batch(1).columns().schema
    latencies = []
    with connect(address) as connection:
        for _ in range(count):
            message = connection.recv(8 + size, socket.MSG_WAITALL)
            pa.ipc.read_record_batch(pa.py_buffer(message).slice(8), schema)
            latencies.append(time.monotonic_ns() - int.from_bytes(message[:8], "big"))
    return {"latencies": latencies}


def raw_receive(address: Any, size: int) -> dict[str, Any]:
    """Receive `size` bytes and confirm."""
    with connect(address) as connection:
        buffer = bytearray(1 << 20)
        left = size
        while left:
            left -= connection.recv_into(buffer)
        connection.sendall(b"!")
    return {}


if __name__ == "__main__":
    serve_consumer()
