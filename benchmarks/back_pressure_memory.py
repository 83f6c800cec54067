"""Does a TaskManager's memory stay where it is under full back pressure, while traffic goes on?

Two TaskManager processes on a local Spark: sources that could give far more, a keyed shuffle between the two,
and a function that takes `--rate` records of 1 KB per second and subtask, steadily. Each process tells its own resident
set as a metric of its task. It counts from the moment that every source has waited for room in nine tenths of a second;
from then on it is sampled twice a second for `--seconds`. Growth is the median of the last third against the first's.
What was consumed meanwhile is told beside it: an exchange that stands still proves nothing.

    python -m benchmarks.back_pressure_memory [--seconds 60] [--rate 500] [--dry]
"""

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.record import record_result
from headrace.api.client.job_client import JobClient
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.process.process_memory import resident_memory_bytes
from headrace.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from headrace.gateways.job_master import JobDetails, VertexDetails
from headrace.metrics.names import BACK_PRESSURED_TIME, NUM_RECORDS_IN

PARALLELISM = 2
FULL_MS_PER_SECOND = 900
FILL_TIMEOUT_S = 120
SAMPLE_S = 0.5
PAYLOAD = "x" * 1000
RECORD = Types.TUPLE([Types.LONG(), Types.STRING()])


class SteadyConsumer(KeyedProcessFunction):
    """Takes `rate` records per second and tells how much memory its process has."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        group.gauge("residentBytes", resident_memory_bytes)
        group.gauge("processId", os.getpid)
        self.due = time.monotonic()

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.due = max(self.due + 1 / self.rate, time.monotonic() - 1)
        time.sleep(max(0.0, self.due - time.monotonic()))
        return iter(())


@dataclass(frozen=True)
class Sample:
    """One moment: resident sets by process, and how many records the consumers had taken."""

    resident_bytes: dict[int, float]
    consumed: float
    seconds: float


def submit(rate: float) -> JobClient:
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.set_parallelism(PARALLELISM)
    records = environment.from_source(
        DataGeneratorSource(lambda index: (index, PAYLOAD), type_info=RECORD),
        WatermarkStrategy.no_watermarks(),
        "numbers",
    )
    keyed = records.key_by(lambda record: record[0] % 1000, key_type=Types.LONG())
    keyed.process(SteadyConsumer(rate), output_type=RECORD).print()
    return environment.execute_async("back pressure")


def vertices(details: JobDetails) -> tuple[VertexDetails, VertexDetails]:
    """The sources, and the consumers behind the shuffle."""
    first, second = details.vertices
    return (first, second) if first.name.startswith("Source") else (second, first)


def is_full(details: JobDetails) -> bool:
    sources, _ = vertices(details)
    waits = [one.metrics.get(BACK_PRESSURED_TIME.name, 0.0) for one in sources.subtasks]
    return min(waits) >= FULL_MS_PER_SECOND


def sample(details: JobDetails) -> Sample:
    _, consumers = vertices(details)
    resident: dict[int, float] = {}
    for subtask in consumers.subtasks:
        own = {name.rpartition(".")[2]: value for name, value in subtask.metrics.items()}
        resident[int(own["processId"])] = own["residentBytes"]
    return Sample(resident, consumers.metrics[NUM_RECORDS_IN.name], time.monotonic())


def growth_percent(values: list[float]) -> float:
    """Median of the last third against the median of the first, in percent."""
    third = len(values) // 3
    first, last = statistics.median(values[:third]), statistics.median(values[-third:])
    return 100 * (last - first) / first


def measure(client: JobClient, seconds: float) -> dict[str, Any]:
    """Wait until every queue is full, then sample."""
    deadline = time.monotonic() + FILL_TIMEOUT_S
    while not is_full(details := client.get_job_details().result()):
        if time.monotonic() > deadline:
            raise SystemExit(f"the sources were never back-pressured: {details}")
        time.sleep(SAMPLE_S)
    samples = [sample(client.get_job_details().result())]
    full = 0
    while samples[-1].seconds - samples[0].seconds < seconds:
        time.sleep(SAMPLE_S)
        details = client.get_job_details().result()
        full += is_full(details)
        samples.append(sample(details))
    series = {
        pid: [one.resident_bytes[pid] for one in samples] for pid in samples[0].resident_bytes
    }
    elapsed = samples[-1].seconds - samples[0].seconds
    return {
        "seconds": elapsed,
        "processes": len(series),
        "samples": len(samples),
        "back_pressured_samples_percent": 100 * full / (len(samples) - 1),
        "consumed_records": samples[-1].consumed - samples[0].consumed,
        "consumed_records_per_second": (samples[-1].consumed - samples[0].consumed) / elapsed,
        "resident_mb": [round(statistics.median(values) / 1e6, 1) for values in series.values()],
        "growth_percent": [round(growth_percent(values), 2) for values in series.values()],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=500, help="records per second and subtask")
    parser.add_argument("--dry", action="store_true", help="print only, keep no result")
    options = parser.parse_args()
    if options.seconds < 30:
        parser.error("less than 30 s say nothing about growth")
    client = submit(options.rate)
    try:
        figures = measure(client, options.seconds)
    finally:
        client.cancel().result()
        client.get_job_execution_result().exception()
    figures["rate_per_subtask"] = options.rate
    if options.dry:
        for key, value in figures.items():
            print(f"{key:>32}: {value}")
    else:
        record_result("back_pressure_memory", figures)


if __name__ == "__main__":
    main()
