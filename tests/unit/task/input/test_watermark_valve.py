"""The valve against a brute-force reading of its definition, and its few corner cases by hand."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import MIN_TIMESTAMP
from headrace.task.input.watermark_valve import (
    CombinedWatermark,
    EmitStatus,
    EmitWatermark,
    ValveAction,
    WatermarkValve,
)

CHANNELS = 4
# Few times and many events, so that channels come back and reach exactly what was emitted: the rules have edges there.
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("watermark"), st.integers(0, CHANNELS - 1), st.integers(0, 4)),
        st.tuples(st.just("idle"), st.integers(0, CHANNELS - 1), st.just(0)),
        st.tuples(st.just("active"), st.integers(0, CHANNELS - 1), st.just(0)),
    ),
    min_size=30,
    max_size=60,
)


def test_the_slowest_channel_holds_event_time() -> None:
    valve = WatermarkValve(2)
    assert valve.watermark_received(0, 10) == []
    assert valve.watermark_received(1, 4) == [EmitWatermark(4)]
    assert valve.watermark_received(1, 12) == [EmitWatermark(10)]


def test_an_idle_channel_stops_holding_event_time() -> None:
    valve = WatermarkValve(2)
    valve.watermark_received(0, 10)
    assert valve.status_received(1, is_idle=True) == [EmitWatermark(10)]


def test_the_last_channel_to_go_idle_flushes_to_the_largest_watermark() -> None:
    valve = WatermarkValve(2)
    valve.watermark_received(0, 5)
    valve.watermark_received(1, 9)
    valve.status_received(1, is_idle=True)
    assert valve.status_received(0, is_idle=True) == [EmitWatermark(9), EmitStatus(True)]


def test_a_channel_that_comes_back_late_does_not_pull_event_time_back() -> None:
    valve = WatermarkValve(2)
    valve.watermark_received(0, 10)
    valve.status_received(1, is_idle=True)
    assert valve.status_received(1, is_idle=False) == []
    assert valve.watermark_received(0, 20) == [EmitWatermark(20)]
    assert valve.watermark_received(1, 15) == []
    assert valve.watermark_received(1, 25) == []
    assert valve.watermark_received(0, 30) == [EmitWatermark(25)]


def test_a_channel_that_has_just_caught_up_holds_event_time_again() -> None:
    valve = WatermarkValve(2)
    valve.status_received(1, is_idle=True)
    assert valve.watermark_received(0, 10) == [EmitWatermark(10)]
    valve.status_received(1, is_idle=False)
    assert valve.watermark_received(1, 10) == []
    assert valve.watermark_received(0, 20) == []
    assert valve.watermark_received(1, 15) == [EmitWatermark(15)]


@given(EVENTS)
def test_output_grows_strictly_and_statuses_alternate(events: list[tuple[str, int, int]]) -> None:
    valve = WatermarkValve(CHANNELS)
    last, idle = MIN_TIMESTAMP, False
    for name, channel, timestamp in events:
        if name == "watermark":
            actions = valve.watermark_received(channel, timestamp)
        else:
            actions = valve.status_received(channel, is_idle=name == "idle")
        for action in actions:
            if isinstance(action, EmitWatermark):
                assert action.timestamp_ms > last
                assert not idle
                last = action.timestamp_ms
            else:
                assert action.is_idle != idle
                idle = action.is_idle


@given(EVENTS)
def test_without_idleness_the_output_is_the_minimum(events: list[tuple[str, int, int]]) -> None:
    valve = WatermarkValve(CHANNELS)
    watermarks = [MIN_TIMESTAMP] * CHANNELS
    for name, channel, timestamp in events:
        if name == "watermark":
            valve.watermark_received(channel, timestamp)
            watermarks[channel] = max(watermarks[channel], timestamp)
            assert valve.last_watermark == min(watermarks)


class _Definition:
    """The valve as it is defined, channel by channel, with facts in plain sets."""

    def __init__(self) -> None:
        self.watermarks = dict.fromkeys(range(CHANNELS), MIN_TIMESTAMP)
        self.active = set(range(CHANNELS))
        self.aligned = set(range(CHANNELS))
        self.last = MIN_TIMESTAMP

    def watermark(self, channel: int, timestamp: int) -> list[ValveAction]:
        if channel not in self.active or timestamp <= self.watermarks[channel]:
            return []
        self.watermarks[channel] = timestamp
        if timestamp >= self.last:
            self.aligned.add(channel)
        return self.emit({self.watermarks[one] for one in self.aligned})

    def idle(self, channel: int, _: int) -> list[ValveAction]:
        if channel not in self.active:
            return []
        self.active.discard(channel)
        self.aligned.discard(channel)
        held_others = self.watermarks[channel] == self.last
        if self.active:
            return self.emit({self.watermarks[one] for one in self.aligned if held_others})
        furthest = {max(self.watermarks.values())} if held_others else set[int]()
        return [*self.emit(furthest), EmitStatus(True)]

    def active_again(self, channel: int, _: int) -> list[ValveAction]:
        if channel in self.active:
            return []
        was_idle = not self.active
        self.active.add(channel)
        if self.watermarks[channel] >= self.last:
            self.aligned.add(channel)
        return [EmitStatus(False)] if was_idle else []

    def emit(self, reached: set[int]) -> list[ValveAction]:
        if not reached or min(reached) <= self.last:
            return []
        self.last = min(reached)
        return [EmitWatermark(self.last)]


@given(EVENTS)
def test_the_valve_is_what_it_is_defined_to_be(events: list[tuple[str, int, int]]) -> None:
    valve, definition = WatermarkValve(CHANNELS), _Definition()
    by_definition = {
        "watermark": definition.watermark,
        "idle": definition.idle,
        "active": definition.active_again,
    }
    for name, channel, timestamp in events:
        if name == "watermark":
            actions = valve.watermark_received(channel, timestamp)
        else:
            actions = valve.status_received(channel, is_idle=name == "idle")
        assert actions == by_definition[name](channel, timestamp)


def test_an_operator_follows_the_smaller_of_its_inputs() -> None:
    combined = CombinedWatermark(2)
    assert combined.watermark_received(0, 10) == []
    assert combined.watermark_received(1, 7) == [EmitWatermark(7)]
    assert combined.status_received(1, is_idle=True) == [EmitWatermark(10)]
    assert combined.status_received(0, is_idle=True) == [EmitStatus(True)]
    assert combined.watermark_received(1, 30) == [EmitStatus(False), EmitWatermark(30)]


@given(EVENTS)
def test_combined_inputs_give_the_smallest_of_those_that_are_not_idle(
    events: list[tuple[str, int, int]],
) -> None:
    combined = CombinedWatermark(CHANNELS)
    watermarks = [MIN_TIMESTAMP] * CHANNELS
    idle: set[int] = set()
    last = MIN_TIMESTAMP
    for name, channel, timestamp in events:
        was_all_idle = len(idle) == CHANNELS
        if name == "watermark":
            watermarks[channel] = max(watermarks[channel], timestamp)
            idle.discard(channel)
            actions = combined.watermark_received(channel, timestamp)
        else:
            (idle.add if name == "idle" else idle.discard)(channel)
            actions = combined.status_received(channel, is_idle=name == "idle")
        wanted: list[ValveAction] = []
        if was_all_idle != (len(idle) == CHANNELS):
            wanted.append(EmitStatus(not was_all_idle))
        smallest = min([w for one, w in enumerate(watermarks) if one not in idle], default=last)
        if smallest > last:
            last = smallest
            wanted.append(EmitWatermark(last))
        assert actions == wanted
