from typing import Any

import pytest

from headrace import Duration, StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource, NumberSequenceSource
from headrace.core.errors import ProgramError
from headrace.core.operator_events import ALIGNED_COORDINATOR
from tests.unit.api.recording import RecordingExecutor, operators, spec_of

ASCENDING = WatermarkStrategy.for_monotonous_timestamps()
ALIGNED = ASCENDING.with_watermark_alignment("group", Duration.of_seconds(1))


def _endless(env: StreamExecutionEnvironment) -> Any:
    source = DataGeneratorSource(lambda index: index, None, type_info=Types.LONG())
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "endless")


def _bounded(env: StreamExecutionEnvironment) -> Any:
    return env.from_collection([1, 2], Types.LONG())


@pytest.mark.parametrize(
    ("make", "is_bounded"),
    [
        (_bounded, True),
        (_endless, False),
        (lambda env: _bounded(env).union(_bounded(env)), True),
        (lambda env: _bounded(env).map(abs, Types.LONG()).union(_endless(env)), False),
        (lambda env: _endless(env).key_by(lambda value: value), False),
    ],
)
def test_a_strategy_in_mid_stream_knows_whether_all_sources_behind_it_have_an_end(
    env: StreamExecutionEnvironment, executor: RecordingExecutor, make: Any, is_bounded: bool
) -> None:
    make(env).assign_timestamps_and_watermarks(ASCENDING).print()
    env.execute_async()
    assert spec_of(executor.last, "Timestamps/Watermarks").is_bounded == is_bounded


def test_an_aligned_source_has_a_coordinator(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    env.from_source(NumberSequenceSource(1, 9), ALIGNED, "aligned").print()
    env.execute_async()
    assert operators(executor.last)["Source: aligned"].coordinator == ALIGNED_COORDINATOR


def test_alignment_is_for_sources_alone(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(ProgramError, match="pass a strategy with alignment to from_source"):
        _bounded(env).assign_timestamps_and_watermarks(ALIGNED)
