"""Reads the live rows of a state to their end, or up to where a test goes on, and what a snapshot stores of it."""

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from headrace.checkpoint.handles import OperatorSubtaskState, StateTable
from headrace.state.keyed_chunks import OPAQUE, read_tables
from headrace.state.operator_state_handler import OperatorStateHandler
from headrace.state.queryable.live_rows import LiveRows, LiveSource
from headrace.testing.operator_harness import MemorySnapshots

Rows = list[tuple[tuple[str, str], ...]]


def source_of(
    states: OperatorStateHandler, name: str, table: StateTable = StateTable.KEYED
) -> LiveSource:
    (found,) = [one for one in states.live_sources() if (one.table, one.name) == (table, name)]
    return found


def opened(source: LiveSource, keys: list[Any] | None = None) -> LiveRows:
    assert source.open is not None
    return source.open(None if keys is None else pa.array(keys))


def tables_of(
    rows: LiveRows, count: int = 3, between: Callable[[], object] = lambda: None
) -> Iterator[pa.Table]:
    """Every piece, after each of which `between` is called; then the rows are released.

    All of them have the columns that are told of rows, whether there are any.
    """
    schema = rows.schema()
    while (piece := rows.take(count)) is not None:
        if piece.table is not None:
            assert set(schema.names) <= set(piece.table.schema.names)
            # Equal types, but for columns of null.
            pa.unify_schemas([schema, piece.table.schema])
            yield piece.table
        between()
    rows.release()


def shown(tables: Iterator[pa.Table], opaque: tuple[str, ...] = ()) -> Rows:
    """Rows in an order of their own, pickles loaded; columns that are null are left out."""
    found: Rows = []
    for table in tables:
        for row in table.to_pylist():
            loaded = {
                name: repr(pickle.loads(value) if name in opaque else value)
                for name, value in row.items()
                if value is not None
            }
            found.append(tuple(sorted(loaded.items())))
    return sorted(found)


def stored(
    snapshot: OperatorSubtaskState,
    name: str,
    table: StateTable = StateTable.KEYED,
    opaque: tuple[str, ...] = (),
) -> Rows:
    """What a snapshot stores of a state."""
    chunks = [one for one in snapshot.chunks if (one.table, one.name) == (table, name)]
    assert all(one.attributes.get(OPAQUE, "") in ("", ",".join(opaque)) for one in chunks)
    return shown(read_tables(chunks, MemorySnapshots(), range(1 << 15)), opaque)
