"""Reads Parquet, CSV and JSON lines as rows with columns, by Arrow; undeclared columns are skipped.

A split of a Parquet file reads the row groups whose middle lies in it, without those whose statistics refute the filter
behind the source.

Source: Flink ParquetColumnarRowInputFormat, CsvReaderFormat.
"""

import csv
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq
from pyarrow import fs

from headrace.connectors.files.formats.csv_rows import CsvSchemaFormat
from headrace.connectors.files.formats.csv_schema import CsvSchema
from headrace.connectors.files.formats.line_blocks import LineBlocks, header_line, open_line_blocks
from headrace.connectors.files.formats.splits import FileReaderFormat, FileRecords, FileSplit
from headrace.connectors.files.formats.stream_formats import check_hadoop_config
from headrace.connectors.files.formats.text_lines import ONLY_UTF_8, CharsetError
from headrace.connectors.files.paths import file_system_of, fixed_place
from headrace.core.configuration import Configuration
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.arrow_types import cast_column, data_schema, type_info_from_schema
from headrace.core.types.type_info import RowTypeInfo, TypeInformation
from headrace.functions.column_conditions import ColumnCondition, ValueRange

BATCH_ROWS: Final = 32_768
"""Default batch size: at 8,192 rows the fixed cost of a batch was two thirds of the time of a filter."""
_BATCH_BYTES: Final = 4 << 20
_BATCH_ROWS_MIN: Final = 1024
_CODED_ROW_BYTES: Final = 2
"""Bytes per row below which strings are read as dictionary codes: the distinct strings, sent with every batch, must be
few.
"""
_CODED_ROWS_MIN: Final = 16_384
"""Number of rows from which strings are read as codes: for fewer, reopening the file costs more than codes save."""


class SelectedGroups:
    """Row groups of a split: those whose middle lies in it and that end after its position, without the `pruned` ones.

    `position` counts the rows of all groups of the split, including pruned ones, so that it is independent of the
    condition.
    """

    def __init__(
        self, metadata: Any, begin: int, end: int, position: int, pruned: Collection[int]
    ) -> None:
        self.indexes: list[int] = []
        self.rows_to_skip = 0
        self._position = position
        self._starts: list[int] = []
        self._ends_when_read: list[int] = []
        next_start = read = 0
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            if not begin <= _middle(group) < end:
                continue
            start, next_start = next_start, next_start + group.num_rows
            if next_start <= position or index in pruned:
                continue
            if not self.indexes:
                self.rows_to_skip = max(0, position - start)
            self.indexes.append(index)
            read += group.num_rows
            self._starts.append(start)
            self._ends_when_read.append(read)

    def position_after(self, read_count: int) -> int:
        """Return the position after `read_count` rows of the selected groups, including those to skip."""
        if not read_count:
            return self._position
        at = bisect_left(self._ends_when_read, read_count)
        before = self._ends_when_read[at - 1] if at else 0
        return self._starts[at] + read_count - before


def pruned_row_groups(
    metadata: Any, stored: pa.Schema, condition: ColumnCondition, schema: pa.Schema
) -> frozenset[int]:
    """Return the row groups of a Parquet file whose statistics show that `condition` holds for none of their rows.

    Columns that are `stored` in other types than those of `schema` are not used, because their values are cast.
    Arrow's own pruning reads each row group with a null in the column, and leaves out NaN: docs/adr/0029.
    """
    numbers = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    comparable = {
        one.name: numbers[one.name]
        for one in schema
        if one.name in numbers and _compare_as_stored(stored, one)
    }
    return frozenset(
        index
        for index in range(metadata.num_row_groups)
        if not condition.may_hold(partial(_range_of, metadata.row_group(index), comparable))
    )


@dataclass(frozen=True)
class ReadExtent:
    """Size of some row groups, counting only the columns that are read.

    `size_bytes`: in the file. `full_size_bytes`: uncompressed. `coded_texts`: the dictionary-encoded text columns with
    so few distinct texts per row that reading them as dictionaries is faster.
    """

    row_count: int
    size_bytes: int
    full_size_bytes: int
    coded_texts: Sequence[str]

    def batch_rows(self, wanted: int) -> int:
        """Return the number of rows to read at once: `wanted`, or fewer if they are long."""
        fitting = _BATCH_BYTES * self.row_count // max(1, self.full_size_bytes)
        return min(wanted, max(_BATCH_ROWS_MIN, fitting)) if self.row_count else wanted


def read_extent(metadata: Any, groups: Sequence[int], schema: pa.Schema) -> ReadExtent:
    """Return the size of the columns of a schema in these row groups."""
    names = frozenset(schema.names)
    row_count = size_bytes = full_size_bytes = 0
    coded = {field.name for field in schema if pa.types.is_string(field.type)}
    for index in groups:
        group = metadata.row_group(index)
        row_count += group.num_rows
        for column in _columns_of(group, names):
            size_bytes += column.total_compressed_size
            column_bytes = column.total_uncompressed_size
            full_size_bytes += column_bytes
            name = column.path_in_schema
            if name in coded and not _has_codes(column, column_bytes, group.num_rows):
                coded.discard(name)
    is_worth_it = row_count >= _CODED_ROWS_MIN
    return ReadExtent(row_count, size_bytes, full_size_bytes, sorted(coded) if is_worth_it else ())


def _has_codes(column: Any, column_bytes: int, row_count: int) -> bool:
    """Return whether all rows hold codes: a plain string would take four bytes before its text."""
    return column.has_dictionary_page and column_bytes < _CODED_ROW_BYTES * row_count


def _columns_of(group: Any, names: Collection[str]) -> Iterator[Any]:
    """Yield a row group's metadata of each column with one of these names, or of its parts."""
    columns = (group.column(number) for number in range(group.num_columns))
    return (one for one in columns if one.path_in_schema.partition(".")[0] in names)


def _compare_as_stored(stored: pa.Schema, field: pa.Field) -> bool:
    """Return whether a column's values are ordered like its statistics."""
    kinds = pa.types
    one = stored.field(field.name).type
    stored_type = one.value_type if kinds.is_dictionary(one) else one
    is_ordered = (
        kinds.is_signed_integer(stored_type)
        or kinds.is_floating(stored_type)
        or kinds.is_string(stored_type)
        or kinds.is_boolean(stored_type)
    )
    return is_ordered and stored_type == field.type


def _range_of(group: Any, numbers: Mapping[str, int], name: str) -> ValueRange | None:
    """Return the range of a row group's column, or None if it is not known."""
    statistics = group.column(numbers[name]).statistics if name in numbers else None
    if statistics is None:
        return None
    if statistics.has_null_count and statistics.null_count == group.num_rows:
        return ValueRange(None, None)
    # A bound that is not equal to itself is NaN, which has no place in any order.
    if statistics.has_min_max and statistics.min == statistics.min:
        return ValueRange(statistics.min, statistics.max)
    return None


def _middle(group: Any) -> int:
    """Return the offset in the file that decides to which split the row group belongs."""
    columns = [group.column(number) for number in range(group.num_columns)]
    begins = [column.data_page_offset for column in columns]
    begins += [column.dictionary_page_offset for column in columns if column.has_dictionary_page]
    return min(begins, default=0) + sum(one.total_compressed_size for one in columns) // 2


class ColumnarFormat(FileReaderFormat):
    """Base of formats with columns. `row_type` names the columns to read, in the order of the stream."""

    row_type: TypeInformation

    def __post_init__(self) -> None:
        if not isinstance(self.row_type, RowTypeInfo):
            raise ProgramError(
                f"{type(self).__name__} reads rows with named columns, Types.ROW_NAMED([...], [...]), "
                f"not {self.row_type}"
            )

    @property
    def is_splittable(self) -> bool:
        return True

    @property
    def produced_type(self) -> TypeInformation:
        return self.row_type

    @property
    def schema(self) -> pa.Schema:
        """Return the stream's columns."""
        return data_schema(self.row_type)


@dataclass(frozen=True)
class ParquetColumnarRowInputFormat(ColumnarFormat):
    """Format of Parquet files, which are split by their row groups.

    `batch_size`: maximum number of rows in a batch; fewer if they are long. `condition`: set by the filter after the
    source; row groups whose statistics show that it holds for none of their rows are not read. Times are read as they
    are in the file, whatever `is_utc_timestamp` says. A Hadoop configuration with settings, and names of columns in
    another case, raise ProgramError.

    Example:
        >>> from headrace.core.types.type_info import Types
        >>> format = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["id"], [Types.LONG()]))
        >>> format.produced_type.get_field_names()
        ['id']
    """

    row_type: TypeInformation
    hadoop_config: Configuration | None = field(default=None, compare=False)
    batch_size: int = BATCH_ROWS
    is_utc_timestamp: bool = False
    is_case_sensitive: bool = True
    condition: ColumnCondition | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_hadoop_config(self.hadoop_config)
        if not self.is_case_sensitive:
            raise ProgramError(
                "is_case_sensitive=False: columns are found by their exact names in the file: use these names in the "
                "row type"
            )

    @staticmethod
    def of_file(path: str) -> "ParquetColumnarRowInputFormat":
        """Use all columns of the file at this path or URI, with their types; reads the file now."""
        file_system, name = file_system_of(fixed_place(str(path)))
        schema = pq.read_schema(name, filesystem=file_system)
        return ParquetColumnarRowInputFormat(type_info_from_schema(schema))

    def open(self, split: FileSplit, batch_type: BatchType) -> FileRecords:
        return ParquetRows(split, self.schema, self.batch_size, batch_type, self.condition)

    def with_condition(self, condition: ColumnCondition) -> "ParquetColumnarRowInputFormat":
        return replace(self, condition=condition)


class ParquetRows:
    """Rows of the row groups whose middle lies in the split; the position is the number of rows.

    Implements FileRecords.
    """

    def __init__(
        self,
        split: FileSplit,
        schema: pa.Schema,
        batch_size: int,
        batch_type: BatchType,
        condition: ColumnCondition | None = None,
    ) -> None:
        self._schema = schema
        self._batch_type = batch_type
        file_system = split.open_file_system()
        self._stream = file_system.open_input_file(split.name)
        # To fetch a row group at once, ahead of its decoding, pays where each request to a store takes long; of a
        # local file that takes up to a third more processor time, and memory for the row group.
        is_local = isinstance(file_system, fs.LocalFileSystem)
        file: Any = pq.ParquetFile(self._stream, pre_buffer=not is_local)
        # Each look at the schema makes it anew from the file's.
        stored: pa.Schema = file.schema_arrow
        names = stored.names
        missing = [name for name in schema.names if name not in names]
        if missing:
            raise ValueError(
                f"the file '{split.name}' has no column '{missing[0]}'; it has: {', '.join(names)}"
            )
        self.position = split.position or 0
        pruned: frozenset[int] = frozenset()
        if condition is not None:
            pruned = pruned_row_groups(file.metadata, stored, condition, schema)
        self._groups = SelectedGroups(file.metadata, split.offset, split.end, self.position, pruned)
        extent = read_extent(file.metadata, self._groups.indexes, schema)
        self._row_count, self._size_bytes = extent.row_count, extent.size_bytes
        self._read_count = 0
        if extent.coded_texts:
            # Texts that the file has as codes come as such, and become texts once a batch is there: two thirds of
            # the time that it takes to read them as texts.
            file = pq.ParquetFile(
                self._stream,
                metadata=file.metadata,
                read_dictionary=extent.coded_texts,
                pre_buffer=not is_local,
            )
        # On this thread alone: tasks share the cores, and as many threads again only take turns with them.
        self._batches = file.iter_batches(
            extent.batch_rows(batch_size),
            row_groups=self._groups.indexes,
            columns=schema.names,
            use_threads=False,
        )

    @property
    def unread_bytes(self) -> int:
        """Return the approximate number of bytes left to read, without columns and row groups that are not read."""
        unread_count = self._row_count - self._read_count
        return self._size_bytes * unread_count // max(1, self._row_count)

    def next_batch(self) -> RecordBatch | None:
        batch = next(self._batches, None)
        if batch is None:
            return None
        new = batch.slice(max(0, self._groups.rows_to_skip - self._read_count))
        self._read_count += batch.num_rows
        self.position = max(self.position, self._groups.position_after(self._read_count))
        return RecordBatch.of_columns(self._batch_type, _conform(new, self._schema))

    def close(self) -> None:
        self._stream.close()


@dataclass(frozen=True)
class CsvReaderFormat(ColumnarFormat):
    """Format of CSV files. Columns are found by the names in the header or, without one, by their position.

    A quoted value cannot contain a line end, so that files can be read in ranges. Empty values are null, except
    strings.
    """

    row_type: TypeInformation
    delimiter: str = ","
    has_header: bool = True

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvSchemaFormat:
        """Read files by a CsvSchema, whose columns are found by their position."""
        return CsvSchemaFormat(schema)

    def open(self, split: FileSplit, batch_type: BatchType) -> FileRecords:
        names: list[str] = self.schema.names
        if self.has_header:
            try:
                names = self._header(header_line(split))
            except UnicodeDecodeError as error:
                raise CharsetError.of(error, split.name, "UTF-8", 0, ONLY_UTF_8) from None
        missing = [name for name in self.schema.names if name not in names]
        if missing:
            raise ValueError(
                f"the header of '{split.name}' has no column '{missing[0]}'; it has: {', '.join(names)}"
            )
        blocks = open_line_blocks(split, skips_header=self.has_header)
        return ParsedLines(blocks, lambda block: self._parse(block, names), split, batch_type)

    def _header(self, line: bytes) -> list[str]:
        names = next(csv.reader([line.decode().strip()], delimiter=self.delimiter), [])
        return names or self.schema.names

    def _parse(self, block: bytes, names: list[str]) -> pa.Table:
        return pa_csv.read_csv(
            pa.BufferReader(block),
            read_options=pa_csv.ReadOptions(column_names=names, use_threads=False),
            parse_options=pa_csv.ParseOptions(delimiter=self.delimiter),
            convert_options=pa_csv.ConvertOptions(
                column_types=parsed_schema(self.schema),
                include_columns=self.schema.names,
            ),
        )


@dataclass(frozen=True)
class JsonLinesFormat(ColumnarFormat):
    """Format of files with a JSON object per line. Absent fields are null, and undeclared ones are skipped."""

    row_type: TypeInformation

    def open(self, split: FileSplit, batch_type: BatchType) -> FileRecords:
        return ParsedLines(open_line_blocks(split), self._parse, split, batch_type)

    def _parse(self, block: bytes) -> pa.Table:
        # Arrow's parser accepts any bytes as text: later readers of the column would fail.
        pa.array([block], pa.binary()).cast(pa.string())
        return pa_json.read_json(
            pa.BufferReader(block),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=max(1, len(block))),
            parse_options=pa_json.ParseOptions(
                explicit_schema=parsed_schema(self.schema), unexpected_field_behavior="ignore"
            ),
        )


class ParsedLines:
    """Blocks of lines, each parsed into columns; the position is a byte offset. Implements FileRecords."""

    def __init__(
        self, blocks: LineBlocks, parse: Any, split: FileSplit, batch_type: BatchType
    ) -> None:
        self._blocks = blocks
        self._parse = parse
        self._name = split.name
        self._batch_type = batch_type
        self._schema = data_schema(batch_type.value_type)
        self.position: int | None = None
        self.unread_bytes: int | None = None

    def next_batch(self) -> RecordBatch | None:
        begin = self._blocks.position or 0
        block = self._blocks.next_block()
        self.position = self._blocks.position
        if block is None:
            return None
        if not block.strip():
            return RecordBatch.of_columns(self._batch_type, _empty(self._schema))
        try:
            batches = self._parse(block).combine_chunks().to_batches()
            columns = _conform(batches[0], self._schema) if batches else _empty(self._schema)
        except pa.ArrowInvalid as error:
            self._check_charset(block)
            raise ValueError(f"the file '{self._name}', from byte {begin} on: {error}") from error
        return RecordBatch.of_columns(self._batch_type, columns)

    def _check_charset(self, block: bytes) -> None:
        """Raise CharsetError if a block is not UTF-8; Arrow's own error would show garbled text."""
        try:
            block.decode()
        except UnicodeDecodeError as error:
            begin = (self.position or 0) - len(block)
            raise CharsetError.of(error, self._name, "UTF-8", begin, ONLY_UTF_8) from None

    def close(self) -> None:
        self._blocks.close()


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)


def parsed_schema(schema: pa.Schema) -> pa.Schema:
    """Return the types in which texts are parsed, because parsers turn numbers too large for float32 to infinity."""
    return pa.schema(
        [one.with_type(pa.float64()) if pa.types.is_float32(one.type) else one for one in schema]
    )


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return exactly the columns of `schema`, by name, cast if the file has another type."""
    if batch.schema.equals(schema):
        return batch
    columns = [_as_type(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    return cast_column(column, wanted)
