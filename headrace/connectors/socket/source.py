"""SocketSource: reads the lines that a server sends, at most once.

SocketLines connects, reads, and cuts bytes into lines, on a thread of its own.

Source: Flink SocketTextStreamFunction.
"""

import contextlib
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from headrace.checkpoint.options import INTERVAL
from headrace.core.record_batch import RecordBatch
from headrace.core.threads import start_thread
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader

_LOG = logging.getLogger(__name__)

WAITING_LINES_MAX: Final = 16_384
"""Lines that may wait for the task; beyond that nothing is read, and the sender's own buffers fill."""
RETRY_PAUSE_S: Final = 0.5
_CHUNK_SIZE_BYTES: Final = 8192

OpenSocket = Callable[[], socket.socket]
BATCH_ROWS: Final = 4096
_CONNECT_TIMEOUT_S: Final = 10.0


class SocketLines:
    """Reads until the server closes, then reconnects up to `max_retry` times; below 0 without limit.

    A line that was not complete when a connection broke is dropped, unless it is the very last. `on_news` is called
    from the thread when the first line arrives after none were waiting.
    """

    def __init__(
        self,
        connect: OpenSocket,
        delimiter: str,
        max_retry: int,
        on_news: Callable[[], None],
        retry_pause_s: float = RETRY_PAUSE_S,
    ) -> None:
        self._connect = connect
        self._delimiter = delimiter.encode()
        self._max_retry = max_retry
        self._on_news = on_news
        self._retry_pause_s = retry_pause_s
        self._connection: socket.socket | None = None
        self._lines: deque[str] = deque()
        self._error: OSError | None = None
        self._has_ended = False
        self._is_closed = threading.Event()
        # Guards lines, end and connection: one thread adds, which must wait for room, and another takes.
        self._room = threading.Condition()

    def start(self) -> None:
        """Start reading."""
        start_thread("socket source", self._run)

    def take(self, count: int) -> list[str]:
        """Return the next lines, at most `count`; none if none wait. OSError once it cannot reconnect any more."""
        with self._room:
            taken = [self._lines.popleft() for _ in range(min(count, len(self._lines)))]
            self._room.notify()
            if not taken and self._error is not None:
                raise self._error
            return taken

    @property
    def has_ended(self) -> bool:
        """Return whether every line was taken and none will follow."""
        with self._room:
            return self._has_ended and not self._lines

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._is_closed.set()
        with self._room:
            self._room.notify()
            if self._connection is not None:
                # Closing alone would not wake a thread that is reading.
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)
                self._connection.close()

    def _run(self) -> None:
        attempts_left = self._max_retry
        error: OSError | None = None
        rest = b""
        while not self._is_closed.is_set():
            rest, error = b"", None
            try:
                rest = self._read_connection(self._connect())
            except OSError as failure:
                error = failure
            if attempts_left == 0:
                break
            attempts_left -= 1
            _LOG.warning(
                "the socket source lost its connection, or had none: %s", error or "closed"
            )
            self._is_closed.wait(self._retry_pause_s)
        if rest and error is None:
            self._add([rest])
        with self._room:
            self._error = error
            self._has_ended = True
        self._on_news()

    def _read_connection(self, connection: socket.socket) -> bytes:
        """Read to the end and return the text after the last delimiter."""
        with self._room:
            self._connection = connection
        rest = b""
        with connection:
            while not self._is_closed.is_set():
                chunk = connection.recv(_CHUNK_SIZE_BYTES)
                if not chunk:
                    break
                *lines, rest = (rest + chunk).split(self._delimiter)
                self._add(lines)
        return rest

    def _add(self, lines: list[bytes]) -> None:
        for line in lines:
            with self._room:
                while len(self._lines) >= WAITING_LINES_MAX and not self._is_closed.is_set():
                    self._room.wait()
                self._lines.append(self._text_of(line))
                is_news = len(self._lines) == 1
            if is_news:
                self._on_news()

    def _text_of(self, line: bytes) -> str:
        text = line.decode("utf-8", errors="replace")
        return text.removesuffix("\r") if self._delimiter == b"\n" else text


class SocketSource(Source):
    """Connects to a server and emits the text that it sends, cut at `delimiter`; only subtask 0 does.

    **At most once**: a socket cannot be read again, so lines after the last checkpoint are lost when the job restarts,
    and so are those sent while no job is connected. For trying things out, not for results that count.

    `max_retry`: how many times to connect again, twice a second, when there is no connection; 0 ends the stream when
    the server closes, below 0 never gives up.

    Example:
        >>> SocketSource("localhost", 9999).boundedness.name
        'CONTINUOUS_UNBOUNDED'
    """

    def __init__(self, host: str, port: int, delimiter: str = "\n", max_retry: int = 0) -> None:
        if not 0 < port < 65_536:
            raise ValueError(f"'port' must be between 1 and 65535, but is {port}")
        if not delimiter:
            raise ValueError("'delimiter' cannot be empty")
        self._host = host
        self._port = port
        self._delimiter = delimiter
        self._max_retry = max_retry

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return Types.STRING()

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        lines = None
        if context.subtask_index == 0:
            lines = SocketLines(self._connect, self._delimiter, self._max_retry, context.wake)
        return SocketReader(lines, context)

    def _connect(self) -> socket.socket:
        connection = socket.create_connection((self._host, self._port), _CONNECT_TIMEOUT_S)
        connection.settimeout(None)
        return connection

    def __repr__(self) -> str:
        return f"SocketSource({self._host}:{self._port})"


class SocketReader(SourceReader):
    """Emits the received lines; None means an empty share. It has no position, so its state is empty."""

    def __init__(self, lines: SocketLines | None, context: SubtaskContext) -> None:
        self._lines = lines
        self._context = context

    def start(self) -> None:
        if self._lines is None:
            return
        if self._context.settings.duration_ms(INTERVAL) > 0:
            _LOG.warning(
                "'%s' reads a socket, which has no positions: checkpoints do not cover its rows, and rows are "
                "lost when the job restarts",
                self._context.operator_name,
            )
        self._lines.start()

    def poll_next(self, output: SourceOutput) -> InputStatus:
        if self._lines is None:
            return InputStatus.END_OF_INPUT
        lines = self._lines.take(min(BATCH_ROWS, output.rows_wanted))
        if lines:
            columns = pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], names=["value"])
            output.emit(RecordBatch.of_columns(self._context.types.output, columns))
            return InputStatus.MORE_AVAILABLE
        if self._lines.has_ended:
            return InputStatus.END_OF_INPUT
        return InputStatus.NOTHING_AVAILABLE

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        return ()

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        """Do nothing: there is no position, and reading goes on with the next line."""

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
