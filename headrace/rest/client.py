"""RestClient: client of a cluster's REST endpoint, on the standard library alone, so that the command line starts fast.

Only requests to a server that is not ready (503, or nobody listens yet) are retried. Redirects are not followed: the
token is for the cluster that was named.
Source: Flink RestClusterClient.
"""

import http.client
import json
import logging
import math
import re
import ssl
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from headrace.core.clock import Clock, SystemClock, doubling_pauses
from headrace.core.config import ConfigOption, Settings
from headrace.core.error_codec import RemoteFailure, decode_error
from headrace.core.errors import DECODE_ERRORS, ConfigurationError
from headrace.core.ids import UniqueId
from headrace.core.randomness import system_random
from headrace.core.security.tls import is_loopback, speaks_tls
from headrace.rest.client_errors import (
    ClusterEndedError,
    OperationFailedError,
    OperationLateError,
    RestRefusedError,
    RestUnreachableError,
    UnauthorizedError,
)
from headrace.rest.client_protocol import FILE_ID_HEADER, FILE_NAME_HEADER, MESSAGE
from headrace.rest.home.connections import FoundConnection, has_ended

RETRY_MAX_ATTEMPTS: Final = ConfigOption(
    "rest.retry.max-attempts", int, 20,
    "Number of attempts of a client to reach a cluster that is not ready or does not listen yet.", least=1,
)  # fmt: skip
RETRY_DELAY: Final = ConfigOption(
    "rest.retry.delay", timedelta, timedelta(seconds=3), "Pause before a client's next attempt."
)
CONNECTION_TIMEOUT: Final = ConfigOption(
    "rest.connection-timeout", timedelta, timedelta(seconds=15),
    "Maximum time for opening a client's connection.", least=timedelta(milliseconds=1),
)  # fmt: skip
CLIENT_TIMEOUT: Final = ConfigOption(
    "client.timeout", timedelta, timedelta(seconds=60),
    "Maximum wait of a client for an answer, or for the end of an operation such as a savepoint, which continues in "
    "the cluster.", least=timedelta(milliseconds=1),
)  # fmt: skip
ANSWER_BYTES_MAX: Final = 104_857_600
"""Maximum size of a JSON answer; the same limit that servers have for requests."""
_LOG: Final = logging.getLogger(__name__)
_CHUNK_BYTES: Final = 1 << 16
_HANDSHAKE_TIMEOUT_S: Final = 5.0
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""Error reasons of a TLS handshake with a server that uses another protocol, by the version of OpenSSL."""
_CONTENT_RANGE: Final = re.compile(
    r"bytes (?:([0-9]{1,18})-[0-9]{1,18}|\*)/(?:([0-9]{1,18})|\*)", re.IGNORECASE
)
_PAUSES_S: Final = 0.05, 0.25
"""First and longest pause between two requests for the result of an operation, in seconds."""

_LEAST_S: Final = 0.1
"""Minimum timeout of a request in seconds, as a socket with 0 would not wait at all."""

Json = Any
OnProgress = Callable[[float], None]
OnUnready = Callable[[], None]
Wait = Callable[[float], Any]


class Piece(NamedTuple):
    """Bytes of a file, and the offset at which they begin.

    The file's name and id are empty if the server omits them.
    """

    offset: int
    content: bytes
    file_name: str = ""
    file_id: str = ""


def path_of(*parts: str) -> str:
    """Return the path with these parts, each of which may hold any character: `/taskmanagers/h%3A1-ab/log`."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


class RestClient:
    """Client of one cluster. Several threads may call it concurrently; it keeps no connection between two calls.

    `has_ended` returns whether the cluster is known to be gone. `patience_s` is the maximum time for a call, including
    retries, if the settings alone allow more.
    """

    def __init__(
        self,
        address: str,
        token: str = "",
        *,
        token_from: str = "",
        ca_file: str = "",
        settings: Settings | None = None,
        on_retry: Callable[[RestUnreachableError | RestRefusedError], None] | None = None,
        has_ended: Callable[[], bool] | None = None,
        patience_s: float | None = None,
        clock: Clock | None = None,
        wait: Wait | None = None,
    ) -> None:
        parts = urlsplit(address)
        host = parts.hostname
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigurationError("-m", address, "it is not an http or https URL")
        if token and parts.scheme == "http" and not is_loopback(host):
            raise ConfigurationError(
                "-m", address, "the token would travel in clear text over the network: use https://"
            )
        if not all("!" <= letter <= "~" for letter in token):
            # It would not fit into a header; the error must not show it.
            raise ConfigurationError(
                token_from or "token",
                "…",
                "a token consists of ASCII letters, digits and signs only",
            )
        self.address = address.rstrip("/")
        self._host = host
        self._port = parts.port
        self._prefix = parts.path.rstrip("/")
        self._token = token
        self._token_from = token_from
        self._tls = _tls_context(ca_file) if parts.scheme == "https" else None
        settings = settings or Settings({})
        self._attempts_max = settings.get_option(RETRY_MAX_ATTEMPTS)
        self._retry_delay_s = settings.get_option(RETRY_DELAY).total_seconds()
        self._connection_timeout_s = settings.get_option(CONNECTION_TIMEOUT).total_seconds()
        self._timeout_s = settings.get_option(CLIENT_TIMEOUT).total_seconds()
        self._patience_s = math.inf if patience_s is None else patience_s
        self._on_retry = on_retry
        self.has_ended = has_ended or (lambda: False)
        self._clock = clock or SystemClock()
        self._wait = wait or threading.Event().wait

    @classmethod
    def of(cls, found: FoundConnection, **options: Any) -> "RestClient":
        """Return the client of a connection that was found.

        Calls are not retried if the cluster is known to be gone.
        """
        connection = found.connection
        return cls(
            connection.address,
            connection.token,
            token_from=found.token_from,
            ca_file=connection.ca_file,
            has_ended=lambda: has_ended(found),
            **options,
        )

    def get(self, path: str, **query: object) -> Json:
        """Return the answer of GET. RestUnreachableError, RestRefusedError or UnauthorizedError if there is none."""
        return self._json("GET", path, None, query)

    def get_object(self, path: str, **query: object) -> dict[str, Any]:
        """Return the answer of GET, an object. RestRefusedError for any other, as from another kind of server."""
        answer = self.get(path, **query)
        if isinstance(answer, dict):
            return cast("dict[str, Any]", answer)
        problem = f"the answer is not a JSON object: check that {self.address} is the REST address of a cluster"
        raise RestRefusedError("GET", path, http.HTTPStatus.OK, [problem])

    def post(self, path: str, body: Json = None, **query: object) -> Json:
        """Return the answer of POST, whose body is `{}` unless one is given."""
        return self._json("POST", path, {} if body is None else body, query)

    def patch(self, path: str, **query: object) -> Json:
        """Return the answer of PATCH."""
        return self._json("PATCH", path, None, query)

    def delete(self, path: str, **query: object) -> Json:
        """Return the answer of DELETE."""
        return self._json("DELETE", path, None, query)

    def exchange(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        content_type: str = MESSAGE,
        timeout_s: float | None = None,
        query: Mapping[str, object] | None = None,
        on_unready: OnUnready | None = None,
    ) -> bytes:
        """Return the raw answer; it is a message if the route has one.

        An error of the cluster is raised with its original class. `timeout_s`: maximum wait for the answer, if it may
        take longer than usual. `on_unready`: called after each answer with 503, as the request may have been executed
        nevertheless, if the cluster was slow, or lost its leadership meanwhile.
        """
        accepted = {"Accept": f"{MESSAGE}, application/json"}
        headers = accepted if content is None else {**accepted, "Content-Type": content_type}
        with self._answer(
            method, path, content, query or {}, headers, timeout_s, on_unready
        ) as answer:
            self._refuse_errors(method, path, answer)
            return self._whole(method, path, answer)

    def text(self, path: str, begin: int = 0) -> Iterator[Piece]:
        """Yield a file, such as a log, from the byte `begin` on, piece by piece.

        A `begin` below zero counts from the end. A server that returns a long file in several answers is called until
        the file is complete. If a server only returns whole files, the part before `begin` is skipped. A file that has
        become shorter was restarted, and is returned from its start. If the server names the file, each answer begins
        with an empty piece: a caller that wanted another file need not read on.
        """
        is_more = True
        while is_more:
            asked = f"{begin}-" if begin >= 0 else str(begin)
            with self._answer("GET", path, None, {}, {"Range": f"bytes={asked}"}) as answer:
                is_empty = answer.status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
                if not is_empty:
                    self._refuse_errors("GET", path, answer)
                offset, size = _extent_of(answer, begin)
                name, file_id = _file_of(answer)
                if file_id:
                    yield Piece(max(begin, offset), b"", name, file_id)
                if begin > 0 and size < begin:
                    begin = 0
                    continue
                while not is_empty and (content := self._read(answer, _CHUNK_BYTES)):
                    wanted = content[max(0, begin - offset) :]
                    if wanted:
                        yield Piece(offset + len(content) - len(wanted), wanted, name, file_id)
                    offset += len(content)
                is_more = not is_empty and begin < offset < size
                begin = offset

    def first_byte(self, path: str) -> Piece:
        """Return the first byte of a file, none if it is empty; with it the server sends the file's id."""
        with self._answer("GET", path, None, {}, {"Range": "bytes=0-0"}) as answer:
            if answer.status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return Piece(0, b"", *_file_of(answer))
            self._refuse_errors("GET", path, answer)
            return Piece(0, self._read(answer, 1), *_file_of(answer))

    def begin(self, path: str, body: Mapping[str, Json] | None = None) -> str:
        """Start an operation by POST and return its request id, without waiting for its end."""
        # With the client's own id, a request that is sent twice starts one operation.
        trigger_id = UniqueId.generate(system_random()).hex()
        answer = self.post(path, {**(body or {}), "triggerId": trigger_id})
        return str(answer.get("request-id", trigger_id)) if isinstance(answer, dict) else trigger_id

    def result_of(self, path: str, request_id: str, on_progress: OnProgress | None = None) -> Json:
        """Return the result of an operation once it is COMPLETED."""
        began_ms = self._clock.monotonic_ms()
        pauses_s = doubling_pauses(*_PAUSES_S)
        while True:
            answer = self.get_object(path)
            if (answer.get("status") or {}).get("id") == "COMPLETED":
                operation = answer.get("operation") or {}
                failure = operation.get("failure-cause") or operation.get("failureCause")
                if failure is not None:
                    raise OperationFailedError(_cause_text(failure))
                return operation
            waited_s = (self._clock.monotonic_ms() - began_ms) / 1000
            if waited_s >= self._timeout_s:
                raise OperationLateError(request_id, self._timeout_s, path, CLIENT_TIMEOUT.key)
            if on_progress is not None:
                on_progress(waited_s)
            self._wait(next(pauses_s))

    def _json(self, method: str, path: str, body: Json, query: Mapping[str, object]) -> Json:
        with self._answer(method, path, body, query, {}) as answer:
            self._refuse_errors(method, path, answer)
            content = self._whole(method, path, answer)
        try:
            return json.loads(content) if content else {}
        except (ValueError, RecursionError) as error:
            problem = f"the answer is not JSON: check that {self.address} is the REST address of a cluster"
            raise RestRefusedError(method, path, answer.status, [problem]) from error

    def _whole(self, method: str, path: str, answer: http.client.HTTPResponse) -> bytes:
        content = self._read(answer, ANSWER_BYTES_MAX + 1)
        if len(content) > ANSWER_BYTES_MAX:
            problem = f"the answer has more than {ANSWER_BYTES_MAX} bytes"
            raise RestRefusedError(method, path, answer.status, [problem])
        return content

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        body: Json,
        query: Mapping[str, object],
        headers: Mapping[str, str],
        timeout_s: float | None = None,
        on_unready: OnUnready | None = None,
    ) -> Generator[http.client.HTTPResponse]:
        """Return the answer to a request, whatever its status; retry while the server is not ready."""
        given = {key: value for key, value in query.items() if value is not None}
        target = self._prefix + path + (f"?{urlencode(given)}" if given else "")
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        all_headers = {"Accept": "application/json, text/plain"}
        if sent is not None:
            all_headers["Content-Type"] = "application/json"
        all_headers.update(headers)
        if self._token:
            all_headers["Authorization"] = f"Bearer {self._token}"
        attempt = 0
        end_ms = self._clock.monotonic_ms() + 1000 * self._patience_s
        while True:
            attempt += 1
            left_s = max(_LEAST_S, (end_ms - self._clock.monotonic_ms()) / 1000)
            connection = self._connection(left_s)
            answer: http.client.HTTPResponse | None = None
            try:
                try:
                    self._connect(connection, attempt, min(timeout_s or self._timeout_s, left_s))
                    answer = self._ask(connection, method, target, sent, all_headers)
                    if answer.status == http.HTTPStatus.SERVICE_UNAVAILABLE:
                        errors = _errors_of(self._read(answer, _CHUNK_BYTES))
                        raise RestRefusedError(method, path, answer.status, errors)
                except RestRefusedError as error:
                    if on_unready is not None:
                        on_unready()
                    self._pause(error, attempt, end_ms)
                    continue
                except _NobodyListensError as error:
                    if self.has_ended():
                        raise ClusterEndedError(self.address) from error
                    unanswered = RestUnreachableError(self.address, str(error), attempt)
                    self._pause(unanswered, attempt, end_ms)
                    continue
                yield answer
                return
            finally:
                if answer is not None:
                    answer.close()
                connection.close()

    def _connection(self, left_s: float) -> http.client.HTTPConnection:
        timeout_s = min(self._connection_timeout_s, left_s)
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout_s, context=self._tls
        )

    def _connect(
        self, connection: http.client.HTTPConnection, attempt: int, timeout_s: float
    ) -> None:
        try:
            connection.connect()
        except ConnectionRefusedError as error:
            raise _NobodyListensError("nobody listens there") from error
        except ssl.SSLCertVerificationError as error:
            reason = f"its certificate is not trusted ({error.verify_message}); set its authority's PEM file as "
            reason += "'ca_file' in the connection file, or in SSL_CERT_FILE"
            raise RestUnreachableError(self.address, reason, attempt) from error
        except (OSError, UnicodeError) as error:
            reason = _reason(error)
            if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
                reason = f"the port does not use TLS: use the address http{self.address[5:]}"
            raise RestUnreachableError(self.address, reason, attempt) from error
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        try:
            connection.request(method, target, body, dict(headers))
            answer = connection.getresponse()
            _LOG.debug("%s %s: status %d", method, target, answer.status)
            return answer
        except (OSError, http.client.HTTPException) as error:
            # A TLS port closes connections without a handshake, some after a few bytes that are not HTTP.
            is_closed = isinstance(error, (ConnectionError, http.client.BadStatusLine))
            port = connection.port
            patience_s = min(self._connection_timeout_s, _HANDSHAKE_TIMEOUT_S)
            if is_closed and not self._tls and speaks_tls(self._host, port, patience_s):
                reason = f"the port uses TLS: use the address https{self.address[4:]}"
                raise RestUnreachableError(self.address, reason) from error
            raise RestUnreachableError(
                self.address, _reason(error), may_have_arrived=True
            ) from error

    def _read(self, answer: http.client.HTTPResponse, count: int) -> bytes:
        try:
            content = answer.read(count)
        except (OSError, http.client.HTTPException) as error:
            raise RestUnreachableError(
                self.address, _reason(error), may_have_arrived=True
            ) from error
        if len(content) < count and answer.length:
            raise RestUnreachableError(
                self.address, "its answer ended early", may_have_arrived=True
            )
        return content

    def _pause(
        self, error: RestUnreachableError | RestRefusedError, attempt: int, end_ms: float
    ) -> None:
        left_s = (end_ms - self._clock.monotonic_ms()) / 1000
        if attempt >= self._attempts_max or left_s <= 0:
            raise error
        if self._on_retry is not None:
            self._on_retry(error)
        self._wait(min(self._retry_delay_s, left_s))

    def _refuse_errors(self, method: str, path: str, answer: http.client.HTTPResponse) -> None:
        status = answer.status
        if status < http.HTTPStatus.MULTIPLE_CHOICES:
            return
        if status == http.HTTPStatus.UNAUTHORIZED:
            raise UnauthorizedError(method, path, status, self.address, self._token_from)
        if status < http.HTTPStatus.BAD_REQUEST:
            place = answer.getheader("Location", "elsewhere")
            problem = (
                f"the answer redirects to {place}, which is not followed: set that address with -m"
            )
            raise RestRefusedError(method, path, status, [problem])
        content = self._read(answer, ANSWER_BYTES_MAX)
        if answer.getheader("Content-Type") == MESSAGE:
            raise _remote_error(content, self.address)
        raise RestRefusedError(method, path, status, _errors_of(content))


class _NobodyListensError(Exception):
    """The connection was refused, so that no request was sent."""


def _tls_context(ca_file: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            "ca_file", ca_file, f"it is not a PEM file with certificates: {_reason(error)}"
        ) from error
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    # A cluster's own self-signed certificate names no host.
    context.check_hostname = not ca_file or context.cert_store_stats()["x509_ca"] > 0
    return context


def _extent_of(answer: http.client.HTTPResponse, begin: int) -> tuple[int, int]:
    """Return the offset in the file at which the content of an answer begins, and the size of the file.

    If the server does not send them, both are assumed to be `begin`, the requested offset.
    """
    if answer.status == http.HTTPStatus.OK:
        return 0, begin if answer.length is None else answer.length
    found = _CONTENT_RANGE.fullmatch(answer.getheader("Content-Range", ""))
    first, size = found.groups() if found else (None, None)
    return int(first or max(0, begin)), int(size or begin)


def _file_of(answer: http.client.HTTPResponse) -> tuple[str, str]:
    """Return name and id of the file in the answer; empty if the server does not send them."""
    name, file_id = answer.getheader(FILE_NAME_HEADER, ""), answer.getheader(FILE_ID_HEADER, "")
    return unquote(name), file_id


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _remote_error(content: bytes, address: str) -> Exception:
    try:
        return decode_error(msgspec.msgpack.decode(content, type=RemoteFailure), address)
    except DECODE_ERRORS as error:
        return RestUnreachableError(
            address, f"its error cannot be read: {error}", may_have_arrived=True
        )


def _errors_of(content: bytes) -> list[str]:
    """Return the texts of an error body, or the body itself if it has another form."""
    text = content.decode("utf-8", "replace").strip()
    try:
        found = json.loads(text)["errors"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return [text[:1000]]
    return [str(one) for one in found] if isinstance(found, list) else [str(found)]


def _cause_text(failure: Json) -> str:
    if isinstance(failure, dict):
        return str(failure.get("stack-trace") or failure.get("class") or failure)
    return str(failure)
