"""Answers with the content of log files: the whole file, or the part in a request's Range header."""

import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from fastapi import Response

from headrace.core.process.log_files import PIECE_SIZE_MAX_BYTES, LogPiece
from headrace.rest.client_protocol import FILE_ID_HEADER, FILE_NAME_HEADER
from headrace.rest.models.cluster import ErrorBody

ReadLogPiece = Callable[[int, int], Awaitable[LogPiece]]
"""Reads a log file from an offset on, up to a number of bytes; a piece may be shorter, and is empty at the end."""

ANSWER_SIZE_MAX_BYTES: Final = 64 << 20
"""Maximum number of bytes of a log file in one answer."""
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.IGNORECASE)
_HEADERS: Final = {"Accept-Ranges": "bytes"}


async def log_answer(
    name: str, read: ReadLogPiece, range_header: str | None, size_max_bytes: int | None = None
) -> Response:
    """Return the end of a log file (200), or the part that `range_header` names (206; 416 if it is empty).

    An answer never mixes two files, also if the file is rotated meanwhile.

    No answer has more than `size_max_bytes` (unset: 64 MiB): the client of a longer part must request the rest. A
    header that is not a single range of bytes is ignored, as in RFC 9110.
    """
    bound = ANSWER_SIZE_MAX_BYTES if size_max_bytes is None else size_max_bytes
    first = await read(0, 0)
    size, file_id = first.size_bytes, first.file_id
    headers = _HEADERS | {FILE_NAME_HEADER: quote(name), FILE_ID_HEADER: file_id}
    part = _part_of(range_header, size, bound)
    if part is None:
        begin = max(0, size - bound)
        return _answer(HTTPStatus.OK, await _content(read, begin, size, file_id), headers)
    begin, end = part
    content = await _content(read, begin, end, file_id) if begin < end else b""
    if not content:
        return _not_satisfiable(size, headers)
    last = begin + len(content) - 1
    headers["Content-Range"] = f"bytes {begin}-{last}/{max(size, last + 1)}"
    return _answer(HTTPStatus.PARTIAL_CONTENT, content, headers)


def _part_of(header: str | None, size: int, bound: int) -> tuple[int, int] | None:
    """Return begin and end of the requested bytes; None without a valid range, or for the end of an empty file."""
    found = _RANGE.fullmatch((header or "").replace(" ", ""))
    if found is None or not any(found.groups()):
        return None
    first, last = found.groups()
    if not first:
        return (max(0, size - min(int(last), bound)), size) if size else None
    begin, end = int(first), int(last) + 1 if last else size
    if last and end <= begin:
        return None
    return begin, min(end, size, begin + bound)


async def _content(read: ReadLogPiece, begin: int, end: int, file_id: str) -> bytes:
    """Return the bytes between two offsets; fewer if the file has become shorter, or was replaced, meanwhile."""
    pieces = list[bytes]()
    while begin < end:
        piece = await read(begin, min(PIECE_SIZE_MAX_BYTES, end - begin))
        if not piece.content or piece.file_id != file_id:
            break
        pieces.append(piece.content)
        begin += len(piece.content)
    return b"".join(pieces)


def _answer(status: int, content: bytes, headers: dict[str, str]) -> Response:
    return Response(content, status, headers, media_type="text/plain; charset=UTF-8")


def _not_satisfiable(size: int, headers: dict[str, str]) -> Response:
    text = f"the file has {size} bytes, and none in the requested range"
    return Response(
        ErrorBody(errors=[text]).model_dump_json(),
        HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
        headers | {"Content-Range": f"bytes */{size}"},
        media_type="application/json; charset=UTF-8",
    )
