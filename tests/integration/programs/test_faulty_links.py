"""Whole programs whose TaskManagers dial each other through the fault proxy: it is seen, and results stay exact."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.api.executors import set_active_executor
from headrace.cluster.minicluster import MiniCluster
from headrace.common import Configuration, Encoder
from headrace.core.clock import SystemClock
from headrace.datastream.connectors.file_system import FileSink
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.network.transport.http_tunnel import PROXY
from headrace.testing.fault_proxy.injector import FaultApplied
from headrace.testing.fault_proxy.proxy import Address, FaultProxy
from headrace.testing.fault_proxy.rules import parse_rule
from tests.integration.network.proxied import LoopThread
from tests.integration.programs.committed_lines import committed_lines
from tests.integration.programs.conftest import MiniClusterExecutor

pytestmark = pytest.mark.integration

COUNT, KEY_COUNT, WAIT_S = 4000, 7, 60
ANYWHERE = Address("127.0.0.1", 0)


class Link:
    """What lies between the TaskManagers of the cluster; `spoil` changes it as a person at a terminal would."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self._proxy: FaultProxy | None = None
        self._place = ANYWHERE
        self.faults: list[str] = []
        self.has_failed = threading.Event()

    def spoil(self, *rules: str) -> Address:
        self.close()
        self._proxy = FaultProxy(None, [parse_rule(rule) for rule in rules], on_fault=self._note)
        self._place = self._thread.run(self._proxy.listen(self._place))
        return self._place

    def close(self) -> None:
        if self._proxy is not None:
            self._thread.run(self._proxy.close())

    def _note(self, number: int, fault: FaultApplied) -> None:
        self.faults.append(fault.rule.word)
        self.has_failed.set()


@pytest.fixture
def link() -> Iterator[Link]:
    thread = LoopThread()
    made = Link(thread)
    place = made.spoil()
    with MiniCluster(task_manager_count=2, settings={PROXY.key: str(place)}) as cluster:
        set_active_executor(MiniClusterExecutor(cluster))
        try:
            yield made
        finally:
            set_active_executor(None)
    made.close()
    thread.stop()


def start_program(target: Path) -> JobClient:
    configuration = Configuration()
    for key, value in {
        "execution.checkpointing.interval": "50 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "20 ms",
    }.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    (
        env.from_source(
            NumberSequenceSource(0, COUNT - 1), WatermarkStrategy.no_watermarks(), "numbers"
        )
        .key_by(lambda number: number % KEY_COUNT, key_type=Types.LONG())
        .map(str, output_type=Types.STRING())
        .sink_to(FileSink.for_row_format(str(target), Encoder.simple_string_encoder()).build())
    )
    return env.execute_async("faulty links")


EXPECTED = Counter(str(number) for number in range(COUNT))


def test_a_slow_link_is_seen_in_the_duration_and_not_in_the_result(
    link: Link, tmp_path: Path
) -> None:
    link.spoil("delay Data by=700ms nth=1")
    begun_ns = SystemClock().monotonic_ns()
    start_program(tmp_path).get_job_execution_result().result(WAIT_S)
    assert SystemClock().monotonic_ns() - begun_ns > 700_000_000
    # Once for each direction in which there were rows: it depends on which subtask reads which split.
    assert link.faults in (["delay"], ["delay", "delay"])
    assert committed_lines(tmp_path) == EXPECTED


def test_a_program_outlives_a_link_that_is_cut_until_somebody_heals_it(
    link: Link, tmp_path: Path
) -> None:
    link.spoil("cut 20 Data nth=1")
    client = start_program(tmp_path)
    assert link.has_failed.wait(WAIT_S)
    link.spoil()
    client.get_job_execution_result().result(WAIT_S)
    details = client.get_job_details().result(WAIT_S)
    assert set(link.faults) == {"cut"}
    assert details.exceptions, "the cut went unnoticed"
    assert committed_lines(tmp_path) == EXPECTED
