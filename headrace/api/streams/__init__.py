"""Streams: transformations of records, one class for each kind of stream."""
