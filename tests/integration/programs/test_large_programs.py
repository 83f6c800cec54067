"""Programs whose functions, collections and results are larger than a message, by reference, encoded, and over TCP."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.api.client.job_client import JobClient
from headrace.api.executors import set_active_executor
from headrace.cluster.blob.blob_client import prepare, submit_job
from headrace.cluster.blob.blob_files import BlobFiles
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.cluster.entrypoint import ClusterEntrypoint
from headrace.cluster.minicluster import MiniCluster
from headrace.cluster.resource_manager.driver import WorkerListener
from headrace.cluster.task_executor.options import TaskManagerConfiguration
from headrace.cluster.task_executor.task_manager_runner import EndRequest, run_task_manager
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import JobExecutionError
from headrace.core.ids import ClusterDataSetId, ResourceId
from headrace.core.randomness import secret_token, system_random
from headrace.core.resource_profile import ResourceProfile
from headrace.core.threads import EventLoopThread, start_thread
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.dispatcher import DispatcherGateway
from headrace.gateways.errors import BlobStorageError
from headrace.gateways.messages import DataSetInfo
from headrace.graph.job_graph import JobGraph
from headrace.rpc.proxies import gateway_address
from headrace.rpc.tcp import TcpRpcService

FRAME_BYTES = 10 << 20
ARRAY = np.arange(30_000_000 // 8, dtype=np.float64)
FORCED = {"pekko.rpc.force-invocation-serialization": "true"}


class HandleExecutor:
    """Runs jobs on a cluster that is there."""

    name = "handle"

    def __init__(self, handle: ClusterHandle) -> None:
        self.handle = handle

    def submit(self, job_graph: JobGraph) -> JobClient:
        self.handle.submit(job_graph)
        return JobClient(job_graph.job_id, self.handle.dispatcher, self.handle.loop)

    def default_parallelism(self) -> int:
        return 2

    def known_parallelism(self) -> int:
        return self.default_parallelism()

    def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        return ()

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        raise AssertionError("nothing is kept here")

    def close(self) -> None:
        pass


class ThreadDriver:
    """Hosts TaskManagers in threads, each with its own sockets. Implements ResourceManagerDriver."""

    max_worker_count = 2

    def __init__(self, settings: Settings, secret: bytes) -> None:
        self._settings, self._secret = settings, secret
        self.handle: ClusterHandle | None = None
        self._stops: dict[ResourceId, EndRequest] = {}
        self._threads: list[threading.Thread] = []
        self._listener: WorkerListener | None = None

    def initialize(self, listener: WorkerListener) -> None:
        self._listener = listener

    def request_worker(self, worker_id: ResourceId, profile: ResourceProfile) -> None:
        stop = self._stops[worker_id] = EndRequest()
        self._threads.append(start_thread(str(worker_id), lambda: self._host(worker_id, stop)))

    def release_worker(self, worker_id: ResourceId) -> None:
        self._stops[worker_id].set()

    async def close(self) -> None:
        for stop in self._stops.values():
            stop.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(20)

    def _host(self, worker_id: ResourceId, stop: EndRequest) -> None:
        assert self.handle is not None and self._listener is not None
        configuration = TaskManagerConfiguration(
            resource_id=worker_id,
            leader_retrieval_address=self.handle.leader_retrieval_address,
            secret=self._secret,
            settings=self._settings.to_dict(),
        )
        self._listener.worker_started(worker_id)
        run_task_manager(configuration, should_stop=stop, exit_process=lambda reason: None)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all processes of all clusters of this file keep their blobs."""
    return tmp_path_factory.mktemp("blobs")


@pytest.fixture(scope="module", params=["by reference", "encoded", "over TCP"])
def handle(request: pytest.FixtureRequest, directory: Path) -> Iterator[ClusterHandle]:
    settings = {"blob.storage.directory": str(directory)}
    if request.param != "over TCP":
        forced = FORCED if request.param == "encoded" else {}
        with MiniCluster(task_manager_count=2, settings={**settings, **forced}) as cluster:
            yield cluster.handle
        return
    secret = secret_token()
    driver = ThreadDriver(Settings({**settings, **FORCED}), secret)
    entrypoint = ClusterEntrypoint(
        Settings({**settings, **FORCED}),
        driver,
        {},
        secret,
        "127.0.0.1",
        "127.0.0.1",
        SystemClock(),
        system_random(),
    )
    handle = driver.handle = entrypoint.start()
    try:
        yield handle
    finally:
        handle.close()
        driver.join()


@pytest.fixture
def env(handle: ClusterHandle) -> Iterator[StreamExecutionEnvironment]:
    set_active_executor(HandleExecutor(handle))
    try:
        yield StreamExecutionEnvironment.get_execution_environment()
    finally:
        set_active_executor(None)


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the blobs whose first chunk was fetched."""
    sizes: list[int] = []
    read = BlobFiles.read

    def counted(self: BlobFiles, job_id: Any, key: Any, offset: int, size: int) -> bytes:
        if offset == 0:
            sizes.append(key.size_bytes)
        return read(self, job_id, key, offset, size)

    monkeypatch.setattr(BlobFiles, "read", counted)
    return sizes


def server_files(handle: ClusterHandle) -> list[Path]:
    directory = handle._cluster.blob_server.directory
    return [] if directory is None else [p for p in directory.rglob("*") if p.is_file()]


def test_a_collection_of_two_million_numbers_runs(
    env: StreamExecutionEnvironment, handle: ClusterHandle, fetches: list[int]
) -> None:
    env.set_parallelism(1)
    numbers = env.from_collection(range(2_000_000), Types.LONG())
    with numbers.map_batches(
        total, output_type=Types.ROW_NAMED(["s"], [Types.LONG()])
    ).execute_and_collect() as sums:
        assert sum(row[0] for row in sums) == 1_999_999_000_000
    (size,) = fetches
    assert size > FRAME_BYTES
    assert server_files(handle) == [], "the files end with the job"


def total(batch: Any) -> Any:
    return pa.RecordBatch.from_pydict({"s": [pc.sum(batch.column(0)).as_py()]})


def test_a_function_that_captures_thirty_megabytes_is_fetched_once_per_task_manager(
    env: StreamExecutionEnvironment, handle: ClusterHandle, fetches: list[int]
) -> None:
    env.set_parallelism(2)
    array = ARRAY.copy()
    numbers = env.from_collection(list(range(10)), Types.INT()).rebalance()
    doubled = numbers.map(lambda i: float(array[i * 1000]), output_type=Types.DOUBLE())
    with doubled.execute_and_collect() as rows:
        assert sorted(rows) == [i * 1000.0 for i in range(10)]
    assert len(fetches) == 2, "two TaskManagers of one slot"
    assert min(fetches) > 30_000_000
    assert server_files(handle) == []


def test_a_row_larger_than_a_message_is_collected(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(1)
    lengths = env.from_collection([5, 12_000_000], Types.INT())
    with lengths.map(lambda n: "x" * n, output_type=Types.STRING()).execute_and_collect() as rows:
        assert [len(row) for row in rows] == [5, 12_000_000]


def test_an_error_larger_than_a_message_fails_the_job_with_its_beginning_and_end(
    env: StreamExecutionEnvironment,
) -> None:
    def fail(value: int) -> int:
        raise ValueError("begins " + "x" * 12_000_000 + " ends")

    env.set_parallelism(1)
    env.from_collection([1], Types.INT()).map(fail, output_type=Types.INT()).print()
    with pytest.raises(JobExecutionError, match=r"^ValueError: begins xxx") as raised:
        env.execute("a long error")
    assert "ends" in str(raised.value)
    assert len(str(raised.value)) < 1_000_000


def test_a_big_partitioner_travels_too(env: StreamExecutionEnvironment, fetches: list[int]) -> None:
    env.set_parallelism(2)
    array = ARRAY.copy()
    numbers = env.from_collection(list(range(20)), Types.INT())
    parted = numbers.partition_custom(lambda key, n: int(array[key]) % n, lambda x: x)
    with parted.map(lambda x: x, output_type=Types.INT()).execute_and_collect() as rows:
        assert sorted(rows) == list(range(20))
    assert fetches


def test_a_client_in_another_process_brings_its_payloads_itself() -> None:
    """The remote road: nothing of the cluster's objects, only addresses, tokens and the secret."""
    settings, secret = Settings(FORCED), secret_token()
    driver = ThreadDriver(settings, secret)
    entrypoint = ClusterEntrypoint(
        settings, driver, {}, secret, "127.0.0.1", "127.0.0.1", SystemClock(), system_random()
    )
    handle = driver.handle = entrypoint.start()
    try:
        env = StreamExecutionEnvironment.get_execution_environment()
        client = RemoteClient(handle, settings, secret)
        set_active_executor(client)
        with (
            env.from_collection(range(2_000_000), Types.LONG())
            .filter(lambda x: x % 500_000 == 0)
            .execute_and_collect() as rows
        ):
            assert list(rows) == [0, 500_000, 1_000_000, 1_500_000]
        client.close()
    finally:
        set_active_executor(None)
        handle.close()
        driver.join()


class RemoteClient:
    """Submits over its own RpcService."""

    name = "remote"

    def __init__(self, handle: ClusterHandle, settings: Settings, secret: bytes) -> None:
        self._control = EventLoopThread("client")
        self._settings = settings

        async def connect() -> TcpRpcService:
            service = TcpRpcService(
                settings,
                bind_host="127.0.0.1",
                secret=secret,
                clock=SystemClock(),
                random=system_random(),
            )
            await service.start()
            return service

        self._service = self._control.run(connect())
        self._blob_address = gateway_address(handle.blob_server)
        dispatcher = handle._cluster.dispatcher  # pyright: ignore[reportPrivateUsage]
        self._dispatcher: DispatcherGateway = self._control.run(
            self._service.connect(dispatcher.address, DispatcherGateway, dispatcher.fencing_token)
        )

    def submit(self, job_graph: JobGraph) -> JobClient:
        job = prepare(job_graph, self._settings)

        async def submit() -> None:
            blob_server = await self._service.connect(self._blob_address, BlobServerGateway)
            await submit_job(job, self._dispatcher, blob_server, self._settings)

        self._control.run(submit())
        return JobClient(job_graph.job_id, self._dispatcher, self._control.loop)

    def default_parallelism(self) -> int:
        return 1

    def known_parallelism(self) -> int:
        return self.default_parallelism()

    def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        return ()

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        raise AssertionError("nothing is kept here")

    def close(self) -> None:
        self._control.run(self._service.stop())
        self._control.stop()


def test_two_slots_of_one_task_manager_share_one_fetch(fetches: list[int]) -> None:
    with MiniCluster(task_manager_count=1, slots_per_task_manager=2, settings=FORCED) as cluster:
        set_active_executor(HandleExecutor(cluster.handle))
        try:
            env = StreamExecutionEnvironment.get_execution_environment()
            env.set_parallelism(2)
            array = ARRAY.copy()
            numbers = env.from_collection([1, 2, 3, 4], Types.INT()).rebalance()
            with numbers.map(
                lambda i: float(array[i]), output_type=Types.DOUBLE()
            ).execute_and_collect() as rows:
                assert sorted(rows) == [1.0, 2.0, 3.0, 4.0]
        finally:
            set_active_executor(None)
    assert len(fetches) == 1


def test_a_blob_that_no_task_manager_can_keep_fails_the_job_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append = BlobFiles.append

    def full(self: BlobFiles, job_id: Any, key: Any, offset: int, chunk: bytes) -> None:
        if uploaded.is_set():
            raise BlobStorageError("the disk is full (0 kB free); make room there")
        append(self, job_id, key, offset, chunk)

    uploaded = threading.Event()
    monkeypatch.setattr(BlobFiles, "append", full)
    with MiniCluster(task_manager_count=1) as cluster:
        set_active_executor(HandleExecutor(cluster.handle))
        try:
            env = StreamExecutionEnvironment.get_execution_environment()
            env.set_parallelism(1)
            complete = BlobFiles.complete

            def completed(self: BlobFiles, job_id: Any, key: Any) -> None:
                complete(self, job_id, key)
                uploaded.set()

            monkeypatch.setattr(BlobFiles, "complete", completed)
            env.from_collection(range(2_000_000), Types.LONG()).print()
            with pytest.raises(JobExecutionError) as raised:
                env.execute("too big here")
        finally:
            set_active_executor(None)
    first_line = str(raised.value).partition("\n")[0]
    assert "job 'too big here'" in first_line
    assert "16." in first_line and "could not be fetched" in first_line
    assert "the disk is full" in first_line and "make room there" in first_line
