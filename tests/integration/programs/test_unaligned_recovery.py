"""A back-pressured program takes checkpoints: barriers overtake, and what they overtook is not lost by a failure."""

from collections import Counter
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.common import Configuration, Encoder
from headrace.datastream.connectors.file_system import FileSink
from tests.integration.programs.committed_lines import committed_lines
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.unaligned_program import (
    COUNT,
    KEY_COUNT,
    PAIR,
    TAPS,
    WAIT_S,
    SlowCount,
    Tap,
)

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("aligned_timeout", ["0 ms", "20 ms"])
def test_a_back_pressured_program_completes_checkpoints_and_loses_nothing_by_a_failure(
    env: StreamExecutionEnvironment, tmp_path: Path, aligned_timeout: str
) -> None:
    name, target, marker = f"slow-{aligned_timeout}", tmp_path / "target", tmp_path / "fail"
    tap = TAPS[name] = Tap()
    GATES[name] = Gate(COUNT)
    configuration = Configuration()
    for key, value in {
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.aligned-checkpoint-timeout": aligned_timeout,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "10 ms",
        "headrace.network.seal-rows": "20",
    }.items():
        configuration.set_string(key, value)
    env.configure(configuration)
    env.set_parallelism(2)
    (
        env.from_source(
            GatedSource(name, COUNT), WatermarkStrategy.no_watermarks(), "numbers", Types.INT()
        )
        .key_by(lambda number: number % KEY_COUNT, key_type=Types.INT())
        .process(SlowCount(name, str(marker)), output_type=PAIR)
        .map(lambda pair: f"{pair[0]} {pair[1]}", output_type=Types.STRING())
        .sink_to(FileSink.for_row_format(str(target), Encoder.simple_string_encoder()).build())
    )
    client = env.execute_async(name)
    while client.get_job_details().result(WAIT_S).checkpoints.counts.completed < 2:
        # A few records at a time: nearly all of them are on their way, or not read yet.
        tap.let_if_empty(2)
        assert tap.taken < COUNT // 2, "no checkpoint before most was processed"
    marker.touch()
    tap.let(10 * COUNT)
    client.get_job_execution_result().result(WAIT_S)
    details = client.get_job_details().result(WAIT_S)
    assert details.checkpoints.counts.restored == 1
    per_key = Counter(number % KEY_COUNT for number in range(COUNT))
    expected = Counter(f"{key} {n}" for key, total in per_key.items() for n in range(1, total + 1))
    assert committed_lines(target) == expected
