"""Metrics of the exchange under Flink's names, and a textual description of its queues.

Metrics are plain counters of gates and writers, read on demand. No gauge holds a lock for long, and a gauge of
a released object reads zero. `describe_exchange` shows whether an exchange is slow or stuck; it reads without
locks, so that its result is only a snapshot, and is safe from any thread and after release.
Source: Flink NettyShuffleMetricFactory, TaskIOMetricGroup.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from headrace.core.config import ConfigOption
from headrace.metrics import names
from headrace.metrics.groups import MetricGroup
from headrace.network.flow.latency_governor import LatencyGovernor
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.memory.local_buffer_pool import LocalBufferPool
from headrace.network.memory.network_buffer_pool import NetworkBufferPool
from headrace.network.partitions.pipelined_partition import PipelinedResultPartition
from headrace.network.partitions.result_partition import ResultPartition
from headrace.network.writers.record_writer import RecordWriter

DETAILED_METRICS: Final = ConfigOption(
    "taskmanager.network.detailed-metrics", bool, False,
    "Whether tasks also report the longest, shortest and average queue length of each input and output.",
)  # fmt: skip


def register_task_metrics(
    group: MetricGroup,
    gates: Sequence[SingleInputGate],
    writers: Sequence[RecordWriter],
    *,
    is_detailed: bool = False,
) -> None:
    """Register the metrics of all inputs and outputs of one task, under plain names in the group of the task."""
    _register_inputs(group, gates)
    _register_outputs(group, writers)
    for index, writer in enumerate(writers):
        if writer.governor is not None:
            _register_governor(group, f"output.{index}", writer.governor)
    if is_detailed:
        for index, gate in enumerate(gates):
            _register_queues(group, f"input.{index}", lambda gate=gate: _lengths_in(gate))
        for index, writer in enumerate(writers):
            partition = writer.partition
            _register_queues(
                group, f"output.{index}", lambda partition=partition: _lengths_out(partition)
            )


def _register_inputs(group: MetricGroup, gates: Sequence[SingleInputGate]) -> None:
    group.rate(names.NUM_BYTES_IN_PER_SECOND, lambda: sum(gate.bytes_in for gate in gates))
    group.rate(names.NUM_BUFFERS_IN_PER_SECOND, lambda: sum(gate.buffers_in for gate in gates))
    for name, read in (
        (names.NUM_BYTES_IN_LOCAL_PER_SECOND, lambda: sum(gate.bytes_in_local for gate in gates)),
        (names.NUM_BYTES_IN_REMOTE_PER_SECOND, lambda: sum(gate.bytes_in_remote for gate in gates)),
        (
            names.NUM_BUFFERS_IN_LOCAL_PER_SECOND,
            lambda: sum(gate.buffers_in_local for gate in gates),
        ),
        (
            names.NUM_BUFFERS_IN_REMOTE_PER_SECOND,
            lambda: sum(gate.buffers_in_remote for gate in gates),
        ),
    ):
        group.rate(name, read)
    group.gauge(names.NUM_BYTES_IN, lambda: sum(gate.bytes_in for gate in gates))
    group.gauge(names.NUM_BYTES_IN_LOCAL, lambda: sum(gate.bytes_in_local for gate in gates))
    group.gauge(names.NUM_BYTES_IN_REMOTE, lambda: sum(gate.bytes_in_remote for gate in gates))
    group.gauge(names.NUM_BUFFERS_IN, lambda: sum(gate.buffers_in for gate in gates))
    group.gauge(names.NUM_BUFFERS_IN_LOCAL, lambda: sum(gate.buffers_in_local for gate in gates))
    group.gauge(names.NUM_BUFFERS_IN_REMOTE, lambda: sum(gate.buffers_in_remote for gate in gates))
    group.gauge(names.INPUT_QUEUE_LENGTH, lambda: sum(gate.queue_length for gate in gates))
    group.gauge(
        names.IN_POOL_USAGE,
        lambda: _share(
            sum(gate.used_segment_count for gate in gates),
            sum(gate.segment_count for gate in gates),
        ),
    )
    group.gauge(names.INPUT_QUEUE_SIZE, lambda: sum(gate.queued_bytes for gate in gates))
    receivers = [gate.receiver for gate in gates if gate.receiver is not None]
    group.gauge(names.INPUT_CREDITS, lambda: sum(receiver.granted_count for receiver in receivers))
    group.gauge(
        names.INPUT_EXCLUSIVE_USAGE,
        lambda: max((receiver.exclusive_usage for receiver in receivers), default=0.0),
    )
    group.gauge(
        names.INPUT_FLOATING_USAGE,
        lambda: max((receiver.floating_usage for receiver in receivers), default=0.0),
    )


def _register_outputs(group: MetricGroup, writers: Sequence[RecordWriter]) -> None:
    group.rate(names.NUM_BYTES_OUT_PER_SECOND, lambda: sum(writer.bytes_out for writer in writers))
    group.rate(
        names.NUM_BUFFERS_OUT_PER_SECOND, lambda: sum(writer.buffers_out for writer in writers)
    )
    group.gauge(names.NUM_BYTES_OUT, lambda: sum(writer.bytes_out for writer in writers))
    group.gauge(names.NUM_BUFFERS_OUT, lambda: sum(writer.buffers_out for writer in writers))
    partitions = [writer.partition for writer in writers]
    group.gauge(
        names.OUTPUT_QUEUE_LENGTH, lambda: sum(partition.queued_count for partition in partitions)
    )
    group.gauge(
        names.OUTPUT_QUEUE_SIZE,
        lambda: sum(partition.queued_bytes for partition in partitions),
    )
    group.gauge(
        names.OUT_POOL_USAGE,
        lambda: _share(
            sum(partition.pool.used for partition in partitions),
            sum(partition.pool.size for partition in partitions),
        ),
    )


def _register_governor(group: MetricGroup, prefix: str, governor: LatencyGovernor) -> None:
    group.gauge(f"{prefix}.{names.GOVERNED_HOLD_TIME.name}", lambda: governor.choice.hold_ms)
    group.gauge(f"{prefix}.{names.GOVERNED_BATCH_ROWS.name}", lambda: governor.choice.rows)


def _register_queues(group: MetricGroup, prefix: str, lengths: Callable[[], Sequence[int]]) -> None:
    group.gauge(f"{prefix}.{names.TOTAL_QUEUE_LENGTH.name}", lambda: sum(lengths()))
    group.gauge(f"{prefix}.{names.MIN_QUEUE_LENGTH.name}", lambda: min(lengths(), default=0))
    group.gauge(f"{prefix}.{names.MAX_QUEUE_LENGTH.name}", lambda: max(lengths(), default=0))
    group.gauge(
        f"{prefix}.{names.AVG_QUEUE_LENGTH.name}",
        lambda: _share(sum(found := lengths()), len(found)),
    )


def _lengths_in(gate: SingleInputGate) -> Sequence[int]:
    return [channel.queued_count for channel in gate.channels]


def _lengths_out(partition: ResultPartition) -> Sequence[int]:
    if isinstance(partition, PipelinedResultPartition):
        return [subpartition.queued_count for subpartition in partition.subpartitions]
    return [partition.queued_count]


def register_pool_metrics(group: MetricGroup, pool: NetworkBufferPool) -> None:
    """Register the metrics of a TaskManager's network memory in its group."""
    netty = group.add_group("Shuffle").add_group("Netty")
    page_bytes = pool.page_bytes
    netty.gauge(names.TOTAL_MEMORY_SEGMENTS, lambda: pool.total_pages)
    netty.gauge(names.AVAILABLE_MEMORY_SEGMENTS, pool.count_idle_pages)
    netty.gauge(names.USED_MEMORY_SEGMENTS, lambda: pool.total_pages - pool.count_idle_pages())
    netty.gauge(names.TOTAL_MEMORY, lambda: pool.total_pages * page_bytes)
    netty.gauge(names.AVAILABLE_MEMORY, lambda: pool.count_idle_pages() * page_bytes)
    netty.gauge(
        names.USED_MEMORY, lambda: (pool.total_pages - pool.count_idle_pages()) * page_bytes
    )
    netty.gauge(
        names.REQUESTED_MEMORY_USAGE,
        lambda: 100 * _share(pool.requested_pages, pool.total_pages),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def describe_exchange(
    gates: Sequence[SingleInputGate], partitions: Sequence[ResultPartition]
) -> str:
    """Return a description with a line for each gate, channel, partition and subpartition that holds or lacks data."""
    lines: list[str] = []
    for index, gate in enumerate(gates):
        lines += _gate(index, gate)
    for index, partition in enumerate(partitions):
        lines += _partition(index, partition)
    return "\n".join(lines)


def _gate(index: int, gate: SingleInputGate) -> Iterator[str]:
    yield (
        f"input {index}: {gate.number_of_channels} channels, {gate.queue_length} elements with "
        f"{gate.queued_bytes} bytes queued, {'finished' if gate.is_finished else 'open'}"
    )
    for number, channel in enumerate(gate.channels):
        if channel.queued_count:
            where = "local" if channel.is_local else "remote"
            yield f"  channel {number} ({where}): {channel.queued_count} queued"
    receiver = gate.receiver
    if receiver is None:
        return
    yield f"  floating segments: {receiver.credits.idle_floating} of {receiver.credits.floating_count} free"
    for number, account in enumerate(receiver.credits.accounts):
        held = account.held_exclusive + account.held_floating
        yield (
            f"  remote channel {number}: {'open' if account.is_open else 'closed'}, granted {account.granted}, "
            f"unannounced {account.unannounced}, held {held}, required {account.required}"
            f"{', waits for segments' if account.is_waiting else ''}"
            f"{', its producer lacks credit' if account.is_stalled else ''}"
        )


def _partition(index: int, partition: ResultPartition) -> Iterator[str]:
    yield (
        f"output {index}: {partition.partition_id}, {partition.queued_count} elements with "
        f"{partition.queued_bytes} bytes queued, {_pool(partition.pool)}"
    )
    if isinstance(partition, PipelinedResultPartition):
        for number, subpartition in enumerate(partition.subpartitions):
            if subpartition.queued_count or subpartition.is_blocked:
                yield (
                    f"  subpartition {number}: {subpartition.queued_count} queued, backlog {subpartition.backlog}"
                    f"{', blocked until its consumer resumes' if subpartition.is_blocked else ''}"
                )


def _pool(pool: LocalBufferPool) -> str:
    state = "destroyed" if pool.is_destroyed else "available" if pool.is_available else "full"
    return f"{pool.used} of {pool.size} segments used ({pool.required} to {pool.maximum}), {state}"
