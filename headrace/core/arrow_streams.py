"""Rows as the bytes of an Arrow IPC stream: what messages, committables and programs carry them in."""

from collections.abc import Iterable

import pyarrow as pa


def stream_bytes(schema: pa.Schema, rows: Iterable[pa.RecordBatch | pa.Table]) -> bytes:
    """Return a stream of these rows, one batch after the other; with none of them it still says its schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for each in rows:
            stream.write(each)
    return sink.getvalue().to_pybytes()
