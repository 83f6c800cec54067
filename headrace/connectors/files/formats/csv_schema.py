"""CsvSchema: the columns of CSV files, by position, and the notation of their values.

Source: Jackson CsvSchema, which PyFlink's CsvSchema wraps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.core.types.type_info import RowTypeInfo, TypeInformation, Types


@dataclass(frozen=True)
class CsvColumn:
    """A column. `separator`: between the elements of an array; "" for the schema's default."""

    name: str
    data_type: TypeInformation
    separator: str = ""
    is_array: bool = False


@dataclass(frozen=True)
class CsvSchema:
    """Columns in their order in the file, and the dialect of the file.

    `quote` and `escape` are one character, or None for none. A value that equals `null_value` is null. Columns are
    found by their position; a header is ignored unless `has_strict_header`.

    Example:
        >>> from headrace.core.types.data_types import DataTypes
        >>> schema = CsvSchema.builder().add_number_column("id", number_type=DataTypes.INT()).add_string_column(
        ...     "name").add_array_column("tags", ",").set_column_separator("|").build()
        >>> len(schema), schema.row_type
        (3, RowTypeInfo(id: Integer, name: String, tags: ListTypeInfo<String>))
    """

    columns: tuple[CsvColumn, ...] = ()
    separator: str = ","
    quote: str | None = '"'
    escape: str | None = None
    element_separator: str = ";"
    line_separator: str = "\n"
    null_value: str | None = None
    any_property_name: str | None = None
    allows_comments: bool = False
    skips_first_row: bool = False
    has_header: bool = False
    has_strict_header: bool = False

    @staticmethod
    def builder() -> "CsvSchemaBuilder":
        """Return a builder without columns."""
        return CsvSchemaBuilder()

    @property
    def row_type(self) -> RowTypeInfo:
        """Return the type of the records."""
        names = [column.name for column in self.columns]
        return Types.ROW_NAMED(names, [column.data_type for column in self.columns])

    def separator_of(self, column: CsvColumn) -> str:
        """Return the separator of an array's elements in that column; "" if the array is one element."""
        return column.separator or self.element_separator

    def size(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


class CsvSchemaBuilder:
    """Builds a CsvSchema. Setters return the builder."""

    def __init__(self) -> None:
        self._schema = CsvSchema()

    def add_array_column(
        self, name: str, separator: str = ";", element_type: TypeInformation | None = None
    ) -> "CsvSchemaBuilder":
        """Add a list whose elements are text, or of `element_type`, with `separator` in between."""
        elements = Types.LIST(element_type or Types.STRING())
        return self._add(CsvColumn(name, elements, separator, is_array=True))

    def add_boolean_column(self, name: str) -> "CsvSchemaBuilder":
        """Add a column with the values `true` and `false`."""
        return self._add(CsvColumn(name, Types.BOOLEAN()))

    def add_number_column(
        self, name: str, number_type: TypeInformation | None = None
    ) -> "CsvSchemaBuilder":
        """Add a column of numbers of `number_type`, by default `DataTypes.BIGINT()`."""
        return self._add(CsvColumn(name, number_type or Types.LONG()))

    def add_string_column(self, name: str) -> "CsvSchemaBuilder":
        """Add a column of text."""
        return self._add(CsvColumn(name, Types.STRING()))

    def add_columns_from(self, schema: CsvSchema) -> "CsvSchemaBuilder":
        """Append the columns of another schema."""
        for column in schema.columns:
            self._add(column)
        return self

    def clear_columns(self) -> "CsvSchemaBuilder":
        """Remove the columns, but keep the other settings."""
        return self._with_columns(())

    def set_allow_comments(self, allow: bool = True) -> "CsvSchemaBuilder":
        """Skip lines that begin with `#`."""
        self._schema = replace(self._schema, allows_comments=allow)
        return self

    def set_any_property_name(self, name: str) -> "CsvSchemaBuilder":
        """Skip values after the last column, which otherwise fail the job; rows have no field for them."""
        self._schema = replace(self._schema, any_property_name=name)
        return self

    def disable_array_element_separator(self) -> "CsvSchemaBuilder":
        """Read a value as one element if its column has no separator of its own."""
        return self.set_array_element_separator("")

    def remove_array_element_separator(self, index: int) -> "CsvSchemaBuilder":
        """Separate the elements of the column at that index by the schema's default separator."""
        columns = list(self._schema.columns)
        columns[index] = replace(columns[index], separator="")
        return self._with_columns(columns)

    def set_array_element_separator(self, separator: str) -> "CsvSchemaBuilder":
        """Set the default separator of elements; `add_array_column` can set one for a column."""
        self._schema = replace(self._schema, element_separator=separator)
        return self

    def set_column_separator(self, char: str) -> "CsvSchemaBuilder":
        """Set the character between columns, by default `,`."""
        self._schema = replace(self._schema, separator=_one_character("column separator", char))
        return self

    def disable_escape_char(self) -> "CsvSchemaBuilder":
        """Use no escape character, which is the default."""
        self._schema = replace(self._schema, escape=None)
        return self

    def set_escape_char(self, char: str) -> "CsvSchemaBuilder":
        """Set the character that makes the next one literal."""
        self._schema = replace(self._schema, escape=_one_character("escape char", char))
        return self

    def set_line_separator(self, separator: str) -> "CsvSchemaBuilder":
        """Set the end of written lines; lines that are read end with LF, CR or both."""
        self._schema = replace(self._schema, line_separator=separator)
        return self

    def set_null_value(self, null_value: str) -> "CsvSchemaBuilder":
        """Set the text that stands for null.

        Without one, null is written as an empty value, and no value is read as null.
        """
        self._schema = replace(self._schema, null_value=null_value)
        return self

    def disable_quote_char(self) -> "CsvSchemaBuilder":
        """Read and write quotes as ordinary characters."""
        self._schema = replace(self._schema, quote=None)
        return self

    def set_quote_char(self, char: str) -> "CsvSchemaBuilder":
        """Set the character that encloses values with separators, by default `"`."""
        self._schema = replace(self._schema, quote=_one_character("quote char", char))
        return self

    def set_skip_first_data_row(self, skip: bool = True) -> "CsvSchemaBuilder":
        """Skip the first row, after the header if there is one."""
        self._schema = replace(self._schema, skips_first_row=skip)
        return self

    def set_strict_headers(self, strict: bool = True) -> "CsvSchemaBuilder":
        """Fail if the header does not name exactly the columns, in their order."""
        self._schema = replace(self._schema, has_strict_header=strict)
        return self

    def set_use_header(self, use: bool = True) -> "CsvSchemaBuilder":
        """Use the first line as a header when reading, and write one."""
        self._schema = replace(self._schema, has_header=use)
        return self

    def size(self) -> int:
        """Return the number of columns added so far."""
        return self._schema.size()

    def __len__(self) -> int:
        return self.size()

    def build(self) -> CsvSchema:
        return self._schema

    def _add(self, column: CsvColumn) -> "CsvSchemaBuilder":
        return self._with_columns((*self._schema.columns, column))

    def _with_columns(self, columns: Sequence[CsvColumn]) -> "CsvSchemaBuilder":
        self._schema = replace(self._schema, columns=tuple(columns))
        return self


def _one_character(what: str, char: str) -> str:
    if len(char) != 1:
        raise ValueError(f"the {what} must be a single character, not {char!r}")
    return char
