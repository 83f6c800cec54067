"""Cached streams: jobs that read what an earlier one stored, without what made it, until it is dropped or lost."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import OutputTag, StreamExecutionEnvironment, Time, Types, WatermarkStrategy
from headrace.api.executors import set_active_executor
from headrace.api.streams.data_stream import DataStream
from headrace.cluster.minicluster import MiniCluster
from headrace.common import Configuration
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.core.errors import CachedStreamLostError
from headrace.core.shuffle_descriptors import ShuffleDescriptor
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.window import TumblingEventTimeWindows
from headrace.functions.process import ProcessFunction
from headrace.graph.pipeline_options import BATCH_SHUFFLE_MODE, BatchShuffleMode
from testkit.waiting import wait_until
from tests.integration.programs.cached_stream_functions import (
    ALL,
    COUNT,
    WAIT_S,
    FailingOnce,
    Gate,
    Seen,
)
from tests.integration.programs.conftest import MiniClusterExecutor
from tests.integration.programs.result_files import files


def double(n: int) -> int:
    # By its name: a function that is pickled by value would have a class of its own.
    from tests.integration.programs.cached_stream_functions import Seen

    with Seen.lock:
        Seen.count += 1
    return 2 * n


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MiniCluster]:
    settings = {
        "io.tmp.dirs": str(tmp_path),
        "resourcemanager.taskmanager-timeout": "50 ms",
        # None comes within a test: what the ResourceManager knows it was told by jobs.
        "heartbeat.interval": "10 min",
        "heartbeat.timeout": "1 h",
        # Whoever asks in vain for results that were dropped gives up after 2.5 seconds, and not after 20.
        "taskmanager.network.request-backoff.max": "1 s",
    }
    with MiniCluster(task_manager_count=2, settings=settings) as one:
        set_active_executor(MiniClusterExecutor(one))
        Seen.take()
        try:
            yield one
        finally:
            set_active_executor(None)
    assert files(tmp_path) == [], "the cluster left something"


@pytest.fixture
def env(cluster: MiniCluster) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def doubled(env: StreamExecutionEnvironment) -> DataStream:
    source = NumberSequenceSource(0, COUNT - 1)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    return stream.map(double, Types.LONG())


def collected(stream: DataStream) -> list[Any]:
    with stream.execute_and_collect() as records:
        return sorted(records)


def places(cluster: MiniCluster, env: StreamExecutionEnvironment) -> tuple[ShuffleDescriptor, ...]:
    (data_set,) = env.list_completed_cluster_datasets()
    manager = cluster.handle.resource_manager
    return cluster.handle.call(manager.request_cluster_partitions(data_set), WAIT_S)


def worker_count(cluster: MiniCluster) -> int:
    overview = cluster.handle.resource_manager.request_resource_overview()
    return len(cluster.handle.call(overview, WAIT_S).task_managers)


@pytest.mark.parametrize("mode", [mode.name for mode in BatchShuffleMode])
def test_the_next_jobs_read_what_the_first_one_stored(
    cluster: MiniCluster, tmp_path: Path, mode: str
) -> None:
    configuration = Configuration()
    configuration.set_string(BATCH_SHUFFLE_MODE.key, mode)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    cached = doubled(env).cache()
    assert collected(cached.map(lambda n: n + 1, Types.LONG())) == [n + 1 for n in ALL]
    assert Seen.take() == COUNT
    assert collected(cached) == ALL
    tens = cached.filter(lambda n: n % 10 == 0).key_by(lambda n: n % 100)
    largest = [max(n for n in ALL if n % 100 == rest) for rest in range(0, 100, 10)]
    maxima = collected(tens.reduce(max))
    assert set(largest) <= set(maxima) and len(maxima) == COUNT // 5
    assert Seen.take() == 0, "what makes it has run again"
    cached.invalidate()
    wait_until(lambda: files(tmp_path) == [])
    assert collected(cached) == ALL and Seen.take() == COUNT


def test_task_managers_stay_as_long_as_they_keep_something(
    cluster: MiniCluster, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    doubled(env).cache()
    env.execute()
    (data_set,) = env.list_completed_cluster_datasets()
    # Idle ones are looked at every 50 ms: one that keeps nothing is let go by then.
    for _ in range(10):
        assert worker_count(cluster) == 2
        threading.Event().wait(0.05)
    env.invalidate_cluster_dataset(data_set)
    wait_until(lambda: worker_count(cluster) == 0)


def test_closing_the_environment_drops_what_it_keeps_and_nothing_of_others(
    cluster: MiniCluster, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    other = StreamExecutionEnvironment.get_execution_environment()
    kept = doubled(other).cache()
    other.execute()
    for _ in range(2):
        doubled(env).cache()
    env.execute()
    assert len(env.list_completed_cluster_datasets()) == 3
    env.close()
    assert len(other.list_completed_cluster_datasets()) == 1
    Seen.take()
    assert collected(kept) == ALL and Seen.take() == 0
    other.close()
    wait_until(lambda: files(tmp_path) == [])


def test_a_stream_that_is_dropped_while_its_job_runs_is_not_kept(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    gate = Gate.closed()
    cached = doubled(env).map(gate.passing, Types.LONG()).cache()
    client = env.execute_async()
    cached.invalidate()
    gate.open()
    client.get_job_execution_result().result(WAIT_S)
    assert env.list_completed_cluster_datasets() == set()
    wait_until(lambda: files(tmp_path) == [])


def test_what_was_lost_between_two_jobs_is_made_anew_and_kept_again(
    cluster: MiniCluster, env: StreamExecutionEnvironment
) -> None:
    cached = doubled(env).cache()
    env.execute()
    location = places(cluster, env)[0].location
    assert location is not None
    manager = cluster.handle.resource_manager
    manager.disconnect_task_manager(location.resource_id, "the test ends it")
    wait_until(lambda: env.list_completed_cluster_datasets() == set())
    Seen.take()
    assert collected(cached) == ALL and Seen.take() == COUNT
    assert collected(cached) == ALL and Seen.take() == 0


def damage(directory: Path) -> None:
    """Turn bits in the middle of every stored file, so that no checksum holds."""
    for file in files(directory):
        content = bytearray(file.read_bytes())
        for index in range(len(content) // 3, len(content)):
            content[index] ^= 0xFF
        file.write_bytes(content)


def cut(directory: Path) -> None:
    for file in files(directory):
        os.truncate(file, file.stat().st_size // 2)


@pytest.mark.parametrize("spoil", [damage, cut])
def test_a_job_that_finds_it_spoilt_runs_once_more_with_what_makes_it(
    cluster: MiniCluster,
    env: StreamExecutionEnvironment,
    tmp_path: Path,
    spoil: Callable[[Path], object],
    capfd: pytest.CaptureFixture[str],
) -> None:
    cached = doubled(env).cache()
    env.execute()
    (before,) = env.list_completed_cluster_datasets()
    spoil(tmp_path)
    Seen.take()
    cached.key_by(lambda n: 0).reduce(max).print()
    env.execute()
    assert Seen.take() == COUNT and f"> {ALL[-1]}\n" in capfd.readouterr().out
    (after,) = env.list_completed_cluster_datasets()
    assert after != before
    assert collected(cached) == ALL and Seen.take() == 0


def test_a_job_that_was_not_awaited_names_what_it_lost_and_the_next_one_makes_it_anew(
    cluster: MiniCluster, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    cached = doubled(env).cache()
    env.execute()
    (data_set,) = env.list_completed_cluster_datasets()
    damage(tmp_path)
    with pytest.raises(CachedStreamLostError) as caught:
        collected(cached)
    first = str(caught.value).splitlines()[0]
    assert f"cached data set {data_set} cannot be read" in first
    assert "run the job again" in first
    Seen.take()
    assert collected(cached) == ALL and Seen.take() == COUNT


def test_a_job_that_is_told_of_what_a_task_manager_has_dropped_runs_once_more(
    cluster: MiniCluster, env: StreamExecutionEnvironment
) -> None:
    cached = doubled(env).cache()
    env.execute()
    (data_set,) = env.list_completed_cluster_datasets()
    # Behind the back of the ResourceManager, which hears of it with the next heartbeat.
    for executor in cluster._driver._executors.values():
        cluster.handle.call(executor.release_cluster_partitions((data_set,)), WAIT_S)
    assert env.list_completed_cluster_datasets() == {data_set}
    Seen.take()
    cached.key_by(lambda n: 0).reduce(max).filter(lambda n: False).print()
    env.execute()
    assert Seen.take() == COUNT
    assert env.list_completed_cluster_datasets().isdisjoint({data_set})


class Parity(ProcessFunction):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Any:
        yield ODD, value
        yield value


ODD = OutputTag("odd", Types.LONG())


def test_side_outputs_unions_and_values_of_keyed_streams_come_from_the_cache(
    env: StreamExecutionEnvironment,
) -> None:
    side = doubled(env).process(Parity(), Types.LONG()).get_side_output(ODD).cache()
    keyed = doubled(env).key_by(lambda n: n % 7).cache()
    env.execute()
    assert Seen.take() == 2 * COUNT
    assert collected(side.union(keyed, keyed)) == sorted(3 * ALL)
    assert Seen.take() == 0


class OwnTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value


def test_timestamps_and_watermarks_are_kept_with_the_records(
    env: StreamExecutionEnvironment,
) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(OwnTime())
    cached = doubled(env).assign_timestamps_and_watermarks(strategy).cache()
    env.execute()
    for _ in range(2):
        windows = cached.key_by(lambda n: 0).window(TumblingEventTimeWindows.of(Time.seconds(1)))
        sums = collected(windows.reduce(lambda a, b: a + b))
        assert sums == [sum(n for n in ALL if n // 1000 == second) for second in range(2)]
    assert Seen.take() == COUNT


def test_streams_of_python_values_are_cached_as_they_are(env: StreamExecutionEnvironment) -> None:
    values = [{"a": 1}, None, ("b", 2.5)]
    cached = env.from_collection(values).cache()
    env.execute()
    for _ in range(2):
        with cached.execute_and_collect() as records:
            assert list(records) == values


def test_an_empty_stream_is_cached_too(env: StreamExecutionEnvironment) -> None:
    cached = doubled(env).filter(lambda n: False).cache()
    assert collected(cached) == [] == collected(cached)
    assert Seen.take() == COUNT


def test_a_job_that_fails_or_is_cancelled_keeps_nothing(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    cached = doubled(env).cache()
    cached.map(lambda n: 1 // (n - 10)).print()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        env.execute()
    assert env.list_completed_cluster_datasets() == set()
    wait_until(lambda: files(tmp_path) == [])
    Seen.take()
    assert collected(cached) == ALL and Seen.take() == COUNT


def test_a_job_that_restarts_reads_the_stream_again(
    env: StreamExecutionEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    cached = doubled(env).cache()
    env.execute()
    Seen.take()
    settings = Configuration()
    settings.set_string("restart-strategy.type", "fixed-delay")
    settings.set_string("restart-strategy.fixed-delay.attempts", "1")
    settings.set_string("restart-strategy.fixed-delay.delay", "1 ms")
    env.configure(settings)
    FailingOnce.has_failed = False
    cached.map(FailingOnce.call, Types.LONG()).filter(lambda n: n == ALL[-1]).print()
    env.execute()
    assert FailingOnce.has_failed and Seen.take() == 0
    assert f"> {ALL[-1]}\n" in capfd.readouterr().out
