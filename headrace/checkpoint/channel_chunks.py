"""Which part of an edge's data in flight a chunk holds, and which subtasks of today it concerns.

One chunk is what one subtask had of one channel: as its receiver (queued there) or as its sender (overtaken there).
What a sender had is dealt among today's senders, who send each row where it belongs today. What a receiver had goes to
the receivers that may own its rows:

    rows sent by key (HASH)             the subtasks whose key groups overlap those of the old one; each keeps its own
    others (REBALANCE, SHUFFLE)         in turn: any subtask may process any row
    others (GLOBAL)                     in turn as well: only subtask 0 had any, and is the first in turn

On all other edges barriers do not overtake, so that there is nothing in flight to be kept.
Source: Flink SubtaskStateMapper, StreamPartitioner.getDownstreamSubtaskStateMapper.
"""

import enum
from typing import Self

import msgspec

from headrace.checkpoint.errors import MetadataError
from headrace.checkpoint.handles import StateChunk, StateTable
from headrace.core.key_groups import key_group_range


class ChannelRole(enum.Enum):
    """Whose part of a channel a chunk is."""

    INPUT = "input"
    OUTPUT = "output"


class ReceiverMapping(enum.Enum):
    """How what receivers had is dealt among those of today."""

    RANGE = "range"
    ROUND_ROBIN = "round robin"


class ChannelPart(msgspec.Struct, frozen=True):
    """The attributes of a chunk of StateTable.CHANNELS.

    `edge`: the id of its data set, in hex, which is the same in every attempt and after every restart. `part` numbers
    the chunks of one channel, in the order in which their rows are read.
    """

    role: ChannelRole
    edge: str
    sender: int
    receiver: int
    sender_count: int
    receiver_count: int
    max_parallelism: int
    """Of the receivers."""
    mapping: ReceiverMapping
    part: int = 0

    @property
    def place(self) -> tuple[str, str, int, int, int]:
        """What is unique among the chunks of a snapshot, and their order."""
        return (self.role.value, self.edge, self.sender, self.receiver, self.part)

    @classmethod
    def of(cls, chunk: StateChunk) -> Self:
        """Read the attributes of a chunk. MetadataError."""
        try:
            return msgspec.convert(chunk.attributes, cls, strict=False)
        except msgspec.ValidationError as error:
            raise MetadataError(
                f"the snapshot has data in flight that cannot be placed: {error}"
            ) from error

    def attributes(self) -> dict[str, str]:
        """Return what a chunk says of itself."""
        plain = msgspec.to_builtins(self)
        return {key: str(value) for key, value in plain.items()}

    def concerns(self, index: int, parallelism: int) -> bool:
        """Whether it is for today's subtask `index` of `parallelism`: receivers of an INPUT, senders of an OUTPUT."""
        if self.role is ChannelRole.OUTPUT:
            return self.sender % parallelism == index
        if self.receiver_count == parallelism:
            return self.receiver == index
        match self.mapping:
            case ReceiverMapping.RANGE:
                old = key_group_range(self.receiver, self.receiver_count, self.max_parallelism)
                own = key_group_range(index, parallelism, self.max_parallelism)
                return max(old.start, own.start) < min(old.stop, own.stop)
            case ReceiverMapping.ROUND_ROBIN:
                return self.receiver % parallelism == index


def concerns_subtask(chunk: StateChunk, index: int, parallelism: int) -> bool:
    """Whether a chunk is data in flight that today's subtask `index` of its operator begins with. MetadataError."""
    if chunk.table is not StateTable.CHANNELS:
        return False
    return ChannelPart.of(chunk).concerns(index, parallelism)
