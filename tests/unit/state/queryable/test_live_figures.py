"""Figures of a state: rows, bytes, key groups, keys, windows, timers and what has expired, as plain sums say."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.state_queries import TIMER_DUE_LIMITS_MS, StateFigures
from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.types.pickles import pickle_value
from headrace.state.queryable import live_figures
from headrace.state.queryable.live_figures import FigureCollector
from headrace.state.queryable.live_rows import LiveSource, row_sizes

VALUES = {
    "numbers": (pa.int64(), st.integers(-5, 5)),
    "texts": (pa.string(), st.text(max_size=5)),
    "lists": (pa.list_(pa.string()), st.lists(st.text(max_size=3), max_size=3)),
    "structs": (
        pa.struct([("a", pa.int32()), ("b", pa.binary())]),
        st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.binary(max_size=4)}),
    ),
    "maps": (
        pa.map_(pa.string(), pa.list_(pa.int64())),
        st.dictionaries(
            st.text(max_size=2), st.lists(st.integers(0, 9), max_size=2), max_size=2
        ).map(lambda entries: list(entries.items())),
    ),
}


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_sizes_of_rows_do_not_depend_on_what_stands_beside_them(kind: str, data: Any) -> None:
    arrow_type, values = VALUES[kind]
    drawn = data.draw(st.lists(st.none() | values, max_size=8))
    table = pa.table({"value": pa.array(drawn, arrow_type)})
    alone = [int(row_sizes(pa.table({"value": pa.array([one], arrow_type)}))[0]) for one in drawn]
    assert row_sizes(table).tolist() == alone
    begin = data.draw(st.integers(0, len(drawn)))
    assert row_sizes(table.slice(begin)).tolist() == alone[begin:]


def test_longer_values_are_larger() -> None:
    table = pa.table({"value": pa.array(["x", "x" * 100])})
    assert np.diff(row_sizes(table)).tolist() == [99]


def figures_of(
    *tables: pa.Table, opaque: tuple[str, ...] = (), expired_until_ms: int | None = None, **now: Any
) -> StateFigures:
    table = StateTable.TIMERS if "ts" in tables[0].column_names else StateTable.KEYED
    collector = FigureCollector(LiveSource(table, "s", None, opaque=opaque), expired_until_ms)
    for one in tables:
        collector.add(one)
    times: dict[str, Any] = {"watermark_ms": MIN_TIMESTAMP, "now_ms": 0}
    return collector.figures(**times | now)


def keyed(groups: list[int], keys: list[Any], values: list[str], **columns: list[Any]) -> pa.Table:
    return pa.table(
        {"key_group": pa.array(groups, pa.int32()), "key": keys, "value": values, **columns}
    )


def test_rows_and_bytes_are_added_up_by_key_group_and_key() -> None:
    first = keyed([1, 2, 1], ["a", "b", "a"], ["", "x" * 50, ""])
    figures = figures_of(first, keyed([2], ["c"], [""]))
    assert figures.row_count == 4
    assert figures.size_bytes == 4 * (4 + 4 + 1 + 4) + 50
    assert [(one.key_group, one.row_count) for one in figures.key_groups] == [(1, 2), (2, 2)]
    assert sum(one.size_bytes for one in figures.key_groups) == figures.size_bytes
    by_key = {one.key: (one.row_count, one.size_bytes) for one in figures.top_keys}
    assert by_key == {"'b'": (1, 63), "'a'": (2, 26), "'c'": (1, 13)}
    assert figures.top_keys[0].key == "'b'"
    assert figures.are_top_keys_exact
    assert (figures.expired_count, figures.oldest_window_ms, figures.timers) == (None, None, ())


def test_keys_that_are_structs_lists_or_pickles_are_shown_as_python_prints_them() -> None:
    structs = figures_of(keyed([1, 1], [{"a": 1, "b": [2]}] * 2, ["", ""]))
    assert [one.key for one in structs.top_keys] == ["{'a': 1, 'b': (2,)}"]
    pickles = figures_of(keyed([1], [pickle_value(("p", 1))], [""]), opaque=("key",))
    assert [one.key for one in pickles.top_keys] == ["('p', 1)"]


def test_of_too_many_keys_the_largest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_figures, "_KEYS_MAX", 40)
    small = [keyed([1] * 20, list(range(n, n + 20)), [""] * 20) for n in range(0, 400, 20)]
    large = keyed([1, 1], [1000, 1001], ["x" * 500, "x" * 400])
    figures = figures_of(*small[:10], large, *small[10:])
    assert not figures.are_top_keys_exact
    assert [one.key for one in figures.top_keys[:2]] == ["1000", "1001"]
    assert figures.row_count == 402


def test_the_oldest_window_and_what_has_expired_are_found() -> None:
    windows = pa.array([{"start": 30, "end": 40}, {"start": 10, "end": 20}])
    table = keyed([1, 1], ["a", "b"], ["", ""], namespace=windows, last_access=[5, None])
    figures = figures_of(table, table.slice(0, 1), expired_until_ms=5)
    assert figures.oldest_window_ms == 10
    assert figures.expired_count == 2
    aggregates = pa.table({"key_group": pa.array([1], pa.int32()), "window_start": [7]})
    assert figures_of(aggregates).oldest_window_ms == 7


def timers(domain: str, times: list[int]) -> pa.Table:
    count = len(times)
    groups = pa.array([1] * count, pa.int32())
    return pa.table(
        {"domain": [domain] * count, "ts": pa.array(times, pa.int64()), "key_group": groups}
    )


def test_timers_are_counted_by_how_far_ahead_they_are() -> None:
    ahead = [-1, 0, 1, 1_000, 1_001, 90_000_000]
    event = timers("event", [5_000 + one for one in ahead])
    clock = timers("processing", [70_000, 70_001])
    figures = figures_of(event, clock, event, watermark_ms=5_000, now_ms=10_000)
    first, second = figures.timers
    assert (first.domain, first.now_ms, first.next_ms) == ("event", 5_000, 4_999)
    assert first.due_counts == (4, 4, 2, 0, 0, 0, 0, 2)
    assert (second.domain, second.now_ms, second.next_ms) == ("processing", 10_000, 70_000)
    assert second.due_counts == (0, 0, 0, 1, 1, 0, 0, 0)
    assert len(first.due_counts) == len(TIMER_DUE_LIMITS_MS) + 1


def test_without_a_watermark_timers_of_event_time_are_in_the_last_place() -> None:
    (event,) = figures_of(timers("event", [1, 2])).timers
    assert (event.now_ms, event.due_counts) == (None, (0,) * 7 + (2,))


def test_timers_at_the_end_of_time_do_not_overflow() -> None:
    (event,) = figures_of(timers("event", [2**63 - 1]), watermark_ms=2**63 - 1).timers
    assert event.due_counts[0] == 1
