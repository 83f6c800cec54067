"""Delivery of coordinators' events to subtasks: in order, each once, and on the right side of each barrier.

An event that may not have arrived is sent again, under the same number, before the next one. A checkpoint of the
coordinators waits until all events have arrived: their state counts events as delivered, and a barrier must not reach a
subtask before them. EventDelivery does so on the JobMaster's main thread.

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
"""Sends one event, under a number, and waits for the answer. RpcError where it may not have arrived."""


@dataclass
class _Line:
    """Queue of the events for one attempt; its first event is in flight while `is_sending`."""

    events: deque[tuple[OperatorId, bytes]] = field(default_factory=deque[tuple[OperatorId, bytes]])
    next_number: int = 0
    is_sending: bool = False


class EventDelivery:
    """One per job. `on_quiet` is called whenever nothing is on its way any more.

    `on_refused(attempt_id, error)`: an attempt does not take an event, for good.
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
        """Whether everything has arrived that was sent to attempts that have not ended."""
        return not any(line.events for line in self._lines.values())

    def send(self, attempt_id: ExecutionAttemptId, operator_id: OperatorId, payload: bytes) -> None:
        """Send an event to an attempt, behind those before it."""
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
                # Who is really gone is noticed by heartbeats, and then its attempts end.
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
    """An event on its way to a subtask."""

    subtask: ExecutionVertexId
    operator_id: OperatorId
    payload: bytes


@dataclass
class _Gate:
    closed_for: set[int] = field(default_factory=set[int])
    held: list[HeldEvent] = field(default_factory=list[HeldEvent])


class OperatorEventValve:
    """Holds events back from a subtask between its coordinator's snapshot and its own; one gate for each. Pure.

    A gate opens again when the subtask has acknowledged the checkpoint, as the acknowledgement is sent behind all that
    it sent before its barrier. It also opens when the checkpoint is published or aborted. Events that wait for an
    attempt that has ended are dropped: the coordinator hears to which checkpoint that subtask is reset.
    """

    def __init__(self) -> None:
        self._gates: dict[ExecutionVertexId, _Gate] = {}

    @property
    def holds_events(self) -> bool:
        """Whether anything waits: the next snapshot has to, too, as it would count this as delivered."""
        return any(gate.held for gate in self._gates.values())

    def close(self, checkpoint_id: int, subtasks: Iterable[ExecutionVertexId]) -> None:
        """The coordinators are snapshotted for this checkpoint, right now."""
        assert not self.holds_events
        for subtask in subtasks:
            self._gates.setdefault(subtask, _Gate()).closed_for.add(checkpoint_id)

    def pass_on(self, event: HeldEvent) -> bool:
        """Whether the event may go now; otherwise it is kept."""
        gate = self._gates.get(event.subtask)
        if gate is None:
            return True
        gate.held.append(event)
        return False

    def acknowledged(self, subtask: ExecutionVertexId, checkpoint_id: int) -> list[HeldEvent]:
        """The subtask has passed the barrier; returns what may go now, in order."""
        gate = self._gates.get(subtask)
        if gate is None:
            return []
        # Barriers come in rising order: it has passed the lower ones too.
        gate.closed_for = {each for each in gate.closed_for if each > checkpoint_id}
        return self._open(subtask, gate)

    def ended(self, checkpoint_id: int) -> list[HeldEvent]:
        """The checkpoint was published or aborted."""
        released: list[HeldEvent] = []
        for subtask, gate in list(self._gates.items()):
            gate.closed_for.discard(checkpoint_id)
            released += self._open(subtask, gate)
        return released

    def subtask_gone(self, subtask: ExecutionVertexId) -> None:
        """The attempt has ended: nothing that was meant for it is for its successor."""
        self._gates.pop(subtask, None)

    def _open(self, subtask: ExecutionVertexId, gate: _Gate) -> list[HeldEvent]:
        if gate.closed_for:
            return []
        del self._gates[subtask]
        return gate.held
