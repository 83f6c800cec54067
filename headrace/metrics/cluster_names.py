"""Names of metrics of processes, of the cluster and of its jobs; those of tasks are in `names`.

Names are Flink's, even if they mention a JVM, so that Flink's dashboards find them.
"""

from typing import Final

from headrace.metrics.metric_name import MetricKind, MetricName, MetricScope, MetricTable

_table: Final = MetricTable()
_row = _table.row
_G = MetricKind.GAUGE
_PROCESS, _CLUSTER, _JOB = MetricScope.PROCESS, MetricScope.CLUSTER, MetricScope.JOB
_COORDINATOR, _C = MetricScope.COORDINATOR, MetricKind.COUNTER
# A process, TaskManager or driver. Where Flink names a part of the JVM, the nearest part of the interpreter stands.
CPU_LOAD = _row("Status.JVM.CPU.Load", _G, "0…1", _PROCESS, "Share of all processors in use.")
CPU_TIME = _row("Status.JVM.CPU.Time", _G, "ns", _PROCESS, "Processor time since the start.")
HEAP_USED = _row("Status.JVM.Memory.Heap.Used", _G, "bytes", _PROCESS, "Resident memory.")
HEAP_COMMITTED = _row(
    "Status.JVM.Memory.Heap.Committed", _G, "bytes", _PROCESS, "Largest resident memory so far."
)
HEAP_MAX = _row(
    "Status.JVM.Memory.Heap.Max", _G, "bytes", _PROCESS, "Memory that is available to the process."
)
NON_HEAP_USED = _row(
    "Status.JVM.Memory.NonHeap.Used", _G, "bytes", _PROCESS, "Arrow's memory: a part of Heap."
)
NON_HEAP_COMMITTED = _row(
    "Status.JVM.Memory.NonHeap.Committed", _G, "bytes", _PROCESS, "Largest Arrow memory so far."
)
NON_HEAP_MAX = _row(
    "Status.JVM.Memory.NonHeap.Max",
    _G,
    "bytes",
    _PROCESS,
    "-1, because it has no limit of its own.",
)
DIRECT_USED = _row(
    "Status.JVM.Memory.Direct.MemoryUsed", _G, "bytes", _PROCESS, "Arrow's memory, as NonHeap.Used."
)
DIRECT_CAPACITY = _row(
    "Status.JVM.Memory.Direct.TotalCapacity",
    _G,
    "bytes",
    _PROCESS,
    "Largest Arrow memory so far.",
)
THREADS_COUNT = _row(
    "Status.JVM.Threads.Count", _G, "", _PROCESS, "Threads, including native ones."
)
CLASSES_LOADED = _row(
    "Status.JVM.ClassLoader.ClassesLoaded", _G, "", _PROCESS, "Loaded Python modules."
)
GC_COUNT = _row(
    "Status.JVM.GarbageCollector.All.Count", _G, "", _PROCESS, "Collections of all generations."
)
GC_TIME = _row("Status.JVM.GarbageCollector.All.Time", _G, "ms", _PROCESS, "Time spent collecting.")
GC_TIME_PER_SECOND = _row(
    "Status.JVM.GarbageCollector.All.TimeMsPerSecond",
    _G,
    "ms/s",
    _PROCESS,
    "Time spent collecting, per second.",
)
FILES_OPEN = _row("Status.JVM.FileDescriptor.Open", _G, "", _PROCESS, "Open files and sockets.")
FILES_MAX = _row(
    "Status.JVM.FileDescriptor.Max", _G, "", _PROCESS, "Maximum number of open files and sockets."
)
MANAGED_USED = _row(
    "Status.Flink.Memory.Managed.Used",
    _G,
    "bytes",
    _PROCESS,
    "Memory of RocksDB and columnar states, which may exceed managed memory; only of a TaskManager.",
)
MANAGED_TOTAL = _row(
    "Status.Flink.Memory.Managed.Total",
    _G,
    "bytes",
    _PROCESS,
    "Managed memory, or the shared memory of RocksDB's databases if that is larger.",
)
CONTROL_THREAD_LAG = _row(
    "Status.Headrace.ControlThread.LagMs",
    _G,
    "ms",
    _PROCESS,
    "Time until a call to the control thread is run, on average over a minute.",
)
CONTROL_THREAD_LAG_MAX = _row(
    "Status.Headrace.ControlThread.LagMaxMs",
    _G,
    "ms",
    _PROCESS,
    "The longest time of the last minute until a call to the control thread was run.",
)
INTERPRETER_LOCK_WAIT = _row(
    "Status.Headrace.InterpreterLock.WaitMs",
    _G,
    "ms",
    _PROCESS,
    "Time from the end of a wait until the thread runs again, on average over a minute.",
)
INTERPRETER_LOCK_WAIT_MAX = _row(
    "Status.Headrace.InterpreterLock.WaitMaxMs",
    _G,
    "ms",
    _PROCESS,
    "The longest time of the last minute from the end of a wait until the thread ran again.",
)
TASKS_RUNNING = _row(
    "Status.Headrace.Tasks.Running",
    _G,
    "",
    _PROCESS,
    "Subtasks that have not ended; only of a TaskManager.",
)
TASK_RECORDS_IN = _row(
    "Status.Headrace.Tasks.NumRecordsIn",
    _G,
    "",
    _PROCESS,
    "Records that all its subtasks, including ended ones, have received; only of a TaskManager.",
)
TASK_RECORDS_OUT = _row(
    "Status.Headrace.Tasks.NumRecordsOut",
    _G,
    "",
    _PROCESS,
    "Records that all its subtasks, including ended ones, have sent; only of a TaskManager.",
)
# The cluster and its jobs, as the driver knows them.
NUM_TASK_MANAGERS = _row("numRegisteredTaskManagers", _G, "", _CLUSTER, "Registered TaskManagers.")
NUM_PENDING_TASK_MANAGERS = _row(
    "numPendingTaskManagers",
    _G,
    "",
    _CLUSTER,
    "Requested TaskManagers that have not registered yet.",
)
START_WORKER_FAILURE_RATE = _row(
    "startWorkFailurePerSecond",
    MetricKind.METER,
    "1/s",
    _CLUSTER,
    "TaskManagers that ended or were given up before they registered, in the last minute.",
)
NUM_RUNNING_JOBS = _row("numRunningJobs", _G, "", _CLUSTER, "Jobs that have not ended.")
SLOTS_AVAILABLE = _row("taskSlotsAvailable", _G, "", _CLUSTER, "Free slots.")
SLOTS_TOTAL = _row("taskSlotsTotal", _G, "", _CLUSTER, "All slots.")
UPTIME = _row(
    "uptime",
    _G,
    "ms",
    _JOB,
    "Time for which the job has run: 0 while it does not, -1 once it has ended.",
)
DOWNTIME = _row(
    "downtime",
    _G,
    "ms",
    _JOB,
    "Time since the job failed, while it does not run; -1 once it has ended.",
)
CREATED_TIME = _row("createdTime", _G, "ms", _JOB, "Time in status CREATED, 0 in any other.")
RUNNING_TIME = _row("runningTime", _G, "ms", _JOB, "Time in status RUNNING, 0 in any other.")
RESTARTING_TIME = _row("restartingTime", _G, "ms", _JOB, "Time in RESTARTING, 0 in any other.")
CANCELLING_TIME = _row("cancellingTime", _G, "ms", _JOB, "Time in CANCELLING, 0 in any other.")
FAILING_TIME = _row("failingTime", _G, "ms", _JOB, "Time in status FAILING, 0 in any other.")
DEPLOYING_TIME = _row(
    "deployingTime", _G, "ms", _JOB, "Time since some subtask is being deployed, 0 otherwise."
)
INITIALIZING_TIME = _row(
    "initializingTime",
    _G,
    "ms",
    _JOB,
    "Time since some subtask opens its operators and none is being deployed, 0 otherwise.",
)
ALL_RUNNING_TIME = _row(
    "allSubTasksRunningOrFinishedTime",
    _G,
    "ms",
    _JOB,
    "Time since all subtasks run or have finished, 0 otherwise.",
)
NUM_RESTARTS = _row("numRestarts", _G, "", _JOB, "Restarts since the job was submitted.")
NUM_RESCALES = _row(
    "numRescales",
    _G,
    "",
    _JOB,
    "Changes of the job's parallelism while it ran: always 0, because only a new start of the job changes it.",
)
LAST_CHECKPOINT_SIZE = _row(
    "lastCheckpointSize", _G, "bytes", _JOB, "Bytes written for the last checkpoint."
)
LAST_CHECKPOINT_FULL_SIZE = _row(
    "lastCheckpointFullSize",
    _G,
    "bytes",
    _JOB,
    "All state of the last checkpoint, including older files.",
)
LAST_CHECKPOINT_METADATA_SIZE = _row(
    "lastCheckpointMetadataSize",
    _G,
    "bytes",
    _JOB,
    "The metadata file of the last checkpoint; 0 if it is in the driver's memory.",
)
LAST_CHECKPOINT_PROCESSED = _row(
    "lastCheckpointProcessedData",
    _G,
    "bytes",
    _JOB,
    "Rows that were processed while barriers were aligned: always 0, because channels wait.",
)
LAST_CHECKPOINT_DURATION = _row(
    "lastCheckpointDuration",
    _G,
    "ms",
    _JOB,
    "Time from the last checkpoint's trigger to its publication.",
)
LAST_CHECKPOINT_PERSISTED = _row(
    "lastCheckpointPersistedData",
    _G,
    "bytes",
    _JOB,
    "In-flight rows that were stored with the last checkpoint.",
)
LAST_CHECKPOINT_COMPLETED = _row(
    "lastCheckpointCompletedTimestamp",
    _G,
    "epoch ms",
    _JOB,
    "Time at which the last checkpoint was published.",
)
LAST_CHECKPOINT_RESTORED = _row(
    "lastCheckpointRestoreTimestamp",
    _G,
    "epoch ms",
    _JOB,
    "Time of the last restore of the job or a part of it; -1 if never.",
)
LAST_CHECKPOINT_ID = _row(
    "lastCompletedCheckpointId", _G, "", _JOB, "Number of the last checkpoint."
)
CHECKPOINTS_COMPLETED = _row(
    "numberOfCompletedCheckpoints",
    _G,
    "",
    _JOB,
    "Completed checkpoints, including savepoints.",
)
CHECKPOINTS_FAILED = _row("numberOfFailedCheckpoints", _G, "", _JOB, "Failed checkpoints.")
CHECKPOINTS_IN_PROGRESS = _row(
    "numberOfInProgressCheckpoints", _G, "", _JOB, "Checkpoints in progress."
)
CHECKPOINTS_TOTAL = _row("totalNumberOfCheckpoints", _G, "", _JOB, "Checkpoints that were started.")
# The coordinator of an operator, in the driver.
NUM_EVENTS_IN = _row(
    "numEventsIn", _C, "", _COORDINATOR, "Events of subtasks, without repetitions."
)
NUM_EVENTS_OUT = _row("numEventsOut", _C, "", _COORDINATOR, "Events for subtasks.")
NUM_REGISTERED_READERS = _row(
    "numRegisteredReaders",
    _G,
    "",
    _COORDINATOR,
    "Registered readers of a source.",
)
NUM_SPLITS_ASSIGNED = _row(
    "numSplitsAssigned",
    _C,
    "",
    _COORDINATOR,
    "Splits assigned to readers, including repetitions after failures.",
)
NUM_SPLITS_RETURNED = _row(
    "numSplitsReturned",
    _C,
    "",
    _COORDINATOR,
    "Splits that were taken back, because their reader failed before a checkpoint included them.",
)
UNASSIGNED_SPLITS = _row(
    "unassignedSplits",
    _G,
    "",
    _COORDINATOR,
    "Splits that are found but not assigned, below `enumerator`, if the connector reports them: files and Kafka.",
)
BUFFERED_BYTES = _row(
    "bufferedBytes",
    _G,
    "bytes",
    _COORDINATOR,
    "Collected records that the client has not fetched, including those that wait for a checkpoint.",
)
CLUSTER_METRIC_NAMES: Final[tuple[MetricName, ...]] = _table.rows()
"""All rows, in the order of this file."""
