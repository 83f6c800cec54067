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
    "Exclusive segments of each remote channel: the amount a producer may send before it hears from the consumer.",
    least=1,
)  # fmt: skip
FLOATING_BUFFERS_PER_GATE: Final = ConfigOption(
    "taskmanager.network.memory.floating-buffers-per-gate", int, 8,
    "Floating segments that the channels of a gate share; they are given to channels with a backlog.",
)  # fmt: skip
MAX_BUFFERS_PER_CHANNEL: Final = ConfigOption(
    "taskmanager.network.memory.max-buffers-per-channel", int, 10,
    "Number of batches in one subpartition from which its task counts as back-pressured.",
)  # fmt: skip
MAX_OVERDRAFT_BUFFERS: Final = ConfigOption(
    "taskmanager.network.memory.max-overdraft-buffers-per-gate", int, 5,
    "Segments beyond its pool that a task may take to finish its current batch instead of blocking.",
)  # fmt: skip
PINNED_BUFFERS_PER_GATE: Final = ConfigOption(
    "headrace.network.pinned-buffers-per-gate", int, 8,
    "Received batches that user code may keep in network memory without a time limit; further ones are copied.",
)  # fmt: skip

SEGMENTS_MIN: Final = 2
"""Number of segments of the smallest exchange: one for a local channel, and one that its writer fills."""
GATE_BUDGET_BYTES: Final = 32 << 20
SEGMENT_BYTES_MAX: Final = 1 << 20


class NetworkMemoryError(NetworkError):
    """The system does not provide the network memory that a TaskManager is configured with.

    `available_bytes`: approximate size that would be available, found by halving.
    """

    domain, recoverable = ErrorDomain.EXTERNAL, False

    def __init__(self, wanted_bytes: int, available_bytes: int, reason: str) -> None:
        super().__init__(
            f"cannot allocate {wanted_bytes >> 20} mb of network memory: {reason}; about "
            f"{available_bytes >> 20} mb are available. Lower '{NETWORK_MIN.key}', '{NETWORK_MAX.key}' or "
            f"'{NETWORK_FRACTION.key}'"
        )
        self.wanted_bytes = wanted_bytes
        self.available_bytes = available_bytes


def wanted_segment_size(channel_count: int, page_bytes: int) -> int:
    """Return the segment size with which `channel_count` channels and their floating segments share a gate's budget."""
    share = GATE_BUDGET_BYTES // (channel_count + 8)
    nearest = 1 << max(0, round(share - 1).bit_length() - 1)
    if share - nearest > 2 * nearest - share:
        nearest *= 2
    return max(page_bytes, min(nearest, SEGMENT_BYTES_MAX) // page_bytes * page_bytes)


def segment_bytes(settings: Settings, memory_bytes: int) -> int:
    """Return the size of the smallest segments in bytes.

    ConfigurationError if too few of them fit into `memory_bytes`.
    """
    size = settings.get_option(SEGMENT_SIZE)
    if size * SEGMENTS_MIN > memory_bytes:
        raise ConfigurationError(
            SEGMENT_SIZE.key,
            f"{size} bytes",
            f"it must be at most {memory_bytes // SEGMENTS_MIN} bytes, because an exchange needs at least "
            f"{SEGMENTS_MIN} segments of the network memory of a TaskManager, which is {memory_bytes} bytes "
            f"('{NETWORK_FRACTION.key}' of its memory, from '{NETWORK_MIN.key}' to '{NETWORK_MAX.key}')",
        )
    return size
