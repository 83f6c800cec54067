"""Number of rows that a Parquet file gives at once: many short ones, few long ones, never more than asked for."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from headrace.connectors.files.formats.columnar_formats import ParquetColumnarRowInputFormat
from headrace.connectors.files.formats.splits import FileSplit
from headrace.connectors.files.formats.stream_formats import ParquetBulkWriters
from headrace.core.configuration import Configuration
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import Types

ROW_COUNT = 40_000


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = str(tmp_path / "rows.parquet")
    texts = [f"{number:0600}" for number in range(ROW_COUNT)]
    table = pa.table({"id": range(ROW_COUNT), "text": texts})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    return path


def sizes(path: str, reader_format: ParquetColumnarRowInputFormat) -> list[int]:
    status = os.stat(path)
    split = FileSplit("/", path, 0, status.st_size, status.st_size, status.st_mtime_ns)
    records = reader_format.open(split, BatchType(reader_format.produced_type))
    found: list[int] = []
    while (batch := records.next_batch()) is not None:
        found.append(batch.num_rows)
    records.close()
    return found


def rows_of(*names: str, **options: Any) -> ParquetColumnarRowInputFormat:
    types = [Types.STRING() if name == "text" else Types.LONG() for name in names]
    return ParquetColumnarRowInputFormat(Types.ROW_NAMED(list(names), types), **options)


def test_short_rows_come_many_at_once(file: str) -> None:
    assert sizes(file, rows_of("id")) == [32_768, ROW_COUNT - 32_768]


def test_long_rows_come_in_batches_of_some_megabytes(file: str) -> None:
    found = sizes(file, rows_of("id", "text"))
    assert sum(found) == ROW_COUNT
    assert 5_000 < max(found) < 8_000


def test_only_the_columns_that_are_read_count(file: str) -> None:
    assert max(sizes(file, rows_of("id"))) > max(sizes(file, rows_of("text")))


def test_never_more_rows_come_than_were_asked_for(file: str) -> None:
    assert set(sizes(file, rows_of("id", batch_size=100))) == {100}


def test_row_groups_are_fetched_ahead_of_their_decoding_from_stores_alone(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched_ahead: list[bool] = []
    opened = pq.ParquetFile

    def recorded(stream: Any, *, pre_buffer: bool) -> pq.ParquetFile:
        fetched_ahead.append(pre_buffer)
        return opened(stream, pre_buffer=pre_buffer)

    monkeypatch.setattr(pq, "ParquetFile", recorded)
    assert sum(sizes(file, rows_of("id"))) == ROW_COUNT
    store = fs.SubTreeFileSystem("/", fs.LocalFileSystem())
    monkeypatch.setattr(FileSplit, "open_file_system", lambda split: store)
    assert sum(sizes(file, rows_of("id"))) == ROW_COUNT
    assert fetched_ahead == [False, True]


def test_what_pyflink_says_of_parquet_is_taken_in_its_order() -> None:
    row = Types.ROW_NAMED(["id"], [Types.LONG()])
    said = ParquetColumnarRowInputFormat(row, Configuration(), 5, True, True)
    assert said.batch_size == 5
    assert hash(said) == hash(ParquetColumnarRowInputFormat(row, None, 5, True, True))
    writers = ParquetBulkWriters.for_row_type(
        row, hadoop_config=Configuration(), utc_timestamp=True
    )
    assert writers.options == {}  # pyright: ignore[reportAttributeAccessIssue]
    store = Configuration().set_string("fs.s3a.endpoint", "here")
    for use in (ParquetColumnarRowInputFormat, ParquetBulkWriters.for_row_type):
        with pytest.raises(ProgramError, match="hadoop_config: files are accessed through"):
            use(row, hadoop_config=store)
    with pytest.raises(ProgramError, match="is_case_sensitive=False: columns are found by"):
        ParquetColumnarRowInputFormat(row, is_case_sensitive=False)
