"""Serialises failures as Java objects for Flink's Java client, without Java.

Without such bytes the client takes an outcome with a failure for a broken answer, and retries until its timeout.
Source: Java Object Serialization Specification, chapter 6; Flink SerializedThrowable.
"""

import base64
import struct
from collections.abc import Sequence
from typing import Final

_STREAM: Final = bytes.fromhex("aced 0005")
_OBJECT, _CLASS, _STRING, _LONG_STRING, _NULL, _END = (
    b"\x73",
    b"\x72",
    b"\x74",
    b"\x7c",
    b"\x70",
    b"\x78",
)
_SERIALIZABLE, _WRITES_ITS_OWN = 2, 3
_TEXT: Final = "Ljava/lang/String;"
_SHORT_SIZE_MAX: Final = 0xFFFF


def serialized_throwable(class_name: str, text: str) -> str:
    """Return a Flink exception in base64, with the text `text`, for an error of the class `class_name`."""
    message = text.partition("\n")[0]
    return base64.b64encode(
        _STREAM + _OBJECT + _CLASSES
        # Fields from the topmost class on: those of Throwable are its cause, message, stack and suppressed exceptions.
        + _NULL + _text(message) + _NULL + _NULL + _END
        + _text(text) + _text(class_name) + _NULL
    ).decode("ascii")  # fmt: skip


def _text(value: str) -> bytes:
    """Return a text in Java's serialised form, without code points of four bytes, which Java encodes differently."""
    encoded = "".join("?" if one == "\0" or one > "\uffff" else one for one in value).encode(
        "utf-8", "replace"
    )
    if len(encoded) <= _SHORT_SIZE_MAX:
        return _STRING + struct.pack(">H", len(encoded)) + encoded
    return _LONG_STRING + struct.pack(">Q", len(encoded)) + encoded


def _name(value: str) -> bytes:
    encoded = value.encode("ascii")
    return struct.pack(">H", len(encoded)) + encoded


def _described(
    name: str, version: int, flags: int, fields: Sequence[tuple[str, str]], above: bytes
) -> bytes:
    """Return a class: its fields with their types, all of them references, and its superclass `above`."""
    described = b"".join(
        kind[:1].encode("ascii") + _name(field) + _text(kind) for field, kind in fields
    )
    head = struct.pack(">QBH", version, flags, len(fields))
    return _CLASS + _name(name) + head + described + _END + above


_THROWABLE: Final = _described(
    "java.lang.Throwable",
    0xD5C635273977B8CB,
    _WRITES_ITS_OWN,
    (
        ("cause", "Ljava/lang/Throwable;"),
        ("detailMessage", _TEXT),
        ("stackTrace", "[Ljava/lang/StackTraceElement;"),
        ("suppressedExceptions", "Ljava/util/List;"),
    ),
    _NULL,
)
_EXCEPTION: Final = _described(
    "java.lang.Exception", 0xD0FD1F3E1A3B1CC4, _SERIALIZABLE, (), _THROWABLE
)
_CLASSES: Final = _described(
    "org.apache.flink.util.SerializedThrowable",
    0x65169DF51FA713F3,
    _SERIALIZABLE,
    (
        ("fullStringifiedStackTrace", _TEXT),
        ("originalErrorClassName", _TEXT),
        ("serializedException", "[B"),
    ),
    _EXCEPTION,
)
