"""The valve against a brute-force reading of its definition, and its few corner cases by hand."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import MIN_TIMESTAMP
from headrace.task.watermark_valve import (
    CombinedWatermark,
    EmitStatus,
    EmitWatermark,
    WatermarkValve,
)

CHANNELS = 3
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("watermark"), st.integers(0, CHANNELS - 1), st.integers(0, 20)),
        st.tuples(st.just("idle"), st.integers(0, CHANNELS - 1), st.just(0)),
        st.tuples(st.just("active"), st.integers(0, CHANNELS - 1), st.just(0)),
    ),
    max_size=40,
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


def test_an_operator_follows_the_smaller_of_its_inputs() -> None:
    combined = CombinedWatermark(2)
    assert combined.watermark_received(0, 10) == []
    assert combined.watermark_received(1, 7) == [EmitWatermark(7)]
    assert combined.status_received(1, is_idle=True) == [EmitWatermark(10)]
    assert combined.status_received(0, is_idle=True) == [EmitStatus(True)]
    assert combined.watermark_received(1, 30) == [EmitStatus(False), EmitWatermark(30)]
