"""A cluster with a running and a failed job, as its gateways would describe it, for tests of REST."""

from collections import Counter
from typing import Any

import pyarrow as pa
from msgspec import structs

from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.state_queries import (
    FiguresQuery,
    KeyFigures,
    KeyGroupFigures,
    LiveStateInfo,
    RowsQuery,
    StateFigures,
    StateQuery,
    StateReadResult,
    TimerFigures,
)
from headrace.core.barriers import SavepointFormatType, SnapshotKind
from headrace.core.ids import (
    AllocationId,
    BlobKey,
    ClusterDataSetId,
    IntermediateDataSetId,
    JobId,
    JobVertexId,
    OperatorId,
    ResourceId,
    SlotId,
)
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.process.flame_graph import FlameGraphNode
from headrace.core.process.log_files import LogFile, LogFileNotFoundError, LogPiece
from headrace.core.process.process_profiler import (
    ProfileNotFoundError,
    ProfilerBusyError,
    ProfilingInfo,
    ProfilingMode,
)
from headrace.core.process.stack_sampler import StackSamples
from headrace.core.process.thread_dump import ThreadInfo
from headrace.core.record_batch import stream_bytes
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointCounts,
    CheckpointDetails,
    CheckpointInfo,
    CheckpointOverview,
    CheckpointRecord,
    CheckpointStatistics,
    CheckpointStatus,
    CheckpointSummary,
    StatisticsSummary,
    SubtaskCheckpoint,
    TaskCheckpoint,
    TaskCheckpointDetails,
)
from headrace.gateways.dispatcher import JobOverview, JobResult
from headrace.gateways.errors import (
    BlobCorruptedError,
    DuplicateJobSubmissionError,
    JobAlreadyEndedError,
    UnknownJobError,
    UnknownOperatorError,
    UnknownTaskManagerError,
)
from headrace.gateways.job_master import (
    AttemptDetails,
    ExceptionInfo,
    JobConfiguration,
    JobDetails,
    RootExceptionInfo,
    SubtaskDetails,
    VertexDetails,
)
from headrace.gateways.messages import (
    Acknowledge,
    DataSetInfo,
    ErrorInfo,
    MemoryUsage,
    OperatorDescription,
    StateReadRequest,
    SubtaskState,
)
from headrace.gateways.resource_manager import ResourceOverview, SlotInfo, TaskManagerInfo
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_plan import JobPlan, OperatorNode, PlanInput, PlanNode

RUNNING_JOB = JobId(bytes(range(16)))
FAILED_JOB = JobId(bytes(range(16, 32)))
UNKNOWN_JOB = JobId(b"u" * 16)
SOURCE, COUNTER = JobVertexId(b"s" * 16), JobVertexId(b"c" * 16)
TASK_MANAGER = ResourceId("headrace-tm-1")
START_MS = 1_700_000_000_000
_S = ExecutionState
FAILURE = ErrorInfo(
    "ValueError", "ValueError: no such city (program.py, line 7)", "USER", True, "Traceback …"
)


def metrics_of(index: int) -> dict[str, float]:
    return {
        "numRecordsIn": 100.0 * (index + 1),
        "numRecordsOut": 50.0,
        "numBytesIn": 4096.0,
        "numBytesOut": 2048.0,
        "inPoolUsage": 0.25 * (index + 1),
        "accumulateBusyTimeMs": 900.0,
        "accumulateIdleTimeMs": 50.0,
        "accumulateBackPressuredTimeMs": 50.0,
        "busyTimeMsPerSecond": 300.0,
        "idleTimeMsPerSecond": 100.0,
        "backPressuredTimeMsPerSecond": 600.0 * index,
        "currentInputWatermark": START_MS + 5000.0,
        "Count.numLateRecordsDropped": 3.0,
        "Count.cities": 3.0,
    }


def subtask(index: int, state: ExecutionState = _S.RUNNING) -> SubtaskDetails:
    times = {"CREATED": START_MS, "SCHEDULED": START_MS + 10, "DEPLOYING": START_MS + 20}
    times |= {"INITIALIZING": START_MS + 40, state.name: START_MS + 100}
    earlier = AttemptDetails(
        0, _S.FAILED, TASK_MANAGER, "127.0.0.1:4001", times | {"FAILED": START_MS + 90}, {}, FAILURE
    )
    return SubtaskDetails(
        index,
        1,
        state,
        TASK_MANAGER,
        metrics_of(index),
        endpoint="127.0.0.1:4001",
        timestamps_ms=times,
        earlier_attempts=(earlier,),
        counters=("Count.cities",),
        allocation_id=AllocationId(b"a" * 16),
    )


def vertex(vertex_id: JobVertexId, name: str, state: ExecutionState = _S.RUNNING) -> VertexDetails:
    subtasks = (subtask(0, state), subtask(1, state))
    return VertexDetails(
        vertex_id,
        name,
        2,
        subtasks,
        max_parallelism=128,
        slot_sharing_group="default",
        coordinator_metrics={f"{name}.coordinator.enumerator.unassignedSplits": 7.0}
        if vertex_id == SOURCE
        else {},
    )


def details(job_id: JobId, status: JobStatus) -> JobDetails:
    state = _S.RUNNING if status is JobStatus.RUNNING else _S.FAILED
    root = RootExceptionInfo(
        ExceptionInfo(
            FAILURE, START_MS + 90, "Count (1/2) - execution #0", TASK_MANAGER, "127.0.0.1:4001"
        ),
        (ExceptionInfo(FAILURE, START_MS + 91),),
    )
    return JobDetails(
        job_id,
        "cities",
        status,
        {"CREATED": START_MS, "RUNNING": START_MS + 5, status.name: START_MS + 200},
        (vertex(SOURCE, "Source: cities", state), vertex(COUNTER, "Count", state)),
        exceptions=(
            RootExceptionInfo(ExceptionInfo(FAILURE, START_MS + 50)),
            root,
        ),
        checkpoints=CheckpointOverview(
            latest_completed=CheckpointInfo(
                4, SnapshotKind.CHECKPOINT, START_MS, 20, 30, 30, "/checkpoints/chk-4"
            )
        ),
    )


PLAN = JobPlan(
    RUNNING_JOB,
    "cities",
    "STREAMING",
    (
        PlanNode(SOURCE, "Source: cities", "Source: cities<br/>", 2, 128, "default", (), ()),
        PlanNode(
            COUNTER,
            "Count",
            "Count<br/>+- Sink: print<br/>",
            2,
            128,
            "default",
            (PlanInput(SOURCE, "HASH", "pipelined_bounded"),),
            (OperatorNode(OperatorId(b"o" * 16), "count", "Count"),),
        ),
    ),
)
TASK_CHECKPOINT = TaskCheckpoint(
    COUNTER, CheckpointStatus.COMPLETED, START_MS + 30, 10, 20, 30, 0, 5, 6, 2, 1
)


def checkpoint(checkpoint_id: int, status: CheckpointStatus) -> CheckpointRecord:
    is_failed = status is CheckpointStatus.FAILED
    return CheckpointRecord(
        checkpoint_id,
        SnapshotKind.CHECKPOINT,
        status,
        "",
        START_MS,
        START_MS + 30,
        10,
        20,
        30,
        0,
        5,
        6,
        2,
        1,
        False,
        external_path="file:/checkpoints/chk-3" if status is CheckpointStatus.COMPLETED else "",
        failure_timestamp_ms=START_MS + 99 if is_failed else -1,
        failure_message="the disk is full" if is_failed else "",
    )


COMPLETED = checkpoint(3, CheckpointStatus.COMPLETED)
FAILED = checkpoint(2, CheckpointStatus.FAILED)
STATISTICS = CheckpointStatistics(
    True,
    CheckpointCounts(triggered=3, completed=2, failed=1),
    CheckpointSummary(state_size=StatisticsSummary(20, 20, 20, 20.0, 20.0, 20.0, 20.0, 20.0)),
    latest_completed=COMPLETED,
    latest_failed=FAILED,
    history=(COMPLETED, FAILED),
)
CHECKPOINT_DETAILS = CheckpointDetails(
    COMPLETED,
    (
        TaskCheckpointDetails(
            TASK_CHECKPOINT,
            (SubtaskCheckpoint(1, START_MS + 30, 30, 10, 20, 2, 8, 3, start_delay_ms=1),),
        ),
    ),
)
CHECKPOINT_CONFIGURATION = CheckpointConfiguration(
    True, "EXACTLY_ONCE", 1000, 600_000, 0, 1, True, True,
    "HashMapStateBackend", "FileSystemCheckpointStorage", False, 0, 0, True,
)  # fmt: skip


OPERATOR = OperatorDescription(OperatorId(b"o" * 16), "count", "Count", "Count", 2, 128)
LIVE_STATE = LiveStateInfo(StateTable.KEYED, "count", "value", ("value",))
LIVE_TIMERS = LiveStateInfo(StateTable.TIMERS, "timers")


def subtask_state(index: int, query: StateQuery) -> SubtaskState:
    """Answer as the subtask would: it has two keys, of which the values are pickles."""
    result = StateReadResult(START_MS + index, START_MS - 1_000, (LIVE_STATE, LIVE_TIMERS))
    if isinstance(query, RowsQuery):
        is_found = (query.table, query.state) == (StateTable.KEYED, "count")
        rows = pa.table(
            {"key_group": [index, index], "key": [index, 10 + index], "value": [b"a", b"b"]}
        )
        pieces = (stream_bytes(rows.schema, [rows]),) if is_found else ()
        result = structs.replace(result, is_found=is_found, pieces=pieces, row_count=2)
    if isinstance(query, FiguresQuery):
        groups = (KeyGroupFigures(index, 2, 100 * (index + 1)),)
        keys = (KeyFigures(f"{index}", 1, 60),)
        due = TimerFigures("event", START_MS, START_MS + 500, (0, 1, 0, 0, 0, 0, 0, 0))
        figures = (
            StateFigures(StateTable.KEYED, "count", 2, 100 * (index + 1), groups, keys),
            StateFigures(StateTable.TIMERS, "timers", 1, 20, timers=(due,)),
        )
        result = structs.replace(result, figures=figures)
    return SubtaskState(0, str(TASK_MANAGER), result)


class SampleDispatcher:
    """Answers as a Dispatcher would; `calls` counts the calls of each method."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.cancelled: list[JobId] = []
        self.heartbeats: list[tuple[JobId, int]] = []
        self.submitted: list[JobGraph] = []
        self.full_checkpoints: list[bool] = []
        self.savepoints: list[tuple[str, str]] = []
        self.savepoint_formats: list[SavepointFormatType] = []
        self.failure: Exception | None = None
        self.read_failure: Exception | None = None
        self.statistics = STATISTICS
        self.settings = {"s3.secret-key": "******"}
        self.is_shut_down = False

    def _job(self, method: str, job_id: JobId) -> JobStatus:
        self.calls[method] = self.calls.get(method, 0) + 1
        if self.failure is not None:
            raise self.failure
        if job_id == RUNNING_JOB:
            return JobStatus.RUNNING
        if job_id == FAILED_JOB:
            return JobStatus.FAILED
        raise UnknownJobError(str(job_id))

    async def list_jobs(self) -> tuple[JobOverview, ...]:
        self.calls["list_jobs"] = self.calls.get("list_jobs", 0) + 1
        return (
            JobOverview(
                RUNNING_JOB,
                "cities",
                JobStatus.RUNNING,
                START_MS,
                -1,
                START_MS + 100,
                tasks={"RUNNING": 4},
            ),
            JobOverview(
                FAILED_JOB,
                "cities",
                JobStatus.FAILED,
                START_MS,
                START_MS + 200,
                START_MS + 200,
                tasks={"FAILED": 4},
            ),
        )

    async def request_job_status(self, job_id: JobId) -> JobStatus:
        return self._job("request_job_status", job_id)

    async def request_job_details(self, job_id: JobId, metrics_age_max_ms: int = 0) -> JobDetails:
        return details(job_id, self._job("request_job_details", job_id))

    async def request_job_plan(self, job_id: JobId) -> JobPlan:
        self._job("request_job_plan", job_id)
        return PLAN

    async def request_job_configuration(self, job_id: JobId) -> JobConfiguration:
        self._job("request_job_configuration", job_id)
        return JobConfiguration(self.settings, "No restart strategy", 2, False, {"year": "2013"})

    async def request_accumulators(self, job_id: JobId) -> dict[str, float]:
        self._job("request_accumulators", job_id)
        return {"Count.cities": 7.0}

    async def request_job_result(self, job_id: JobId) -> JobResult:
        status = self._job("request_job_result", job_id)
        return JobResult(job_id, "cities", status, 200, {"Count.cities": 7.0}, FAILURE)

    async def request_checkpoint_statistics(self, job_id: JobId) -> CheckpointStatistics:
        self._job("request_checkpoint_statistics", job_id)
        return self.statistics

    async def request_checkpoint_details(
        self, job_id: JobId, checkpoint_id: int
    ) -> CheckpointDetails | None:
        self._job("request_checkpoint_details", job_id)
        return CHECKPOINT_DETAILS if checkpoint_id == 3 else None

    async def request_operators(self, job_id: JobId) -> tuple[OperatorDescription, ...]:
        self._running("request_operators", job_id)
        return (OPERATOR,)

    async def request_operator(self, job_id: JobId, named: str) -> OperatorDescription:
        self._running("request_operator", job_id)
        if named not in (OPERATOR.operator_id.hex(), OPERATOR.uid, OPERATOR.name):
            raise UnknownOperatorError(named, OPERATOR.uid)
        return OPERATOR

    async def read_state(self, job_id: JobId, request: StateReadRequest) -> SubtaskState:
        self._running("read_state", job_id)
        if self.read_failure is not None:
            raise self.read_failure
        return subtask_state(request.subtask_index, request.query)

    def _running(self, method: str, job_id: JobId) -> None:
        status = self._job(method, job_id)
        if status is not JobStatus.RUNNING:
            raise JobAlreadyEndedError(str(job_id), status.name)

    async def request_checkpoint_configuration(self, job_id: JobId) -> CheckpointConfiguration:
        self._job("request_checkpoint_configuration", job_id)
        return CHECKPOINT_CONFIGURATION

    async def cancel_job(self, job_id: JobId, is_forced: bool = False) -> Acknowledge:
        status = self._job("cancel_job", job_id)
        if status is JobStatus.FAILED:
            raise JobAlreadyEndedError(str(job_id), status.name)
        self.cancelled.append(job_id)
        return Acknowledge()

    async def report_client_heartbeat(
        self, job_id: JobId, expired_timestamp_ms: int
    ) -> Acknowledge:
        self._job("report_client_heartbeat", job_id)
        self.heartbeats.append((job_id, expired_timestamp_ms))
        return Acknowledge()

    async def trigger_savepoint(
        self,
        job_id: JobId,
        target_directory: str,
        format_type: SavepointFormatType,
    ) -> str:
        self._job("trigger_savepoint", job_id)
        self.savepoints.append(("savepoint", target_directory))
        self.savepoint_formats.append(format_type)
        return f"file:{target_directory}/savepoint-000102-0123456789ab"

    async def stop_with_savepoint(
        self,
        job_id: JobId,
        target_directory: str,
        is_drained: bool,
        format_type: SavepointFormatType,
    ) -> str:
        self._job("stop_with_savepoint", job_id)
        self.savepoints.append(("drain" if is_drained else "stop", target_directory))
        self.savepoint_formats.append(format_type)
        return f"file:{target_directory}/savepoint-000102-0123456789ab"

    async def trigger_checkpoint(self, job_id: JobId, is_full: bool = False) -> int:
        self.full_checkpoints.append(is_full)
        self._job("trigger_checkpoint", job_id)
        return 4

    async def submit_job(self, graph: JobGraph) -> Acknowledge:
        if graph.job_id == RUNNING_JOB:
            raise DuplicateJobSubmissionError(str(graph.job_id), "RUNNING")
        self.submitted.append(graph)
        return Acknowledge()

    async def shut_down_cluster(self) -> Acknowledge:
        self.is_shut_down = True
        return Acknowledge()


class SampleBlobServer:
    """Keeps chunks as a BlobServer would, and compares the whole with its key."""

    def __init__(self) -> None:
        self.blobs: dict[BlobKey, bytes] = {}
        self.chunk_sizes: list[int] = []

    async def put_chunk(self, job_id: JobId, key: BlobKey, offset: int, chunk: bytes) -> int:
        there = self.blobs.get(key, b"")
        if offset == len(there):
            self.chunk_sizes.append(len(chunk))
            there = self.blobs[key] = there + chunk
        if len(there) >= key.size_bytes and BlobKey.of(there) != key:
            del self.blobs[key]
            raise BlobCorruptedError(str(job_id), str(key))
        return len(there)


class SampleResourceManager:
    """Answers as a ResourceManager with one TaskManager would; `calls` counts those of what dashboards poll."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.log = b"line\n" * 3
        self.info = TASK_MANAGER_INFO
        self.profiles: tuple[ProfilingInfo, ...] = ()
        self.released: list[ClusterDataSetId] = []

    def _known(self, resource_id: ResourceId) -> None:
        if resource_id != TASK_MANAGER:
            raise UnknownTaskManagerError(str(resource_id))

    async def request_resource_overview(self) -> ResourceOverview:
        self.calls["request_resource_overview"] += 1
        return ResourceOverview((self.info,), 0)

    async def request_task_manager_details(self, resource_id: ResourceId) -> TaskManagerInfo:
        self.calls["request_task_manager_details"] += 1
        self._known(resource_id)
        return self.info

    async def request_task_manager_metrics(self, resource_id: ResourceId) -> dict[str, float]:
        self.calls["request_task_manager_metrics"] += 1
        self._known(resource_id)
        return {
            "Status.JVM.Memory.Heap.Used": 123.0,
            "Status.JVM.Memory.Heap.Max": 456.0,
            "Status.JVM.Memory.NonHeap.Used": 34.0,
            "Status.JVM.Memory.NonHeap.Committed": 56.0,
            "Status.JVM.Memory.NonHeap.Max": -1.0,
            "Status.JVM.Memory.Direct.MemoryUsed": 34.0,
            "Status.JVM.Memory.Direct.TotalCapacity": 56.0,
        }

    async def request_task_manager_log_files(self, resource_id: ResourceId) -> tuple[LogFile, ...]:
        self._known(resource_id)
        return (LogFile(LOG_NAME, len(self.log), START_MS),)

    async def read_task_manager_log_file(
        self, resource_id: ResourceId, name: str, offset: int, max_bytes: int
    ) -> LogPiece:
        self._known(resource_id)
        content = {LOG_NAME: self.log, OUT_NAME: b"said\n"}.get(name)
        if content is None:
            raise LogFileNotFoundError(name)
        return LogPiece(offset, len(content), content[offset : offset + min(max_bytes, 4)])

    async def request_task_manager_thread_dump(
        self, resource_id: ResourceId
    ) -> tuple[ThreadInfo, ...]:
        self._known(resource_id)
        return (ThreadInfo("headrace-task", "process_element"),)

    async def request_task_manager_profiling(
        self, resource_id: ResourceId, mode: ProfilingMode, duration_s: int
    ) -> ProfilingInfo:
        self._known(resource_id)
        if self.profiles:
            raise ProfilerBusyError(str(resource_id))
        self.profiles = (ProfilingInfo(mode, duration_s, START_MS),)
        return self.profiles[0]

    async def request_task_manager_profiling_list(
        self, resource_id: ResourceId
    ) -> tuple[ProfilingInfo, ...]:
        self._known(resource_id)
        return self.profiles

    async def request_task_manager_profile(
        self, resource_id: ResourceId, file_name: str
    ) -> FlameGraphNode:
        self._known(resource_id)
        if file_name not in [each.file_name for each in self.profiles]:
            raise ProfileNotFoundError(file_name)
        return FlameGraphNode("root", 3, (FlameGraphNode("<map>", 3),))

    async def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        self.calls["list_data_sets"] += 1
        return (DataSetInfo(ClusterDataSetId(RUNNING_JOB, IntermediateDataSetId(b"d" * 16)), 2, 2),)

    async def release_cluster_partitions(self, data_set: ClusterDataSetId) -> Acknowledge:
        self.released.append(data_set)
        return Acknowledge()

    async def request_vertex_stack_samples(
        self,
        job_id: JobId,
        vertex_id: JobVertexId,
        subtask_index: int | None,
        sample_count: int,
        delay_ms: int,
        depth_max: int,
    ) -> StackSamples:
        leaf = FlameGraphNode("program.f:7", 3, ())
        return StackSamples(START_MS, START_MS + 5, 3, (0, 1), FlameGraphNode("root", 3, (leaf,)))


LOG_NAME = "taskmanager-headrace-tm-1.log"
OUT_NAME = "taskmanager-headrace-tm-1.out"
TASK_MANAGER_INFO = TaskManagerInfo(
    TASK_MANAGER,
    "headrace.tcp://127.0.0.1:4000/rpc/taskmanager",
    TaskManagerLocation(TASK_MANAGER, "127.0.0.1", 4001, None, "host"),
    2,
    1,
    99,
    MemoryUsage(100 << 20, 1 << 30),
    last_heartbeat_ms=START_MS,
    data_port=4001,
    host="127.0.0.1",
    cpu_cores=1.0,
    physical_memory_bytes=8 << 30,
    free_memory_bytes=900 << 20,
    slots=(
        SlotInfo(SlotId(TASK_MANAGER, 0), AllocationId(b"a" * 16), RUNNING_JOB),
        SlotInfo(SlotId(TASK_MANAGER, 1)),
    ),
)


def described(value: Any) -> Any:
    """Return the shape of a JSON value: names of fields, and types in the place of values."""
    match value:
        case dict():
            return {key: described(each) for key, each in value.items()}
        case list():
            return [described(value[0])] if value else []
        case None | bool() | str() | int() | float():
            return (
                "number"
                if isinstance(value, (int, float)) and not isinstance(value, bool)
                else type(value).__name__
            )
    raise AssertionError(value)
