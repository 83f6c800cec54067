"""FileSource: the records of files, bounded or watching for new ones.

Source: Flink FileSource, TextLineInputFormat.
"""

import codecs
import zlib
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.connectors.files.paths import fixed_place, list_files
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.time_values import Duration
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.subtask_context import SubtaskContext

CHUNK_SIZE_BYTES: Final = 64 * 1024


@dataclass(frozen=True)
class StreamFormat:
    """How a file becomes records. Compressed files are known by their suffix (.gz, .bz2, .zst, .lz4)."""

    charset_name: str

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> "StreamFormat":
        """One record per line, without its end."""
        codecs.lookup(charset_name)  # an unknown charset is an error while the program is built
        return StreamFormat(charset_name)


class FileSource(Source):
    """Reads files; each file is read whole by one subtask.

    The subtasks list the files themselves when they start and share them out by order, so the set must not change
    meanwhile. A source that watches for new files shares them out by name.

    Example:
        >>> source = FileSource.for_record_stream_format(
        ...     StreamFormat.text_line_format(), "access.log").process_static_file_set().build()
        >>> source.boundedness.name
        'BOUNDED'
    """

    def __init__(
        self, stream_format: StreamFormat, paths: tuple[str, ...], discovery_interval_ms: int | None
    ) -> None:
        self._format = stream_format
        self._paths = paths
        self._discovery_interval_ms = discovery_interval_ms

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str) -> "FileSourceBuilder":
        """Begin with a format and the files or folders to read."""
        return FileSourceBuilder(stream_format, tuple(fixed_place(str(path)) for path in paths))

    @property
    def boundedness(self) -> Boundedness:
        if self._discovery_interval_ms is None:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return Types.STRING()

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return FileReader(
            self._format,
            self._paths,
            self._discovery_interval_ms,
            context,
        )


class FileSourceBuilder:
    """Builds a FileSource."""

    def __init__(self, stream_format: StreamFormat, paths: tuple[str, ...]) -> None:
        if not paths:
            raise ValueError("a FileSource needs at least one path")
        self._format = stream_format
        self._paths = paths
        self._discovery_interval_ms: int | None = None

    def monitor_continuously(self, discovery_interval: Duration) -> "FileSourceBuilder":
        """Look for new files every interval, without end."""
        if discovery_interval.to_millis() <= 0:
            raise ValueError(f"the discovery interval must be above 0, not {discovery_interval}")
        self._discovery_interval_ms = discovery_interval.to_millis()
        return self

    def process_static_file_set(self) -> "FileSourceBuilder":
        """Read the files that are there, then end: the default."""
        self._discovery_interval_ms = None
        return self

    def build(self) -> FileSource:
        return FileSource(self._format, self._paths, self._discovery_interval_ms)


class FileReader(SourceReader):
    """Reads the files of one subtask, a chunk of lines per batch."""

    def __init__(
        self,
        stream_format: StreamFormat,
        paths: tuple[str, ...],
        discovery_interval_ms: int | None,
        context: SubtaskContext,
    ) -> None:
        self._format = stream_format
        self._paths = paths
        self._discovery_interval_ms = discovery_interval_ms
        self._context = context
        self._known: set[str] = set()
        self._waiting: list[tuple[Any, str]] = []
        self._lines: TextLines | None = None
        self._next_discovery_ms: int | None = None

    def start(self) -> None:
        """List the files."""
        self._discover()

    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit the lines of the next chunk."""
        if self._lines is None and not self._waiting and not self._find_more():
            is_static = self._discovery_interval_ms is None
            return InputStatus.END_OF_INPUT if is_static else InputStatus.NOTHING_AVAILABLE
        if self._lines is None:
            file_system, name = self._waiting.pop(0)
            self._lines = TextLines(file_system.open_input_stream(name), self._format.charset_name)
        lines = self._lines.next_lines()
        if lines is None:
            self._lines.close()
            self._lines = None
        elif lines:
            output.emit(_batch_of_lines(lines, self._context.types.output))
        return InputStatus.MORE_AVAILABLE

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
            self._lines = None

    def _find_more(self) -> bool:
        """Look again where the time has come; otherwise make sure that somebody calls when it has."""
        if self._discovery_interval_ms is None:
            return False
        timers = self._context.timers
        if self._next_discovery_ms is None or timers.now_ms() >= self._next_discovery_ms:
            self._discover()
            self._next_discovery_ms = timers.now_ms() + self._discovery_interval_ms
            if self._waiting:
                return True
            timers.schedule(self._next_discovery_ms, lambda _: self._context.wake())
        return False

    def _discover(self) -> None:
        for index, (file_system, name) in enumerate(list_files(self._paths)):
            if name in self._known:
                continue
            self._known.add(name)
            # Order is fair but holds for a set that does not grow; a name's share never changes.
            share = index if self._discovery_interval_ms is None else zlib.crc32(name.encode())
            if share % self._context.parallelism == self._context.subtask_index:
                self._waiting.append((file_system, name))


class TextLines:
    """Cuts a byte stream into lines, a chunk at a time; lines may span chunks."""

    def __init__(self, stream: Any, charset_name: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(charset_name)()
        self._rest = ""
        self._has_ended = False

    def next_lines(self) -> list[str] | None:
        """Return the lines that end in the next chunk (maybe none), or None after the last one."""
        if self._has_ended:
            return None
        chunk = self._stream.read(CHUNK_SIZE_BYTES)
        self._has_ended = not chunk
        text = self._rest + self._decoder.decode(chunk, final=self._has_ended)
        *lines, self._rest = text.split("\n")
        if self._has_ended and self._rest:
            lines.append(self._rest)
        return [line.removesuffix("\r") for line in lines]

    def close(self) -> None:
        self._stream.close()


def _batch_of_lines(lines: list[str], batch_type: BatchType) -> RecordBatch:
    if batch_type.value_type != Types.STRING():
        return RecordBatch.of_rows(batch_type, lines)
    columns = pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], names=["value"])
    return RecordBatch.of_columns(batch_type, columns)
