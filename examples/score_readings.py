"""A model on a stream of readings, in two ways: on whole batches of columns, and behind calls that are gathered.

    DataFrame of readings ──► map_batches: the model scores all rows of a batch ──► suspicious ones
                                                                                        │
              DataFrame of verdicts ◄── async calls, gathered: one call of a slow model for many records

The model runs on a GPU where CuPy and one are there, and with NumPy otherwise: both take the same arrays. `map_batches`
is for a model that is quick enough to keep up. A slow one, or one behind a network, is asked concurrently: `capacity`
records at most wait for it in each subtask, and it takes those that wait together.

Run it:
    headrace run examples/score_readings.py
"""

import asyncio
import importlib.util
from contextlib import nullcontext
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import Row, StreamExecutionEnvironment, Time, Types, col
from headrace.datastream import AsyncDataStream, AsyncFunction, MapBatchesFunction, RuntimeContext
from headrace.spark.session import spark_session

WEIGHTS = [0.8, -0.5]
LIMIT = 0.7
CALL_SIZE = 16
CALL_DELAY_S = 0.02

SCORED = pa.schema([("sensor", pa.int64()), ("heat", pa.float64()), ("score", pa.float64())])
VERDICT = Types.ROW_NAMED(["sensor", "verdict"], [Types.LONG(), Types.STRING()])


class Score(MapBatchesFunction):
    """A logistic model: each row's score depends on that row alone, however rows are cut into batches."""

    def open(self, runtime_context: RuntimeContext) -> None:
        # CuPy on the GPU that Spark keeps for this subtask, or the first one if it keeps none; NumPy on a processor.
        self.xp: Any = np
        self.device: Any = nullcontext()
        if importlib.util.find_spec("cupy") is not None:
            import cupy  # pyright: ignore[reportMissingImports]

            if cupy.cuda.is_available():
                infos = runtime_context.get_external_resource_infos("gpu")
                self.xp = cupy
                self.device = cupy.cuda.Device(
                    min((int(info.address) for info in infos), default=0)
                )

    def map_batches(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        xp = self.xp
        with self.device:
            heat, load = (xp.asarray(batch.column(name).to_numpy()) for name in ("heat", "load"))
            scores = 1 / (1 + xp.exp(-(WEIGHTS[0] * heat + WEIGHTS[1] * load)))
            # What is on a GPU comes back with `get`.
            values = scores.get() if hasattr(scores, "get") else scores
        columns = [batch.column("sensor"), batch.column("heat"), pa.array(values)]
        return pa.RecordBatch.from_arrays(columns, schema=SCORED)


class Judge(AsyncFunction[Row, Row]):
    """Asks a slow model: records that come within a moment of each other share a call."""

    def open(self, runtime_context: RuntimeContext) -> None:
        infos = runtime_context.get_external_resource_infos("gpu")
        self.device = min((f"cuda:{info.get_property('index')}" for info in infos), default="cpu")
        self.waiting: list[tuple[Row, asyncio.Future[str]]] = []
        self.calls: set[asyncio.Task[None]] = set()

    async def async_invoke(self, value: Row) -> list[Row]:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.waiting.append((value, answer))
        if len(self.waiting) in (1, CALL_SIZE):
            call = asyncio.create_task(self.call(0 if len(self.waiting) > 1 else CALL_DELAY_S))
            self.calls.add(call)
            call.add_done_callback(self.calls.discard)
        return [Row(value.sensor, await answer)]

    async def call(self, delay_s: float) -> None:
        """Judge all that wait, `delay_s` from now: the first record waits for others, a full call for none."""
        await asyncio.sleep(delay_s)
        taken, self.waiting = self.waiting, []
        if not taken:
            return
        try:
            verdicts = await asyncio.to_thread(judge, [row.score for row, _ in taken], self.device)
        except Exception as error:
            for _, answer in taken:
                answer.set_exception(error)
            return
        for (_, answer), verdict in zip(taken, verdicts, strict=True):
            answer.set_result(verdict)


def judge(scores: list[float], device: str) -> list[str]:
    """The slow model, on a thread of its own: here a look at the scores, whatever the device."""
    assert device
    return ["replace" if score > 0.9 else "watch" for score in scores]


def main() -> None:
    spark = spark_session()
    readings = spark.range(0, 1000, 1, 4).selectExpr(
        "id % 50 AS sensor",
        "CAST(id % 40 AS double) / 10 AS heat",
        "CAST(id % 7 AS double) AS load",
    )
    env = StreamExecutionEnvironment.get_execution_environment()
    scored = env.from_dataframe(readings).map_batches(Score(), output_type=SCORED)
    suspicious = scored.filter(col("score") > LIMIT)
    verdicts = AsyncDataStream.unordered_wait(
        suspicious, Judge(), Time.seconds(30), capacity=64, output_type=VERDICT
    )
    # An ordinary DataFrame again.
    counts = verdicts.to_dataframe().groupBy("verdict").count().orderBy("verdict")
    for row in counts.collect():
        print(f"{row.verdict}: {row['count']} readings")


if __name__ == "__main__":
    main()
