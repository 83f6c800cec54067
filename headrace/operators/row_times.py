"""Event time of whole batches, for operators that cannot do without."""

from typing import Final

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.operators.user_code import user_error

TIME_LIMIT: Final = 1 << 62
"""Milliseconds from 1970: sums of such times and of the sizes of windows do not wrap around."""


def require_times(batch: RecordBatch, operator_name: str) -> Timestamps:
    """Return the timestamps of a batch, of shape (num_rows,).

    UserCodeError where a row has none, or one so far out that the ends of its windows have no place in 64 bits.
    """
    times = batch.timestamps
    if times is None or (times == MIN_TIMESTAMP).any():
        error = ValueError(
            "a record without a timestamp cannot be put into event-time windows: "
            "call assign_timestamps_and_watermarks before"
        )
        raise user_error(error, operator_name) from error
    is_far = (times >= TIME_LIMIT) | (times <= -TIME_LIMIT)
    if is_far.any():
        error = ValueError(
            f"event time {times[is_far][0]} cannot be put into windows in columns: it is counted in milliseconds from "
            "1970 on, and this is too far from there"
        )
        raise user_error(error, operator_name) from error
    return times
