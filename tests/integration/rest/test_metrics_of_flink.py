"""A real job, and the processes that run it, have the metrics over REST that Flink's dashboards and operators read.

The others are in docs/metrics_reporters.md, "What is not there": memory of a JVM alone, and bytes of single operators.
"""

import time
from collections.abc import Iterator

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.functions.watermarks import TimestampAssigner
from headrace.rest.client import RestClient
from headrace.rest.home.connections import find_connection
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.rest.counting_program import (
    SETTINGS,
    Program,
    await_running,
    completed,
    vertices,
)

pytestmark = pytest.mark.integration

OF_JOB = """
uptime downtime runningTime restartingTime cancellingTime failingTime createdTime deployingTime initializingTime
allSubTasksRunningOrFinishedTime numRestarts numRescales lastCheckpointSize lastCheckpointFullSize
lastCheckpointMetadataSize lastCheckpointDuration lastCheckpointExternalPath lastCheckpointProcessedData
lastCheckpointPersistedData lastCheckpointRestoreTimestamp lastCheckpointCompletedTimestamp lastCompletedCheckpointId
numberOfCompletedCheckpoints numberOfFailedCheckpoints numberOfInProgressCheckpoints totalNumberOfCheckpoints
"""
OF_TASK = """
numRecordsIn numRecordsInPerSecond numRecordsOut numRecordsOutPerSecond numBytesIn numBytesInPerSecond numBytesOut
numBytesOutPerSecond numBytesInLocal numBytesInLocalPerSecond numBytesInRemote numBytesInRemotePerSecond numBuffersOut
numBuffersOutPerSecond numBuffersInLocal numBuffersInLocalPerSecond numBuffersInRemote numBuffersInRemotePerSecond
busyTimeMsPerSecond idleTimeMsPerSecond backPressuredTimeMsPerSecond softBackPressuredTimeMsPerSecond
hardBackPressuredTimeMsPerSecond maxSoftBackPressureTimeMs maxHardBackPressureTimeMs isBackPressured
accumulateBusyTimeMs accumulateIdleTimeMs accumulateBackPressuredTimeMs checkpointStartDelayNanos
initializationTime mailboxMailsPerSecond mailboxQueueSize mailboxLatencyMs_min
mailboxLatencyMs_max mailboxLatencyMs_mean mailboxLatencyMs_median mailboxLatencyMs_stddev mailboxLatencyMs_p75
mailboxLatencyMs_p90 mailboxLatencyMs_p95 mailboxLatencyMs_p98 mailboxLatencyMs_p99 mailboxLatencyMs_p999
Shuffle.Netty.Input.numBytesInLocal Shuffle.Netty.Input.numBytesInLocalPerSecond Shuffle.Netty.Input.numBytesInRemote
Shuffle.Netty.Input.numBytesInRemotePerSecond Shuffle.Netty.Input.numBuffersInLocal
Shuffle.Netty.Input.numBuffersInLocalPerSecond Shuffle.Netty.Input.numBuffersInRemote
Shuffle.Netty.Input.numBuffersInRemotePerSecond Shuffle.Netty.Input.Buffers.inputQueueLength
Shuffle.Netty.Input.Buffers.inputQueueSize Shuffle.Netty.Input.Buffers.inPoolUsage
Shuffle.Netty.Input.Buffers.inputFloatingBuffersUsage Shuffle.Netty.Input.Buffers.inputExclusiveBuffersUsage
Shuffle.Netty.Output.Buffers.outputQueueLength Shuffle.Netty.Output.Buffers.outputQueueSize
Shuffle.Netty.Output.Buffers.outPoolUsage
"""
NOT_OF_SOURCES = "checkpointAlignmentTime numFiredTimers numFiredTimersPerSecond"
OF_OPERATOR = "numRecordsIn numRecordsInPerSecond numRecordsOut numRecordsOutPerSecond"
OF_SOURCE = f"{OF_OPERATOR} numRecordsInErrors sourceIdleTime"
OF_TIMED_SOURCE = f"{OF_SOURCE} currentEmitEventTimeLag watermarkLag pendingRecords"
OF_JOB_MANAGER = "numRegisteredTaskManagers numRunningJobs taskSlotsAvailable taskSlotsTotal"
OF_PROCESS = """
CPU.Load CPU.Time Memory.Heap.Used Memory.Heap.Committed Memory.Heap.Max Memory.NonHeap.Used Memory.NonHeap.Committed
Memory.NonHeap.Max Memory.Direct.MemoryUsed Memory.Direct.TotalCapacity Threads.Count ClassLoader.ClassesLoaded
FileDescriptor.Open FileDescriptor.Max GarbageCollector.All.Count GarbageCollector.All.Time
GarbageCollector.All.TimeMsPerSecond
"""
OF_TASK_MANAGER = """
Status.Flink.Memory.Managed.Used Status.Flink.Memory.Managed.Total Status.Shuffle.Netty.TotalMemory
Status.Shuffle.Netty.AvailableMemory Status.Shuffle.Netty.UsedMemory Status.Shuffle.Netty.RequestedMemoryUsage
Status.Shuffle.Netty.TotalMemorySegments Status.Shuffle.Netty.AvailableMemorySegments
Status.Shuffle.Netty.UsedMemorySegments
"""


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(tmp_path_factory.mktemp("home")))
        with MiniClusterExecutor(slot_count=4, settings=SETTINGS):
            yield RestClient.of(find_connection(None, print))


@pytest.fixture(scope="module")
def job(rest: RestClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The path of a running job that has counted numbers and taken a checkpoint."""
    program = Program("metrics of Flink", tmp_path_factory.mktemp("job"))
    await_running(rest, program.job)
    program.gate.open_to(100)
    wait_until(lambda: vertices(rest, program.job)[-1]["metrics"]["read-records"] == 100)
    trigger = rest.post(f"{program.job}/checkpoints", {})["request-id"]
    completed(rest, f"{program.job}/checkpoints/{trigger}")
    yield program.job
    rest.patch(program.job, mode="cancel")
    wait_until(lambda: rest.get(f"{program.job}/status")["status"] == "CANCELED")


class SecondsAfterBegin(TimestampAssigner):
    """The time of a number: so many seconds after 1970 began."""

    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value * 1_000


def missing(rest: RestClient, path: str, wanted: str, prefix: str = "") -> set[str]:
    names = {one["id"] for one in rest.get(f"{path}/metrics")}
    return {prefix + name for name in wanted.split()} - names


def test_a_job_has_flinks_metrics(rest: RestClient, job: str) -> None:
    assert missing(rest, job, OF_JOB) == set()


def test_tasks_have_flinks_metrics(rest: RestClient, job: str) -> None:
    source, counter = (f"{job}/vertices/{one['id']}" for one in vertices(rest, job))
    assert missing(rest, source, OF_TASK, "1.") == set()
    assert missing(rest, counter, OF_TASK + NOT_OF_SOURCES, "1.") == set()
    assert missing(rest, f"{counter}/subtasks/1", OF_TASK + NOT_OF_SOURCES) == set()
    assert missing(rest, f"{counter}/subtasks", OF_TASK + NOT_OF_SOURCES) == set()


def test_operators_have_flinks_metrics(rest: RestClient, job: str) -> None:
    source, counter = (f"{job}/vertices/{one['id']}" for one in vertices(rest, job))
    assert missing(rest, counter, OF_OPERATOR, "0.KEYED_PROCESS.") == set()
    assert missing(rest, source, OF_SOURCE, "0.Source__numbers.") == set()


def test_a_source_with_event_time_and_a_known_end_tells_its_lag_and_what_is_pending(
    rest: RestClient,
) -> None:
    GATES["timed"] = gate = Gate(0)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    in_order = WatermarkStrategy.for_monotonous_timestamps()
    strategy = in_order.with_timestamp_assigner(SecondsAfterBegin())
    numbers = env.from_source(GatedSource("timed", 400), strategy, "timed", Types.LONG())
    numbers.key_by(lambda n: n % 4, key_type=Types.LONG()).reduce(max).print()
    client = env.execute_async("timed")
    path = f"/jobs/{client.get_job_id()}"
    await_running(rest, path)
    source = f"{path}/vertices/{vertices(rest, path)[0]['id']}"

    def figures(subtask: int) -> dict[str, float]:
        wanted = [f"{subtask}.Source__timed.{name}" for name in OF_TIMED_SOURCE.split()]
        found = rest.get(f"{source}/metrics", get=",".join(wanted))
        return {one["id"].rpartition(".")[2]: float(one["value"]) for one in found}

    def read(count: int) -> None:
        wait_until(lambda: all(figures(subtask)["numRecordsOut"] == count for subtask in (0, 1)))

    assert missing(rest, source, OF_SOURCE + " pendingRecords", "1.Source__timed.") == set()
    assert [figures(subtask)["pendingRecords"] for subtask in (0, 1)] == [200, 200]
    assert "currentEmitEventTimeLag" not in figures(0), "no record has a time yet"
    for limit in (100, 300):
        before_ms = time.time_ns() // 1_000_000
        gate.open_to(limit)
        read(limit // 2)
        after_ms = time.time_ns() // 1_000_000
        # A watermark follows after the interval of watermarks.
        wait_until(lambda: not missing(rest, source, OF_TIMED_SOURCE, "1.Source__timed."))
        for subtask, newest in enumerate((limit - 2, limit - 1)):
            found = figures(subtask)
            assert found["pendingRecords"] == 200 - limit // 2
            lag_ms = found["currentEmitEventTimeLag"]
            assert before_ms <= lag_ms + newest * 1_000 <= after_ms
    gate.open_to(400)
    assert client.get_job_execution_result().result(60).get_job_id() == client.get_job_id()


def test_processes_have_flinks_metrics(rest: RestClient, job: str) -> None:
    (manager, *_) = rest.get("/taskmanagers")["taskmanagers"]
    of_process = " ".join(f"Status.JVM.{name}" for name in OF_PROCESS.split())
    assert missing(rest, "/jobmanager", f"{OF_JOB_MANAGER} {of_process}") == set()
    path = f"/taskmanagers/{manager['id']}"
    assert missing(rest, path, f"{OF_TASK_MANAGER} {of_process}") == set()
