"""Hostile requests: values that hypothesis draws for them, bytes as they are sent, and rules for what they come to."""

import http.client
import json
import logging
import re
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import quote

from hypothesis import strategies as st

from headrace.rest.client_protocol import MESSAGE
from headrace.rest.rest_route import RestRoute
from tests.unit.rest.sample_cluster import COUNTER, FAILED_JOB, RUNNING_JOB, TASK_MANAGER
from tests.unit.rest.served_cluster import Answer, ServedCluster

FAILS_BY_CONTRACT: Final = (
    (r"/jobs/{jobid}/status", 500, "Could not find Flink job|there is no job"),
    # Clients that take messages get the error itself, and are told to ask again.
    (r"/jobs/{jobid}/execution-result", 503, "has not ended: it is"),
    (
        r"/taskmanagers/{taskmanagerid}.*",
        500,
        "there is no TaskManager|Failed to transfer file from|there is no log file",
    ),
    (r"/jobs/{jobid}/resource-requirements", 500, "does not support"),
    (r"/jobs/{jobid}/rescaling.*", 503, "Rescaling is temporarily"),
)
"""Paths that fail as Flink's do: with this status and this text, and no other."""
HEAD_BYTES_MAX: Final = 64 << 10
"""The server reads no longer head of a request."""
ANSWER_TIMEOUT_S: Final = 120.0
"""A server that says nothing for so long hangs."""
VALUES = st.sampled_from(
    [
        RUNNING_JOB.hex(),
        FAILED_JOB.hex(),
        COUNTER.hex(),
        str(TASK_MANAGER),
        "0",
        "1",
        "3",
        "-1",
        "9" * 40,
        "9" * 5_000,
        "../../etc/passwd",
    ]
) | st.text(min_size=1, max_size=40)
NAMES = st.sampled_from(
    [
        "get",
        "agg",
        "subtasks",
        "jobs",
        "taskmanagers",
        "mode",
        "maxExceptions",
        "type",
        "subtaskindex",
        "parallelism",
        "state",
        "table",
        "keys",
        "limit",
        "snapshot",
        "entry-class",
        "programArg",
        "savepointPath",
        "allowNonRestoredState",
        "size",
        "offset",
        "named",
        "job",
    ]
) | st.text(max_size=10)
# With halves of surrogate pairs, which JSON can say and no text has.
TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
_FIELDS = st.sampled_from(
    ["targetDirectory", "target-directory", "drain", "cancel-job", "formatType", "triggerId", "checkpointType", "token",
     "savepoint-path", "snapshot", "reason", "edits", "entryClass", "programArgsList", "parallelism", "jobId",
     "flinkConfiguration", "savepointPath", "claimMode", "allowNonRestoredState", "expiredTimestamp"]
)  # fmt: skip
BODIES = (
    st.binary(max_size=60)
    | st.sampled_from([b"[" * 20_000, b"9" * 5_000, b'{"a":' * 5_000, b"\xff\xfe{}", b"NaN"])
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(_FIELDS, JSON_VALUES, max_size=4).map(
        lambda value: json.dumps(value).encode()
    )
)
_HEADER_TEXTS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=60).map(
    lambda text: text.replace("\x7f", "").strip()
)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            ["Accept", "Accept-Encoding", "Content-Type", "Cookie", "Origin", "Host", "Sec-Fetch-Site", "Range",
             "Authorization", "If-None-Match", "Expect", "Connection", "Upgrade", "X-Forwarded-For", "X-Forwarded-Host",
             "X-HTTP-Method-Override", "Forwarded", "Access-Control-Request-Method", "X"]
        ),
        _HEADER_TEXTS
        | st.sampled_from(
            [
                MESSAGE,
                "100-continue",
                "websocket",
                "upgrade",
                "keep-alive, upgrade",
                "Bearer",
                "Bearer \xe9",
                "null",
                "localhost:\xb2",
                "[::1",
                "bytes=0-,-1",
                "application/x-www-form-urlencoded",
                "multipart/form-data; boundary*=undefined''b",
                f"multipart/form-data; boundary*{'9' * 5_000}=b",
                'a="' + "\\" * 40_000 + '"',
                "x" * 70_000,
                ";" * 40_000,
            ]
        ),
    ),
    max_size=4,
)  # fmt: skip


@contextmanager
def logged_errors() -> Generator[list[str]]:
    """Collect what REST and its event loop log as errors."""
    found: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    listener = Listener(logging.ERROR)
    loggers = [logging.getLogger(name) for name in ("headrace.rest", "asyncio")]
    for logger in loggers:
        logger.addHandler(listener)
    try:
        yield found
    finally:
        for logger in loggers:
            logger.removeHandler(listener)


def assert_answered(path: str, answer: Answer) -> None:
    """Assert that a route, named by its path in the table, did not fail, or failed as its contract says."""
    said = answer.body.decode("utf-8", "replace")
    by_contract = any(
        re.fullmatch(route, path) and answer.status == status and re.search(text, said)
        for route, status, text in FAILS_BY_CONTRACT
    )
    assert answer.status < 500 or by_contract, (path, answer.status, said)


def filled(route: RestRoute, values: list[str]) -> str:
    """Return the path of a route with these values for its parameters."""
    given_values = iter(values)
    return re.sub(r"\{\w+\}", lambda _: quote(next(given_values), safe=""), route.path)


def exchange(cluster: ServedCluster, sent: bytes, *, is_cut: bool = False) -> Answer | None:
    """Send bytes as they are; None where the server closes without an answer. `is_cut`: nothing more is to come."""
    host, port = cluster.authority.split(":")
    with socket.create_connection((host, int(port)), ANSWER_TIMEOUT_S) as connection:
        # A server that refuses need not read all.
        with suppress(ConnectionError):
            connection.sendall(sent)
            if is_cut:
                connection.shutdown(socket.SHUT_WR)
        response = http.client.HTTPResponse(connection)
        try:
            response.begin()
            body = response.read()
        except (http.client.HTTPException, ConnectionError):
            return None
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, body, found)


def request_bytes(
    method: str, target: str, headers: list[tuple[str, str]], body: bytes = b""
) -> bytes:
    """Return a request with its length, whatever its headers say."""
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return (
        f"{method} {target} HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1")
        + body
    )
