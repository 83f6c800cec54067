"""DataTypes: types under their names in Flink's Table API, for the parts of the DataStream API that use them.

Programs of PyFlink declare columns of a CsvSchema and rows of columnar files with them; `Types` makes the same types.
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
        raise ProgramError(f"DataTypes.{name} is not supported: the types of columns are {known}")


class DataTypes(metaclass=_NoOtherTypes):
    """Types under the names of SQL: the same type informations that `Types` makes. Every type is nullable.

    Example:
        >>> DataTypes.ROW([DataTypes.FIELD("id", DataTypes.BIGINT()), DataTypes.FIELD("name", DataTypes.STRING())])
        RowTypeInfo(id: Long, name: String)
    """

    @staticmethod
    def STRING(nullable: bool = True) -> TypeInformation:
        """Return the type of strings of any length, as for CHAR and VARCHAR, whose length is not checked."""
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
        """Return the type of decimals of `precision` digits, `scale` of them after the point."""
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
        """Return the type of date and time of day without a time zone, in microseconds."""
        return Types.SQL_TIMESTAMP()

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> TypeInformation:
        """Return the type of points in time, in microseconds, shown in UTC."""
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
        """Return a column of a row; the description is only for people."""
        return DataField(name, data_type)

    @staticmethod
    def ROW(row_fields: Sequence[Any] = (), nullable: bool = True) -> RowTypeInfo:
        """Return the type of a row of such fields, of (name, type) pairs, or of types named `f0`, `f1` and so on."""
        fields = [
            one if isinstance(one, tuple) else (f"f{index}", one)
            for index, one in enumerate(row_fields)
        ]
        return Types.ROW_NAMED([one[0] for one in fields], [one[1] for one in fields])
