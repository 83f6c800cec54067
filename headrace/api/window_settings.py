"""What windows over one stream and over two have in common: assigner, trigger, evictor, lateness."""

import logging
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.core.types.time_values import to_millis
from headrace.functions.assigners import MergingWindowAssigner, WindowAssigner
from headrace.functions.deltas import DeltaTrigger
from headrace.functions.evictors import Evictor
from headrace.functions.session_assigners import SessionWindows
from headrace.functions.time_assigners import Amount, TimeWindowAssigner
from headrace.functions.triggers import CountTrigger, NeverTrigger, PurgingTrigger, Trigger

if TYPE_CHECKING:
    from headrace.api.environment import StreamExecutionEnvironment

_LOG: Final = logging.getLogger(__name__)


class WindowSettings:
    """Base of everything that has been given a window assigner; each call returns the same object."""

    def __init__(self, environment: "StreamExecutionEnvironment", window_assigner: Any) -> None:
        if not isinstance(window_assigner, WindowAssigner):
            raise TypeError(f"a WindowAssigner is needed, not {window_assigner!r}")
        self._environment = environment
        self._assigner = window_assigner
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor[Any, Any] | None = None
        self._allowed_lateness_ms = 0

    def get_execution_environment(self) -> "StreamExecutionEnvironment":
        return self._environment

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Replace the assigner's own trigger."""
        if not isinstance(trigger, Trigger):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a Trigger is needed, not {trigger!r}")
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise TypeError(
                "A merging window assigner cannot be used with a trigger that does not support merging: "
                f"{self._assigner!r} with {type(trigger).__name__}"
            )
        self._trigger = trigger
        self._warn_of_records_without_result(trigger)
        return self

    def _warn_of_records_without_result(self, trigger: Trigger[Any, Any]) -> None:
        """Triggers of the program's own classes are taken to know what they do."""
        has_end = isinstance(self._assigner, TimeWindowAssigner | SessionWindows)
        if has_end and _is_silent_at_the_end(trigger):
            _LOG.warning(
                "%r does not fire when a window of %r ends: what came since it fired last is dropped then without a "
                "result. A ProcessingTimeoutTrigger around it, or a continuous trigger, lets out the rest",
                trigger,
                self._assigner,
            )

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Have records removed from a window before its function sees them, or afterwards.

        Every record is then kept until the window goes or the evictor removes it, also for `reduce` and `aggregate`.
        """
        if not isinstance(evictor, Evictor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"an Evictor is needed, not {evictor!r}")
        self._evictor = evictor
        return self

    def allowed_lateness(self, time_ms: int | Amount) -> Self:
        """Keep a window so long (a number is milliseconds) after its end; late records fire it again meanwhile."""
        lateness_ms = to_millis(time_ms)
        if lateness_ms < 0:
            raise ValueError(f"The allowed lateness cannot be negative, but is {lateness_ms}")
        self._allowed_lateness_ms = lateness_ms
        return self

    def _described(self, *functions: str) -> str:
        """What plans show within the brackets."""
        trigger = self._trigger or self._assigner.get_default_trigger(self._environment)
        shown = [repr(self._assigner), type(trigger).__name__]
        if self._evictor is not None:
            shown.append(repr(self._evictor))
        return ", ".join((*shown, *functions))


def _is_silent_at_the_end(trigger: Trigger[Any, Any]) -> bool:
    if isinstance(trigger, PurgingTrigger):
        return _is_silent_at_the_end(trigger.nested_trigger)
    if isinstance(trigger, CountTrigger):
        return trigger.window_size > 1  # of 1 it leaves nothing for the end
    return isinstance(trigger, NeverTrigger | DeltaTrigger)
