"""Row: a record of ordered fields with or without names, and the kind of change that it describes."""

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, cast


class RowKind(enum.Enum):
    """The change that a row describes in a stream of changes."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return KIND_TEXTS[self.value]


KIND_TEXTS: Final = ("+I", "-U", "+U", "-D")
_KINDS: Final = (
    RowKind.INSERT,
    RowKind.UPDATE_BEFORE,
    RowKind.UPDATE_AFTER,
    RowKind.DELETE,
)


class Row:
    """Ordered fields: `Row(1, 'a')` by position, `Row(a=1, b='x')` by name, `Row('a', 'b')(1, 'x')` in two steps.

    Fields are read by position, slice or name, and may be assigned by position or name. Rows are equal if names, values
    and kinds are; they have no order.

    Example:
        >>> person = Row(name="Ada", age=36)
        >>> person.name, person[1]
        ('Ada', 36)
    """

    # `_kind` is the number of the RowKind and `_values` a tuple: both are read by the column mapping for whole
    # batches at once, where an enum's hash or a copy per row would show.
    __slots__ = ("_fields", "_kind", "_values")
    _fields: tuple[str, ...] | None
    _values: tuple[Any, ...]
    _kind: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError("a Row takes its fields by position or by name, not both")
        if kwargs:
            self._fields = tuple(kwargs)
            self._values = tuple(kwargs.values())
        else:
            self._fields = None
            self._values = args
        self._kind = 0

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> "Row":
        """Return a row of that kind; fields as in the constructor."""
        row = Row(*args, **kwargs)
        row._kind = row_kind.value
        return row

    def __call__(self, *args: Any) -> "Row":
        """Use this row's values as field names: `Row('a', 'b')(1, 2) == Row(a=1, b=2)`."""
        if len(args) > len(self._values):
            raise TypeError(f"{len(args)} values for the {len(self._values)} fields of {self!r}")
        return row_of(tuple(self._values[: len(args)]), args)

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return a dict of names and values; `recursive` also converts rows inside values.

        TypeError for a positional row.
        """
        if self._fields is None:
            raise TypeError("a Row without field names cannot become a dict")
        if recursive:
            return dict(zip(self._fields, map(_as_dict_recursively, self._values), strict=False))
        return dict(zip(self._fields, self._values, strict=False))

    def get_row_kind(self) -> RowKind:
        return _KINDS[self._kind]

    def set_row_kind(self, row_kind: RowKind) -> None:
        self._kind = row_kind.value

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Set the names of the fields, in order."""
        self._fields = tuple(field_names)

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """Return the values of `names` in this order; all values of a positional row."""
        if self._fields is None or self._fields == tuple(names):
            return list(self._values)
        unknown = [name for name in names if name not in self._fields]
        if unknown:
            raise ValueError(f"no field {unknown} in {list(self._fields)}")
        return [self._values[self._fields.index(name)] for name in names]

    def _index_of(self, name: str) -> int:
        if self._fields is None:
            raise AttributeError(f"a Row without field names has no field '{name}'")
        try:
            return self._fields.index(name)
        except ValueError:
            raise ValueError(f"no field '{name}' in {list(self._fields)}") from None

    def __getattr__(self, name: str) -> Any:
        # Reached only where normal look-up failed. Slots that pickling has not filled yet end here too.
        if name.startswith("__") or name in Row.__slots__:
            raise AttributeError(name)
        try:
            return self._values[self._index_of(name)]
        except (ValueError, IndexError):
            raise AttributeError(name) from None

    def __getitem__(self, item: int | slice | str) -> Any:
        if isinstance(item, str):
            return self._values[self._index_of(item)]
        return self._values[item]

    def __setitem__(self, item: int | str, value: Any) -> None:
        index = self._index_of(item) if isinstance(item, str) else item
        values = list(self._values)
        values[index] = value
        self._values = tuple(values)

    def __contains__(self, item: object) -> bool:
        return item in (self._values if self._fields is None else self._fields)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return (
            self._values == other._values
            and self._fields == other._fields
            and self._kind == other._kind
        )

    def __hash__(self) -> int:
        return hash(self._values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_row, (self._fields, self._values, self._kind)

    def __repr__(self) -> str:
        if self._fields is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        pairs = zip(self._fields, self._values, strict=False)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"


def row_of(fields: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    """Return an INSERT row with the given names."""
    return _restore_row(fields, values, 0)


def copy_row(row: Row) -> Row:
    """Return a new row with the same values, names and kind."""
    return _restore_row(row._fields, row._values, row._kind)  # pyright: ignore[reportPrivateUsage]


def plain_values(row: Row, names: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Return the values of a row if they define it completely: an INSERT with just `names`, or without names.

    Else None.
    """
    fields = row._fields  # pyright: ignore[reportPrivateUsage]
    if row._kind or (fields is not None and fields != names):  # pyright: ignore[reportPrivateUsage]
        return None
    return row._values  # pyright: ignore[reportPrivateUsage]


def row_parts(row: Row) -> tuple[Any, ...]:
    """Return the parts that define a row: names, number of the kind, then the values."""
    return row._fields, row._kind, *row._values  # pyright: ignore[reportPrivateUsage]


def row_of_parts(fields: tuple[str, ...] | None, kind: int, *values: Any) -> Row:
    """Return the row made of the result of `row_parts`."""
    return _restore_row(fields, values, kind)


def set_row_values(row: Row, values: tuple[Any, ...]) -> None:
    """Set the values of a row's fields, in order."""
    row._values = values  # pyright: ignore[reportPrivateUsage]


def rows_of(fields: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> list[Row]:
    """Return an INSERT row for each tuple of values: the hot path from columns to rows."""
    # Slot descriptors are bound once and __init__ is passed over: half the time of a call per row.
    new = Row.__new__
    made: list[Row] = []
    append = made.append
    for values in rows:
        row = new(Row)
        row._fields = fields  # pyright: ignore[reportPrivateUsage]
        row._values = values  # pyright: ignore[reportPrivateUsage]
        row._kind = 0  # pyright: ignore[reportPrivateUsage]
        append(row)
    return made


def _restore_row(fields: tuple[str, ...] | None, values: tuple[Any, ...], kind: int) -> Row:
    row = Row.__new__(Row)
    row._fields = fields  # pyright: ignore[reportPrivateUsage]
    row._values = values  # pyright: ignore[reportPrivateUsage]
    row._kind = kind  # pyright: ignore[reportPrivateUsage]
    return row


def _as_dict_recursively(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(recursive=True)
    if isinstance(value, list):
        return [_as_dict_recursively(item) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        items = cast(dict[Any, Any], value).items()
        return {key: _as_dict_recursively(item) for key, item in items}
    return value
