"""SocketSource: the lines that a server sends, at most once. Source: Flink SocketTextStreamFunction."""

import logging
import socket
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from headrace.checkpoint.options import INTERVAL
from headrace.connectors.socket.lines import SocketLines
from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.subtask_context import SubtaskContext

_LOG = logging.getLogger(__name__)

BATCH_ROWS: Final = 4096
_CONNECT_TIMEOUT_S: Final = 10.0


class SocketSource(Source):
    """Connects to a server and emits what it sends, cut at `delimiter`; only subtask 0 does.

    **At most once**: a socket cannot be read again, so what came after the last checkpoint is lost when the job
    restarts, and what is sent while nobody is connected too. For trying things out, not for results that count.

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
    """Emits the lines that have come; None is an empty share. It has no position, so its state is empty."""

    def __init__(self, lines: SocketLines | None, context: SubtaskContext) -> None:
        self._lines = lines
        self._context = context

    def start(self) -> None:
        if self._lines is None:
            return
        if self._context.settings.duration_ms(INTERVAL) > 0:
            _LOG.warning(
                "'%s' reads a socket, which has no positions: checkpoints do not cover what it reads, and rows are "
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
        """Nothing to go on from: whatever comes next is read."""

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
