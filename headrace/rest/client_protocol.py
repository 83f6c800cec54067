"""Protocol of Headrace's own clients: messages instead of JSON, which would lose something, headers and bounds.

A client that sends `Accept: application/msgpack` is answered with the messages of the gateways, and its errors arrive
with their class; everybody else is answered with Flink's JSON. This module imports neither a web server nor a data
model, because clients use it too.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

MESSAGE: Final = "application/msgpack"
"""Media type of messages."""
FILE_NAME_HEADER: Final = "Log-File-Name"
FILE_ID_HEADER: Final = "Log-File-Id"
"""Header by which whoever follows a log file knows it again when it was put aside under another name."""
BLOB_CHUNK_BYTES_MAX: Final = 4 << 20
"""Bytes of a blob that one request may bring."""


class OperationOutcome(msgspec.Struct, frozen=True):
    """State of a savepoint or checkpoint that was asked for: `location` or `checkpoint_id` once it is done."""

    is_done: bool
    location: str = ""
    checkpoint_id: int = -1


def takes_messages(headers: Mapping[str, str]) -> bool:
    """Return whether a client takes messages; `headers` finds names whatever their case."""
    return MESSAGE in headers.get("accept", "")
