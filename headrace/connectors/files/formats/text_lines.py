"""StreamFormat: text files, a record per line, and the error of a file that is not in its charset.

Source: Flink StreamFormat, TextLineInputFormat.
"""

import codecs
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.connectors.files.formats.line_blocks import (
    CHUNK_SIZE_BYTES,
    LineBlocks,
    NamedStream,
    open_line_blocks,
)
from headrace.connectors.files.formats.splits import FileReaderFormat, FileRecords, FileSplit
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import TypeInformation, Types

ONLY_UTF_8: Final = "CSV and JSON files must be: convert it"
_BYTE_LINE_CHARSETS: Final = ("utf-8", "ascii", "iso8859", "cp125", "koi8")
"""Prefixes of charsets in which byte 0x0A always is a line end, so that each line can be decoded alone."""


class CharsetError(ValueError):
    """Raised if a file is not in the charset of the reader. `offset`: offset of its first wrong byte, uncompressed.

    Not a HeadraceError: the reading operator adds its name and the user's line.
    """

    def __init__(
        self, name: str, charset_name: str, offset: int, wrong: bytes, advice: str
    ) -> None:
        super().__init__(
            f"the file '{name}' is not {charset_name}: 0x{wrong.hex()} at byte {offset} cannot be read; {advice}"
        )
        self.offset = offset

    @staticmethod
    def of(
        error: UnicodeDecodeError,
        name: str,
        charset_name: str,
        begin: int,
        advice: str = "name its charset, as in StreamFormat.text_line_format('ISO-8859-1')",
    ) -> "CharsetError":
        """Return the error for `error`, about bytes that begin at offset `begin`."""
        wrong = error.object[error.start : error.end]
        return CharsetError(name, charset_name, begin + error.start, wrong, advice)


@dataclass(frozen=True)
class StreamFormat(FileReaderFormat):
    """Format that reads a file as records. Compressed files are recognised by their suffix (.gz, .bz2, .zst, .lz4)."""

    charset_name: str

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> "StreamFormat":
        """Return a format with one record per line, without the line end."""
        codecs.lookup(charset_name)  # an unknown charset is an error while the program is built
        return StreamFormat(charset_name)

    @property
    def is_splittable(self) -> bool:
        name = codecs.lookup(self.charset_name).name
        return name.startswith(_BYTE_LINE_CHARSETS) and name != "utf-8-sig"

    @property
    def produced_type(self) -> TypeInformation:
        return Types.STRING()

    def open(self, split: FileSplit, batch_type: BatchType) -> FileRecords:
        if self.is_splittable:
            return TextBlocks(open_line_blocks(split), self.charset_name, batch_type, split.name)
        stream = NamedStream(split.open_file_system().open_input_stream(split.name), split.name)
        lines = TextLines(stream, self.charset_name, split.name)
        return CountedLines(lines, split.position or 0, batch_type)


class TextBlocks:
    """Lines whose position is a byte offset. Implements FileRecords."""

    def __init__(
        self, blocks: LineBlocks, charset_name: str, batch_type: BatchType, name: str
    ) -> None:
        self._blocks = blocks
        self._name = name
        self._charset_name = charset_name
        self._batch_type = batch_type
        self.position: int | None = None
        self.unread_bytes: int | None = None

    def next_batch(self) -> RecordBatch | None:
        block = self._blocks.next_block()
        self.position = self._blocks.position
        if block is None:
            return None
        lines = self._decode(block).split("\n")
        if lines[-1] == "":
            lines.pop()
        return _batch_of_lines([line.removesuffix("\r") for line in lines], self._batch_type)

    def _decode(self, block: bytes) -> str:
        try:
            return block.decode(self._charset_name)
        except UnicodeDecodeError as error:
            begin = (self.position or 0) - len(block)
            raise CharsetError.of(error, self._name, self._charset_name, begin) from error

    def close(self) -> None:
        self._blocks.close()


class CountedLines:
    """Lines whose position is their number, for charsets that must be decoded from the beginning.

    Implements FileRecords.
    """

    def __init__(self, lines: "TextLines", skipped_count: int, batch_type: BatchType) -> None:
        self._lines = lines
        self._to_skip = skipped_count
        self._batch_type = batch_type
        self.position = skipped_count
        self.unread_bytes: int | None = None

    def next_batch(self) -> RecordBatch | None:
        lines = self._lines.next_lines()
        if lines is None:
            return None
        new = lines[self._to_skip :]
        self._to_skip -= len(lines) - len(new)
        self.position += len(new)
        return _batch_of_lines(new, self._batch_type)

    def close(self) -> None:
        self._lines.close()


class TextLines:
    """Splits a byte stream into lines, a chunk at a time; lines may span chunks."""

    def __init__(self, stream: Any, charset_name: str, name: str = "") -> None:
        self._stream = stream
        self._name = name
        self._charset_name = charset_name
        self._read_size_bytes = 0
        self._decoder = codecs.getincrementaldecoder(charset_name)()
        self._rest = ""
        self._has_ended = False

    def next_lines(self) -> list[str] | None:
        """Return the lines that end in the next chunk (possibly none), or None after the last one."""
        if self._has_ended:
            return None
        chunk = self._stream.read(CHUNK_SIZE_BYTES)
        self._has_ended = not chunk
        self._read_size_bytes += len(chunk)
        text = self._rest + self._decode(chunk)
        *lines, self._rest = text.split("\n")
        if self._has_ended and self._rest:
            lines.append(self._rest)
        return [line.removesuffix("\r") for line in lines]

    def _decode(self, chunk: bytes) -> str:
        try:
            return self._decoder.decode(chunk, final=self._has_ended)
        except UnicodeDecodeError as error:
            # The decoder had kept the first bytes of a character back, and decodes them with the chunk.
            begin = self._read_size_bytes - len(error.object)
            raise CharsetError.of(error, self._name, self._charset_name, begin) from error

    def close(self) -> None:
        self._stream.close()


def _batch_of_lines(lines: list[str], batch_type: BatchType) -> RecordBatch:
    if batch_type.value_type != Types.STRING():
        return RecordBatch.of_rows(batch_type, lines)
    columns = pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], names=["value"])
    return RecordBatch.of_columns(batch_type, columns)
