"""How fast do batches pass from one TaskManager process to another, against raw sockets moving the same bytes?

One channel, batches of 4,096 rows in 8 columns (88 bytes a row), over local, Unix, TCP and TLS channels. The ceiling
is a pair of blocking sockets on the same two cores that moves the very bytes of these batches, already serialised.
Both of our processes keep to a core each, as TaskManagers do; the raw sockets may use all, which is faster for them.
Both sides go through 16 different batches in turn (a stream that repeats one batch would be served from the cache),
and take turns with each other; the best of all turns counts, for both, since what disturbs a turn only makes it
slower.
Where other programs use the machine, shares of wall time mean little (a pair of raw sockets is content with one core):
the processor time that both processes together spend on a batch is recorded beside it.
Latency: one batch of 256 rows at a time, 200 a second, from before `emit` to after the consumer's `poll`. Memory is the
question of `back_pressure_memory`.

    python -m benchmarks.exchange [--batches 1000] [--repeats 10] [--rows 4096]
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
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from benchmarks.programs.exchange_consumer import (
    TYPE,
    consume,
    make_batch,
    on_all_cores,
    open_gate,
    open_writer,
    start_environment,
)
from benchmarks.record import record_result
from headrace.core.config import Settings
from headrace.core.record_batch import RecordBatch
from headrace.core.security.tls import TlsIdentity, generate_identity
from headrace.network.writers.record_writer import RecordWriter
from headrace.spark.workers.cpu_affinity import take_place

LATENCY_ROWS, LATENCY_RATE, LATENCY_SECONDS = 256, 200, 5
WARM_UP_BATCHES = 300
DISTINCT_BATCHES = 16


class Consumer:
    """The consumer process as the producer sees it."""

    def __init__(self, tls: TlsIdentity | None = None) -> None:
        self.tls = tls
        # Children begin with the cores of their parent.
        with on_all_cores():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.programs.exchange_consumer"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        if tls is not None:
            self.order(do="tls", pem=[tls.certificate.decode(), tls.private_key.decode()])
            self.answer()

    def order(self, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def cpu_seconds(self) -> float:
        """Processor time of both processes so far."""
        self.order(do="cpu")
        return self.answer()["seconds"] + time.process_time()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


@contextmanager
def raw_connection(
    consumer: Consumer, directory: str | None, **order: Any
) -> Iterator[socket.socket]:
    """A blocking connection with the consumer, which was given `order`."""
    family = socket.AF_INET if directory is None else socket.AF_UNIX
    place = ("127.0.0.1", 0) if directory is None else f"{directory}/{time.monotonic_ns()}.sock"
    with on_all_cores(), socket.socket(family) as server:
        server.bind(place)
        server.listen()
        consumer.order(address=server.getsockname(), **order)
        connection, _ = server.accept()
        if directory is None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            yield connection


def raw_seconds(
    consumer: Consumer, batches: list[RecordBatch], count: int, directory: str | None
) -> float:
    """Time for raw blocking sockets to move the messages of `count` batches."""
    messages = [batch.columns().serialize() for batch in batches]
    turns = [messages[turn % len(messages)] for turn in range(count)]
    size = sum(message.size for message in turns)
    with raw_connection(consumer, directory, do="raw", size=size) as connection:
        started = time.perf_counter()
        for message in turns:
            connection.sendall(message)
        connection.recv(1)
        seconds = time.perf_counter() - started
    consumer.answer()
    return seconds


def raw_latencies_us(
    consumer: Consumer, template: RecordBatch, directory: str | None
) -> list[float]:
    """Latencies of raw blocking sockets: serialise, send, receive, read."""
    columns = template.columns()
    count, size = LATENCY_RATE * LATENCY_SECONDS, columns.serialize().size
    order = {"do": "raw latency", "count": count, "size": size}
    with raw_connection(consumer, directory, **order) as connection:
        for _ in ticks(count):
            sent_ns = time.monotonic_ns()
            connection.sendall(sent_ns.to_bytes(8, "big") + columns.serialize().to_pybytes())
        answer = consumer.answer()
    return settled_us(answer["latencies"])


def ticks(count: int) -> Iterator[None]:
    """`count` moments, LATENCY_RATE a second."""
    due = time.perf_counter()
    for _ in range(count):
        due += 1 / LATENCY_RATE
        time.sleep(max(0.0, due - time.perf_counter()))
        yield


def settled_us(latencies_ns: list[int]) -> list[float]:
    """Microseconds in order, without the first half second."""
    return sorted(latency / 1000 for latency in latencies_ns[LATENCY_RATE // 2 :])


class Exchange:
    """One producer process, with a consumer in it (local) or in a process of its own."""

    def __init__(self, carrier: str, consumer: Consumer | None, directory: str | None) -> None:
        self.carrier = carrier
        self._consumer = consumer
        name = f"producer-{carrier}-{os.getpid()}"
        self.environment, self.location = start_environment(
            name, directory, None if consumer is None else consumer.tls
        )
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
        for _ in ticks(LATENCY_RATE * LATENCY_SECONDS):
            stamps = np.full(template.num_rows, time.monotonic_ns())
            writer.emit(RecordBatch.of_columns(TYPE, columns, stamps))
        writer.finish()
        writer.close()
        return settled_us(collect()["latencies"])

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
        our_cpu = raw_cpu = 0.0
        for _ in range(repeats):
            marks = [consumer.cpu_seconds()]
            if carrier != "local":
                raw.append(raw_seconds(consumer, batches, count, unix))
            marks.append(consumer.cpu_seconds())
            ours.append(exchange.seconds(batches, count))
            marks.append(consumer.cpu_seconds())
            raw_cpu += marks[1] - marks[0]
            our_cpu += marks[2] - marks[1]
        template = make_batch(LATENCY_ROWS)
        latencies = exchange.latencies_us(template)
        raw_latencies = [] if carrier == "local" else raw_latencies_us(consumer, template, unix)
        exchange.close()
    rows, size = batches[0].num_rows, batches[0].columns().serialize().size
    seconds = min(ours)
    figures: dict[str, Any] = {
        f"{carrier}_mrows_per_s": rows * count / seconds / 1e6,
        f"{carrier}_mb_per_s": size * count / seconds / 1e6,
        f"{carrier}_cpu_us_per_batch": our_cpu / (repeats * count) * 1e6,
        f"{carrier}_latency_p50_us": latencies[len(latencies) // 2],
        f"{carrier}_latency_p99_us": latencies[len(latencies) * 99 // 100],
    }
    if raw:
        ceiling = min(raw)
        figures[f"{carrier}_raw_mb_per_s"] = size * count / ceiling / 1e6
        figures[f"{carrier}_share_of_raw_percent"] = 100 * ceiling / seconds
        figures[f"{carrier}_raw_latency_p50_us"] = raw_latencies[len(raw_latencies) // 2]
        figures[f"{carrier}_raw_latency_p99_us"] = raw_latencies[len(raw_latencies) * 99 // 100]
        figures[f"{carrier}_raw_cpu_us_per_batch"] = raw_cpu / (repeats * count) * 1e6
        shares = [100 * theirs / own for theirs, own in zip(raw, ours, strict=True)]
        figures[f"{carrier}_share_of_raw_median_percent"] = statistics.median(shares)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--carriers", default="local,unix,tcp,tls")
    parser.add_argument("--dry", action="store_true", help="print only, keep no result")
    options = parser.parse_args()
    # As a TaskManager's process does; the consumer has the next place.
    place = take_place(Settings())
    batches = [make_batch(options.rows, seed) for seed in range(DISTINCT_BATCHES)]
    figures: dict[str, Any] = {"rows_per_batch": options.rows, "batches": options.batches}
    for carrier in options.carriers.split(","):
        identity = generate_identity(time.time_ns() // 1_000_000) if carrier == "tls" else None
        consumer = Consumer(identity)
        figures |= measure(carrier, consumer, batches, options.batches, options.repeats)
        consumer.close()
    if place is not None:
        place.release()
    if options.dry:
        for key, value in figures.items():
            print(f"{key:>32}: {value:,.1f}")
    else:
        record_result("exchange", figures)


if __name__ == "__main__":
    main()
