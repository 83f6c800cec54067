"""Event time of whole batches, for operators that cannot do without."""

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.operators.user_code import user_error


def require_times(batch: RecordBatch, operator_name: str) -> Timestamps:
    """Return the timestamps of a batch, of shape (num_rows,); UserCodeError where a row has none."""
    times = batch.timestamps
    if times is None or (times == MIN_TIMESTAMP).any():
        error = ValueError(
            "a record without a timestamp cannot be put into event-time windows: "
            "call assign_timestamps_and_watermarks before"
        )
        raise user_error(error, operator_name) from error
    return times
