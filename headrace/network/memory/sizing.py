"""Options for the size and the division of network memory, and the sizes derived from them."""

from typing import Final

from headrace.core.config import ConfigOption, Settings, SizeBytes
from headrace.core.errors import ConfigurationError, ErrorDomain
from headrace.core.process.memory_parts import NETWORK_FRACTION, NETWORK_MAX, NETWORK_MIN
from headrace.network.errors import NetworkError

SEGMENT_SIZE: Final = ConfigOption(
    "taskmanager.memory.segment-size", SizeBytes, SizeBytes(32 * 1024),
    "The smallest network segment. Gates and partitions with few channels use a multiple of it, up to 1 mb.",
    least=SizeBytes(4 << 10),
    most=SizeBytes(64 << 20),
)  # fmt: skip
BUFFERS_PER_CHANNEL: Final = ConfigOption(
    "taskmanager.network.memory.buffers-per-channel", int, 2,
    "Exclusive segments of each remote channel: what a producer may send before it hears from the consumer.",
    least=1,
)  # fmt: skip
FLOATING_BUFFERS_PER_GATE: Final = ConfigOption(
    "taskmanager.network.memory.floating-buffers-per-gate", int, 8,
    "Segments that the channels of a gate share, given to those with a backlog.",
)  # fmt: skip
MAX_BUFFERS_PER_CHANNEL: Final = ConfigOption(
    "taskmanager.network.memory.max-buffers-per-channel", int, 10,
    "Number of batches in one subpartition from which on its task counts as back-pressured.",
)  # fmt: skip
MAX_OVERDRAFT_BUFFERS: Final = ConfigOption(
    "taskmanager.network.memory.max-overdraft-buffers-per-gate", int, 5,
    "Segments beyond its pool that a task may take to finish the batch at hand instead of blocking.",
)  # fmt: skip
PINNED_BUFFERS_PER_GATE: Final = ConfigOption(
    "headrace.network.pinned-buffers-per-gate", int, 8,
    "Received batches that user code may keep in network memory, as long as it likes; further ones are copied out.",
)  # fmt: skip

SEGMENTS_MIN: Final = 2
"""Segments of the smallest exchange: one of a channel of the same process, and one that its writer fills."""
GATE_BUDGET_BYTES: Final = 32 << 20
SEGMENT_BYTES_MAX: Final = 1 << 20


class NetworkMemoryError(NetworkError):
    """The system does not give a TaskManager the network memory that it is set up with.

    `available_bytes`: about what could be had, half as much being the next that was tried.
    """

    domain, recoverable = ErrorDomain.EXTERNAL, False

    def __init__(self, wanted_bytes: int, available_bytes: int, reason: str) -> None:
        super().__init__(
            f"no memory for {wanted_bytes >> 20} mb of batches from other processes: {reason}; about "
            f"{available_bytes >> 20} mb could be had. Lower '{NETWORK_MIN.key}', '{NETWORK_MAX.key}' or "
            f"'{NETWORK_FRACTION.key}'"
        )
        self.wanted_bytes = wanted_bytes
        self.available_bytes = available_bytes


def wanted_segment_size(channel_count: int, page_bytes: int) -> int:
    """Return the size at which `channel_count` channels and their floating segments share the budget of a gate."""
    share = GATE_BUDGET_BYTES // (channel_count + 8)
    nearest = 1 << max(0, round(share - 1).bit_length() - 1)
    if share - nearest > 2 * nearest - share:
        nearest *= 2
    return max(page_bytes, min(nearest, SEGMENT_BYTES_MAX) // page_bytes * page_bytes)


def segment_bytes(settings: Settings, memory_bytes: int) -> int:
    """Return the size of the smallest segments. ConfigurationError where so much network memory has too few of them."""
    size = settings.get_option(SEGMENT_SIZE)
    if size * SEGMENTS_MIN > memory_bytes:
        raise ConfigurationError(
            SEGMENT_SIZE.key,
            f"{size} bytes",
            f"it must be at most {memory_bytes // SEGMENTS_MIN} bytes, as an exchange takes {SEGMENTS_MIN} segments at "
            f"least of the network memory of a TaskManager, which is {memory_bytes} bytes ('{NETWORK_FRACTION.key}' of "
            f"its memory, from '{NETWORK_MIN.key}' to '{NETWORK_MAX.key}')",
        )
    return size
