"""The time of a real task is busy where its own work holds it up: timers, and calls of which no more may run."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.streams.data_stream import DataStream
from headrace.common import Time
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import AsyncDataStream, AsyncFunction, KeyedProcessFunction
from headrace.rest.client import RestClient
from headrace.rest.home.connections import find_connection
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.integration.rest.counting_program import SETTINGS, vertices

pytestmark = pytest.mark.integration
LOOK_MS = 2_000
"""The least time that is looked at, once records come."""
PARTS = ("busy", "idle", "backpressured")


class WorksInTimers(KeyedProcessFunction):
    """Waits 60 ms in a timer, and has 20 ms in between."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        self._set_next(ctx)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[int]:
        threading.Event().wait(0.06)
        self._set_next(ctx)
        yield timestamp

    @staticmethod
    def _set_next(ctx: Any) -> None:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 20)


class Asks(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0.05)
        return [value]


def timers(numbers: DataStream) -> DataStream:
    return numbers.key_by(lambda _: 0, Types.LONG()).process(WorksInTimers(), Types.LONG())


def calls(numbers: DataStream) -> DataStream:
    asked = AsyncDataStream.unordered_wait(numbers.rebalance(), Asks(), Time.minutes(1), 2)
    return asked.rebalance().map(lambda value: value, Types.LONG())


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(tmp_path_factory.mktemp("home")))
        with MiniClusterExecutor(slot_count=3, settings=SETTINGS):
            yield RestClient.of(find_connection(None, print))


def shares(rest: RestClient, job: str) -> dict[str, float]:
    """Return what part of its time the second vertex spends how, over LOOK_MS after its first record."""

    def now() -> dict[str, float]:
        found = vertices(rest, job)[1]["metrics"]
        return {part: found[f"accumulated-{part}-time"] for part in PARTS}

    wait_until(lambda: vertices(rest, job)[1]["metrics"]["read-records"] > 0)
    before = now()
    wait_until(lambda: sum(now().values()) - sum(before.values()) >= LOOK_MS)
    spent = {part: value - before[part] for part, value in now().items()}
    return {part: value / sum(spent.values()) for part, value in spent.items()}


@pytest.mark.parametrize(("build", "rows_per_second"), [(timers, 1), (calls, 1_000)])
def test_a_task_that_its_own_work_holds_up_is_busy(
    build: Any, rows_per_second: int, rest: RestClient
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    source = DataGeneratorSource(
        lambda index: index, type_info=Types.LONG(), rows_per_second=rows_per_second
    )
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    build(numbers).print()
    job = f"/jobs/{env.execute_async('occupied').get_job_id()}"
    try:
        spent = shares(rest, job)
    finally:
        rest.patch(job, mode="cancel")
    assert spent["busy"] > 0.5, spent
    assert spent["backpressured"] < 0.2, spent
