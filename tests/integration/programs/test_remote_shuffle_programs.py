"""Whole jobs over a shuffle service in a process of its own: it outlives TaskManagers, and its end has a name."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.executors import set_active_executor
from headrace.cluster.minicluster import MiniCluster
from headrace.common import Configuration
from headrace.core.errors import JobExecutionError
from headrace.core.ids import ResourceId
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.graph.pipeline_options import BATCH_SHUFFLE_MODE, BatchShuffleMode
from testkit.waiting import wait_until
from tests.integration.programs.conftest import MiniClusterExecutor

READING, GO = threading.Event(), threading.Event()
"""Set by, and waited for by, the consumer of a test, which runs in this process."""
ROWS = 100_000
EVERYWHERE = (
    *("--host", "0.0.0.0", "--advertised-host", "localhost"),
    *("-D", "security.ssl.internal.enabled=false"),
    *("-D", "headrace.security.allow-plaintext=true"),
)
"""Reachable from elsewhere, as far as the machine of the tests lets it be; its cluster speaks no TLS."""


class ServiceProcess:
    """`headrace shuffle-service` as people start it."""

    def __init__(
        self, directory: Path, port: str = "0", data_port: str = "0", more: tuple[str, ...] = ()
    ) -> None:
        program = "from headrace.cli.main import main; main()"
        arguments = ["--directory", str(directory / "results"), "--port", port]
        arguments += ["--secret-file", str(directory / "secret"), "--data-port", data_port]
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, "shuffle-service", *arguments, *more],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.found_count = int(self._line(r": (\d+) committed results"))
        self.address = self._line(r"shuffle-service\.address: (\S+)")

    def _line(self, pattern: str) -> str:
        assert self.process.stdout is not None
        found = re.search(pattern, self.process.stdout.readline())
        assert found is not None
        return found.group(1)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Callable[..., ServiceProcess]]:
    started: list[ServiceProcess] = []

    def start(port: str = "0", more: tuple[str, ...] = ()) -> ServiceProcess:
        started.append(ServiceProcess(tmp_path, port, more=more))
        return started[-1]

    yield start
    for service in started:
        if service.process.poll() is None:
            service.end(signal.SIGKILL)


@pytest.fixture
def service(
    services: Callable[..., ServiceProcess], request: pytest.FixtureRequest
) -> ServiceProcess:
    return services(more=getattr(request, "param", ()))


@pytest.fixture
def cluster(service: ServiceProcess, tmp_path: Path) -> Iterator[MiniCluster]:
    READING.clear()
    GO.clear()
    settings = {
        "shuffle-service-factory.class": "remote",
        "shuffle-service.address": service.address,
        "shuffle-service.heartbeat.interval": "200 ms",
        "shuffle-service.heartbeat.timeout": "1 s",
        "headrace.security.secret-file": str(tmp_path / "secret"),
        "io.tmp.dirs": str(tmp_path),
    }
    with MiniCluster(task_manager_count=2, settings=settings) as one:
        set_active_executor(MiniClusterExecutor(one))
        try:
            yield one
        finally:
            GO.set()
            set_active_executor(None)


def wait_at_the_first(value: int) -> int:
    if not READING.is_set():
        READING.set()
        assert GO.wait(30)
    return value


def program(
    function: Callable[[int], int],
    mode: BatchShuffleMode = BatchShuffleMode.ALL_EXCHANGES_BLOCKING,
    **more: str,
) -> Any:
    """Numbers from one TaskManager to another, where `function` takes them."""
    configuration = Configuration()
    for key, value in {BATCH_SHUFFLE_MODE.key: mode.name, **more}.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    source = NumberSequenceSource(0, ROWS - 1)
    return (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
        .slot_sharing_group("producers")
        .rebalance()
        .map(function, Types.LONG())
        .slot_sharing_group("consumers")
    )


def idle_task_managers(cluster: MiniCluster) -> list[ResourceId]:
    """Those whose task has ended."""
    executors = dict(cluster._driver._executors)  # type: ignore[attr-defined]  # the tests' own cluster
    return [key for key, executor in executors.items() if not executor.attempt_ids]


def stored_files(directory: Path) -> list[Path]:
    """Those in folders of results. Not Path.glob: it fails where a folder is deleted while it looks."""
    places = [(Path(at), names) for at, _, names in os.walk(directory / "results")]
    return [at / name for at, names in places for name in names if at.name != "results"]


def test_a_result_survives_the_task_manager_that_produced_it(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    with program(wait_at_the_first).execute_and_collect() as collected:
        assert READING.wait(30)
        wait_until(lambda: len(idle_task_managers(cluster)) == 1)
        (producer,) = idle_task_managers(cluster)
        executors = cluster._driver._executors  # type: ignore[attr-defined]
        executors[producer].end("killed by the test")
        wait_until(lambda: producer not in executors)
        GO.set()
        assert sorted(collected) == list(range(ROWS))
    wait_until(lambda: stored_files(tmp_path) == [])


@pytest.mark.parametrize("service", [EVERYWHERE], indirect=True)
def test_a_service_at_all_addresses_is_called_pushed_to_and_read_by_the_name_it_gives(
    cluster: MiniCluster, service: ServiceProcess, tmp_path: Path
) -> None:
    assert service.address.startswith("localhost:")
    with program(wait_at_the_first).execute_and_collect() as collected:
        assert READING.wait(30)
        assert stored_files(tmp_path)
        GO.set()
        assert sorted(collected) == list(range(ROWS))


def test_pipelined_edges_do_without_the_service(
    cluster: MiniCluster, service: ServiceProcess, tmp_path: Path
) -> None:
    service.end(signal.SIGKILL)
    GO.set()
    stream = program(wait_at_the_first, BatchShuffleMode.ALL_EXCHANGES_PIPELINED)
    with stream.execute_and_collect() as collected:
        assert sum(collected) == ROWS * (ROWS - 1) // 2
    assert stored_files(tmp_path) == []


def test_a_killed_service_fails_its_jobs_with_its_name_and_finds_its_results_again(
    cluster: MiniCluster, service: ServiceProcess, services: Callable[..., ServiceProcess]
) -> None:
    with program(wait_at_the_first).execute_and_collect() as collected:
        assert READING.wait(30)
        service.end(signal.SIGKILL)
        threading.Timer(3, GO.set).start()
        with pytest.raises(JobExecutionError, match=r"the shuffle service .* is lost"):
            list(collected)
    again = services()
    assert again.found_count == 1
    assert again.end() == 0


def test_a_job_that_may_restart_goes_on_when_its_service_is_back(
    cluster: MiniCluster, service: ServiceProcess, services: Callable[..., ServiceProcess]
) -> None:
    restarts: dict[str, Any] = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "20",
        "restart-strategy.fixed-delay.delay": "500 ms",
    }
    with program(wait_at_the_first, **restarts).execute_and_collect() as collected:
        assert READING.wait(30)
        service.end(signal.SIGKILL)
        GO.set()
        services(service.address.rpartition(":")[2])
        values = list(collected)
    # What was collected before the restart was collected.
    assert set(values) == set(range(ROWS)) and values[-1] == ROWS - 1


def test_a_job_whose_service_is_gone_is_refused_before_anything_is_deployed(
    cluster: MiniCluster, service: ServiceProcess
) -> None:
    service.end(signal.SIGKILL)
    with (
        program(wait_at_the_first).execute_and_collect() as collected,
        pytest.raises(JobExecutionError, match=r"the shuffle service .* is lost"),
    ):
        list(collected)
    assert not READING.is_set()
