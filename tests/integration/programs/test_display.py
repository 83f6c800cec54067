"""The display beside a job that runs: what it says of a stream whose event time moves on with the clock."""

import re

import pytest

from headrace import Types
from headrace.cli import progress
from headrace.cli.progress import ProgressDisplay
from headrace.common import WatermarkStrategy
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment
from headrace.testing.minicluster_executor import MiniClusterExecutor

pytestmark = pytest.mark.integration


class DayOfNumber(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value * 86_400_000


def test_the_display_follows_event_time_while_rows_come(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PLAIN_INTERVAL_S", 0.1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(DayOfNumber())
    with MiniClusterExecutor(slot_count=1):
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        days = DataGeneratorSource(
            lambda index: index, count=3000, type_info=Types.LONG(), rows_per_second=1000
        )
        env.from_source(days, strategy, "days").key_by(lambda day: day % 3).reduce(
            lambda first, second: first + second
        ).filter(lambda total: False).print()
        client = env.execute_async("days")
        display = ProgressDisplay(is_terminal=False)
        display.watch(client)
        try:
            client.get_job_execution_result().result(30)
        finally:
            display.stop()
    said = capsys.readouterr().err
    dates = re.findall(r"wm (\d{4}-\d\d-\d\d)", said)
    assert len(set(dates)) > 2, said
    assert said.splitlines()[-1].count("wm end") >= 1, said
