"""Compressed files that are damaged, cut off or something else: the error names the file."""

import gzip
import random
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.connectors.files.formats.columnar_formats import CsvReaderFormat
from headrace.connectors.files.formats.line_blocks import NamedStream
from headrace.connectors.files.formats.splits import FileReaderFormat
from headrace.connectors.files.formats.text_lines import StreamFormat
from headrace.connectors.files.source.file_source import FileSource
from headrace.core.errors import UserCodeError
from headrace.core.types.type_info import Types
from tests.unit.connectors.replays import SourceJob

NOISE = random.Random(7).randbytes(100_000).hex().encode()
PACKED = gzip.compress(b"n\n" + NOISE)
CSV = CsvReaderFormat(Types.ROW_NAMED(["n"], [Types.STRING()]))


@pytest.mark.parametrize(
    "reader_format",
    [
        StreamFormat.text_line_format(),
        StreamFormat.text_line_format("UTF-16"),
        CSV,
    ],
)
@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("cut.gz", PACKED[:-9], "Truncated compressed stream"),
        ("changed.gz", PACKED[:5000] + b"xxxx" + PACKED[5004:], "incorrect data check"),
        ("plain.gz", b"one\ntwo\n", "incorrect header check"),
        ("plain.zst", b"one\ntwo\n", "Unknown frame descriptor"),
    ],
)
def test_the_file_is_named_with_what_may_be_wrong_with_it(
    tmp_path: Path, reader_format: FileReaderFormat, name: str, content: bytes, reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    source = FileSource.for_record_stream_format(reader_format, str(path)).build()
    job = SourceJob(source, 1, source.produced_type)
    suffix = path.suffix
    with pytest.raises((OSError, UserCodeError)) as failed:
        job.run_to_end()
    text = str(failed.value)
    assert f"the file '{path}' cannot be decompressed as {suffix}: " in text
    assert reason in text and f"or not a {suffix} file" in text


def test_an_error_of_the_storage_is_not_taken_for_one_of_the_file() -> None:
    class Gone:
        def read(self, size: int) -> bytes:
            raise OSError("AWS Error NETWORK_CONNECTION during GetObject operation")

    with pytest.raises(OSError, match=r"^AWS Error NETWORK_CONNECTION"):
        NamedStream(Gone(), "words.gz").read(1)


def test_a_whole_file_is_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "whole.gz"
    path.write_bytes(pa.compress(b"one\ntwo", codec="gzip", asbytes=True))
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(path)).build()
    job = SourceJob(source, 1, source.produced_type)
    job.run_to_end()
    assert job.rows == ["one", "two"]
