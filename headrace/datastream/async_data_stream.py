"""PyFlink's `datastream.async_data_stream`: re-export."""

from headrace.api.streams.async_data_stream import AsyncDataStream

__all__ = ["AsyncDataStream"]
