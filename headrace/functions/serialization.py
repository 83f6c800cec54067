"""Schemas, encoders and serializers: convert records to bytes and back, for connectors, files and users' own types."""

from abc import ABC, abstractmethod
from io import BytesIO
from typing import Any, Generic, TypeVar

from headrace.core.types.java_text import text_function
from headrace.core.types.type_info import TypeInformation, Types

T = TypeVar("T")


class SerializationSchema(ABC):
    """Converts a record to bytes, for sinks."""

    @abstractmethod
    def serialize(self, element: Any) -> bytes:
        """Return the bytes of one record."""


class DeserializationSchema(ABC):
    """Converts bytes to a record, for sources."""

    @abstractmethod
    def deserialize(self, message: bytes) -> Any:
        """Return the record of one message, or None if the message has none and is skipped."""

    @abstractmethod
    def get_produced_type(self) -> TypeInformation:
        """Return the type of the records."""


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Converts strings in a charset."""

    def __init__(self, charset: str = "UTF-8") -> None:
        self.charset = charset

    def serialize(self, element: Any) -> bytes:
        return str(element).encode(self.charset)

    def deserialize(self, message: bytes) -> str:
        return message.decode(self.charset)

    def get_produced_type(self) -> TypeInformation:
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Passes bytes through unchanged."""

    def serialize(self, element: Any) -> bytes:
        return bytes(element)

    def deserialize(self, message: bytes) -> bytes:
        return message

    def get_produced_type(self) -> TypeInformation:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema):
    """Takes one field of a row, which must hold bytes: a key or a value of a message.

    Example:
        >>> from headrace.core.types.rows import Row
        >>> RowFieldExtractorSchema(1).serialize(Row(b"key", b"value"))
        b'value'
    """

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            raise ValueError(f"a field index must be 0 or more, not {field_index}")
        self.field_index = field_index

    def serialize(self, element: Any) -> bytes:
        """Return the field's bytes, empty if it is null; TypeError if it holds another type."""
        try:
            value = element[self.field_index]
        except (IndexError, KeyError, TypeError):
            raise TypeError(f"the record {element!r} has no field {self.field_index}") from None
        if value is None:
            return b""
        if not isinstance(value, bytes | bytearray):
            raise TypeError(
                f"field {self.field_index} of a record holds {value!r}, but must hold bytes: encode it in a map, with "
                "Types.PRIMITIVE_ARRAY(Types.BYTE()) as the field's type"
            )
        return bytes(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowFieldExtractorSchema) and self.field_index == other.field_index

    def __hash__(self) -> int:
        return hash((RowFieldExtractorSchema, self.field_index))


class Encoder(ABC):
    """Converts records to bytes in a file, one after the other."""

    @abstractmethod
    def encode(self, element: Any, type_info: TypeInformation) -> bytes:
        """Return the bytes of one record of `type_info`, including the separator."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> "Encoder":
        """Return an encoder of one line per record: the text that `print` would write."""
        return SimpleStringEncoder(charset_name)


class SimpleStringEncoder(Encoder):
    """Writes lines of text in a charset."""

    def __init__(self, charset_name: str) -> None:
        self.charset_name = charset_name

    def encode(self, element: Any, type_info: TypeInformation) -> bytes:
        return (text_function(type_info)(element) + "\n").encode(self.charset_name)


class TypeSerializer(ABC, Generic[T]):
    """Converts values of users' own types, such as windows, to bytes and back."""

    @abstractmethod
    def serialize(self, element: T, stream: BytesIO) -> None:
        """Append the bytes of a value."""

    @abstractmethod
    def deserialize(self, stream: BytesIO) -> T:
        """Read one value."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(type(self))
