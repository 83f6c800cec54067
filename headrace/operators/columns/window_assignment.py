"""Event-time windows of whole batches: finds the windows of each row, and the late rows."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.functions.specs.columnar_specs import ROWS, SLICE, TIME_LIMIT_MS, EventTimeWindows
from headrace.functions.windows import window_starts
from headrace.metrics.instruments import Counter
from headrace.operators.columns.integer_columns import Indexes, begin_stretches
from headrace.operators.runtime.user_code import user_error


def require_times(batch: RecordBatch, operator_name: str, size_ms: int) -> Timestamps:
    """Return the timestamps of a batch, shape (num_rows,), for windows of `size_ms`.

    UserCodeError if a row has no timestamp, or one so far from 1970 that its window does not fit into a time column.
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
            f"event time {times[is_far][0]} cannot be put into windows of {size_ms} ms: event time is in "
            f"milliseconds since 1970, and this value is out of range"
        )
        raise user_error(error, operator_name) from error
    return times


@dataclass(frozen=True)
class WindowPairs:
    """Pairs of a row and a window that contains it: by row, then newest window first. Both of shape (pairs,)."""

    rows: Indexes
    starts: Timestamps

    def where(self, mask: npt.NDArray[np.bool_]) -> "WindowPairs":
        """Return the pairs for which `mask`, shape (pairs,), is True."""
        return self if mask.all() else WindowPairs(self.rows[mask], self.starts[mask])


def assign_windows(times: Timestamps, windows: EventTimeWindows) -> WindowPairs:
    """Return the windows of each row, given the rows' timestamps or the beginnings of their slices."""
    starts = window_starts(times, windows.offset, windows.slide)
    rows = np.arange(len(times), dtype=np.int64)
    count = -(-windows.size // windows.slide)
    if count > 1:
        shifts = np.arange(count, dtype=np.int64) * windows.slide
        starts = (starts[:, np.newaxis] - shifts).ravel()
        rows = np.repeat(rows, count)
    return WindowPairs(rows, starts).where(starts > times[rows] - windows.size)


def slices_of(rows: pa.Table | pa.RecordBatch) -> Timestamps:
    """Return the beginning of each row's slice, epoch ms, shape (num_rows,)."""
    slices: Timestamps = rows.column(SLICE).to_numpy()
    return slices


def distinct_slices(rows: pa.Table) -> Timestamps:
    """Return the beginnings of the rows' slices, ascending, each once."""
    slices = slices_of(rows)
    # Rows mostly come in stretches of one slice: only the first row of each is looked up.
    return np.unique(slices[begin_stretches(slices)])


def without_late(rows: pa.Table, is_late: npt.NDArray[np.bool_], late_count: Counter) -> pa.Table:
    """Return the rows that are not late, and count the others; `is_late` has shape (num_rows,).

    A row with the column `$rows` counts as the records that it stands for.
    """
    if not is_late.any():
        return rows
    if ROWS in rows.column_names:
        record_counts: npt.NDArray[np.int64] = rows.column(ROWS).to_numpy()
        late_count.inc(int(record_counts[is_late].sum()))
    else:
        late_count.inc(int(np.count_nonzero(is_late)))
    return rows.filter(pa.array(~is_late))
