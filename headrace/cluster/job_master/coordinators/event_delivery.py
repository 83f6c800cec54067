"""EventDelivery and OperatorEventValve: deliver coordinators' events in order, once, on the right side of barriers.

An event that may not have arrived is sent again, with the same number, before the next one. A checkpoint of the
coordinators waits until all events have arrived: their state counts events as delivered, and a barrier must not reach a
subtask before them. EventDelivery runs on the JobMaster's main thread.

An event that a coordinator sends after its part of checkpoint n must reach a subtask after barrier n, or it would be in
both states or in neither: OperatorEventValve holds it back.
Source: Flink OperatorCoordinatorHolder, SubtaskGatewayImpl, which fail the subtask instead of sending again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from headrace.core.errors import HeadraceError
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, OperatorId
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import AskTimeoutError, MailboxFullError, RecipientUnreachableError

_LOG = logging.getLogger(__name__)

RESEND_PAUSE_S: Final = 0.5


SendOnce = Callable[[ExecutionAttemptId, OperatorId, int, bytes], Awaitable[None]]
"""Sends one event with its number, and waits for the answer. RpcError if it may not have arrived."""


@dataclass
class _Line:
    """Queue of the events for one attempt; its first event is in flight while `is_sending`."""

    events: deque[tuple[OperatorId, bytes]] = field(default_factory=deque[tuple[OperatorId, bytes]])
    next_number: int = 0
    is_sending: bool = False


class EventDelivery:
    """Delivers the events of one job. `on_quiet` is called whenever no event is in flight any more.

    `on_refused(attempt_id, error)`: an attempt refuses an event for good.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        send_once: SendOnce,
        on_quiet: Callable[[], None],
        on_refused: Callable[[ExecutionAttemptId, HeadraceError], None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._send_once: Final = send_once
        self._on_quiet: Final = on_quiet
        self._on_refused: Final = on_refused
        self._lines: dict[ExecutionAttemptId, _Line] = {}

    @property
    def is_quiet(self) -> bool:
        """Return whether all events for attempts that have not ended have arrived."""
        return not any(line.events for line in self._lines.values())

    def send(self, attempt_id: ExecutionAttemptId, operator_id: OperatorId, payload: bytes) -> None:
        """Send an event to an attempt, after the previous ones."""
        line = self._lines.setdefault(attempt_id, _Line())
        line.events.append((operator_id, payload))
        if not line.is_sending:
            line.is_sending = True
            self._endpoint.spawn(self._drain(attempt_id, line), f"events to {attempt_id}")

    def attempt_ended(self, attempt_id: ExecutionAttemptId) -> None:
        """Drop the events for an attempt that has ended."""
        line = self._lines.pop(attempt_id, None)
        if line is not None and line.events:
            line.events.clear()
            self._tell_if_quiet()

    async def _drain(self, attempt_id: ExecutionAttemptId, line: _Line) -> None:
        while line.events:
            operator_id, payload = line.events[0]
            try:
                await self._send_once(attempt_id, operator_id, line.next_number, payload)
            except (AskTimeoutError, RecipientUnreachableError, MailboxFullError):
                # Heartbeats notice a TaskManager that is really gone, and then its attempts end.
                await asyncio.sleep(RESEND_PAUSE_S)
                continue
            except HeadraceError as error:
                _LOG.warning("attempt %s refused an operator event: %s", attempt_id, error)
                line.events.clear()
                self._on_refused(attempt_id, error)
                break
            if line.events:
                line.events.popleft()
                line.next_number += 1
        line.is_sending = False
        self._tell_if_quiet()

    def _tell_if_quiet(self) -> None:
        if self.is_quiet:
            self._on_quiet()


@dataclass(frozen=True)
class HeldEvent:
    """An event in flight to a subtask."""

    subtask: ExecutionVertexId
    operator_id: OperatorId
    payload: bytes


@dataclass
class _Gate:
    closed_for: set[int] = field(default_factory=set[int])
    held: list[HeldEvent] = field(default_factory=list[HeldEvent])


class OperatorEventValve:
    """Holds events back from a subtask between its coordinator's snapshot and its own; one gate per subtask. Pure.

    A gate opens again when the subtask has acknowledged the checkpoint, because the acknowledgement is sent after
    everything that the subtask sent before its barrier. It also opens when the checkpoint is published or aborted.
    Events that wait for an attempt that has ended are dropped: the coordinator learns the checkpoint to which that
    subtask is reset.
    """

    def __init__(self) -> None:
        self._gates: dict[ExecutionVertexId, _Gate] = {}

    @property
    def holds_events(self) -> bool:
        """Return whether events are held back: the next snapshot, which would count them as delivered, must wait."""
        return any(gate.held for gate in self._gates.values())

    def close(self, checkpoint_id: int, subtasks: Iterable[ExecutionVertexId]) -> None:
        """Close the gates of `subtasks`, because the coordinators are snapshotted for this checkpoint now."""
        assert not self.holds_events
        for subtask in subtasks:
            self._gates.setdefault(subtask, _Gate()).closed_for.add(checkpoint_id)

    def pass_on(self, event: HeldEvent) -> bool:
        """Return whether the event may be sent now; otherwise keep it."""
        gate = self._gates.get(event.subtask)
        if gate is None:
            return True
        gate.held.append(event)
        return False

    def acknowledged(self, subtask: ExecutionVertexId, checkpoint_id: int) -> list[HeldEvent]:
        """Record that the subtask has passed the barrier; return the released events, in order."""
        gate = self._gates.get(subtask)
        if gate is None:
            return []
        # Barriers come in rising order: the subtask has passed the lower ones too.
        gate.closed_for = {each for each in gate.closed_for if each > checkpoint_id}
        return self._open(subtask, gate)

    def ended(self, checkpoint_id: int) -> list[HeldEvent]:
        """Record that the checkpoint was published or aborted; return the released events."""
        released: list[HeldEvent] = []
        for subtask, gate in list(self._gates.items()):
            gate.closed_for.discard(checkpoint_id)
            released += self._open(subtask, gate)
        return released

    def subtask_gone(self, subtask: ExecutionVertexId) -> None:
        """Drop the events held for an attempt that has ended; its successor must not get them."""
        self._gates.pop(subtask, None)

    def _open(self, subtask: ExecutionVertexId, gate: _Gate) -> list[HeldEvent]:
        if gate.closed_for:
            return []
        del self._gates[subtask]
        return gate.held
