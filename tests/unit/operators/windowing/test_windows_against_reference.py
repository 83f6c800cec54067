"""Every assigner, trigger, evictor and lateness against the record-at-a-time reference, however batches are cut."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.elements import MAX_WATERMARK
from headrace.functions.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor
from headrace.functions.windowing.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from headrace.functions.windowing.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeoutTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
)
from headrace.testing.operator_harness import (
    PICKLED,
    HarnessStep,
    OperatorHarness,
    Rows,
    TimeAt,
    WatermarkAt,
)
from headrace.testing.operator_ways import run_all_cuts, run_all_ways
from tests.unit.operators.window_specs import window_spec
from tests.unit.operators.windowing.reference_triggers import (
    AfterCount,
    Again,
    AtTheEnd,
    Never,
    OrTimeout,
    Purging,
    ReferenceTrigger,
    TooFar,
    distance,
)
from tests.unit.operators.windowing.window_expectations import (
    KEYS,
    START_MS,
    OwnGap,
    ShownContents,
    assert_nothing_is_left,
    expected,
)
from tests.unit.operators.windowing.window_reference import (
    Assigner,
    Counted,
    Everything,
    Eviction,
    Fixed,
    Sessions,
    WindowReference,
    keep_close,
    keep_last,
    keep_recent,
)

FAR_MS = 400


@dataclass(frozen=True)
class Windows:
    """An assigner, what the reference has for it, and its own trigger there."""

    real: WindowAssigner[Any, Any]
    reference: Assigner
    default_trigger: ReferenceTrigger


EVENT, CLOCK = AtTheEnd("event"), AtTheEnd("clock")
ASSIGNERS = {
    "tumbling": Windows(TumblingEventTimeWindows(7, 2), Fixed(7, 7, 2), EVENT),
    "sliding": Windows(SlidingEventTimeWindows(9, 4, -1), Fixed(9, 4, -1), EVENT),
    "sliding with gaps": Windows(SlidingEventTimeWindows(2, 5, 0), Fixed(2, 5), EVENT),
    "sessions": Windows(EventTimeSessionWindows(4), Sessions(lambda value: 4), EVENT),
    "dynamic sessions": Windows(
        DynamicEventTimeSessionWindows(OwnGap()), Sessions(lambda value: value[1] + 1), EVENT
    ),
    "tumbling on the clock": Windows(
        TumblingProcessingTimeWindows(7, 2), Fixed(7, 7, 2, is_event_time=False), CLOCK
    ),
    "sliding on the clock": Windows(
        SlidingProcessingTimeWindows(9, 4, 0), Fixed(9, 4, is_event_time=False), CLOCK
    ),
    "sessions on the clock": Windows(
        ProcessingTimeSessionWindows(4), Sessions(lambda value: 4, is_event_time=False), CLOCK
    ),
    "counted": Windows(CountTumblingWindowAssigner(3), Counted(3, 3), Purging(AfterCount(3))),
    "counted, sliding": Windows(
        CountSlidingWindowAssigner(4, 3), Counted(4, 3), Purging(AfterCount(4))
    ),
    "global": Windows(GlobalWindows(), Everything(), Never()),
    "global to the end": Windows(
        GlobalWindows.create_with_end_of_stream_trigger(), Everything(), EVENT
    ),
}
TRIGGERS: dict[str, tuple[Trigger[Any, Any], ReferenceTrigger]] = {
    "event time": (EventTimeTrigger(), EVENT),
    "clock": (ProcessingTimeTrigger(), CLOCK),
    "count": (CountTrigger(3), AfterCount(3)),
    "purging event time": (PurgingTrigger(EventTimeTrigger()), Purging(EVENT)),
    "purging count": (PurgingTrigger(CountTrigger(2)), Purging(AfterCount(2))),
    "continuous event time": (ContinuousEventTimeTrigger(3), Again("event", 3)),
    "continuous clock": (ContinuousProcessingTimeTrigger(3), Again("clock", 3)),
    "purging continuous event time": (
        PurgingTrigger(ContinuousEventTimeTrigger(2)),
        Purging(Again("event", 2)),
    ),
    "delta": (DeltaTrigger(2, distance), TooFar(2)),
    "count or timeout": (
        ProcessingTimeoutTrigger(CountTrigger(3), 5),
        OrTimeout(AfterCount(3), 5, resets=False, clears=True),
    ),
    "purging count or reset timeout": (
        ProcessingTimeoutTrigger(PurgingTrigger(CountTrigger(3)), 5, True, False),
        OrTimeout(Purging(AfterCount(3)), 5, resets=True, clears=False),
    ),
    "purging event time or timeout": (
        ProcessingTimeoutTrigger(PurgingTrigger(EventTimeTrigger()), 4, False, False),
        OrTimeout(Purging(EVENT), 4, resets=False, clears=False),
    ),
    "never": (NeverTrigger(), Never()),
    "end of stream": (EndOfStreamTrigger(), EVENT),
}
EVICTORS: dict[str, tuple[Evictor[Any, Any], Eviction] | None] = {
    "none": None,
    "count": (CountEvictor.of(2), Eviction(keep_last(2))),
    "count after": (CountEvictor.of(1, True), Eviction(keep_last(1), is_after=True)),
    "none left": (CountEvictor.of(0), Eviction(keep_last(0))),
    "time": (TimeEvictor(3), Eviction(keep_recent(3))),
    "time after": (TimeEvictor(3, True), Eviction(keep_recent(3), is_after=True)),
    "delta": (DeltaEvictor(3, distance), Eviction(keep_close(3))),
    "delta after": (DeltaEvictor(2, distance, True), Eviction(keep_close(2), is_after=True)),
}
# Fires only where it is asked; as the trigger of a window with an end, a global window's trigger has no meaning.
GLOBAL_ONLY = {"end of stream"}

RECORDS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 6), st.integers(-12, 40)),
    min_size=1,
    max_size=7,
)
STEPS = st.lists(
    st.one_of(
        RECORDS.map(lambda rows: ("rows", rows)),
        st.integers(1, 12).map(lambda ms: ("watermark", ms)),
        st.integers(0, 9).map(lambda ms: ("clock", ms)),
    ),
    max_size=12,
)


def triggers_for(assigner: str) -> list[str]:
    windows = ASSIGNERS[assigner]
    usable = [
        name
        for name, (trigger, _) in TRIGGERS.items()
        if (trigger.can_merge() or not windows.reference.merges)
        and (name not in GLOBAL_ONLY or isinstance(windows.reference, Everything))
    ]
    return ["default", *usable]


def as_harness_steps(steps: list[Any]) -> list[HarnessStep]:
    watermark, now = 0, START_MS
    found: list[HarnessStep] = []
    for kind, what in steps:
        match kind:
            case "rows":
                values = [(key, value) for key, value, _ in what]
                found.append(Rows(values, [timestamp for _, _, timestamp in what]))
            case "watermark":
                watermark += what
                found.append(WatermarkAt(watermark))
            case _:
                now += what
                found.append(TimeAt(now))
    return found


def emitted(harness: OperatorHarness, steps: list[HarnessStep]) -> list[list[Any]]:
    found: list[list[Any]] = []
    for step in steps:
        count = len(harness.output.timed_rows)
        harness.perform(step)
        rows = harness.output.timed_rows[count:]
        for (_, label, _), timestamp in rows:
            assert timestamp == (label[2] - 1 if label[0] == "time" else MAX_WATERMARK)
        found.append(sorted(row for row, _ in rows))
    return found


def create_harness(
    windows: Windows,
    trigger: Trigger[Any, Any] | None,
    evictor: Evictor[Any, Any] | None,
    lateness: int,
) -> OperatorHarness:
    spec = window_spec(
        windows.real,
        trigger=trigger,
        allowed_lateness_ms=lateness,
        late_tag_id="late",
        window_function=ShownContents(),
        evictor=evictor,
    )
    return OperatorHarness(spec, keys=KEYS, side_types={"late": PICKLED}, start_ms=START_MS)


@pytest.mark.slow
@pytest.mark.parametrize("assigner", ASSIGNERS)
@given(st.data())
def test_windows_are_those_of_the_reference(assigner: str, data: st.DataObject) -> None:
    windows = ASSIGNERS[assigner]
    trigger_name = data.draw(st.sampled_from(triggers_for(assigner)), "trigger")
    evictor_name = data.draw(st.sampled_from(list(EVICTORS)), "evictor")
    lateness = data.draw(st.sampled_from([0, 0, 6]), "lateness")
    steps = as_harness_steps(data.draw(STEPS, "steps"))
    trigger, reference_trigger = TRIGGERS.get(trigger_name, (None, windows.default_trigger))
    evictor, eviction = EVICTORS[evictor_name] or (None, None)
    reference = WindowReference(windows.reference, reference_trigger, lateness, eviction)
    reference.clock(START_MS)

    def create() -> OperatorHarness:
        return create_harness(windows, trigger, evictor, lateness)

    # The last watermark, then a time by which no timer can wait; processing time goes on while the task still runs.
    closing: list[HarnessStep] = [WatermarkAt(MAX_WATERMARK), TimeAt(FAR_MS)]
    harness = create()
    assert emitted(harness, [*steps, *closing]) == expected(reference, [*steps, *closing])
    assert harness.output.side_rows("late") == reference.late
    counts = harness.metrics.snapshot()
    assert counts["numLateRecordsDiverted"] == len(reference.late)
    record_count = sum(len(step.values) for step in steps if isinstance(step, Rows))
    assert (
        record_count == reference.accepted_count + len(reference.late) + reference.windowless_count
    )
    if isinstance(windows.reference, Fixed | Sessions):
        assert not reference.panes
        assert_nothing_is_left(harness)
    run_all_cuts(create, [*steps, *closing])


@st.composite
def sized_windows(draw: st.DrawFn) -> Windows:
    """Event-time windows of any size, slide, offset or gap."""
    size, gap = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    slide, offset = draw(st.integers(1, 6)), draw(st.integers(-5, 5))
    return draw(
        st.sampled_from(
            [
                Windows(
                    TumblingEventTimeWindows(size, offset % size),
                    Fixed(size, size, offset % size),
                    EVENT,
                ),
                Windows(
                    SlidingEventTimeWindows(size, slide, offset % slide),
                    Fixed(size, slide, offset % slide),
                    EVENT,
                ),
                Windows(EventTimeSessionWindows(gap), Sessions(lambda value: gap), EVENT),
            ]
        )
    )


@given(sized_windows(), STEPS, st.sampled_from([0, 0, 7]))
def test_windows_of_any_size_are_those_of_the_reference(
    windows: Windows, drawn: list[Any], lateness: int
) -> None:
    steps: list[HarnessStep] = [*as_harness_steps(drawn), WatermarkAt(MAX_WATERMARK)]
    reference = WindowReference(windows.reference, windows.default_trigger, lateness)
    harness = create_harness(windows, None, None, lateness)
    assert emitted(harness, steps) == expected(reference, steps)
    assert harness.output.side_rows("late") == reference.late
    assert_nothing_is_left(harness)
    run_all_cuts(lambda: create_harness(windows, None, None, lateness), steps)


# A record behind the watermark may set this trigger's timer in the past, which fires with the next watermark: after a
# restart that is the one which is sent again.
SETS_TIMERS_IN_THE_PAST = {"continuous event time", "purging continuous event time"}


@pytest.mark.slow
@pytest.mark.parametrize("assigner", ASSIGNERS)
@settings(max_examples=8)
@given(st.data())
def test_windows_are_the_same_after_failures_and_at_other_parallelisms(
    assigner: str, data: st.DataObject
) -> None:
    names = [name for name in triggers_for(assigner) if name not in SETS_TIMERS_IN_THE_PAST]
    trigger, _ = TRIGGERS.get(data.draw(st.sampled_from(names), "trigger"), (None, None))
    evictor, _ = EVICTORS[data.draw(st.sampled_from(list(EVICTORS)), "evictor")] or (None, None)
    lateness = data.draw(st.sampled_from([0, 6]), "lateness")
    steps = as_harness_steps(data.draw(STEPS, "steps"))
    done = run_all_ways(
        lambda: create_harness(ASSIGNERS[assigner], trigger, evictor, lateness),
        [*steps, TimeAt(FAR_MS)],
    )
    late = done.output.side_rows("late")
    assert done.metrics.snapshot()["numLateRecordsDiverted"] == len(late)
