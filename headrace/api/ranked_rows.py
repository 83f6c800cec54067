"""The first rows of each window in the order of some columns: `largest_rows` and `smallest_rows`."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.api.data_stream import DataStream
from headrace.api.event_time_windows import one_slice_windows
from headrace.api.expressions import check_columns, columns_of
from headrace.api.window_rows import check_order, window_rows
from headrace.core.errors import ProgramError
from headrace.functions.columnar_specs import LocalRankedRowsSpec, RankedRows, RankedRowsSpec


def ranked_rows(
    stream: DataStream,
    key_columns: tuple[str, ...],
    assigner: Any,
    count: int,
    columns: Sequence[str],
    *,
    is_largest: bool,
) -> DataStream:
    """Add both halves over `stream`, which is not keyed."""
    called = "largest_rows" if is_largest else "smallest_rows"
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ProgramError(f"{called} needs how many rows to keep, at least 1, not {count!r}")
    if not columns:
        raise ProgramError(f"{called} needs a column to order by")
    windows = one_slice_windows(assigner, called)
    check_columns(columns, stream.get_type(), called)
    schema = columns_of(stream.get_type(), called)
    refusal = f"{called} orders by numbers, texts, times and truth values"
    for name in columns:
        check_order(schema.field(name), _is_ordered, refusal)
    wanted = RankedRows(windows, key_columns, tuple(columns), is_largest, count)
    return window_rows(
        stream,
        key_columns,
        (LocalRankedRowsSpec(wanted), RankedRowsSpec(wanted)),
        assigner,
        f"{called}({count}, {', '.join(columns)})",
    )


def _is_ordered(one: pa.DataType) -> bool:
    kinds = pa.types
    return (
        kinds.is_integer(one)
        or kinds.is_floating(one)
        or kinds.is_string(one)
        or kinds.is_boolean(one)
        or kinds.is_temporal(one)
    )
