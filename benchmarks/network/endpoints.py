"""What producing and consuming process share: rows, environments, writers, gates and the loops that drive them.

The loops are those of a task: an output that flushes by the mailbox's timers, a gate that is polled until it is empty.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.programs.exchange_consumer import DATA_SET, SECRET, partition_id
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import ResourceId
from headrace.core.key_groups import default_max_parallelism
from headrace.core.key_hash import hash_array
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
from headrace.network.batches.channel_selectors import ChannelSelector, create_selector
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.gates.gate import BatchElement
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.writers.record_writer import RecordWriter, create_record_writer
from headrace.task.chain.outputs import NetworkTarget
from headrace.task.mailbox import MailboxTimers
from headrace.task.metrics import TaskCounters

PIPELINED = ResultPartitionType.PIPELINED_BOUNDED
BATCH_BYTES_MAX, BATCH_ROWS_MAX = 2 << 20, 8192
KEY_COUNT = 1 << 16
TEMPLATE_COUNT = 8
KEY_AND_STAMP_BYTES = 16
# A wait has this bound, so that a run whose other side died ends with a message and not never.
WAIT_SECONDS = 20


def row_type(row_bytes: int) -> BatchType:
    """A key and the time of sending, 8 bytes each, and a payload that makes up for the rest."""
    names, types = ["key", "sent_ns"], [Types.LONG(), Types.LONG()]
    if row_bytes > KEY_AND_STAMP_BYTES:
        names, types = [*names, "payload"], [*types, Types.PRIMITIVE_ARRAY(Types.BYTE())]
    return BatchType(Types.ROW_NAMED(names, types), Types.LONG())


class RowMaker:
    """Keyed rows of one size. Keys and payloads are made beforehand; a batch costs no more than its stamps."""

    def __init__(self, row_bytes: int, row_count: int | None = None, seed: int = 0) -> None:
        self.batch_type = row_type(row_bytes)
        self.row_count = row_count or min(BATCH_ROWS_MAX, BATCH_BYTES_MAX // row_bytes)
        random = np.random.default_rng(seed)
        self._templates = [self._template(random, row_bytes) for _ in range(TEMPLATE_COUNT)]
        self._turn = 0

    @property
    def dense_row_bytes(self) -> float:
        """What a row takes as Arrow, with the runtime's key and key hash, where nothing is split."""
        return self.batch().to_arrow().serialize().size / self.row_count

    def messages(self) -> list[pa.Buffer]:
        """Return the bytes of some batches."""
        return [self.batch().to_arrow().serialize() for _ in range(TEMPLATE_COUNT)]

    def batch(self) -> RecordBatch:
        """Return the next batch, stamped with the time."""
        keys, hashes, payload = self._templates[self._turn]
        self._turn = (self._turn + 1) % TEMPLATE_COUNT
        stamps = pa.array(np.full(self.row_count, time.monotonic_ns()))
        arrays = [keys, stamps] if payload is None else [keys, stamps, payload]
        names = ["key", "sent_ns", "payload"][: len(arrays)]
        return RecordBatch(
            self.batch_type,
            self.row_count,
            columns=pa.RecordBatch.from_arrays(arrays, names=names),
            keys_array=keys,
            key_hashes=hashes,
        )

    def _template(self, random: np.random.Generator, row_bytes: int) -> tuple[pa.Array, Any, Any]:
        keys = pa.array(random.integers(0, KEY_COUNT, self.row_count))
        size = row_bytes - KEY_AND_STAMP_BYTES
        if size <= 0:
            return keys, hash_array(keys), None
        content = pa.py_buffer(random.bytes(size * self.row_count))
        offsets = pa.array(np.arange(self.row_count + 1, dtype=np.int32) * size)
        payload = pa.Array.from_buffers(
            pa.binary(), self.row_count, [None, offsets.buffers()[1], content]
        )
        return keys, hash_array(keys), payload


@dataclass(frozen=True)
class DataPlane:
    """How a process takes part: options, the directory of its Unix socket (else TCP), and TLS."""

    options: dict[str, str] = field(default_factory=dict)
    socket_directory: str | None = None
    tls: TlsIdentity | None = None

    def start(self, name: str) -> tuple[CreditBasedShuffleEnvironment, TaskManagerLocation]:
        """Start the data plane of this process."""
        name = f"{name}-{os.getpid()}"
        environment = CreditBasedShuffleEnvironment(
            resource_id=ResourceId(name),
            settings=Settings(self.options),
            secret=SECRET,
            bind_host="127.0.0.1",
            advertised_host="127.0.0.1",
            clock=SystemClock(),
            random=SeededRandom(name),
            socket_directory=None if self.socket_directory is None else Path(self.socket_directory),
            tls=self.tls,
        )
        return environment, environment.start()


def key_group_selector(channel_count: int) -> ChannelSelector:
    """The selector of a keyed edge."""
    maximum = default_max_parallelism(channel_count)
    spec = PartitionerSpec(PartitionerKind.HASH)
    return create_selector(spec, channel_count, maximum, SeededRandom(0))


def open_writer(
    environment: CreditBasedShuffleEnvironment,
    number: int,
    channel_count: int,
    timeout_ms: int,
    result_type: ResultPartitionType = PIPELINED,
) -> RecordWriter:
    """Open partition `number` for a keyed edge with so many consumers."""
    descriptor = ResultPartitionDescriptor(partition_id(number), result_type, channel_count)
    partition = environment.create_result_partition(descriptor)
    selector = key_group_selector(channel_count)
    return create_record_writer(
        partition, selector, timeout_ms, SystemClock(), environment.settings
    )


def open_gate(
    environment: CreditBasedShuffleEnvironment,
    location: TaskManagerLocation,
    number: int,
    channel_count: int,
    row_bytes: int,
) -> SingleInputGate:
    """Open one gate for all subpartitions of partition `number`."""
    shuffle = ShuffleDescriptor(partition_id(number), location)
    channels = tuple(InputChannelDescriptor(shuffle, index) for index in range(channel_count))
    gate = environment.create_input_gate(
        InputGateDescriptor(DATA_SET, 0, channels), partition_id(number).producer
    )
    gate.read_as(row_type(row_bytes))
    gate.request_partitions()
    return gate


def wait_for(subscribe: Callable[[Callable[[], None]], None], timeout_s: float | None) -> None:
    """Wait until `subscribe` calls back, or for so long."""
    event = threading.Event()
    subscribe(event.set)
    limit = WAIT_SECONDS if timeout_s is None else timeout_s
    if not event.wait(limit) and timeout_s is None:
        raise TimeoutError(f"nothing came for {WAIT_SECONDS} s")


class Feeder:
    """A task's output: emits where there is room, and flushes by the mailbox's timers."""

    def __init__(self, writer: RecordWriter) -> None:
        self.writer = writer
        self._timers = MailboxTimers(SystemClock())
        self._target = NetworkTarget(writer, self._timers, TaskCounters(), lambda error: error)

    def feed(self, rows: RowMaker, is_done: Callable[[], bool]) -> None:
        """Emit as fast as there is room."""
        while not is_done():
            self._timers.fire_due()
            if not self.writer.is_available:
                wait_for(self.writer.on_available, 0.001 * (self._timers.delay_to_next_ms() or 50))
                continue
            self._target.receive(rows.batch())

    def feed_slowly(self, rows: RowMaker, per_second: float, is_done: Callable[[], bool]) -> None:
        """Emit so many batches a second."""
        due = time.monotonic()
        while not is_done():
            due += 1 / per_second
            while (left := due - time.monotonic()) > 0:
                delay_ms = self._timers.delay_to_next_ms()
                time.sleep(left if delay_ms is None else min(left, delay_ms / 1000))
                self._timers.fire_due()
            self._target.receive(rows.batch())


class Window:
    """When to measure: so long, from some time after the first batch on. Monotonic ns."""

    def __init__(self, warm_up_s: float = 0.0, seconds: float = 1e9) -> None:
        self._warm_up_ns, self._length_ns = int(warm_up_s * 1e9), int(seconds * 1e9)
        self._is_open = False
        self.begin_ns = self.end_ns = time.monotonic_ns() + int(WAIT_SECONDS * 1e9)

    @property
    def left_s(self) -> float:
        """Seconds until its end."""
        return (self.end_ns - time.monotonic_ns()) / 1e9

    def open(self) -> None:
        """The first batch is there."""
        if not self._is_open:
            self._is_open = True
            self.begin_ns = time.monotonic_ns() + self._warm_up_ns
            self.end_ns = self.begin_ns + self._length_ns


def batches_of(gate: SingleInputGate, window: Window) -> Iterator[RecordBatch]:
    """Yield what a task would be given, until the end of the window or of the gate."""
    while not gate.is_finished:
        left_s = window.left_s
        if left_s <= 0:
            return
        element = gate.poll()
        if isinstance(element, BatchElement):
            if element.batch.num_rows:
                window.open()
                yield element.batch
        elif element is None:
            wait_for(gate.on_available, min(1.0, left_s))


def stamps_of(batch: RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """When the rows of a batch were sent, monotonic ns."""
    return batch.columns().column(1).to_numpy()
