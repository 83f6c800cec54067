"""FormParser: reads a form of files (multipart/form-data) as its bytes come, whole files in no one's memory. Pure.

Source: RFC 2046, section 5.1; RFC 7578.
"""

import email.message
import email.parser
import enum
from dataclasses import dataclass
from typing import Final

_HEADERS_BYTES_MAX: Final = 8_192
_BOUNDARY_MAX: Final = 200
_LINE: Final = b"\r\n"
_BLANK: Final = b"\r\n\r\n"
_DASHES: Final = b"--"


class FormError(ValueError):
    """The bytes are no form."""


@dataclass(frozen=True)
class PartBegun:
    """A field of the form; `file_name` is empty where it is no file."""

    name: str
    file_name: str


@dataclass(frozen=True)
class PartBytes:
    """Bytes of the field that has begun."""

    content: bytes


FormEvent = PartBegun | PartBytes


class _State(enum.Enum):
    BEFORE = "before the first field"
    BOUNDARY = "behind a boundary"
    HEADERS = "in the headers of a field"
    CONTENT = "in a field"
    END = "behind the last field"


class FormParser:
    """Takes bytes and returns events; FormError. `boundary` is what the Content-Type of the request names."""

    def __init__(self, boundary: bytes) -> None:
        if not 0 < len(boundary) <= _BOUNDARY_MAX:
            raise FormError("the boundary of the form is empty, or too long")
        self._delimiter: Final = _LINE + _DASHES + boundary
        # The first boundary may stand at the very beginning.
        self._buffer = bytearray(_LINE)
        self._state = _State.BEFORE

    @property
    def is_whole(self) -> bool:
        """Return whether the form has come to its end."""
        return self._state is _State.END

    def feed(self, data: bytes) -> list[FormEvent]:
        """Return what these bytes add."""
        self._buffer += data
        events: list[FormEvent] = []
        while self._step(events):
            pass
        return events

    def _step(self, events: list[FormEvent]) -> bool:
        """Take one step; False where more bytes are needed for the next."""
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
        # What could be the beginning of a boundary waits for its rest.
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
            raise FormError("a boundary of the form goes on with something else")
        return True

    def _headers(self, events: list[FormEvent]) -> bool:
        end = self._buffer.find(_BLANK)
        if end < 0:
            if len(self._buffer) > _HEADERS_BYTES_MAX:
                raise FormError("the headers of a field are too long")
            return False
        if end > _HEADERS_BYTES_MAX:
            raise FormError("the headers of a field are too long")
        headers = email.parser.BytesHeaderParser().parsebytes(bytes(self._buffer[len(_LINE) : end]))
        events.append(PartBegun(_parameter(headers, "name"), headers.get_filename("") or ""))
        del self._buffer[: end + len(_BLANK)]
        self._state = _State.CONTENT
        return True


def boundary_of(content_type: str) -> bytes:
    """Return the boundary that a Content-Type names. FormError where it is no form's."""
    message = email.message.Message()
    message["content-type"] = content_type
    boundary = message.get_boundary()
    if message.get_content_type() != "multipart/form-data" or not boundary:
        raise FormError("the body must be a form of files (multipart/form-data) with a boundary")
    try:
        return boundary.encode("ascii")
    except UnicodeEncodeError as error:
        raise FormError("the boundary of the form is no ASCII") from error


def _parameter(headers: email.message.Message, name: str) -> str:
    found = headers.get_param(name, "", "content-disposition")
    return found if isinstance(found, str) else ""
