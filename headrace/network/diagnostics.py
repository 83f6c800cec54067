"""Describes a task's side of an exchange in words: queues, credit and memory of each channel.

Shows whether an exchange is slow or stuck. Reads without locks, so that the view is of one moment only; safe from any
thread and after release.
"""

from collections.abc import Iterator, Sequence

from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.memory.local_buffer_pool import LocalBufferPool
from headrace.network.partitions.pipelined_partition import PipelinedResultPartition
from headrace.network.partitions.result_partition import ResultPartition


def describe_exchange(
    gates: Sequence[SingleInputGate], partitions: Sequence[ResultPartition]
) -> str:
    """Return a line for each gate, channel, partition and subpartition that holds or lacks something."""
    lines: list[str] = []
    for index, gate in enumerate(gates):
        lines += _gate(index, gate)
    for index, partition in enumerate(partitions):
        lines += _partition(index, partition)
    return "\n".join(lines)


def _gate(index: int, gate: SingleInputGate) -> Iterator[str]:
    yield (
        f"input {index}: {gate.number_of_channels} channels, {gate.queue_length} elements and "
        f"{gate.queued_bytes} bytes wait, {'finished' if gate.is_finished else 'open'}"
    )
    for number, channel in enumerate(gate.channels):
        if channel.queued_count:
            where = "local" if channel.is_local else "remote"
            yield f"  channel {number} ({where}): {channel.queued_count} wait"
    receiver = gate.receiver
    if receiver is None:
        return
    yield f"  segments to share: {receiver.credits.idle_floating} of {receiver.credits.floating_count} free"
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
        f"output {index}: {partition.partition_id}, {partition.queued_count} elements and "
        f"{partition.queued_bytes} bytes wait, {_pool(partition.pool)}"
    )
    if isinstance(partition, PipelinedResultPartition):
        for number, subpartition in enumerate(partition.subpartitions):
            if subpartition.queued_count or subpartition.is_blocked:
                yield (
                    f"  subpartition {number}: {subpartition.queued_count} wait, backlog {subpartition.backlog}"
                    f"{', blocked until its consumer resumes' if subpartition.is_blocked else ''}"
                )


def _pool(pool: LocalBufferPool) -> str:
    state = "destroyed" if pool.is_destroyed else "available" if pool.is_available else "full"
    return f"{pool.used} of {pool.size} segments used ({pool.required} to {pool.maximum}), {state}"
