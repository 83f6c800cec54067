"""Protocol of Headrace's own clients: messages instead of JSON, so that nothing is lost, headers and limits.

A client that sends `Accept: application/msgpack` gets the messages of the gateways, and errors arrive
with their class; other clients get Flink's JSON. This module imports neither a web server nor a data
model, because clients use it too.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

MESSAGE: Final = "application/msgpack"
"""Media type of messages."""
FILE_NAME_HEADER: Final = "Log-File-Name"
FILE_ID_HEADER: Final = "Log-File-Id"
"""Header with a log file's id, by which a follower recognises the file after it was renamed."""
BLOB_CHUNK_BYTES_MAX: Final = 4 << 20
"""Maximum bytes of a blob in one request."""


class OperationOutcome(msgspec.Struct, frozen=True):
    """State of a requested savepoint or checkpoint: `location` or `checkpoint_id` once it is complete."""

    is_done: bool
    location: str = ""
    checkpoint_id: int = -1


def takes_messages(headers: Mapping[str, str]) -> bool:
    """Return whether a client accepts messages; `headers` must ignore the case of names."""
    return MESSAGE in headers.get("accept", "")
