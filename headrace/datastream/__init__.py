"""PyFlink's `pyflink.datastream`, so that a program ports by changing its imports.

Re-exports of `api`, `functions`, `core` and `connectors`; no code of its own.
"""

from headrace.api.client.collected_records import CloseableIterator
from headrace.api.environment import StreamExecutionEnvironment
from headrace.api.settings.checkpoint_config import (
    CheckpointConfig,
    CheckpointingMode,
    ExternalizedCheckpointRetention,
)
from headrace.api.settings.environment_settings import RuntimeExecutionMode
from headrace.api.settings.pyflink_refusals import (
    ExternalizedCheckpointCleanup,
    FsStateBackend,
    MemoryStateBackend,
    RocksDBStateBackend,
    TimeCharacteristic,
)
from headrace.api.settings.slot_sharing_group import MemorySize, SlotSharingGroup
from headrace.api.settings.state_backends import (
    CheckpointStorage,
    CustomCheckpointStorage,
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    FileSystemCheckpointStorage,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    PredefinedOptions,
    StateBackend,
)
from headrace.api.streams.async_data_stream import AsyncDataStream
from headrace.api.streams.connected_streams import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
)
from headrace.api.streams.data_stream import DataStream, DataStreamSink
from headrace.api.streams.keyed_stream import KeyedStream
from headrace.api.streams.partition_windowed_stream import PartitionWindowedStream
from headrace.api.streams.windowed_stream import AllWindowedStream, WindowedStream
from headrace.core.pyflink_refusals import SinkFunction, SourceFunction
from headrace.functions.async_io import AsyncFunction, AsyncRetryPredicate, AsyncRetryStrategy
from headrace.functions.joins import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    ProcessJoinFunction,
)
from headrace.functions.process import (
    AllWindowFunction,
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    TimeDomain,
    TimerService,
    WindowFunction,
)
from headrace.functions.record import (
    AggregateFunction,
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapBatchesFunction,
    MapFunction,
    MapPartitionFunction,
    Order,
    Partitioner,
    ReduceFunction,
)
from headrace.functions.runtime_context import RuntimeContext
from headrace.functions.windowing.assigners import MergingWindowAssigner, WindowAssigner
from headrace.functions.windowing.triggers import Trigger, TriggerResult
from headrace.functions.windows import CountWindow, GlobalWindow, TimeWindow, Window

__all__ = [
    "ExternalizedCheckpointCleanup",
    "FsStateBackend",
    "MemoryStateBackend",
    "RocksDBStateBackend",
    "TimeCharacteristic",
    "CheckpointConfig",
    "CheckpointingMode",
    "ExternalizedCheckpointRetention",
    "CloseableIterator",
    "ConnectedStreams",
    "BroadcastStream",
    "BroadcastConnectedStream",
    "AsyncDataStream",
    "DataStream",
    "DataStreamSink",
    "StreamExecutionEnvironment",
    "RuntimeExecutionMode",
    "KeyedStream",
    "PartitionWindowedStream",
    "MemorySize",
    "SlotSharingGroup",
    "WindowedStream",
    "AllWindowedStream",
    "WindowAssigner",
    "MergingWindowAssigner",
    "ProcessFunction",
    "KeyedProcessFunction",
    "CoProcessFunction",
    "KeyedCoProcessFunction",
    "BroadcastProcessFunction",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "KeyedBroadcastProcessFunction",
    "JoinFunction",
    "FlatJoinFunction",
    "CoGroupFunction",
    "ProcessJoinFunction",
    "OutputTag",
    "TimeDomain",
    "TimerService",
    "MapFunction",
    "MapBatchesFunction",
    "MapPartitionFunction",
    "Order",
    "CoMapFunction",
    "FlatMapFunction",
    "CoFlatMapFunction",
    "ReduceFunction",
    "FilterFunction",
    "AggregateFunction",
    "KeySelector",
    "Partitioner",
    "RuntimeContext",
    "Trigger",
    "TriggerResult",
    "WindowFunction",
    "AllWindowFunction",
    "ProcessWindowFunction",
    "ProcessAllWindowFunction",
    "Window",
    "TimeWindow",
    "CountWindow",
    "GlobalWindow",
    "StateBackend",
    "HashMapStateBackend",
    "EmbeddedRocksDBStateBackend",
    "CustomStateBackend",
    "PredefinedOptions",
    "CheckpointStorage",
    "JobManagerCheckpointStorage",
    "FileSystemCheckpointStorage",
    "CustomCheckpointStorage",
    "SourceFunction",
    "SinkFunction",
]
