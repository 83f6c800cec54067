"""RequestQueue: which of the checkpoints that are wanted is taken next, and whether now. Pure.

Source: Flink CheckpointRequestDecider.
"""

import bisect
from dataclasses import dataclass
from typing import Final

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.cluster.job_master.checkpointing.protocol.plan import CheckpointPlan
from headrace.core.barriers import SnapshotKind
from headrace.core.ids import ExecutionAttemptId

QUEUE_SIZE_MAX: Final = 1000


@dataclass(frozen=True)
class CheckpointRequest:
    """A checkpoint that is wanted. `number` rises; `is_forced` passes by the bound of concurrency."""

    number: int
    kind: SnapshotKind
    is_periodic: bool = False
    is_forced: bool = False
    target: str = ""

    @property
    def order(self) -> tuple[bool, bool, bool, int]:
        """Savepoints first, then what is forced, then what somebody asked for, then what is older."""
        return (not self.kind.is_savepoint, not self.is_forced, self.is_periodic, self.number)


@dataclass(frozen=True)
class TooEarly:
    """The first in order would start before the least pause is over: it is dropped."""

    request: CheckpointRequest
    remaining_ms: float


@dataclass
class RequestUnderWay:
    """The one request that is between its choice and its trigger messages.

    `lost`: somebody of its plan has ended, who, and what that means for the checkpoint.
    """

    request: CheckpointRequest
    plan: CheckpointPlan | None = None
    checkpoint_id: int | None = None
    lost: tuple[ExecutionAttemptId, CheckpointFailureReason] | None = None


class RequestQueue:
    """Requests that wait, in order; at most QUEUE_SIZE_MAX of them."""

    def __init__(self, max_concurrent: int) -> None:
        self._max_concurrent = max_concurrent
        self._requests: list[CheckpointRequest] = []

    def __len__(self) -> int:
        return len(self._requests)

    def put(self, request: CheckpointRequest) -> CheckpointRequest | None:
        """Add; returns the request that there is no room for, if any.

        What people asked for is kept: a new request is turned away where nothing periodic waits.
        """
        if len(self._requests) >= QUEUE_SIZE_MAX and not self._requests[-1].is_periodic:
            return request
        bisect.insort(self._requests, request, key=lambda each: each.order)
        return self._requests.pop() if len(self._requests) > QUEUE_SIZE_MAX else None

    def choose(
        self, *, pending_count: int, cleaning_count: int, pause_left_ms: float
    ) -> CheckpointRequest | TooEarly | None:
        """Take the first out if it may start now."""
        if not self._requests or cleaning_count > self._max_concurrent:
            return None
        first = self._requests[0]
        if pending_count >= self._max_concurrent and not first.is_forced:
            return None
        del self._requests[0]
        if first.is_periodic and not first.is_forced and pause_left_ms > 0:
            return TooEarly(first, pause_left_ms)
        return first

    def clear(self) -> list[CheckpointRequest]:
        """Take all out."""
        taken, self._requests = self._requests, []
        return taken
