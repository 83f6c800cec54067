"""PyFlink's `datastream.data_stream`: re-exports."""

from headrace.api.client.collected_records import CloseableIterator
from headrace.api.streams.cached_streams import CachedDataStream
from headrace.api.streams.connected_streams import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
)
from headrace.api.streams.data_stream import DataStream, DataStreamSink
from headrace.api.streams.joined_streams import CoGroupedStreams, IntervalJoin, JoinedStreams
from headrace.api.streams.keyed_stream import KeyedStream
from headrace.api.streams.windowed_stream import AllWindowedStream, WindowedStream

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
