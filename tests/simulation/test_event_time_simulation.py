"""Event time over failures and at the end: what is late stays late wherever a job dies; drained windows all fire."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.core.barriers import SavepointFormatType
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.core.types.time_values import Duration, Time
from headrace.core.types.type_info import Types
from headrace.functions.process import KeyedProcessFunction
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, InputStatus, SourceOutput, SourceReader
from headrace.functions.watermarks import TimestampAssigner, WatermarkGenerator, WatermarkStrategy
from headrace.functions.windowing.assigners import TumblingEventTimeWindows
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from testkit.simulation.simulated_cluster import SimulatedCluster, failure_note
from testkit.simulation.simulated_job import (
    KEY_COUNT,
    PacedSource,
    RecordingSink,
    forget_output,
    output_of,
)
from tests.simulation.scenario import RESTARTS, SETTINGS, Plan, checkpoint_settings
from tests.simulation.seeds import seeds

COUNT: Final = 400
PAIR: Final = Types.TUPLE([Types.INT(), Types.INT()])
RESTORES: Final = "headrace.checkpoint.restore-watermarks"


class SomeAreOld(TimestampAssigner):
    """Numbers are 10 ms apart; every third is of some time before, the most of them behind what was said."""

    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return time_of(value)


def time_of(number: int) -> int:
    return 10 * number - (number % 3 == 2) * 7 * (number % 11) ** 2


class InOrder(TimestampAssigner):
    """All within an hour."""

    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


class AtOnce(WatermarkGenerator):
    """Behind each record nothing older is said to come."""

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: Any) -> None:
        pass


class WhetherLate(KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int]]:
        yield value, int(ctx.timestamp() < ctx.timer_service().current_watermark())


def late_job(job_id: JobId, name: str, settings: dict[str, str]) -> JobGraph:
    """Says of each number whether it was late. One subtask of each vertex, so that rows have one order."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_generator(AtOnce).with_timestamp_assigner(SomeAreOld())
    (
        env.from_source(PacedSource(COUNT, 300), strategy, "Paced", Types.INT())
        .key_by(lambda number: number % KEY_COUNT, key_type=Types.INT())
        .process(WhetherLate(), output_type=PAIR)
        .sink_to(RecordingSink(name))
    )
    return generate_job_graph(env.get_stream_graph(name), job_id, Settings(settings))


def expected_lateness() -> Counter[tuple[int, int]]:
    watermark, found = -(2**63), Counter[tuple[int, int]]()
    for number in range(COUNT):
        found[number, int(time_of(number) < watermark)] += 1
        watermark = max(watermark, time_of(number))
    return found


def lateness_after_failures(seed: int, restores: str) -> tuple[bool, int]:
    """Whether what was late is what it would be without failures, and how often the job was restored."""
    random = SeededRandom(seed ^ 0xE7)
    sim = SimulatedCluster(seed, settings=SETTINGS, faults=Plan.draw(seed).faults)
    name = f"late-{seed}-{restores}"
    forget_output(name)
    for _ in range(3):
        sim.later(random.uniform(500, 12_000), sim.kill_some_worker)
    job_id = sim.new_job_id()
    settings = {**RESTARTS, **checkpoint_settings(seed), RESTORES: restores}
    sim.submit(late_job(job_id, name, settings))
    assert sim.await_result(job_id).status is JobStatus.FINISHED
    found = output_of(name)
    assert Counter(number for number, _ in found) == Counter(range(COUNT))
    details = sim.loop.run_until(sim.dispatcher.request_job_details(job_id))
    sim.close()
    return found == expected_lateness(), details.checkpoints.counts.restored


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(12))
def test_what_is_late_is_the_same_wherever_a_job_dies(seed: int) -> None:
    is_same, _ = lateness_after_failures(seed, "true")
    assert is_same, failure_note(seed)("other records are late")


@pytest.mark.slow
def test_event_time_that_begins_anew_would_show() -> None:
    runs = [lateness_after_failures(seed, "false") for seed in range(8)]
    assert any(restored_count for _, restored_count in runs)
    assert not all(is_same for is_same, _ in runs)


class FallsSilent(PacedSource):
    """Emits all it has, and never ends."""

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return _Silent(super().create_reader(context))


class _Silent(SourceReader):
    def __init__(self, reader: SourceReader) -> None:
        self._reader = reader

    def poll_next(self, output: SourceOutput) -> InputStatus:
        self._reader.poll_next(output)
        return InputStatus.NOTHING_AVAILABLE

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        return self._reader.snapshot_state(checkpoint_id)

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        self._reader.restore_splits(splits)


@pytest.mark.parametrize("interruptible", ["false", "true"])
def test_windows_of_sources_that_are_idle_all_fire_when_the_job_is_drained(
    tmp_path: Path, interruptible: str
) -> None:
    sim = SimulatedCluster(3, settings=SETTINGS)
    name = f"drained-{interruptible}"
    forget_output(name)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(InOrder())
        .with_idleness(Duration.of_seconds(1))
    )
    (
        env.from_source(FallsSilent(60, 100), strategy, "Silent", Types.INT())
        .map(lambda number: (number % KEY_COUNT, 1), output_type=PAIR)
        .key_by(lambda pair: pair[0], key_type=Types.INT())
        .window(TumblingEventTimeWindows.of(Time.hours(1)))
        .reduce(lambda one, other: (one[0], one[1] + other[1]))
        .sink_to(RecordingSink(name))
    )
    settings = Settings(
        {
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.unaligned.enabled": interruptible,
            "execution.checkpointing.unaligned.interruptible-timers.enabled": interruptible,
        }
    )
    job_id = sim.new_job_id()
    sim.submit(generate_job_graph(env.get_stream_graph(name), job_id, settings))
    sim.run_for(10_000)
    assert output_of(name) == Counter(), "the window has not ended"
    sim.loop.run_until(
        sim.dispatcher.stop_with_savepoint(
            job_id, str(tmp_path), True, SavepointFormatType.CANONICAL
        )
    )
    assert sim.await_result(job_id).status is JobStatus.FINISHED
    counts = Counter(number % KEY_COUNT for number in range(60))
    assert output_of(name) == Counter(counts.items())
    sim.close()
