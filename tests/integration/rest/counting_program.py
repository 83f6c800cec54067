"""A program that counts numbers by key, started by one and seen over REST by another."""

import threading
from pathlib import Path
from typing import Any

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.common import Configuration
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.state import ValueStateDescriptor
from headrace.rest.client import RestClient
from testkit.waiting import wait_until
from tests.integration.programs.gated import GATES, Gate, GatedSource

SETTINGS = {
    "rest.enabled": "true",
    "rest.port": "0",
    "web.refresh-interval": "20 ms",
    "metrics.fetcher.update-interval": "20 ms",
    "rest.flamegraph.num-samples": "5",
}


class CountPerKey(KeyedProcessFunction):
    """Counts the records of each key, pausing at each; fails at one number."""

    def __init__(self, fails_at: int, pause_s: float) -> None:
        self._fails_at = fails_at
        self._pause_s = pause_s

    def open(self, runtime_context: RuntimeContext) -> None:
        self._counted = runtime_context.get_metrics_group().counter("counted")
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value == self._fails_at:
            raise ValueError(f"{value} is not wanted")
        if self._pause_s:
            threading.Event().wait(self._pause_s)
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        self._counted.inc()
        yield count


class Program:
    """Numbers that are counted by key; the test lets them through."""

    def __init__(
        self,
        name: str,
        folder: Path,
        fails_at: int = -1,
        pause_s: float = 0.0,
        settings: dict[str, str] | None = None,
        parallelism: int = 2,
    ) -> None:
        self.gate = GATES[name] = Gate(0)
        env = StreamExecutionEnvironment.get_execution_environment()
        own_settings = {
            "execution.checkpointing.interval": "1 h",
            "execution.checkpointing.dir": str(folder / "checkpoints"),
            "pipeline.global-job-parameters.password": "hunter2",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1",
            "restart-strategy.fixed-delay.delay": "1 ms",
        }
        env.configure(Configuration.from_dict(own_settings | (settings or {})))
        env.set_parallelism(parallelism)
        numbers = env.from_source(
            GatedSource(name, None), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
        )
        keyed = numbers.uid("numbers").key_by(lambda n: n % 4, key_type=Types.LONG())
        counted = keyed.process(CountPerKey(fails_at, pause_s), output_type=Types.LONG()).uid(
            "count"
        )
        counted.print().uid("print")
        self.client = env.execute_async(name)
        self.job = f"/jobs/{self.client.get_job_id()}"


def vertices(rest: RestClient, job: str) -> list[dict[str, Any]]:
    """Return the vertices of a job, by its path."""
    return rest.get(job)["vertices"]


def await_running(rest: RestClient, job: str) -> None:
    """Wait until every subtask of a job, by its path, runs: a vertex is RUNNING as soon as one of its subtasks is."""

    def all_run() -> bool:
        found = vertices(rest, job)
        return bool(found) and all(one["tasks"]["RUNNING"] == one["parallelism"] for one in found)

    wait_until(all_run)


def completed(rest: RestClient, path: str) -> dict[str, Any]:
    wait_until(lambda: rest.get(path)["status"]["id"] == "COMPLETED")
    return rest.get(path)["operation"]
