"""Event time of whole batches: of rows that go into windows, and of windows that come out."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.operators.runtime.user_code import user_error

TIME_LIMIT_MS: Final = (2**63 - 1) // 1000
"""Milliseconds from 1970: columns of times count microseconds, in 64 bits."""


def require_times(batch: RecordBatch, operator_name: str, size_ms: int) -> Timestamps:
    """Return the timestamps of a batch, of shape (num_rows,), which is to be put into windows of `size_ms`.

    UserCodeError where a row has none, or one so far out that a column of times has no place for an end of its windows.
    """
    times = batch.timestamps
    if times is None or (times == MIN_TIMESTAMP).any():
        error = ValueError(
            "a record without a timestamp cannot be put into event-time windows: "
            "call assign_timestamps_and_watermarks before"
        )
        raise user_error(error, operator_name) from error
    limit_ms = TIME_LIMIT_MS - size_ms
    is_far = (times > limit_ms) | (times < -limit_ms)
    if is_far.any():
        error = ValueError(
            f"event time {times[is_far][0]} cannot be put into windows in columns of {size_ms} ms: it is counted in "
            "milliseconds from 1970 on, and this is too far from there"
        )
        raise user_error(error, operator_name) from error
    return times


def window_columns(
    starts: Timestamps, ends: Timestamps, fields: Sequence[pa.Field]
) -> list[pa.Array]:
    """Return where windows begin and end, epoch ms, as two columns of the types of the first two `fields`."""
    return [
        pa.array(times, pa.int64()).cast(pa.timestamp("ms")).cast(field.type)
        for times, field in zip((starts, ends), fields, strict=False)
    ]
