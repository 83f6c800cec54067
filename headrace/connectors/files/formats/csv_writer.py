"""Writes columns as CSV files by a CsvSchema. Source: Flink CsvBulkWriter; Jackson CsvGenerator."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from headrace.connectors.files.formats.csv_schema import CsvColumn, CsvSchema
from headrace.connectors.files.formats.stream_formats import BulkWriterFactory, PartContent
from headrace.core.errors import ProgramError
from headrace.core.record_batch import RecordBatch
from headrace.core.types.arrow_types import data_schema
from headrace.core.types.java_text import text_function
from headrace.core.types.type_info import (
    BasicType,
    BasicTypeInfo,
    BigDecimalTypeInfo,
    TypeInformation,
    Types,
)

_UNCHECKED_LENGTH: Final = 24
"""Longer texts are quoted without being checked, as by Jackson."""


class CsvBulkWriters:
    """Factory of CSV formats for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> "CsvWriterFactory":
        """Write rows whose fields are the columns of the schema, in their order.

        Example:
            >>> CsvBulkWriters.for_schema(CsvSchema.builder().add_string_column("name").build()).schema.size()
            1
        """
        return CsvWriterFactory(schema)


@dataclass(frozen=True)
class CsvWriterFactory(BulkWriterFactory):
    """Format of CSV files with one schema."""

    schema: CsvSchema

    def check_input(self, value_type: TypeInformation) -> None:
        super().check_input(value_type)
        found = data_schema(value_type).names
        if len(found) != self.schema.size():
            raise ProgramError(
                f"the stream's records have {len(found)} columns ({', '.join(found)}), but the CSV schema has "
                f"{self.schema.size()}"
            )

    def open(self, stream: Any, value_type: TypeInformation) -> PartContent:
        return CsvContent(stream, self.schema)


class CsvContent:
    """Rows of one file. Implements PartContent."""

    def __init__(self, stream: Any, schema: CsvSchema) -> None:
        self._stream = stream
        self._schema = schema
        self._writers = [_value_writer(schema, column) for column in schema.columns]
        self.size_bytes = 0
        if schema.has_header:
            quoted = _text_writer(schema)
            self._append(schema.separator.join(quoted(one.name) for one in schema.columns))

    def write(self, batch: RecordBatch) -> None:
        writers, join = self._writers, self._schema.separator.join
        self._append(
            *[
                join([write(value) for write, value in zip(writers, row, strict=True)])
                for row in batch.rows()
            ]
        )

    def finish(self) -> None:
        """Do nothing: no data is buffered."""

    def abandon(self) -> None:
        """Do nothing: no data is buffered."""

    def _append(self, *lines: str) -> None:
        end = self._schema.line_separator
        payload = "".join([line + end for line in lines]).encode()
        self._stream.write(payload)
        self.size_bytes += len(payload)


def _value_writer(schema: CsvSchema, column: CsvColumn) -> Callable[[Any], str]:
    """Return the function from a value of that column, or None, to its text."""
    null = schema.null_value or ""
    quoted = _text_writer(schema)
    if column.is_array:
        plain = _plain_writer(cast(Any, column.data_type).element_type)
        separator = schema.separator_of(column)

        def write_array(values: list[Any] | None) -> str:
            if values is None:
                return null
            return quoted(separator.join(null if one is None else plain(one) for one in values))

        return write_array
    plain = _plain_writer(column.data_type)
    is_text = column.data_type in (Types.STRING(), Types.CHAR())
    return lambda value: (
        null if value is None else quoted(plain(value)) if is_text else plain(value)
    )


def _plain_writer(data_type: TypeInformation) -> Callable[[Any], str]:
    if isinstance(data_type, BasicTypeInfo):
        if data_type.basic_type is BasicType.BOOLEAN:
            return lambda value: "true" if value else "false"
        if data_type.basic_type in (BasicType.STRING, BasicType.CHAR):
            return str
    if isinstance(data_type, BigDecimalTypeInfo):
        return lambda value: format(value.normalize(), "f")
    return text_function(data_type)


def _text_writer(schema: CsvSchema) -> Callable[[str], str]:
    """Return the function that quotes a text if necessary; long texts are always quoted."""
    quote, escape = schema.quote, schema.escape
    if quote is None:
        return str
    # As Jackson does: up to the highest character that means something, and the usual escape, all get quotes.
    highest = max(schema.separator, quote, *schema.line_separator)
    escapes = ("\\", escape)

    def write(text: str) -> str:
        if len(text) <= _UNCHECKED_LENGTH and not any(
            one <= highest or one in escapes for one in text
        ):
            return text
        if escape is not None:
            text = text.replace(escape, escape + escape)
        return f"{quote}{text.replace(quote, quote + quote)}{quote}"

    return write
