"""DataTypes: how Flink's Table API names types, for the places of the DataStream API that take them.

Columns of a CsvSchema and rows of columnar files are declared so in programs of PyFlink's; `Types` says the same.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from headrace.core.errors import ProgramError
from headrace.core.types.type_info import (
    BigDecimalTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TypeInformation,
    Types,
)


class DataField(NamedTuple):
    """A named column of a row."""

    name: str
    data_type: TypeInformation


class _NoOtherTypes(type):
    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'")
        known = ", ".join(sorted(one for one in vars(cls) if one.isupper()))
        raise ProgramError(f"DataTypes.{name} is not supported: columns are one of {known}")


class DataTypes(metaclass=_NoOtherTypes):
    """Types under the names of SQL: the same type informations that `Types` makes. Every type is nullable.

    Example:
        >>> DataTypes.ROW([DataTypes.FIELD("id", DataTypes.BIGINT()), DataTypes.FIELD("name", DataTypes.STRING())])
        RowTypeInfo(id: Long, name: String)
    """

    @staticmethod
    def STRING(nullable: bool = True) -> TypeInformation:
        """Text of any length, as CHAR and VARCHAR: no length is checked."""
        return Types.STRING()

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> TypeInformation:
        return Types.STRING()

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> TypeInformation:
        return Types.STRING()

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> TypeInformation:
        return Types.BOOLEAN()

    @staticmethod
    def TINYINT(nullable: bool = True) -> TypeInformation:
        return Types.BYTE()

    @staticmethod
    def SMALLINT(nullable: bool = True) -> TypeInformation:
        return Types.SHORT()

    @staticmethod
    def INT(nullable: bool = True) -> TypeInformation:
        return Types.INT()

    @staticmethod
    def BIGINT(nullable: bool = True) -> TypeInformation:
        return Types.LONG()

    @staticmethod
    def FLOAT(nullable: bool = True) -> TypeInformation:
        return Types.FLOAT()

    @staticmethod
    def DOUBLE(nullable: bool = True) -> TypeInformation:
        return Types.DOUBLE()

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> TypeInformation:
        """Decimals of that many digits, `scale` of them behind the point."""
        return BigDecimalTypeInfo(precision, scale)

    @staticmethod
    def BYTES(nullable: bool = True) -> TypeInformation:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())

    @staticmethod
    def DATE(nullable: bool = True) -> TypeInformation:
        return Types.SQL_DATE()

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> TypeInformation:
        return Types.SQL_TIME()

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> TypeInformation:
        """Date and time of day without a time zone, in microseconds."""
        return Types.SQL_TIMESTAMP()

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> TypeInformation:
        """Moments, in microseconds, shown in UTC."""
        return TimestampTypeInfo("UTC")

    @staticmethod
    def ARRAY(element_type: TypeInformation, nullable: bool = True) -> TypeInformation:
        return Types.LIST(element_type)

    @staticmethod
    def MAP(
        key_type: TypeInformation, value_type: TypeInformation, nullable: bool = True
    ) -> TypeInformation:
        return Types.MAP(key_type, value_type)

    @staticmethod
    def FIELD(name: str, data_type: TypeInformation, description: str | None = None) -> DataField:
        """A column of a row; the description is for people alone."""
        return DataField(name, data_type)

    @staticmethod
    def ROW(row_fields: Sequence[Any] = (), nullable: bool = True) -> RowTypeInfo:
        """A row of such fields, of pairs of a name and a type, or of types whose columns are `f0`, `f1` and so on."""
        fields = [
            one if isinstance(one, tuple) else (f"f{index}", one)
            for index, one in enumerate(row_fields)
        ]
        return Types.ROW_NAMED([one[0] for one in fields], [one[1] for one in fields])
