"""Reads rows of CSV files by a CsvSchema: splits text into fields, and converts them to column values.

Source: Flink CsvReaderFormat; Jackson CsvParser.
"""

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, cast

import pyarrow as pa

from headrace.connectors.files.formats.csv_schema import CsvColumn, CsvSchema
from headrace.connectors.files.formats.line_blocks import CHUNK_SIZE_BYTES, NamedStream
from headrace.connectors.files.formats.splits import FileReaderFormat, FileRecords, FileSplit
from headrace.connectors.files.formats.text_lines import ONLY_UTF_8, CharsetError
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.arrow_types import data_schema
from headrace.core.types.type_info import (
    BasicType,
    BasicTypeInfo,
    BigDecimalTypeInfo,
    TypeInformation,
)

BATCH_ROWS: Final = 8_192
_ESCAPED: Final = {"0": "\0", "n": "\n", "r": "\r", "t": "\t"}
"""Letters with a special meaning after an escape; any other character stands for itself."""
_BYTE_ORDER_MARK: Final = "\ufeff"
_COMMENT: Final = re.compile(r"[ \t]*#")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_ROW_CHARACTERS_MAX: Final = 16 << 20
"""Characters after which a row without an end is an error: its quote is a mistake, and the file must not fill memory.
"""


class CsvRowError(ValueError):
    """A row of a file does not match the schema. Not a HeadraceError: the reading operator adds its name."""

    def __init__(self, name: str, row_index: int, reason: str) -> None:
        super().__init__(f"the file '{name}', row {row_index + 1}: {reason}")
        self.row_index = row_index


class CsvTokens:
    """Splits a text into rows of values while reading it. A quoted value may hold any character, also a line end.

    A position is a number of rows, counted without comments.
    """

    def __init__(self, text: "TextStream", schema: CsvSchema, name: str) -> None:
        self._text = text
        self._name = name
        self._value = _value_pattern(schema)
        self._allows_comments = schema.allows_comments
        self._plain = _plain_text(schema.quote, schema.escape)
        self._unescaped = _plain_text(None, schema.escape)
        self._buffer = ""
        self._begin = 0
        self._has_ended = False
        self.row_count = 0

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        while True:
            row = self._next_row()
            if row is None:
                self._read_on()
            elif row:
                self.row_count += 1
                return row

    def _next_row(self) -> list[str] | None:
        """Return the values of the next line, an empty list for a skipped one; None if its end was not read yet."""
        buffer, place = self._buffer, self._begin
        if place >= len(buffer):
            if self._has_ended:
                raise StopIteration
            return None
        if self._is_comment(buffer, place):
            end = _LINE_END.search(buffer, place)
            if not self._has_ended and (end is None or end.end() == len(buffer)):
                # A line feed may follow.
                return None
            self._begin = len(buffer) if end is None else end.end()
            return []
        row: list[str] = []
        while True:
            found = self._value.match(buffer, place)
            if found is None or (found.end() == len(buffer) and not self._has_ended):
                if self._has_ended or len(buffer) - self._begin > _ROW_CHARACTERS_MAX:
                    reason = "a quote is opened but not closed at the end of a value"
                    raise CsvRowError(self._name, self.row_count, reason)
                return None
            quoted, plain, end = found.groups()
            if quoted is not None:
                row.append(self._plain(quoted))
            else:
                row.append(self._unescaped(plain))
            place = found.end()
            if end in ("\n", "\r", "\r\n", ""):
                self._begin = place
                return row

    def _is_comment(self, buffer: str, place: int) -> bool:
        return self._allows_comments and _COMMENT.match(buffer, place) is not None

    def _read_on(self) -> None:
        chunk = self._text.read(CHUNK_SIZE_BYTES)
        self._has_ended = not chunk
        self._buffer = self._buffer[self._begin :] + chunk
        self._begin = 0


def _value_pattern(schema: CsvSchema) -> re.Pattern[str]:
    """Return the pattern of one value and its end: the groups are a quoted text, a plain one and the end."""
    separator = re.escape(schema.separator)
    end = rf"({separator}|\r\n|\r|\n|\Z)"
    escaped = "" if schema.escape is None else rf"{re.escape(schema.escape)}.|"
    no_escape = "" if schema.escape is None else re.escape(schema.escape)
    plain = rf"((?:{escaped}[^{separator}{no_escape}\r\n])*)"
    if schema.quote is None:
        # A group that matches nothing stands for the quoted text.
        return re.compile(rf"((?!))?{plain}{end}", re.DOTALL)
    quote = re.escape(schema.quote)
    quoted = rf"{quote}((?:{escaped}{quote}{quote}|[^{quote}{no_escape}])*){quote}[ \t]*"
    return re.compile(rf"(?:{quoted}|(?!{quote}){plain}){end}", re.DOTALL)


def _plain_text(quote: str | None, escape: str | None) -> Callable[[str], str]:
    """Return the function that resolves doubled quotes and escapes in a value."""
    if escape is None:
        return str if quote is None else lambda text: text.replace(quote + quote, quote)
    doubled = "" if quote is None else f"{re.escape(quote)}{re.escape(quote)}|"
    pattern = re.compile(rf"{doubled}{re.escape(escape)}(.)", re.DOTALL)

    def replaced(found: re.Match[str]) -> str:
        letter = cast("str | None", found.group(1))
        return cast(str, quote) if letter is None else _ESCAPED.get(letter, letter)

    return lambda text: pattern.sub(replaced, text)


@dataclass(frozen=True)
class CsvSchemaFormat(FileReaderFormat):
    """Format of CSV files by a CsvSchema: columns by position. A file is read by one subtask, from its beginning."""

    schema: CsvSchema

    @property
    def is_splittable(self) -> bool:
        return False

    @property
    def produced_type(self) -> TypeInformation:
        return self.schema.row_type

    def open(self, split: FileSplit, batch_type: BatchType) -> FileRecords:
        return CsvRows(split, self.schema, batch_type)


class CsvRows:
    """Rows of a file in columns; the position is the number of rows. Implements FileRecords."""

    def __init__(self, split: FileSplit, schema: CsvSchema, batch_type: BatchType) -> None:
        self._name = split.name
        self._schema = schema
        self._batch_type = batch_type
        self._arrow_schema = data_schema(batch_type.value_type)
        self._parsers = [value_parser(schema, column) for column in schema.columns]
        content = NamedStream(split.open_file_system().open_input_stream(split.name), split.name)
        self._stream = TextStream(content, split.name)
        self._tokens = CsvTokens(self._stream, schema, split.name)
        self._pass_head()
        for _ in range(split.position or 0):
            next(self._tokens, None)
        self.position: int | None = split.position or 0
        self.unread_bytes: int | None = None

    def next_batch(self) -> RecordBatch | None:
        width = len(self._schema.columns)
        first = self._tokens.row_count
        columns: list[list[Any]] = [[] for _ in range(width)]
        count = 0
        for row in self._tokens:
            if len(row) != width:
                row = self._of_width(row, first + count)
            for index, text in enumerate(row):
                try:
                    columns[index].append(self._parsers[index](text))
                except (ValueError, ArithmeticError) as error:
                    column = self._schema.columns[index]
                    reason = (
                        f"the column '{column.name}' is {column.data_type}, not '{text}' ({error})"
                    )
                    raise CsvRowError(self._name, first + count, reason) from None
            count += 1
            if count == BATCH_ROWS:
                break
        if not count:
            return None
        self.position = (self.position or 0) + count
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(columns, self._arrow_schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._arrow_schema)
        return RecordBatch.of_columns(self._batch_type, batch)

    def close(self) -> None:
        self._stream.close()

    def _pass_head(self) -> None:
        schema = self._schema
        if schema.has_header:
            header = next(self._tokens, None)
            names = [column.name for column in schema.columns]
            if schema.has_strict_header and header is not None and header != names:
                raise CsvRowError(
                    self._name, 0, f"the header is {', '.join(header)}, not {', '.join(names)}"
                )
        if schema.skips_first_row:
            next(self._tokens, None)

    def _of_width(self, row: list[str], row_index: int) -> list[str]:
        width = len(self._schema.columns)
        if len(row) > width and self._schema.any_property_name is not None:
            return row[:width]
        raise CsvRowError(
            self._name, row_index, f"it has {len(row)} values, but the schema has {width} columns"
        )


class TextStream:
    """The text of a UTF-8 stream, with unchanged line ends and without a byte order mark."""

    def __init__(self, content: NamedStream, name: str) -> None:
        self._content = content
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._size_bytes = 0
        self._has_begun = False

    def read(self, size: int) -> str:
        """Return the next characters, "" at the end. CharsetError."""
        while True:
            chunk = self._content.read(size)
            self._size_bytes += len(chunk)
            try:
                text = self._decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                begin = self._size_bytes - len(error.object)
                raise CharsetError.of(error, self._name, "UTF-8", begin, ONLY_UTF_8) from None
            if not self._has_begun and text:
                self._has_begun = True
                text = text.removeprefix(_BYTE_ORDER_MARK)
            if text or not chunk:
                return text

    def close(self) -> None:
        """Close the stream."""
        self._content.close()


def value_parser(schema: CsvSchema, column: CsvColumn) -> Callable[[str], Any]:
    """Return the function from a text to a value of that column; it raises ValueError or ArithmeticError."""
    null_value = schema.null_value
    if column.is_array:
        parse = _array_parser(column, schema.separator_of(column))
    else:
        parse = _parser_of(column.data_type)
    if null_value is None:
        return parse
    return lambda text: None if text == null_value else parse(text)


def _array_parser(column: CsvColumn, separator: str) -> Callable[[str], Any]:
    parse = _parser_of(cast(Any, column.data_type).element_type)

    def elements(text: str) -> list[Any]:
        if not text:
            return []
        return [parse(one) for one in (text.split(separator) if separator else [text])]

    return elements


def _parser_of(data_type: TypeInformation) -> Callable[[str], Any]:
    if isinstance(data_type, BigDecimalTypeInfo):
        scale = Decimal(1).scaleb(-data_type.scale)
        return lambda text: Decimal(text.strip()).quantize(scale, rounding="ROUND_HALF_UP")
    if not isinstance(data_type, BasicTypeInfo):
        raise TypeError(f"a CSV column cannot be {data_type}")
    match data_type.basic_type:
        case BasicType.STRING | BasicType.CHAR:
            return str
        case BasicType.BOOLEAN:
            return lambda text: text.strip().lower() == "true"
        case BasicType.FLOAT | BasicType.DOUBLE:
            return lambda text: float(text.replace("_", "x"))
        case BasicType.BYTE:
            return _integer_parser(8)
        case BasicType.SHORT:
            return _integer_parser(16)
        case BasicType.INT:
            return _integer_parser(32)
        case BasicType.LONG:
            return _integer_parser(64)
        case _:
            return lambda text: Decimal(text.strip())


def _integer_parser(bits: int) -> Callable[[str], int]:
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def parse(text: str) -> int:
        # Python takes 1_000 for a number, too.
        value = int(text.replace("_", "x"))
        if not least <= value <= most:
            raise ValueError(f"it must be within {least}..{most}")
        return value

    return parse
