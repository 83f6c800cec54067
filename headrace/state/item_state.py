"""State that is a list of opaque items, such as a source's splits: redistributed item by item, never opened here.

Written as Parquet with one binary column `item`. Source: Flink OperatorStateHandle.
"""

import io
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.checkpoint.handles import (
    ITEM_COUNT,
    ITEM_MODE,
    ITEM_RANGE,
    OperatorStateMode,
    StateChunk,
    StateTable,
)
from headrace.checkpoint.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.core.checkpoints import CheckpointOptions

_SCHEMA: Final = pa.schema([pa.field("item", pa.binary(), nullable=False)])


class ItemState:
    """Items of one table and name. `items` is what the next checkpoint holds. See Snapshotable."""

    def __init__(self, table: StateTable, name: str) -> None:
        self._table = table
        self._name = name
        self.items: Sequence[bytes] = ()

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "FrozenItems":
        """See Snapshotable: items are bytes, which nobody changes."""
        return FrozenItems(self._table, self._name, tuple(self.items))

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """See Snapshotable. Nothing is referred to again."""

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """See Snapshotable. Nothing is referred to again."""


class FrozenItems:
    """See FrozenState."""

    def __init__(self, table: StateTable, name: str, items: tuple[bytes, ...]) -> None:
        self._table = table
        self._name = name
        self._items = items

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        """See FrozenState. Without items there is nothing to write."""
        if not self._items:
            return ()
        sink = io.BytesIO()
        pq.write_table(pa.table([pa.array(self._items, pa.binary())], schema=_SCHEMA), sink)
        file = writer.write(f"{self._table.value}-{self._name}", sink.getvalue())
        count = len(self._items)
        attributes = {ITEM_COUNT: str(count), ITEM_MODE: OperatorStateMode.SPLIT.name}
        return (StateChunk(self._table, self._name, count, file, None, attributes),)

    def discard(self) -> None:
        """See FrozenState."""


def read_items(chunks: Sequence[StateChunk], reader: SnapshotReader) -> list[bytes]:
    """Return the items of restored chunks that are this subtask's own, in order."""
    items: list[bytes] = []
    for chunk in chunks:
        table = pq.read_table(pa.BufferReader(reader.read(chunk.file)))
        found: list[bytes] = table.column("item").to_pylist()
        items += found[item_slice(chunk)]
    return items


def item_slice(chunk: StateChunk) -> slice:
    """Which items of an assigned chunk are the subtask's own."""
    text = chunk.attributes.get(ITEM_RANGE)
    if text is None:
        return slice(None)
    start, _, stop = text.partition(":")
    return slice(int(start), int(stop))
