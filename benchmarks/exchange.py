"""How fast do batches pass from one TaskManager process to another, against raw sockets moving the same bytes?

One channel, batches of 4,096 rows in 8 columns (88 bytes a row), over local, Unix and TCP channels. The ceiling is a
pair of blocking sockets on the same two cores that moves the very bytes of these batches, already serialised. Both
sides go through 16 different batches in turn (a stream that repeats one batch would be served from the cache), and
take turns with each other; the best of all turns counts, for both, since what disturbs a turn only makes it slower.
Latency: one batch of 256 rows at a time, 200 a second, from before `emit` to after the consumer's `poll`. Memory: a
producer that emits whenever it may, a consumer that takes nothing, resident set of both processes from the moment the
pipe is full.

    python -m benchmarks.exchange [--batches 1000] [--repeats 10] [--rows 4096] [--skip-memory]
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.record import record_result
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
from headrace.network.environment import ShuffleEnvironment
from headrace.network.gate import BatchElement, InputGate
from headrace.network.partitioner import create_selector
from headrace.network.record_writer import RecordWriter

SECRET = b"benchmark".ljust(32, b".")
DATA_SET = IntermediateDataSetId(b"exchange".ljust(16, b"."))
TYPE = BatchType(
    Types.ROW_NAMED(
        [f"c{index}" for index in range(8)],
        [Types.LONG()] * 3 + [Types.DOUBLE()] * 2 + [Types.INT()] + [Types.STRING()] * 2,
    )
)
LATENCY_ROWS, LATENCY_RATE, LATENCY_SECONDS = 256, 200, 5
WARM_UP_BATCHES = 300
DISTINCT_BATCHES = 16


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


def start_environment(
    name: str, directory: str | None
) -> tuple[ShuffleEnvironment, TaskManagerLocation]:
    environment = ShuffleEnvironment(
        resource_id=ResourceId(name),
        settings=Settings(),
        secret=SECRET,
        bind_host="127.0.0.1",
        advertised_host="127.0.0.1",
        clock=SystemClock(),
        random=SeededRandom(name),
        socket_directory=None if directory is None else Path(directory),
    )
    return environment, environment.start()


def partition_id(number: int) -> ResultPartitionId:
    attempt = ExecutionAttemptId(
        JobId(b"j" * 16), ExecutionVertexId(JobVertexId(b"v" * 16), number), 0
    )
    return ResultPartitionId(DATA_SET, number, attempt)


def open_writer(
    environment: ShuffleEnvironment, number: int, buffer_timeout_ms: int
) -> RecordWriter:
    descriptor = ResultPartitionDescriptor(
        partition_id(number), ResultPartitionType.PIPELINED_BOUNDED, 1
    )
    selector = create_selector(PartitionerSpec(PartitionerKind.FORWARD), 1, 0, 128, SeededRandom(0))
    return RecordWriter(
        environment.create_result_partition(descriptor), selector, buffer_timeout_ms, SystemClock()
    )


def open_gate(
    environment: ShuffleEnvironment, location: TaskManagerLocation, number: int
) -> InputGate:
    channel = InputChannelDescriptor(ShuffleDescriptor(partition_id(number), location), 0)
    gate = environment.create_input_gate(
        InputGateDescriptor(DATA_SET, 0, (channel,)), partition_id(number).producer, TYPE
    )
    gate.request_partitions()
    return gate


# --- the consumer's side ----------------------------------------------------------------------------


def consume(gate: InputGate, with_latency: bool) -> dict[str, Any]:
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
    environment, _ = start_environment(f"consumer-{os.getpid()}", None)
    for line in sys.stdin:
        order = json.loads(line)
        match order["do"]:
            case "consume":
                location = msgspec.json.decode(order["location"], type=TaskManagerLocation)
                answer = consume(
                    open_gate(environment, location, order["number"]), order["latency"]
                )
            case "stall":
                location = msgspec.json.decode(order["location"], type=TaskManagerLocation)
                open_gate(environment, location, order["number"])
                answer = {}
            case "resident":
                answer = {"bytes": resident_bytes()}
            case _:
                answer = raw_receive(order["address"], order["size"])
        print(json.dumps(answer), flush=True)
    environment.close()


def raw_receive(address: Any, size: int) -> dict[str, Any]:
    """Receive `size` bytes and confirm."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as connection:
        connection.connect(address if isinstance(address, str) else tuple(address))
        buffer = bytearray(1 << 20)
        left = size
        while left:
            left -= connection.recv_into(buffer)
        connection.sendall(b"!")
    return {}


class Consumer:
    """The consumer process as the producer sees it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.exchange", "--consumer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def order(self, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


# --- the producer's side ----------------------------------------------------------------------------


def raw_seconds(
    consumer: Consumer, batches: list[RecordBatch], count: int, directory: str | None
) -> float:
    """Time for raw blocking sockets to move the messages of `count` batches."""
    messages = [batch.columns().serialize() for batch in batches]
    turns = [messages[turn % len(messages)] for turn in range(count)]
    family = socket.AF_INET if directory is None else socket.AF_UNIX
    with socket.socket(family) as server:
        server.bind(
            ("127.0.0.1", 0) if directory is None else f"{directory}/raw-{time.monotonic_ns()}.sock"
        )
        server.listen()
        consumer.order(
            do="raw", address=server.getsockname(), size=sum(message.size for message in turns)
        )
        connection, _ = server.accept()
        if directory is None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            started = time.perf_counter()
            for message in turns:
                connection.sendall(message)
            connection.recv(1)
            seconds = time.perf_counter() - started
    consumer.answer()
    return seconds


class Exchange:
    """One producer process, with a consumer in it (local) or in a process of its own."""

    def __init__(self, carrier: str, consumer: Consumer | None, directory: str | None) -> None:
        self.carrier = carrier
        self._consumer = consumer
        name = f"producer-{carrier}-{os.getpid()}"
        self.environment, self.location = start_environment(name, directory)
        self._number = 0

    def seconds(self, batches: list[RecordBatch], count: int) -> float:
        """Time from the first `emit` to the consumer's last row."""
        writer, collect = self._open(buffer_timeout_ms=-1, latency=False)
        started = time.perf_counter()
        for turn in range(count):
            writer.emit(batches[turn % len(batches)])
        writer.finish()
        writer.close()
        answer = collect()
        seconds = time.perf_counter() - started
        assert answer["rows"] == batches[0].num_rows * count
        return seconds

    def latencies_us(self, template: RecordBatch) -> list[float]:
        """Latencies of single batches at a low rate."""
        writer, collect = self._open(buffer_timeout_ms=0, latency=True)
        columns = template.columns()
        interval = 1 / LATENCY_RATE
        due = time.perf_counter()
        for _ in range(LATENCY_RATE * LATENCY_SECONDS):
            due += interval
            time.sleep(max(0.0, due - time.perf_counter()))
            stamps = np.full(template.num_rows, time.monotonic_ns())
            writer.emit(RecordBatch.of_columns(TYPE, columns, stamps))
        writer.finish()
        writer.close()
        return [nanoseconds / 1000 for nanoseconds in collect()["latencies"][LATENCY_RATE // 2 :]]

    def close(self) -> None:
        self.environment.close()

    def _open(self, buffer_timeout_ms: int, latency: bool) -> tuple[RecordWriter, Any]:
        number, self._number = self._number, self._number + 1
        writer = open_writer(self.environment, number, buffer_timeout_ms)
        if self._consumer is not None:
            location = msgspec.json.encode(self.location).decode()
            self._consumer.order(do="consume", location=location, number=number, latency=latency)
            return writer, self._consumer.answer
        gate = open_gate(self.environment, self.location, number)
        answers: list[dict[str, Any]] = []
        reading = threading.Thread(target=lambda: answers.append(consume(gate, latency)))
        reading.start()

        def collect() -> dict[str, Any]:
            reading.join()
            return answers[0]

        return writer, collect


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_under_back_pressure(batch: RecordBatch, seconds: float) -> dict[str, Any]:
    """Growth of the resident set of producer and consumer while nothing is consumed."""
    consumer = Consumer()
    exchange = Exchange("memory", consumer, None)
    writer = open_writer(exchange.environment, 0, -1)
    location = msgspec.json.encode(exchange.location).decode()
    consumer.order(do="stall", location=location, number=0)
    consumer.answer()
    deadline = time.perf_counter() + 2
    emitted = 0
    first: list[int] = []
    while time.perf_counter() < deadline:
        if writer.is_available:
            writer.emit(batch)
            emitted += 1
        else:
            time.sleep(0.01)
        if time.perf_counter() >= deadline and not first:
            consumer.order(do="resident")
            first = [resident_bytes(), consumer.answer()["bytes"]]
            deadline += seconds
    consumer.order(do="resident")
    last = [resident_bytes(), consumer.answer()["bytes"]]
    writer.close()
    exchange.close()
    consumer.close()
    growth = [100 * (after - before) / before for before, after in zip(first, last, strict=True)]
    return {
        "memory_seconds": seconds,
        "memory_batches_taken_in": emitted,
        "memory_producer_mb": last[0] / 1e6,
        "memory_consumer_mb": last[1] / 1e6,
        "memory_producer_growth_percent": growth[0],
        "memory_consumer_growth_percent": growth[1],
    }


def measure(
    carrier: str, consumer: Consumer, batches: list[RecordBatch], count: int, repeats: int
) -> dict[str, Any]:
    """Throughput, ceiling and latency of one carrier."""
    with tempfile.TemporaryDirectory() as directory:
        unix = directory if carrier == "unix" else None
        exchange = Exchange(carrier, None if carrier == "local" else consumer, unix)
        exchange.seconds(batches, WARM_UP_BATCHES)
        ours: list[float] = []
        raw: list[float] = []
        for _ in range(repeats):
            if carrier != "local":
                raw.append(raw_seconds(consumer, batches, count, unix))
            ours.append(exchange.seconds(batches, count))
        latencies = sorted(exchange.latencies_us(make_batch(LATENCY_ROWS)))
        exchange.close()
    rows, size = batches[0].num_rows, batches[0].columns().serialize().size
    seconds = min(ours)
    figures: dict[str, Any] = {
        f"{carrier}_mrows_per_s": rows * count / seconds / 1e6,
        f"{carrier}_mb_per_s": size * count / seconds / 1e6,
        f"{carrier}_latency_p50_us": latencies[len(latencies) // 2],
        f"{carrier}_latency_p99_us": latencies[len(latencies) * 99 // 100],
    }
    if raw:
        ceiling = min(raw)
        figures[f"{carrier}_raw_mb_per_s"] = size * count / ceiling / 1e6
        figures[f"{carrier}_share_of_raw_percent"] = 100 * ceiling / seconds
        shares = [100 * theirs / own for theirs, own in zip(raw, ours, strict=True)]
        figures[f"{carrier}_share_of_raw_median_percent"] = statistics.median(shares)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--memory-seconds", type=float, default=20)
    parser.add_argument("--skip-memory", action="store_true")
    parser.add_argument("--carriers", default="local,unix,tcp")
    parser.add_argument("--dry", action="store_true", help="print only, keep no result")
    parser.add_argument("--consumer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.consumer:
        serve_consumer()
        return
    batches = [make_batch(options.rows, seed) for seed in range(DISTINCT_BATCHES)]
    figures: dict[str, Any] = {"rows_per_batch": options.rows, "batches": options.batches}
    consumer = Consumer()
    for carrier in options.carriers.split(","):
        figures |= measure(carrier, consumer, batches, options.batches, options.repeats)
    consumer.close()
    if not options.skip_memory:
        figures |= memory_under_back_pressure(batches[0], options.memory_seconds)
    if options.dry:
        for key, value in figures.items():
            print(f"{key:>32}: {value:,.1f}")
    else:
        record_result("exchange", figures)


if __name__ == "__main__":
    main()
