"""Texts that a Parquet file has as codes are read as such and come as texts: what is read is the same."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.connectors.files.formats.columnar_formats import (
    ParquetColumnarRowInputFormat,
    read_extent,
)
from headrace.connectors.files.formats.splits import FileSplit
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import Types

ROW_COUNT = 20_000
NAMES = ["few", "changing", "many", "plain"]
ROWS = Types.ROW_NAMED(NAMES, [Types.STRING()] * len(NAMES))
FORMAT = ParquetColumnarRowInputFormat(ROWS)


@pytest.fixture
def table() -> pa.Table:
    numbers = range(ROW_COUNT)
    return pa.table(
        {
            "few": [("north", "süd", None)[number % 3] for number in numbers],
            # Each row group has others.
            "changing": [f"{number // 7000}-{number % 5}" for number in numbers],
            "many": [f"text {number}" for number in numbers],
            "plain": ["same"] * ROW_COUNT,
        }
    )


def write(table: pa.Table, folder: Path) -> str:
    path = str(folder / "rows.parquet")
    coded: Any = ["few", "changing", "many"]
    pq.write_table(table, path, row_group_size=7000, compression="none", use_dictionary=coded)
    return path


def batches(path: str, position: int | None = None) -> list[tuple[pa.RecordBatch, int]]:
    """What is read from a position on, each with the position behind it."""
    status = os.stat(path)
    split = FileSplit("/", path, 0, status.st_size, status.st_size, status.st_mtime_ns, position)
    records = FORMAT.open(split, BatchType(ROWS))
    found: list[tuple[pa.RecordBatch, int]] = []
    while (batch := records.next_batch()) is not None:
        found.append((batch.columns(), records.position or 0))
    records.close()
    return found


def coded_texts(path: str) -> list[str]:
    metadata = pq.read_metadata(path)
    groups = range(metadata.num_row_groups)
    return list(read_extent(metadata, groups, FORMAT.schema).coded_texts)


def test_texts_come_as_they_were_written_whatever_they_were_stored_as(
    table: pa.Table, tmp_path: Path
) -> None:
    path = write(table, tmp_path)
    assert coded_texts(path) == ["changing", "few"]
    read = [batch for batch, _ in batches(path)]
    assert pa.Table.from_batches(read).equals(table)


def test_reading_goes_on_at_every_position(table: pa.Table, tmp_path: Path) -> None:
    path = write(table, tmp_path)
    for position in [3, *(position for _, position in batches(path))]:
        rest = [batch for batch, _ in batches(path, position)]
        assert pa.Table.from_batches(rest, FORMAT.schema).equals(table.slice(position))


def test_few_rows_are_read_as_texts_at_once(table: pa.Table, tmp_path: Path) -> None:
    path = write(table.slice(0, 15_000), tmp_path)
    assert coded_texts(path) == []
