"""Watermark strategies, generators and idleness, without a clock."""

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.types.time_values import Duration
from headrace.functions.watermarks import (
    BoundedOutOfOrderness,
    IdlenessDetector,
    NoWatermarks,
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkStrategy,
)


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: tuple[str, int], record_timestamp: int) -> int:
        return value[1]


def test_ascending_timestamps_give_the_largest_minus_one() -> None:
    generator = WatermarkStrategy.for_monotonous_timestamps().create_generator()
    generator.on_batch(10)
    assert generator.on_periodic_emit() == 9


def test_the_bound_and_one_more_are_subtracted() -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5))
    generator = strategy.create_generator()
    generator.on_batch(100)
    generator.on_batch(20)
    assert generator.on_periodic_emit() == 94


def test_there_is_no_watermark_before_the_first_event_nor_twice_the_same() -> None:
    generator = BoundedOutOfOrderness(5)
    assert generator.on_periodic_emit() is None
    generator.on_batch(10)
    assert generator.on_periodic_emit() == 4
    assert generator.on_periodic_emit() is None


def test_no_watermarks_are_none_at_all() -> None:
    generator = WatermarkStrategy.no_watermarks().create_generator()
    assert isinstance(generator, NoWatermarks)
    generator.on_batch(10)
    generator.on_batch(20)
    assert generator.on_periodic_emit() is None


@given(st.lists(st.integers(MIN_TIMESTAMP, 2**63 - 1)), st.integers(0, 2**40))
def test_watermarks_never_go_back_and_batches_do_not_matter(events: list[int], bound: int) -> None:
    one_by_one, in_batches = BoundedOutOfOrderness(bound), BoundedOutOfOrderness(bound)
    last = MIN_TIMESTAMP
    for event in events:
        one_by_one.on_batch(event)
        watermark = one_by_one.on_periodic_emit()
        if watermark is not None:
            assert watermark > last
            last = watermark
    if events:
        in_batches.on_batch(max(events))
        final = in_batches.on_periodic_emit()
        assert last == (MIN_TIMESTAMP if final is None else final)


@given(
    st.lists(st.one_of(st.integers(-50, 50), st.integers(-(2**62), 2**62)), min_size=1),
    st.one_of(st.integers(0, 20), st.integers(0, 2**40)),
)
def test_exactly_who_is_further_behind_the_largest_than_the_bound_finds_a_watermark_before_it(
    events: list[int], bound: int
) -> None:
    generator = BoundedOutOfOrderness(bound)
    last, largest = MIN_TIMESTAMP, events[0]
    for event in events:
        assert (event <= last) == (largest - event > bound)
        generator.on_batch(event)
        largest = max(largest, event)
        said = generator.on_periodic_emit()
        last = last if said is None else said


def test_strategies_are_values() -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    assigner = SecondField()
    changed = strategy.with_timestamp_assigner(assigner).with_idleness(Duration.of_seconds(2))
    assert strategy.timestamp_assigner is None
    assert changed.timestamp_assigner is assigner
    assert changed.idle_timeout_ms == 2000
    assert pickle.loads(pickle.dumps(strategy)) == strategy


def test_alignment_is_checked_every_second_unless_said_otherwise() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    aligned = strategy.with_watermark_alignment("g", Duration.of_seconds(20))
    assert aligned.alignment is not None
    assert (aligned.alignment.max_drift_ms, aligned.alignment.update_interval_ms) == (20_000, 1000)


def test_an_idle_timeout_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="above zero"):
        WatermarkStrategy.no_watermarks().with_idleness(Duration.of_millis(0))


class Silent(WatermarkGenerator):
    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        pass

    def on_periodic_emit(self, output: Any) -> None:
        pass


def test_strategies_that_make_watermarks_take_the_timeout_of_the_job_unless_they_have_their_own() -> (
    None
):
    ascending = WatermarkStrategy.for_monotonous_timestamps()
    own = WatermarkStrategy.for_generator(Silent)
    none = WatermarkStrategy.no_watermarks()
    assert ascending.create_idleness_detector() is None
    for strategy, timeout_ms in [
        (ascending, 50),
        (own, 50),
        (none, 0),
        (none.with_idleness(Duration.of_millis(7)), 7),
        (own.with_idleness(Duration.of_millis(7)), 7),
        (ascending.without_idleness(), 0),
    ]:
        detector = strategy.create_idleness_detector(default_timeout_ms=50)
        if timeout_ms == 0:
            assert detector is None
        else:
            assert detector is not None
            assert not detector.check(0)
            assert not detector.check(timeout_ms)
            assert detector.check(timeout_ms + 1)


def test_a_generator_itself_is_no_supplier_of_generators() -> None:
    generator: Any = Silent()
    with pytest.raises(
        TypeError, match="for_generator needs a callable that makes a WatermarkGenerator"
    ):
        WatermarkStrategy.for_generator(generator)


@pytest.mark.parametrize(("drift", "interval"), [(0, 1), (1, 0)])
def test_an_alignment_without_room_or_time_is_refused(drift: int, interval: int) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    with pytest.raises(ValueError, match="drift and update interval must be above zero"):
        strategy.with_watermark_alignment(
            "g", Duration.of_millis(drift), Duration.of_millis(interval)
        )


def test_an_input_is_idle_once_the_timeout_has_passed_since_the_first_silent_check() -> None:
    detector = IdlenessDetector(timeout_ms=1000)
    detector.on_activity()
    assert not detector.check(0)
    assert not detector.check(5_000)
    assert not detector.check(6_000)
    assert detector.check(6_001)
    detector.on_activity()
    assert not detector.check(7_000)
    assert not detector.check(7_200)


def test_a_bare_function_is_no_timestamp_assigner() -> None:
    function: Any = lambda record, _: record  # noqa: E731  (what a user of Java's lambdas writes)
    with pytest.raises(TypeError, match="derive a class from it with the method extract_timestamp"):
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(function)


def test_records_cannot_be_late_by_less_than_nothing() -> None:
    with pytest.raises(ValueError, match="out-of-orderness must be at least 0"):
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(-1))
