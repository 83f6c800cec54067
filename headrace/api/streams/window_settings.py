"""Settings of windows, over one stream or two: assigner, trigger, evictor, allowed lateness, late side output.

Operators on columns have their own form of event-time windows; windows that they cannot compute are refused here.
"""

import logging
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.api.transformations import OperatorTransformation
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType
from headrace.core.types.time_values import to_millis
from headrace.functions.evictors import Evictor
from headrace.functions.process import OutputTag
from headrace.functions.specs.columnar_specs import END_OF_INPUT, EventTimeWindows
from headrace.functions.windowing.assigners import (
    Amount,
    GlobalWindows,
    MergingWindowAssigner,
    SessionWindows,
    SlidingEventTimeWindows,
    TimeWindowAssigner,
    TumblingEventTimeWindows,
    WindowAssigner,
    WindowStagger,
)
from headrace.functions.windowing.triggers import (
    CountTrigger,
    DeltaTrigger,
    EndOfStreamTrigger,
    NeverTrigger,
    PurgingTrigger,
    Trigger,
)

if TYPE_CHECKING:
    from headrace.api.environment import StreamExecutionEnvironment


_LOG: Final = logging.getLogger(__name__)


class WindowSettings:
    """Base class of windowed streams, which have a window assigner; each call returns the same object."""

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
        """Warn if a built-in trigger leaves records without a result; the program's own triggers are not checked."""
        has_end = isinstance(self._assigner, TimeWindowAssigner | SessionWindows)
        if has_end and _is_silent_at_the_end(trigger):
            _LOG.warning(
                "%r does not fire when a window of %r ends: records since its last firing are dropped without a "
                "result. Wrap it in a ProcessingTimeoutTrigger, or use a continuous trigger, to get them",
                trigger,
                self._assigner,
            )

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Set an evictor, which removes records from a window before or after its function sees them.

        Every record is then kept until the window is deleted or the evictor removes it, also for `reduce` and
        `aggregate`.
        """
        if not isinstance(evictor, Evictor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"an Evictor is needed, not {evictor!r}")
        self._evictor = evictor
        return self

    def allowed_lateness(self, time_ms: int | Amount) -> Self:
        """Keep a window for this time (a number is milliseconds) after its end.

        Late records fire it again meanwhile.
        """
        lateness_ms = to_millis(time_ms)
        if lateness_ms < 0:
            raise ValueError(f"The allowed lateness cannot be negative, but is {lateness_ms}")
        self._allowed_lateness_ms = lateness_ms
        return self

    def _described(self, *functions: str) -> str:
        """Return the text that plans show in brackets."""
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


def check_tag(output_tag: object) -> OutputTag:
    """Return `output_tag`; TypeError unless it is an OutputTag."""
    if not isinstance(output_tag, OutputTag):
        raise TypeError(f"an OutputTag is needed, not {output_tag!r}")
    return output_tag


def id_of(tag: OutputTag | None) -> str | None:
    """Return the tag's id for operator specs; None, where late records are dropped, stays None."""
    return None if tag is None else tag.tag_id


def declare_late_outputs(operator: OperatorTransformation, *tags: OutputTag | None) -> None:
    """Declare the side outputs for late records of `operator`, with the types of the tags."""
    for tag in tags:
        if tag is not None:
            operator.declare_side_output(tag.tag_id, BatchType(tag.type_info))


def event_time_windows(assigner: Any) -> EventTimeWindows:
    """Return size, slide and offset of tumbling or sliding event-time windows.

    END_OF_INPUT for the window that ends with the input.
    """
    if ends_with_input(assigner):
        return END_OF_INPUT
    assert isinstance(assigner, TumblingEventTimeWindows | SlidingEventTimeWindows)
    is_sliding = isinstance(assigner, SlidingEventTimeWindows)
    slide = assigner.slide if is_sliding else assigner.size
    return EventTimeWindows(assigner.size, slide, assigner.offset)


def aligned_tumbling_windows(assigner: Any, called: str, *, or_else: str = "") -> EventTimeWindows:
    """Return size and offset of tumbling event-time windows; ProgramError, naming what was called, for any others.

    `or_else`: the alternatives to name in the error.
    """
    is_tumbling = isinstance(assigner, TumblingEventTimeWindows)
    if not is_tumbling or assigner.stagger is not WindowStagger.ALIGNED:
        raise ProgramError(
            f"{called} needs tumbling event-time windows that are aligned{or_else}, not {assigner!r}"
        )
    return event_time_windows(assigner)


def one_slice_windows(assigner: Any, called: str) -> EventTimeWindows:
    """Return tumbling event-time windows, or END_OF_INPUT for the window that ends with the input.

    ProgramError for others.
    """
    if ends_with_input(assigner):
        return END_OF_INPUT
    return aligned_tumbling_windows(
        assigner, called, or_else=", or GlobalWindows.create_with_end_of_stream_trigger()"
    )


def ends_with_input(assigner: Any) -> bool:
    """Return whether there is a single window, which fires when all input has ended."""
    return isinstance(assigner, GlobalWindows) and isinstance(
        assigner.default_trigger, EndOfStreamTrigger
    )
