"""Which tier takes a batch of a hybrid partition: memory, disk, or both. Pure.

Memory takes what a consumer that keeps up will fetch in a moment; the disk takes the rest, so that a slow or absent
consumer never stops the producer. A full partition has everything on disk besides, to be read again.
Source: Flink TierProducerAgent, MemoryTierProducerAgent, DiskTierProducerAgent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MEMORY_QUEUED_MAX: Final = 3
"""A consumer with so many batches waiting in memory is slow: the next ones are for the disk."""
SEGMENTS_KEPT_FREE: Final = 2
"""So that the next batch can be sealed, whatever consumers do."""


@dataclass(frozen=True, slots=True)
class TierState:
    """What the choice depends on; `free_segments` of the partition are left besides those of this batch."""

    is_full: bool
    is_broadcast: bool
    has_consumer: bool
    queued_in_memory: int
    free_segments: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a batch goes; somewhere in any case."""

    in_memory: bool
    on_disk: bool


TierPolicy = Callable[[TierState], Placement]


def choose_tiers(state: TierState) -> Placement:
    """Return where a batch goes. A broadcast is stored once for all, which only the disk can do."""
    in_memory = (
        state.has_consumer
        and not state.is_broadcast
        and state.queued_in_memory < MEMORY_QUEUED_MAX
        and state.free_segments >= SEGMENTS_KEPT_FREE
    )
    return Placement(in_memory, state.is_full or not in_memory)
