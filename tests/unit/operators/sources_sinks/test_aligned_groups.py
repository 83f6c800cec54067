"""Watermark alignment with both its sides: readers of a group, and what holds them together, over virtual time."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.job_master.coordinators.watermark_alignment import WatermarkAlignment
from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.ids import OperatorId
from headrace.core.operator_events import (
    WatermarkBound,
    WatermarkReported,
    decode_aligned_event,
    encode_alignment_event,
)
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.time_values import Duration
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.specs.operator_specs import SourceSpec
from headrace.functions.watermarks import WatermarkStrategy
from headrace.testing.operator_harness import PICKLED, OperatorHarness, TimeAt

DRIFT_MS = 50
TICK_MS, TICKS_PER_INTERVAL, ROWS_PER_TICK = 200, 5, 3
"""Watermarks are made every tick, and reported every interval."""
SOURCE = OperatorId(bytes(16))
ALIGNED = (
    WatermarkStrategy.for_monotonous_timestamps()
    .with_idleness(Duration.of_seconds(1))
    .with_watermark_alignment("group", Duration.of_millis(DRIFT_MS))
)


class Steps(Source, SourceReader):
    """A source and its reader: each record is `step_ms` later than the one before, until it falls silent or ends."""

    def __init__(self, step_ms: int) -> None:
        self.step_ms = step_ms
        self.time_ms = 0
        self.status = InputStatus.MORE_AVAILABLE

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return self

    def poll_next(self, output: SourceOutput) -> InputStatus:
        if self.status is InputStatus.MORE_AVAILABLE:
            self.time_ms += self.step_ms
            times = np.array([self.time_ms], dtype=np.int64)
            output.emit(RecordBatch.of_rows(BatchType(PICKLED), [0], times))
        return self.status


class Group:
    """Readers of one group, and the coordinator that answers their reports."""

    def __init__(self, steps_ms: list[int]) -> None:
        self.sources = [Steps(step_ms) for step_ms in steps_ms]
        self.harnesses = [
            OperatorHarness(SourceSpec(source, ALIGNED), input_types=[]) for source in self.sources
        ]
        self.alignment = WatermarkAlignment()
        self.tick_count = 0

    def tick(self) -> None:
        """Every reader may read some rows; then a tick is over."""
        self.tick_count += 1
        for source, harness in zip(self.sources, self.harnesses, strict=True):
            operator: Any = harness.operator
            for _ in range(ROWS_PER_TICK):
                if source.status is not InputStatus.END_OF_INPUT:
                    operator.poll(harness.output)
        for index, harness in enumerate(self.harnesses):
            harness.perform(TimeAt(self.tick_count * TICK_MS))
            self.answer(index, harness)

    def answer(self, index: int, harness: OperatorHarness) -> None:
        """Answer what a reader has reported."""
        for payload in harness.events:
            report = decode_aligned_event(payload)
            assert isinstance(report, WatermarkReported)
            self.alignment.reported("group", (SOURCE, index), report)
            bound = WatermarkBound(self.alignment.bound_ms("group", DRIFT_MS))
            harness.operator.handle_event(encode_alignment_event(bound))
        harness.events.clear()

    def stop(self, index: int, status: InputStatus) -> None:
        """A reader falls silent, or ends."""
        source, harness = self.sources[index], self.harnesses[index]
        if source.status is InputStatus.MORE_AVAILABLE:
            source.status = status
            operator: Any = harness.operator
            while operator.poll(harness.output) is not status:
                self.tick()  # it waits for others

    @property
    def holding(self) -> list[int]:
        """Watermarks of those that the others must wait for."""
        return [
            harness.output.watermark_ms
            for source, harness in zip(self.sources, self.harnesses, strict=True)
            if source.status is not InputStatus.END_OF_INPUT
            and not harness.output.is_idle
            and harness.output.watermark_ms > MIN_TIMESTAMP
        ]

    def check_drift(self) -> None:
        """Nobody is further ahead than the drift and what it may read between two reports."""
        for source, harness in zip(self.sources, self.harnesses, strict=True):
            if source.status is InputStatus.MORE_AVAILABLE:
                per_interval_ms = TICKS_PER_INTERVAL * ROWS_PER_TICK * source.step_ms
                ahead_ms = harness.output.watermark_ms - min(self.holding)
                assert ahead_ms <= DRIFT_MS + per_interval_ms


@given(
    st.lists(st.integers(1, 60), min_size=2, max_size=4),
    st.lists(
        st.tuples(
            st.integers(1, 12),
            st.integers(0, 3),
            st.sampled_from([InputStatus.NOTHING_AVAILABLE, InputStatus.END_OF_INPUT]),
        ),
        max_size=3,
    ),
)
def test_nobody_runs_ahead_and_nobody_who_is_silent_or_gone_holds_the_others(
    steps_ms: list[int], stops: list[tuple[int, int, InputStatus]]
) -> None:
    group = Group(steps_ms)
    for tick_count, index, status in stops:
        for _ in range(tick_count):
            group.tick()
            group.check_drift()
        group.stop(index % len(steps_ms), status)
    # Silence is noticed after its timeout, and told with the next report; by then all others go on.
    for _ in range(4 * TICKS_PER_INTERVAL):
        group.tick()
        group.check_drift()
    going_on = [one for one in group.sources if one.status is InputStatus.MORE_AVAILABLE]
    before = [one.time_ms for one in going_on]
    slowest_ms = min((one.time_ms for one in going_on), default=0)
    for _ in range(4 * TICKS_PER_INTERVAL):
        group.tick()
        group.check_drift()
    for source, time_ms in zip(going_on, before, strict=True):
        is_far_ahead = time_ms > slowest_ms + DRIFT_MS
        assert source.time_ms > time_ms or is_far_ahead
