"""CheckpointTimers: the coordinator's timers on the JobMaster's main thread."""

from collections.abc import Callable
from typing import Final

from headrace.cluster.job_master.checkpointing.messages import (
    ArmPeriodicTimer,
    ArmTimeout,
    CancelTimeout,
)
from headrace.core.clock import Cancellable


class CheckpointTimers:
    """One for the next periodic checkpoint, and one for each that is under way.

    `later` runs an action after a delay in ms; `on_due` gets a generation, `on_timeout` an id.
    """

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], Cancellable],
        on_due: Callable[[int], None],
        on_timeout: Callable[[int], None],
    ) -> None:
        self._later: Final = later
        self._on_due: Final = on_due
        self._on_timeout: Final = on_timeout
        self._periodic: Cancellable | None = None
        self._timeouts: dict[int, Cancellable] = {}

    def perform(self, action: ArmPeriodicTimer | ArmTimeout | CancelTimeout) -> None:
        """Set or take away a timer."""
        match action:
            case ArmPeriodicTimer(generation, delay_ms):
                if self._periodic is not None:
                    self._periodic.cancel()
                self._periodic = self._later(delay_ms, lambda: self._on_due(generation))
            case ArmTimeout(checkpoint_id, delay_ms):
                self._timeouts[checkpoint_id] = self._later(
                    delay_ms, lambda: self._on_timeout(checkpoint_id)
                )
            case CancelTimeout(checkpoint_id):
                timer = self._timeouts.pop(checkpoint_id, None)
                if timer is not None:
                    timer.cancel()
