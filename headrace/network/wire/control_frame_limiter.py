"""ControlFrameLimiter: limits the frames that a peer may send at no cost to itself, for the others' sake. Pure.

All connections of a TaskManager share one network thread, and that thread the interpreter with its tasks. A peer can
send no more rows than it was granted credit for. Credits, requests and signs of life it could send without end, and
each takes some microseconds. Those of an honest peer answer rows, one way or the other, so they are earned with rows;
for the rest there is a low rate. What is beyond it waits in the peer's own socket, until it blocks.
Source: token bucket (Turner 1986).
"""

import math
from collections.abc import Sequence
from typing import Final

from headrace.network.wire.frames import Data, IngestData, PushData
from headrace.network.wire.framing import Frame

FREE_FRAMES_PER_S: Final = 2_000
FREE_FRAMES_BURST: Final = 2_048
"""At once, such as the requests for all channels of a few large gates; and so many earned ones may be saved."""
EARNED_FRAMES_PER_S_MAX: Final = 18_000
"""Whoever takes many rows may not send more for that either: this is what batches of one row each come to."""
BYTES_PER_EARNED_FRAME: Final = 64
"""No batch that is sent is smaller, so each earns the credit that answers it."""
_PAID: Final = (Data, IngestData, PushData)


class ControlFrameLimiter:
    """Of one connection. Times are monotonic nanoseconds."""

    __slots__ = ("_earned", "_left", "_since_ns")

    def __init__(self, now_ns: int) -> None:
        self._left = float(FREE_FRAMES_BURST)
        self._earned = 0.0
        self._since_ns = now_ns

    def sent(self, byte_count: int) -> None:
        """Take note that so many bytes went to the peer."""
        self._earned += byte_count / BYTES_PER_EARNED_FRAME

    def spend(self, frames: Sequence[Frame], now_ns: int) -> float:
        """Take note of what came; return for how many ms nothing more is to be read, 0 where there is budget left."""
        # By their exact types, without a step of Python for each: a peer that chatters sends thousands at once.
        types = list(map(type, frames))
        paid_count = sum(map(types.count, _PAID))
        elapsed_s = (now_ns - self._since_ns) / 1e9
        self._since_ns = now_ns
        earned = min(self._earned + paid_count, elapsed_s * EARNED_FRAMES_PER_S_MAX)
        self._earned = min(FREE_FRAMES_BURST, self._earned + paid_count - earned)
        gained = elapsed_s * FREE_FRAMES_PER_S + earned
        self._left = min(FREE_FRAMES_BURST, self._left + gained) - (len(frames) - paid_count)
        return 0.0 if self._left >= 0 else math.ceil(-self._left / FREE_FRAMES_PER_S * 1000)
