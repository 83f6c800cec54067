"""What was said of windows in event time, as columnar operators take it; refusals of windows that they cannot take."""

from typing import Any

from headrace.core.errors import ProgramError
from headrace.functions.assigners import GlobalWindows
from headrace.functions.columnar_specs import END_OF_INPUT, EventTimeWindows
from headrace.functions.time_assigners import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowStagger,
)
from headrace.functions.triggers import EndOfStreamTrigger


def event_time_windows(assigner: Any) -> EventTimeWindows:
    """Return size, slide and offset of tumbling or sliding event-time windows; END_OF_INPUT for the window up to it."""
    if ends_with_input(assigner):
        return END_OF_INPUT
    assert isinstance(assigner, TumblingEventTimeWindows | SlidingEventTimeWindows)
    is_sliding = isinstance(assigner, SlidingEventTimeWindows)
    slide = assigner.slide if is_sliding else assigner.size
    return EventTimeWindows(assigner.size, slide, assigner.offset)


def aligned_tumbling_windows(assigner: Any, called: str, *, or_else: str = "") -> EventTimeWindows:
    """Return size and offset of tumbling event-time windows; ProgramError, naming what was called, for any others.

    `or_else`: what may be given in their place, as people are told it.
    """
    is_tumbling = isinstance(assigner, TumblingEventTimeWindows)
    if not is_tumbling or assigner.stagger is not WindowStagger.ALIGNED:
        raise ProgramError(
            f"{called} needs tumbling event-time windows that are aligned{or_else}, not {assigner!r}"
        )
    return event_time_windows(assigner)


def one_slice_windows(assigner: Any, called: str) -> EventTimeWindows:
    """Return tumbling event-time windows, or END_OF_INPUT for the window that ends with it; ProgramError for others."""
    if ends_with_input(assigner):
        return END_OF_INPUT
    return aligned_tumbling_windows(
        assigner, called, or_else=", or GlobalWindows.create_with_end_of_stream_trigger()"
    )


def ends_with_input(assigner: Any) -> bool:
    """Whether there is one window, which fires when all input has ended."""
    return isinstance(assigner, GlobalWindows) and isinstance(
        assigner.default_trigger, EndOfStreamTrigger
    )
