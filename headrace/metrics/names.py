"""Names of the runtime's metrics, with kind, unit, scope, meaning and the rule that combines subtasks.

Names are Flink's where the meaning is the same; a metric with the suffix `PerSecond` is the rate of the count without
it.
"""

from collections.abc import Mapping
from typing import Final

from headrace.metrics.cluster_names import CLUSTER_METRIC_NAMES
from headrace.metrics.groups import MetricSample
from headrace.metrics.metric_name import (
    Combination,
    MetricKind,
    MetricName,
    MetricScope,
    MetricTable,
)

_table: Final = MetricTable()
_row = _table.row
_C, _G, _M, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.METER, MetricKind.HISTOGRAM
_TASK, _OPERATOR, _TM = MetricScope.TASK, MetricScope.OPERATOR, MetricScope.TASK_MANAGER
_SUM, _MAX = Combination.SUM, Combination.MAX
_MIN, _AVERAGE = Combination.MIN, Combination.AVERAGE
# Records, bytes and buffers of a task.
NUM_RECORDS_IN = _row("numRecordsIn", _C, "", _TASK, "Records received.")
NUM_RECORDS_OUT = _row("numRecordsOut", _C, "", _TASK, "Records sent.")
NUM_RECORDS_IN_PER_SECOND = _row("numRecordsInPerSecond", _M, "1/s", _TASK, "Records received.")
NUM_RECORDS_OUT_PER_SECOND = _row("numRecordsOutPerSecond", _M, "1/s", _TASK, "Records sent.")
NUM_BYTES_IN = _row("numBytesIn", _C, "bytes", _TASK, "Bytes received, local and remote.")
NUM_BYTES_OUT = _row("numBytesOut", _C, "bytes", _TASK, "Bytes sent.")
NUM_BYTES_IN_PER_SECOND = _row("numBytesInPerSecond", _M, "bytes/s", _TASK, "Bytes received.")
NUM_BYTES_OUT_PER_SECOND = _row("numBytesOutPerSecond", _M, "bytes/s", _TASK, "Bytes sent.")
NUM_BYTES_IN_LOCAL = _row("numBytesInLocal", _C, "bytes", _TASK, "Bytes from this process.")
NUM_BYTES_IN_REMOTE = _row("numBytesInRemote", _C, "bytes", _TASK, "Bytes from other processes.")
NUM_BYTES_IN_LOCAL_PER_SECOND = _row(
    "numBytesInLocalPerSecond", _M, "bytes/s", _TASK, "Bytes from this process."
)
NUM_BYTES_IN_REMOTE_PER_SECOND = _row(
    "numBytesInRemotePerSecond", _M, "bytes/s", _TASK, "Bytes from other processes."
)
NUM_BUFFERS_IN = _row("numBuffersIn", _C, "", _TASK, "Batches received.")
NUM_BUFFERS_IN_PER_SECOND = _row("numBuffersInPerSecond", _M, "1/s", _TASK, "Batches received.")
NUM_BUFFERS_IN_LOCAL = _row("numBuffersInLocal", _C, "", _TASK, "Batches from this process.")
NUM_BUFFERS_IN_REMOTE = _row("numBuffersInRemote", _C, "", _TASK, "Batches from other processes.")
NUM_BUFFERS_IN_LOCAL_PER_SECOND = _row(
    "numBuffersInLocalPerSecond", _M, "1/s", _TASK, "Batches from this process."
)
NUM_BUFFERS_IN_REMOTE_PER_SECOND = _row(
    "numBuffersInRemotePerSecond", _M, "1/s", _TASK, "Batches from other processes."
)
NUM_BUFFERS_OUT = _row("numBuffersOut", _C, "", _TASK, "Batches sent.")
NUM_BUFFERS_OUT_PER_SECOND = _row("numBuffersOutPerSecond", _M, "1/s", _TASK, "Batches sent.")
# How a task spends its time: the first three sum to 1000.
BUSY_TIME = _row("busyTimeMsPerSecond", _G, "ms/s", _TASK, "Time spent working.", _AVERAGE)
IDLE_TIME = _row(
    "idleTimeMsPerSecond", _G, "ms/s", _TASK, "Time spent waiting for input.", _AVERAGE
)
BACK_PRESSURED_TIME = _row(
    "backPressuredTimeMsPerSecond",
    _G,
    "ms/s",
    _TASK,
    "Time spent waiting for space in the output.",
    _AVERAGE,
)
SOFT_BACK_PRESSURED_TIME = _row(
    "softBackPressuredTimeMsPerSecond",
    _G,
    "ms/s",
    _TASK,
    "Time waiting for output between batches.",
    _AVERAGE,
)
HARD_BACK_PRESSURED_TIME = _row(
    "hardBackPressuredTimeMsPerSecond",
    _G,
    "ms/s",
    _TASK,
    "Time waiting for output inside a batch.",
    _AVERAGE,
)
MAX_SOFT_BACK_PRESSURE_TIME = _row(
    "maxSoftBackPressureTimeMs",
    _G,
    "ms",
    _TASK,
    "Longest single soft wait of the last period.",
    _MAX,
)
MAX_HARD_BACK_PRESSURE_TIME = _row(
    "maxHardBackPressureTimeMs",
    _G,
    "ms",
    _TASK,
    "Longest single hard wait of the last period.",
    _MAX,
)
IS_BACK_PRESSURED = _row(
    "isBackPressured", _G, "0 or 1", _TASK, "Whether an output is full now.", _MAX
)
ACCUMULATE_BUSY_TIME = _row(
    "accumulateBusyTimeMs", _G, "ms", _TASK, "Working time since the start.", _SUM
)
ACCUMULATE_IDLE_TIME = _row(
    "accumulateIdleTimeMs", _G, "ms", _TASK, "Idle time since the start.", _SUM
)
ACCUMULATE_BACK_PRESSURED_TIME = _row(
    "accumulateBackPressuredTimeMs", _G, "ms", _TASK, "Back-pressured time since the start.", _SUM
)
MAILBOX_MAILS_PER_SECOND = _row("mailboxMailsPerSecond", _M, "1/s", _TASK, "Processed mails.")
MAILBOX_QUEUE_SIZE = _row("mailboxQueueSize", _G, "", _TASK, "Waiting mails.", _SUM)
MAILBOX_LATENCY = _row(
    "mailboxLatencyMs",
    _H,
    "ms",
    _TASK,
    "Waiting time of a mail that is added at each reading of the metrics.",
    _AVERAGE,
)
INITIALIZATION_TIME = _row(
    "initializationTime", _G, "ms", _TASK, "Time taken to open the operators.", _MAX
)
CHECKPOINT_ALIGNMENT_TIME = _row(
    "checkpointAlignmentTime",
    _G,
    "ns",
    _TASK,
    "From the first to the last barrier of the last checkpoint.",
    _MAX,
)
CHECKPOINT_START_DELAY = _row(
    "checkpointStartDelayNanos",
    _G,
    "ns",
    _TASK,
    "From the trigger of the last checkpoint to its first barrier at this subtask.",
    _MAX,
)
# Event time.
CURRENT_INPUT_WATERMARK = _row(
    "currentInputWatermark", _G, "epoch ms", _TASK, "Last watermark received.", _MIN
)
CURRENT_OUTPUT_WATERMARK = _row(
    "currentOutputWatermark", _G, "epoch ms", _TASK, "Last watermark sent.", _MIN
)
NUM_FIRED_TIMERS = _row("numFiredTimers", _C, "", _TASK, "Timers that fired; also per operator.")
NUM_FIRED_TIMERS_PER_SECOND = _row(
    "numFiredTimersPerSecond", _M, "1/s", _TASK, "Timers that fired, per second."
)
NUM_LATE_RECORDS_DROPPED = _row(
    "numLateRecordsDropped", _C, "", _OPERATOR, "Records too late for all their windows."
)
NUM_LATE_RECORDS_DIVERTED = _row(
    "numLateRecordsDiverted",
    _C,
    "",
    _OPERATOR,
    "Records too late for all their windows that went to a side output.",
)
NUM_RECORDS_AHEAD_OF_TIME = _row(
    "numRecordsAheadOfTime",
    _C,
    "",
    _OPERATOR,
    "Records too far ahead of the clock to advance event time, if headrace.watermarks.max-ahead is set.",
)
NUM_RECORDS_SEND = _row("numRecordsSend", _C, "", _OPERATOR, "Records that a sink received.")
NUM_RECORDS_SEND_PER_SECOND = _row(
    "numRecordsSendPerSecond", _M, "1/s", _OPERATOR, "Records that a sink received, per second."
)
NUM_BYTES_SEND = _row(
    "numBytesSend",
    _C,
    "bytes",
    _OPERATOR,
    "Bytes that a sink has written, if the connector reports them: files, and keys and values of Kafka records.",
)
NUM_RECORDS_IN_ERRORS = _row(
    "numRecordsInErrors",
    _C,
    "",
    _OPERATOR,
    "Records that a source skipped: Kafka messages from which its schema made no record, as with ignore_parse_errors.",
)
PENDING_RECORDS = _row(
    "pendingRecords",
    _G,
    "",
    _OPERATOR,
    "Records that wait in the source's system, if the connector reports them.",
    _SUM,
)
PENDING_BYTES = _row(
    "pendingBytes",
    _G,
    "bytes",
    _OPERATOR,
    "Unread bytes of a source's splits, if the connector reports them: files.",
    _SUM,
)
CURRENT_EMIT_EVENT_TIME_LAG = _row(
    "currentEmitEventTimeLag",
    _G,
    "ms",
    _OPERATOR,
    "Age of the newest event time in the last batch of a source, when the batch was emitted.",
    _MAX,
)
WATERMARK_LAG = _row("watermarkLag", _G, "ms", _OPERATOR, "Age of a source's watermark.", _MAX)
WATERMARK_ALIGNMENT_DRIFT = _row(
    "watermarkAlignmentDrift",
    _G,
    "ms",
    _OPERATOR,
    "Lead of a source's watermark over the slowest one of its alignment group.",
    _MAX,
)
SOURCE_IDLE_TIME = _row(
    "sourceIdleTime", _G, "ms", _OPERATOR, "Time since a source emitted its last record.", _MIN
)
# For each split of a source's reader, below `split.<id>.watermark`, next to idleTimeMsPerSecond.
SPLIT_CURRENT_WATERMARK = _row(
    "currentWatermark", _G, "epoch ms", _OPERATOR, "Watermark of one split of a source.", _MIN
)
SPLIT_ACTIVE_TIME = _row(
    "activeTimeMsPerSecond", _G, "ms/s", _OPERATOR, "Time in which the split was read.", _AVERAGE
)
SPLIT_PAUSED_TIME = _row(
    "pausedTimeMsPerSecond",
    _G,
    "ms/s",
    _OPERATOR,
    "Time in which the split was not read, because it is too far ahead of others.",
    _AVERAGE,
)
SPLIT_ACCUMULATED_ACTIVE_TIME = _row(
    "accumulatedActiveTimeMs",
    _G,
    "ms",
    _OPERATOR,
    "Total time in which the split was read.",
    _SUM,
)
SPLIT_ACCUMULATED_IDLE_TIME = _row(
    "accumulatedIdleTimeMs",
    _G,
    "ms",
    _OPERATOR,
    "Total time in which the split was idle.",
    _SUM,
)
SPLIT_ACCUMULATED_PAUSED_TIME = _row(
    "accumulatedPausedTimeMs",
    _G,
    "ms",
    _OPERATOR,
    "Total time in which the split was paused.",
    _SUM,
)
LATENCY = _row(
    "latency",
    _H,
    "ms",
    _OPERATOR,
    "Age of the received latency markers, below `latency.source_id.….operator_id.….operator_subtask_index.…`.",
    _AVERAGE,
)
# The exchange. Pools have the greatest share: one subtask without a free buffer holds up the whole vertex.
INPUT_QUEUE_LENGTH = _row("inputQueueLength", _G, "", _TASK, "Batches that wait in channels.", _SUM)
INPUT_QUEUE_SIZE = _row("inputQueueSize", _G, "bytes", _TASK, "Bytes that wait in channels.", _SUM)
IN_POOL_USAGE = _row("inPoolUsage", _G, "0…1", _TASK, "Share of the input's buffers in use.", _MAX)
INPUT_EXCLUSIVE_USAGE = _row(
    "inputExclusiveBuffersUsage",
    _G,
    "0…1",
    _TASK,
    "Share of the channels' own buffers in use.",
    _MAX,
)
INPUT_FLOATING_USAGE = _row(
    "inputFloatingBuffersUsage",
    _G,
    "0…1",
    _TASK,
    "Share of the buffers that channels share in use.",
    _MAX,
)
INPUT_CREDITS = _row(
    "credits",
    _G,
    "segments",
    _TASK,
    "Segments that the task's remote channels have granted to their producers and that are still empty.",
    _SUM,
)
DEBLOATED_BUFFER_SIZE = _row(
    "debloatedBufferSize",
    _G,
    "bytes",
    _TASK,
    "Target for the bytes in flight to a task; not the size of one buffer.",
    _MAX,
)
ESTIMATED_TIME_TO_CONSUME = _row(
    "estimatedTimeToConsumeBuffersMs",
    _G,
    "ms",
    _TASK,
    "Time to process the data that waits in channels.",
    _MAX,
)
OUTPUT_QUEUE_LENGTH = _row(
    "outputQueueLength", _G, "", _TASK, "Batches that wait to be sent.", _SUM
)
OUTPUT_QUEUE_SIZE = _row("outputQueueSize", _G, "bytes", _TASK, "Bytes that wait to be sent.", _SUM)
OUT_POOL_USAGE = _row(
    "outPoolUsage",
    _G,
    "0…1",
    _TASK,
    "Share of the output's buffers in use; above 1 in overdraft.",
    _MAX,
)
TOTAL_QUEUE_LENGTH = _row(
    "totalQueueLen",
    _G,
    "",
    _TASK,
    "Elements that wait in all channels of a gate or partition.",
    _SUM,
)
MIN_QUEUE_LENGTH = _row("minQueueLen", _G, "", _TASK, "Elements in its shortest queue.", _MIN)
MAX_QUEUE_LENGTH = _row("maxQueueLen", _G, "", _TASK, "Elements in its longest queue.", _MAX)
AVG_QUEUE_LENGTH = _row(
    "avgQueueLen", _G, "", _TASK, "Elements in its queues on average.", _AVERAGE
)
EDGE_BACK_PRESSURED_TIME = _row(
    "edgeBackPressuredTimeMs",
    _G,
    "ms",
    _TASK,
    "Total time in which this output blocked the task.",
    _SUM,
)
GOVERNED_HOLD_TIME = _row(
    "governedHoldTimeMs",
    _G,
    "ms",
    _TASK,
    "Time for which this output may hold rows back, chosen for the latency target.",
    _MIN,
)
GOVERNED_BATCH_ROWS = _row(
    "governedBatchRows",
    _G,
    "rows",
    _TASK,
    "Number of rows for one channel that this output passes on at once, chosen for the latency target.",
    _MIN,
)
TOTAL_MEMORY_SEGMENTS = _row("TotalMemorySegments", _G, "", _TM, "Network segments.")
AVAILABLE_MEMORY_SEGMENTS = _row("AvailableMemorySegments", _G, "", _TM, "Free network segments.")
USED_MEMORY_SEGMENTS = _row("UsedMemorySegments", _G, "", _TM, "Network segments in use.")
TOTAL_MEMORY = _row("TotalMemory", _G, "bytes", _TM, "Network memory.")
AVAILABLE_MEMORY = _row("AvailableMemory", _G, "bytes", _TM, "Free network memory.")
USED_MEMORY = _row("UsedMemory", _G, "bytes", _TM, "Network memory in use.")
REQUESTED_MEMORY_USAGE = _row(
    "RequestedMemoryUsage", _G, "%", _TM, "Share of network memory that all pools request."
)
METRIC_NAMES: Final[tuple[MetricName, ...]] = (*_table.rows(), *CLUSTER_METRIC_NAMES)
"""All rows: those of this file, then those of processes, of the cluster and of jobs."""
_MOMENTARY: Final = frozenset(
    row.name
    for row in METRIC_NAMES
    if row.unit.endswith("/s") and row.scope is not MetricScope.CLUSTER
)


def is_momentary(name: str) -> bool:
    """Return whether a metric is a rate or a momentary state, which is meaningless once its task has ended."""
    return name in _MOMENTARY or name == IS_BACK_PRESSURED.name


def without_rates(values: Mapping[str, float]) -> dict[str, float]:
    """Return the last snapshot of an ended task, without rates and momentary states."""
    return {
        name: value for name, value in values.items() if not is_momentary(name.rpartition(".")[2])
    }


_KINDS: Final = {row.name: row.kind for row in METRIC_NAMES}


def is_of_runtime(name: str) -> bool:
    """Return whether a metric of an operator is in the table, and so not made by a user function."""
    return name in _KINDS


def kind_of(sample: MetricSample) -> MetricKind:
    """Return the kind in the table, because counts of gates and writers are read as gauges; else the instrument's."""
    return _KINDS.get(sample.name, sample.kind)
