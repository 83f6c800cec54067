"""PyFlink's `datastream.window`: re-exports."""

from headrace.functions.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    GlobalWindows,
    MergingWindowAssigner,
    WindowAssigner,
)
from headrace.functions.continuous_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
)
from headrace.functions.deltas import DeltaFunction, DeltaTrigger
from headrace.functions.evictors import (
    CountEvictor,
    DeltaEvictor,
    Evictor,
    TimeEvictor,
    TimestampedValue,
)
from headrace.functions.session_assigners import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)
from headrace.functions.time_assigners import (
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowStagger,
)
from headrace.functions.timeout_trigger import ProcessingTimeoutTrigger
from headrace.functions.triggers import (
    CountTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)
from headrace.functions.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    Window,
)

__all__ = [
    "WindowAssigner",
    "MergingWindowAssigner",
    "GlobalWindows",
    "CountTumblingWindowAssigner",
    "CountSlidingWindowAssigner",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "DeltaFunction",
    "DeltaTrigger",
    "ProcessingTimeoutTrigger",
    "Evictor",
    "TimestampedValue",
    "CountEvictor",
    "TimeEvictor",
    "DeltaEvictor",
    "WindowStagger",
    "SessionWindowTimeGapExtractor",
    "EventTimeSessionWindows",
    "ProcessingTimeSessionWindows",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "Trigger",
    "TriggerResult",
    "EventTimeTrigger",
    "ProcessingTimeTrigger",
    "CountTrigger",
    "PurgingTrigger",
    "NeverTrigger",
    "EndOfStreamTrigger",
    "Window",
    "TimeWindow",
    "CountWindow",
    "GlobalWindow",
    "TimeWindowSerializer",
    "CountWindowSerializer",
    "GlobalWindowSerializer",
]
