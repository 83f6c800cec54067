"""FormParser: parses a form of files (multipart/form-data) as its bytes arrive, without holding files in memory. Pure.

Parameters of headers are parsed here, not by the module `email`, which is made for mail: it decodes by any codec that a
header names, and fails in many ways.
Source: RFC 2046, section 5.1; RFC 7578; RFC 5987.
"""

import enum
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

_HEADERS_BYTES_MAX: Final = 8_192
_CONTENT_TYPE_MAX: Final = 1_000
_BOUNDARY_MAX: Final = 200
_LINE: Final = b"\r\n"
_BLANK: Final = b"\r\n\r\n"
_DASHES: Final = b"--"
_FOLD: Final = re.compile(r"\r\n(?=[ \t])")
# Each alternative begins with another character, so that any text is parsed in one pass.
_PARAMETER: Final = re.compile(
    r"""\s*;\s*(?P<name>[^\s;="]+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s;"]*))""",
    re.DOTALL,
)
_PARAMETERS_END: Final = re.compile(r"[\s;]*\Z")


class FormError(ValueError):
    """The bytes are not a valid form."""


@dataclass(frozen=True)
class PartBegun:
    """A field of the form has begun; `file_name` is empty if it is not a file."""

    name: str
    file_name: str


@dataclass(frozen=True)
class PartBytes:
    """Bytes of the current field."""

    content: bytes


FormEvent = PartBegun | PartBytes


class _State(enum.Enum):
    BEFORE = "before the first field"
    BOUNDARY = "behind a boundary"
    HEADERS = "in the headers of a field"
    CONTENT = "in a field"
    END = "after the last field"


class FormParser:
    """Takes bytes and returns events; FormError if they are invalid.

    `boundary` comes from the request's Content-Type.
    """

    def __init__(self, boundary: bytes) -> None:
        if not 0 < len(boundary) <= _BOUNDARY_MAX:
            raise FormError("the boundary of the form is empty, or too long")
        self._delimiter: Final = _LINE + _DASHES + boundary
        # The first boundary may be at the very beginning.
        self._buffer = bytearray(_LINE)
        self._state = _State.BEFORE

    @property
    def is_whole(self) -> bool:
        """Return whether the form is complete."""
        return self._state is _State.END

    def feed(self, data: bytes) -> list[FormEvent]:
        """Return the events from more bytes."""
        self._buffer += data
        events: list[FormEvent] = []
        while self._step(events):
            pass
        return events

    def _step(self, events: list[FormEvent]) -> bool:
        """Parse one step; return False if the next one needs more bytes."""
        match self._state:
            case _State.BEFORE | _State.CONTENT:
                return self._content(events)
            case _State.BOUNDARY:
                return self._behind_boundary()
            case _State.HEADERS:
                return self._headers(events)
            case _State.END:
                self._buffer.clear()
                return False

    def _content(self, events: list[FormEvent]) -> bool:
        found = self._buffer.find(self._delimiter)
        # Bytes that may begin a boundary wait for the next bytes.
        end = found if found >= 0 else len(self._buffer) - len(self._delimiter) + 1
        if end > 0:
            if self._state is _State.CONTENT:
                events.append(PartBytes(bytes(self._buffer[:end])))
            del self._buffer[:end]
        if found < 0:
            return False
        del self._buffer[: len(self._delimiter)]
        self._state = _State.BOUNDARY
        return True

    def _behind_boundary(self) -> bool:
        if len(self._buffer) < len(_LINE):
            return False
        if self._buffer.startswith(_DASHES):
            self._state = _State.END
        elif self._buffer.startswith(_LINE):
            # The line's end is the first of the two that end headers, where there are none.
            self._state = _State.HEADERS
        else:
            raise FormError("a boundary of the form is not followed by a line end")
        return True

    def _headers(self, events: list[FormEvent]) -> bool:
        end = self._buffer.find(_BLANK)
        if end < 0:
            if len(self._buffer) > _HEADERS_BYTES_MAX:
                raise FormError("the headers of a field are too long")
            return False
        if end > _HEADERS_BYTES_MAX:
            raise FormError("the headers of a field are too long")
        events.append(_begun(bytes(self._buffer[len(_LINE) : end])))
        del self._buffer[: end + len(_BLANK)]
        self._state = _State.CONTENT
        return True


def boundary_of(content_type: str) -> bytes:
    """Return the boundary in a Content-Type. FormError if it is not that of a form."""
    if len(content_type) > _CONTENT_TYPE_MAX:
        raise FormError("the Content-Type is too long")
    media_type, parameters = header_parameters(content_type)
    boundary = parameters.get("boundary", "")
    if media_type != "multipart/form-data" or not boundary:
        raise FormError("the body must be a form of files (multipart/form-data) with a boundary")
    try:
        return boundary.encode("ascii")
    except UnicodeEncodeError as error:
        raise FormError("the boundary of the form is not ASCII") from error


def header_parameters(value: str) -> tuple[str, dict[str, str]]:
    """Return the first word of a header, and its parameters; words and names in lower case. FormError."""
    position = len(value.partition(";")[0])
    word = value[:position].strip().lower()
    found: dict[str, str] = {}
    while not _PARAMETERS_END.match(value, position):
        parameter = _PARAMETER.match(value, position)
        if parameter is None:
            raise FormError("the parameters of a header cannot be read")
        position = parameter.end()
        name, quoted = parameter["name"].lower(), parameter["quoted"]
        if name in found:
            raise FormError("a header has a parameter twice")
        found[name] = parameter["plain"] if quoted is None else _unquoted(quoted)
    return word, found


def _begun(headers: bytes) -> PartBegun:
    for line in _FOLD.sub("", headers.decode("utf-8", "replace")).split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            parameters = header_parameters(value)[1]
            return PartBegun(parameters.get("name", ""), _file_name(parameters))
    return PartBegun("", "")


def _file_name(parameters: dict[str, str]) -> str:
    """Return the name of a file; of two, the one with an encoding, which is read as UTF-8 (RFC 5987)."""
    encoded = parameters.get("filename*")
    if encoded is None:
        return parameters.get("filename", "")
    return unquote(encoded.split("'", 2)[-1], "utf-8", "replace")


def _unquoted(text: str) -> str:
    """Return a quoted text unquoted.

    A backslash before any character but a quote or backslash is part of a Windows path.
    """
    return text.replace("\\\\", "\\").replace('\\"', '"')
