"""EventDelivery: delivers coordinators' events to subtasks, in order and each once, also where messages are lost.

An event that may not have arrived is sent again, under the same number, before the next one. A checkpoint of the
coordinators waits until all events have arrived: their state counts events as delivered, and a barrier must not reach a
subtask before them. Runs on the JobMaster's main thread.
Source: Flink OperatorCoordinatorHolder, SubtaskGatewayImpl, which fail the subtask instead of sending again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from headrace.core.errors import HeadraceError
from headrace.core.ids import ExecutionAttemptId, OperatorId
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
