"""A real job, and the processes that run it, have the metrics over REST that Flink's dashboards and operators read.

The others are in docs/metrics_reporters.md, "What is not there": memory of a JVM alone, bytes of single operators, and
figures of event time where a job has none, as this one.
"""

from collections.abc import Iterator

import pytest

from headrace.rest.client import RestClient
from headrace.rest.connections import find_connection
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
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
        with MiniClusterExecutor(slot_count=2, settings=SETTINGS):
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


def test_processes_have_flinks_metrics(rest: RestClient, job: str) -> None:
    (manager, *_) = rest.get("/taskmanagers")["taskmanagers"]
    of_process = " ".join(f"Status.JVM.{name}" for name in OF_PROCESS.split())
    assert missing(rest, "/jobmanager", f"{OF_JOB_MANAGER} {of_process}") == set()
    path = f"/taskmanagers/{manager['id']}"
    assert missing(rest, path, f"{OF_TASK_MANAGER} {of_process}") == set()
