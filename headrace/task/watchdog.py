"""TaskWatchdog: logs a task that has work but makes no progress, with the state of its exchange.

A deadlock and a slow consumer both show as a full output without a checkpoint; the contents of queues and the credit
that is missing tell them apart.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.metrics import describe_exchange
from headrace.network.writers.record_writer import RecordWriter
from headrace.task.mailbox import MailboxTimers

STALL_TIMEOUT: Final = ConfigOption(
    "headrace.task.stall-timeout", timedelta, timedelta(minutes=1),
    "Time after which a task that has input or a full output but makes no progress is described in the log of its "
    "worker; 0 s: never.",
)  # fmt: skip
_LOG: Final = logging.getLogger(__name__)


class StallDetector:
    """Decides whether a task is stalled. Pure: time is an argument."""

    def __init__(self, timeout_ms: float, now_ms: float) -> None:
        self._timeout_ms = timeout_ms
        self._progress = -1
        self._since_ms = now_ms
        self._is_reported = False

    def look(self, now_ms: float, progress: int, has_work: bool) -> bool:
        """Return True once per stall: no progress for the timeout although there was work throughout."""
        if progress != self._progress or not has_work:
            self._progress, self._since_ms, self._is_reported = progress, now_ms, False
        elif not self._is_reported and now_ms - self._since_ms >= self._timeout_ms:
            self._is_reported = True
            return True
        return False


class TaskWatchdog:
    """Logs the exchange of a stalled task. Mailbox thread only."""

    def __init__(
        self,
        name: str,
        gates: Sequence[SingleInputGate],
        writers: Sequence[RecordWriter],
        settings: Settings,
        timers: MailboxTimers,
        tell: Callable[[str], None] = _LOG.warning,
    ) -> None:
        self._name = name
        self._gates = gates
        self._writers = writers
        self._timers = timers
        self._tell = tell
        self._timeout_ms = settings.duration_ms(STALL_TIMEOUT)
        self._detector: StallDetector | None = None

    def start(self) -> None:
        """Start to check, four times per timeout."""
        if self._timeout_ms > 0:
            self._detector = StallDetector(self._timeout_ms, self._timers.now_ms())
            self._schedule()

    def _schedule(self) -> None:
        self._timers.schedule(self._timers.now_ms() + round(self._timeout_ms / 4), self._look)

    def _look(self, _time_ms: int) -> None:
        assert self._detector is not None
        progress = sum(gate.buffers_in for gate in self._gates)
        progress += sum(writer.buffers_out for writer in self._writers)
        is_full = any(not writer.is_available for writer in self._writers)
        has_work = is_full or any(gate.queue_length for gate in self._gates)
        if self._detector.look(self._timers.now_ms(), progress, has_work):
            exchange = describe_exchange(self._gates, [each.partition for each in self._writers])
            self._tell(
                f"task '{self._name}' has made no progress for {self._timeout_ms / 1000:g} s:\n{exchange}"
            )
        self._schedule()
