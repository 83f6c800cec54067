"""Metrics of functions on their way from tasks to the client, in messages."""

import numpy as np
import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.datastream import MapFunction, RuntimeContext
from headrace.testing.minicluster_executor import MiniClusterExecutor

pytestmark = pytest.mark.integration


class Counting(MapFunction):
    """Counts with numpy's integers, and has a gauge that no message holds."""

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self._total = group.counter("total")
        group.gauge("name", lambda: object())

    def map(self, value: int) -> int:
        # Three of them are too many for their type.
        self._total.inc(np.uint8(100))
        return value


def test_a_job_ends_with_its_counters_whatever_its_functions_count_with() -> None:
    settings = {"pekko.rpc.force-invocation-serialization": "true"}
    with MiniClusterExecutor(slot_count=1, settings=settings):
        env = StreamExecutionEnvironment.get_execution_environment()
        numbers = env.from_collection([1, 2, 3], Types.LONG())
        numbers.map(Counting(), Types.LONG()).print()
        result = env.execute("counting")
    assert result.get_all_accumulator_results() == {"Map.total": 300.0}
