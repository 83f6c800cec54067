"""Streams: what can be done with records, one class for each kind of stream."""
