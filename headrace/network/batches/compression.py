"""Compression of stored batches: one option, one codec per partition, and only what became smaller stays compressed.

Pipelined edges are never compressed: within a host it costs more than the bytes it saves.
Source: Flink BufferCompressor, BufferDecompressor, NettyShuffleEnvironmentOptions.
"""

from typing import Any, Final

import pyarrow as pa

from headrace.core.config import ConfigOption, Settings
from headrace.network.wire.framing import Body, BodyParts

COMPRESSION_CODEC: Final = ConfigOption(
    "taskmanager.network.compression.codec", str, "LZ4",
    "How batches of blocking and hybrid results are compressed on disk: NONE, LZ4 or ZSTD.",
    choices=("NONE", "LZ4", "ZSTD"),
)  # fmt: skip

UNCOMPRESSED: Final = 0
# Numbers stand in files: they are never given to another codec.
_NUMBERS: Final = {"NONE": UNCOMPRESSED, "LZ4": 1, "ZSTD": 2}
_ARROW_NAMES: Final = {1: "lz4_raw", 2: "zstd"}
CODEC_NUMBERS: Final = frozenset({UNCOMPRESSED, *_ARROW_NAMES})
COMPRESSED_BYTES_MIN: Final = 512
"""Below this the call costs more than the bytes."""


class BatchCompressor:
    """Compresses the bodies of one partition's batches. Used by one thread."""

    def __init__(self, codec_number: int) -> None:
        self._number = codec_number
        self._codec: Any = pa.Codec(_ARROW_NAMES[codec_number]) if codec_number else None

    @classmethod
    def from_settings(cls, settings: Settings) -> "BatchCompressor":
        """Read the option; ConfigurationError for a codec that is not there."""
        return cls(_NUMBERS[settings.get_option(COMPRESSION_CODEC)])

    def compress(self, body: Body) -> tuple[int, Body]:
        """Return the codec's number and the bytes to store: `body` itself where it would not become smaller."""
        size = len(body)
        if self._codec is None or size < COMPRESSED_BYTES_MIN:
            return UNCOMPRESSED, body
        joined = b"".join(body.parts) if isinstance(body, BodyParts) else body
        compressed = self._codec.compress(joined)
        if compressed.size >= size:
            return UNCOMPRESSED, body
        return self._number, compressed


def decompress(codec_number: int, stored: pa.Buffer, raw_length: int) -> pa.Buffer:
    """Return the body of `raw_length` bytes; OSError or ValueError (Arrow's) where `stored` is not what it was."""
    if codec_number == UNCOMPRESSED:
        return stored
    return pa.Codec(_ARROW_NAMES[codec_number]).decompress(stored, decompressed_size=raw_length)
