"""Values of every class that a user may keep without a declared type, and rows with a field of every declared type."""

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from headrace import Duration, OutputTag, Row, Time, Types
from headrace.common import Instant, RowKind
from headrace.core.types.type_info import TypeInformation
from headrace.datastream import TimeDomain
from headrace.datastream.state import StateTtlConfig
from headrace.datastream.window import CountWindow, GlobalWindow, TimestampedValue, TimeWindow
from headrace.functions.joins import TaggedUnion

ANY: Final = Types.PICKLED_BYTE_ARRAY()


@dataclass(frozen=True)
class Visit:
    """A user's own class, with values of the product within."""

    number: int
    at: Instant
    window: TimeWindow


class Seat(NamedTuple):
    row: int
    letter: str


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def own_values(number: int) -> list[Any]:
    """One of each class, Headrace's own and a program's, all made of a number."""
    return [
        Row(number, "by position"),
        Row(number=number, inner=Row(text="by name")),
        Row.of_kind(RowKind.UPDATE_AFTER, number),
        RowKind.DELETE,
        Instant(number, 5),
        Duration.of_millis(number),
        Time.seconds(number),
        TimeWindow(number, number + 10),
        CountWindow(number),
        GlobalWindow.get(),
        TimestampedValue(number, 7),
        TaggedUnion.two(number),
        TimeDomain.PROCESSING_TIME,
        OutputTag(f"side {number}", Types.LONG()),
        StateTtlConfig.new_builder(Time.days(number + 1)).build(),
        *declared_types(),
        Visit(number, Instant(number, 0), TimeWindow(0, number)),
        Seat(number, "A"),
        Colour.BLUE,
        {"a set": {number}, "bytes": bytes([number]), "of": (number, None, 0.5)},
        datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=number),
        Decimal(number) / 4,
    ]


def declared_types() -> list[TypeInformation]:
    """One of each class of declared types."""
    return [
        Types.STRING(),
        Types.INSTANT(),
        Types.SQL_DATE(),
        Types.SQL_TIME(),
        Types.SQL_TIMESTAMP(),
        Types.BIG_DEC(),
        Types.PICKLED_BYTE_ARRAY(),
        Types.ROW([Types.LONG(), Types.ROW_NAMED(["name"], [Types.STRING()])]),
        Types.TUPLE([Types.BOOLEAN(), Types.FLOAT()]),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.BASIC_ARRAY(Types.STRING()),
        Types.OBJECT_ARRAY(Types.TUPLE([Types.SHORT()])),
        Types.MAP(Types.CHAR(), Types.BIG_INT()),
        Types.LIST(Types.DOUBLE()),
    ]


_PLAIN: Final = "text byte truth short int long float double big decimal instant date"
_NESTED: Final = "row pair bytes texts pairs by_text doubles any"
ALL_TYPES: Final = Types.ROW_NAMED(
    f"{_PLAIN} {_NESTED}".split(),
    [
        Types.STRING(),
        Types.BYTE(),
        Types.BOOLEAN(),
        Types.SHORT(),
        Types.INT(),
        Types.LONG(),
        Types.FLOAT(),
        Types.DOUBLE(),
        Types.BIG_INT(),
        Types.BIG_DEC(),
        Types.INSTANT(),
        Types.SQL_DATE(),
        Types.ROW([Types.LONG(), Types.ROW_NAMED(["name"], [Types.STRING()])]),
        Types.TUPLE([Types.BOOLEAN(), Types.DOUBLE()]),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.BASIC_ARRAY(Types.STRING()),
        Types.OBJECT_ARRAY(Types.TUPLE([Types.SHORT(), Types.STRING()])),
        Types.MAP(Types.STRING(), Types.LONG()),
        Types.LIST(Types.DOUBLE()),
        ANY,
    ],
)
"""Without times of the local zone, which are others where the zone is another."""


def all_types(number: int) -> Row:
    """A row with a value of every type."""
    values = [
        f"number {number}",
        number,
        number % 2 == 0,
        number,
        number,
        number << 40,
        0.5,
        number / 8,
        number << 80,
        Decimal(number) / 4,
        Instant(number, 999),
        date(2020, 1, 1) + timedelta(days=number),
        Row(number, Row(name="inner")),
        (True, 0.25),
        bytes([number, 255]),
        ["a", None],
        [(number, "b")],
        {"a": number},
        [1.5, float(number)],
        Seat(number, "B"),
    ]
    return Row(**dict(zip(ALL_TYPES.field_names, values, strict=True)))


def shown(value: Any) -> str:
    """The value in words that are the same in every process, and wherever its class stands."""
    match value:
        case StateTtlConfig():
            return f"ttl of {value.get_ttl().to_milliseconds()} ms"
        case dict():
            return (
                "{" + ", ".join(sorted(f"{shown(k)}: {shown(v)}" for k, v in value.items())) + "}"
            )
        case tuple() if type(value) is tuple:
            return f"({', '.join(map(shown, value))})"
        case enum.Enum():
            return f"{type(value).__name__}.{value.name}"
        case Row():
            fields = ", ".join(map(shown, value))
            names = value._fields  # pyright: ignore[reportPrivateUsage]
            return f"{value.get_row_kind()}({fields}){'' if names is None else ' of ' + ' '.join(names)}"
        case _:
            return repr(value)
