"""What windows over one stream and over two have in common: assigner, trigger, evictor, lateness."""

from typing import TYPE_CHECKING, Any, Self

from headrace.core.types.time_values import to_millis
from headrace.functions.assigners import MergingWindowAssigner, WindowAssigner
from headrace.functions.evictors import Evictor
from headrace.functions.time_assigners import Amount
from headrace.functions.triggers import Trigger

if TYPE_CHECKING:
    from headrace.api.environment import StreamExecutionEnvironment


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
        return self

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
