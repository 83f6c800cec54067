"""TracedExchange: a producer, a consumer and the real exchange between them, on one thread, one event at a time.

TaskManager A writes rows, one per batch; TaskManager B reads them through a gate. Environments, partitions, gates,
sessions, frames, credits and pools are those of production; only the transport is simulated. Nothing happens by
itself: each step triggers one event (a frame arrives, a task writes, a task takes a batch) and runs its consequences
to their end.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.clock import ManualClock
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
from headrace.core.process.memory_parts import NETWORK_MAX
from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.security.hmac_handshake import Role
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
from headrace.network.flow.credit import SenderAccount
from headrace.network.gates.gate import BatchElement
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.memory.local_buffer_pool import NeverWait
from headrace.network.memory.sizing import (
    BUFFERS_PER_CHANNEL,
    FLOATING_BUFFERS_PER_GATE,
)
from headrace.network.trace.simulated_transport import SimulatedNetwork
from headrace.network.trace.steps import CONSUMER, PRODUCER, Reading, TraceStep, frame_text
from headrace.network.trace.wire_tap import TappedTransport, WireTap
from headrace.network.wire.keepalive import KEEPALIVE_INTERVAL
from headrace.network.writers.record_writer import RecordWriter, create_record_writer

_SECRET: Final = bytes(32)
_NUMBERS: Final = BatchType(Types.LONG())
_DATA_SET: Final = IntermediateDataSetId(b"d" * 16)
_TRACED: Final = 0
"""Number of the channel that is written to; the producers of the other channels send no rows."""
_STEPS_MAX: Final = 100_000


@dataclass(frozen=True)
class TraceSettings:
    """Settings of a traced exchange. Without a seed, steps come in a fixed instructive order; with one, at random."""

    row_count: int = 5
    exclusive_count: int = BUFFERS_PER_CHANNEL.default
    floating_count: int = FLOATING_BUFFERS_PER_GATE.default
    channel_count: int = 2
    is_consumer_slow: bool = False
    seed: int | None = None


class _Call:
    """A scheduled callback."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class _StandingTime:
    """Runs callbacks that are due now. Time stands still, so callbacks scheduled for later never run."""

    def __init__(self) -> None:
        self.clock: Final = ManualClock()
        self._due: deque[_Call] = deque()

    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> _Call:
        call = _Call(callback)
        if delay_ms == 0:
            self._due.append(call)
        return call

    def settle(self) -> None:
        while self._due:
            callback = self._due.popleft().callback
            if callback is not None:
                callback()


def trace_exchange(settings: TraceSettings) -> list[TraceStep]:
    """Run an exchange to its end and return every step of it."""
    return TracedExchange(settings).run()


class TracedExchange:
    """Runs one traced exchange."""

    def __init__(self, settings: TraceSettings) -> None:
        self._settings = settings
        self._random = None if settings.seed is None else SeededRandom(settings.seed)
        self._time = _StandingTime()
        self._tap = WireTap()
        self._network = SimulatedNetwork(self._time.schedule, create_relay=self._tap.create_relay)
        self._producer_transport = TappedTransport(self._network)
        self._producer = self._environment(PRODUCER, self._producer_transport)
        self._consumer = self._environment(CONSUMER, TappedTransport(self._network))
        location = self._producer.start()
        self._consumer.start()
        self._writers = [self._writer(number) for number in range(settings.channel_count)]
        self._gate = self._create_gate(location)
        receiver = self._gate.receiver
        assert receiver is not None
        self._receiver = receiver
        self._sender: SenderAccount | None = None
        self._steps: list[TraceStep] = []
        self._written_count = 0
        self._has_ended = False

    def run(self) -> list[TraceStep]:
        """Run all events and return their steps."""
        self._happen(self._write())
        self._gate.request_partitions()
        self._happen("B's task asks for its partitions: B dials A")
        for _ in range(_STEPS_MAX):
            event = self._next_event()
            if event is None:
                break
            self._happen(event())
        self._close()
        return self._steps

    def _next_event(self) -> Callable[[], str] | None:
        """Choose among the possible events; None at the end."""
        arrivals = [
            lambda role=role: self._arrive(role)
            for role in (Role.ACCEPTOR, Role.DIALLER)
            if self._tap.waiting_from(role)
        ]
        takes = [self._take] if self._gate.queue_length else []
        writes = [self._write] if self._can_write() else []
        if self._random is None:
            order = [*arrivals, *writes, *takes]
            if not self._settings.is_consumer_slow:
                order = [*takes, *order]
        else:
            order = [*arrivals, *takes, *writes]
            self._random.shuffle(order)
        if order:
            return order[0]
        return None if self._has_ended else self._end

    def _can_write(self) -> bool:
        return (
            self._written_count < self._settings.row_count and self._writers[_TRACED].is_available
        )

    def _write(self) -> str:
        """Let A's task write while it finds room; each row is a batch of its own, as with a buffer timeout of 0."""
        first = self._written_count
        while self._can_write():
            column = pa.array(np.arange(self._written_count, self._written_count + 1))
            batch = pa.RecordBatch.from_arrays([column], names=["value"])
            self._writers[_TRACED].emit(RecordBatch.of_columns(_NUMBERS, batch))
            self._written_count += 1
        text = f"A's task writes {_numbered('row', first, self._written_count - 1)}"
        if self._written_count < self._settings.row_count:
            text += ", and is back-pressured"
        return text

    def _arrive(self, role: Role) -> str:
        where = CONSUMER if role is Role.ACCEPTOR else PRODUCER
        return f"{where} receives {frame_text(self._tap.arrive(role))}"

    def _take(self) -> str:
        element = self._gate.poll()
        # The task's turn is over, as if it found nothing more to take.
        self._receiver.flush()
        if isinstance(element, BatchElement):
            row = element.batch.columns().column(0)[0].as_py()
            return f"B's task takes the batch with row {row}"
        if element is None:
            return "B's task polls and finds nothing"
        return f"B's task takes {type(element.event).__name__} of channel {element.channel_index}"

    def _end(self) -> str:
        self._has_ended = True
        for writer in self._writers:
            writer.finish()
            writer.close()
        return "A's tasks have finished"

    def _happen(self, text: str) -> None:
        """Run the consequences of an event, and record the resulting state."""
        self._time.settle()
        session = self._producer_transport.session
        if session is not None and self._sender is None:
            self._sender = session.producer.account_of(_TRACED)
        reading = self._reading()
        is_lawful = self._is_pool_whole() and (reading is None or reading.is_balanced)
        number = len(self._steps) + 1
        self._steps.append(TraceStep(number, text, self._tap.take_sent(), reading, is_lawful))

    def _reading(self) -> Reading | None:
        session = self._producer_transport.session
        credits = self._receiver.credits
        account = credits.accounts[_TRACED]
        is_served = session is not None and session.producer.account_of(_TRACED) is not None
        if not account.is_open or (self._sender is not None and not is_served):
            return None
        return Reading(
            0 if self._sender is None else self._sender.credit,
            self._writers[_TRACED].partition.queued_count,
            self._tap.data_in_flight(_TRACED),
            self._tap.credit_in_flight(_TRACED),
            account.idle_exclusive,
            account.idle_floating,
            account.required,
            account.unannounced,
            credits.idle_floating,
            account.held_exclusive,
            account.held_floating,
        )

    def _is_pool_whole(self) -> bool:
        """Return whether every floating segment, and every exclusive one of an open channel, is accounted for."""
        credits = self._receiver.credits
        floating = credits.idle_floating + sum(
            account.idle_floating + account.held_floating for account in credits.accounts
        )
        return floating == credits.floating_count and all(
            account.idle_exclusive + account.held_exclusive == credits.exclusive_count
            for account in credits.accounts
            if account.is_open
        )

    def _close(self) -> None:
        self._gate.close()
        self._time.settle()
        for environment in (self._producer, self._consumer):
            environment.close()
        self._time.settle()

    def _environment(self, name: str, transport: TappedTransport) -> CreditBasedShuffleEnvironment:
        settings = Settings(
            {
                BUFFERS_PER_CHANNEL.key: str(self._settings.exclusive_count),
                FLOATING_BUFFERS_PER_GATE.key: str(self._settings.floating_count),
                NETWORK_MAX.key: "64 mb",
                KEEPALIVE_INTERVAL.key: "0 s",
            }
        )
        return CreditBasedShuffleEnvironment(
            resource_id=ResourceId(name),
            settings=settings,
            secret=_SECRET,
            bind_host="",
            advertised_host="",
            clock=self._time.clock,
            random=SeededRandom(name),
            socket_directory=None,
            transport=transport,
            wait=NeverWait(),
        )

    def _writer(self, number: int) -> RecordWriter:
        descriptor = ResultPartitionDescriptor(
            _partition_id(number), ResultPartitionType.PIPELINED_BOUNDED, 1
        )
        partition = self._producer.create_result_partition(descriptor)
        selector = create_selector(
            PartitionerSpec(PartitionerKind.FORWARD), 1, 128, SeededRandom(number)
        )
        return create_record_writer(partition, selector, 0, self._time.clock)

    def _create_gate(self, location: TaskManagerLocation) -> SingleInputGate:
        channels = tuple(
            InputChannelDescriptor(ShuffleDescriptor(_partition_id(number), location), 0)
            for number in range(self._settings.channel_count)
        )
        descriptor = InputGateDescriptor(_DATA_SET, 0, channels)
        gate = self._consumer.create_input_gate(descriptor, _attempt("consumer", 0))
        gate.read_as(_NUMBERS)
        return gate


def _attempt(name: str, subtask_index: int) -> ExecutionAttemptId:
    vertex = ExecutionVertexId(JobVertexId(name.encode().ljust(16, b"_")), subtask_index)
    return ExecutionAttemptId(JobId(b"j" * 16), vertex, 0)


def _partition_id(number: int) -> ResultPartitionId:
    return ResultPartitionId(_DATA_SET, number, _attempt("producer", number))


def _numbered(word: str, first: int, last: int) -> str:
    if last < first:
        return f"no {word}"
    return f"{word} {first}" if first == last else f"{word}s {first} to {last}"
