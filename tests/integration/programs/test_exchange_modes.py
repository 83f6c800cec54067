"""The same programs with every kind of exchange: the same results, and no file is left."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Time, Types, WatermarkStrategy
from headrace.api.executors import set_active_executor
from headrace.cluster.minicluster import MiniCluster
from headrace.common import Configuration
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.core.errors import ConfigurationError, JobExecutionError
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.window import TumblingEventTimeWindows
from headrace.graph.pipeline_options import BATCH_SHUFFLE_MODE, BatchShuffleMode
from testkit.waiting import wait_until
from tests.integration.programs.conftest import MiniClusterExecutor
from tests.integration.programs.result_files import files

MODES = [mode.name for mode in BatchShuffleMode]
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(params=["as they come", "sorted"])
def cluster(directory: Path, request: pytest.FixtureRequest) -> Iterator[MiniCluster]:
    sort_from = "1" if request.param == "sorted" else "8"
    settings = {
        "io.tmp.dirs": str(directory),
        "taskmanager.network.sort-shuffle.min-parallelism": sort_from,
    }
    with MiniCluster(task_manager_count=2, settings=settings) as one:
        set_active_executor(MiniClusterExecutor(one))
        try:
            yield one
        finally:
            set_active_executor(None)
    assert list(directory.iterdir()) == [], "the cluster left something"


def environment(mode: str, **more: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string(BATCH_SHUFFLE_MODE.key, mode)
    for key, value in more.items():
        configuration.set_string(key.replace("__", "-").replace("_", "."), value)
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def numbers(env: StreamExecutionEnvironment, last: int) -> Any:
    source = NumberSequenceSource(0, last)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())


def sums_of_windows(env: StreamExecutionEnvironment) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    timed = (
        env.from_collection([(n % 7, n) for n in range(3000)], PAIR)
        .assign_timestamps_and_watermarks(strategy)
        .set_parallelism(1)
    )
    return (
        timed.key_by(lambda pair: pair[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )


def many_exchanges(env: StreamExecutionEnvironment) -> Any:
    one = numbers(env, 20_000).rebalance().map(lambda n: (n % 100, n), PAIR)
    other = numbers(env, 500).broadcast().map(lambda n: (n % 100, 1), PAIR)
    return (
        one.union(other)
        .key_by(lambda pair: pair[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
        .rescale()
        .filter(lambda pair: pair[1] % 3 == 0)
        .shuffle()
        .map(lambda pair: pair[0], Types.LONG())
    )


def results(stream: Any) -> Counter[Any]:
    with stream.execute_and_collect() as records:
        return Counter(records)


@pytest.mark.parametrize("mode", MODES)
def test_windows_give_the_same_with_every_exchange(
    cluster: MiniCluster, directory: Path, mode: str
) -> None:
    found = results(sums_of_windows(environment(mode)))
    expected = Counter[Any]()
    for start in range(0, 3000, 100):
        for key in range(7):
            expected[(key, sum(n for n in range(start, start + 100) if n % 7 == key))] += 1
    assert found == expected
    wait_until(lambda: files(directory) == [])


@pytest.mark.parametrize("mode", MODES)
def test_a_program_of_many_exchanges_gives_the_same_number_of_rows_with_every_one(
    cluster: MiniCluster, directory: Path, mode: str
) -> None:
    # What a rolling sum emits in between depends on the order of its inputs; how much it emits does not.
    env = environment(mode)
    counted = many_exchanges(env)
    plain = results(
        numbers(environment(mode), 20_000)
        .key_by(lambda n: n % 100)
        .map(lambda n: n % 100, Types.LONG())
    )
    assert sum(plain.values()) == 20_001
    assert set(results(counted)) <= set(range(100))
    wait_until(lambda: files(directory) == [])


@pytest.mark.parametrize("mode", MODES[1:])
def test_a_failing_job_leaves_no_file(cluster: MiniCluster, directory: Path, mode: str) -> None:
    env = environment(mode)
    failing = numbers(env, 50_000).rebalance().map(lambda n: 1 // (n - 40_000), Types.LONG())
    with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
        results(failing)
    wait_until(lambda: files(directory) == [])


@pytest.mark.parametrize("mode", MODES[1:])
def test_a_restarted_job_gives_the_same_and_leaves_no_file(
    cluster: MiniCluster, directory: Path, tmp_path_factory: pytest.TempPathFactory, mode: str
) -> None:
    marker = tmp_path_factory.mktemp("marker") / "failed once"

    def fail_once(n: int) -> int:
        if n == 30_000 and not marker.exists():
            marker.write_text("")
            raise ValueError("once")
        return n

    env = environment(
        mode,
        restart__strategy_type="fixed-delay",
        restart__strategy_fixed__delay_attempts="1",
        restart__strategy_fixed__delay_delay="10 ms",
    )
    stream = numbers(env, 50_000).rebalance().map(fail_once, Types.LONG()).rebalance().filter(bool)
    found = results(stream)
    assert set(found) == set(range(1, 50_001))
    assert marker.exists()
    wait_until(lambda: files(directory) == [])


def test_an_unknown_mode_is_refused_by_name(cluster: MiniCluster) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"'execution\.batch-shuffle-mode' has .*: it must be one of ALL_EX",
    ):
        results(numbers(environment("ALL_BY_PIGEON"), 10).rebalance().map(lambda n: n))
