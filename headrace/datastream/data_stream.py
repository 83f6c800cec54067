"""PyFlink's `datastream.data_stream`: re-exports."""

from headrace.api.broadcast_streams import BroadcastConnectedStream, BroadcastStream
from headrace.api.cached_streams import CachedDataStream
from headrace.api.collected_records import CloseableIterator
from headrace.api.connected_streams import ConnectedStreams
from headrace.api.data_stream import DataStream
from headrace.api.data_stream_sink import DataStreamSink
from headrace.api.interval_join import IntervalJoin
from headrace.api.joined_streams import CoGroupedStreams, JoinedStreams
from headrace.api.keyed_stream import KeyedStream
from headrace.api.windowed_stream import AllWindowedStream, WindowedStream

__all__ = [
    "CloseableIterator",
    "ConnectedStreams",
    "BroadcastStream",
    "BroadcastConnectedStream",
    "DataStream",
    "CachedDataStream",
    "DataStreamSink",
    "KeyedStream",
    "JoinedStreams",
    "CoGroupedStreams",
    "IntervalJoin",
    "WindowedStream",
    "AllWindowedStream",
]
