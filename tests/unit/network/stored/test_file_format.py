"""The form of batches in files, the files themselves, and compression."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.core.elements import (
    EndOfData,
    EndOfPartition,
    PlacedMarker,
    StopMode,
    Watermark,
    WatermarkStatus,
)
from headrace.core.errors import ConfigurationError
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import CorruptFileError, StorageError
from headrace.network.stored.file_format import (
    BatchCompressor,
    SchemaTable,
    StoredElement,
    element_bytes,
    encode_batch,
    encode_stored_event,
    pieces_bytes,
    split_elements,
)
from headrace.network.stored.spill_files import SpillDirectories, SpillFile
from tests.unit.network.faulty_files import FaultyFileLayer

COMPRESSORS = st.integers(0, 2).map(BatchCompressor)


def numbers(count: int, name: str = "n") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: list(range(count)), "text": ["x" * 20] * count})


def stored(sealed: SealedBatch, schemas: SchemaTable, compressor: BatchCompressor) -> bytes:
    return b"".join(
        bytes(piece) for piece in encode_batch(sealed, sealed.body(), schemas, compressor)
    )


def decode_elements(data: bytes, schemas: SchemaTable) -> list[tuple[StoredElement, int]]:
    """Each whole element of `data`, a file called "here", with the offset at which it ends."""
    elements = split_elements(pa.py_buffer(data), schemas, "here")
    return [(element.decode(), element.end) for element in elements]


@given(
    counts=st.lists(st.integers(0, 300), max_size=6),
    timestamps=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    compressor=COMPRESSORS,
)
def test_what_is_stored_comes_back(
    counts: list[int], timestamps: list[int], compressor: BatchCompressor
) -> None:
    schemas = SchemaTable()
    markers = (
        PlacedMarker(0, WatermarkStatus(True)),
        *(PlacedMarker(0, Watermark(timestamp)) for timestamp in timestamps),
    )
    written = [
        SealedBatch(numbers(count, "n" if count % 2 else "m") if count else None, markers)
        for count in counts
    ]
    events = [EndOfData(StopMode.NO_DRAIN), EndOfPartition()]
    data = b"".join(stored(sealed, schemas, compressor) for sealed in written)
    data += b"".join(b"".join(encode_stored_event(event)) for event in events)
    read = [element for element, _ in decode_elements(data, schemas)]
    assert read[len(counts) :] == events
    for before, after in zip(written, read, strict=False):
        assert isinstance(after, SealedBatch)
        assert after.markers == before.markers
        assert (
            after.arrow == before.arrow
            if before.arrow is None
            else after.arrow.equals(before.arrow)
        )
    assert element_bytes(pa.py_buffer(data), "here") <= len(data)


@given(data=st.data(), compressor=COMPRESSORS)
def test_a_byte_that_changed_is_noticed(data: st.DataObject, compressor: BatchCompressor) -> None:
    schemas = SchemaTable()
    good = bytearray(stored(SealedBatch(numbers(200), ()), schemas, compressor))
    at = data.draw(st.integers(0, len(good) - 9))  # the last 8 bytes may be padding
    good[at] ^= data.draw(st.integers(1, 255))
    try:
        read = decode_elements(bytes(good), schemas)
    except CorruptFileError as error:
        assert "here" in str(error)
    else:
        # Where the length grew, the element is cut off, which its reader sees by the index.
        assert read == [] or 28 <= at < 32


def test_what_is_cut_off_is_left_for_the_next_read() -> None:
    schemas = SchemaTable()
    one = stored(SealedBatch(numbers(10), ()), schemas, BatchCompressor(0))
    assert [end for _, end in decode_elements(one + one[:-1], schemas)] == [len(one)]


def test_only_what_became_smaller_stays_compressed() -> None:
    compressor = BatchCompressor(1)
    assert compressor.compress(b"a" * 10_000)[0] == 1
    noise = os.urandom(10_000)
    assert compressor.compress(noise) == (0, noise)
    assert compressor.compress(b"a" * 100) == (0, b"a" * 100)


def test_an_unknown_codec_is_refused_by_name() -> None:
    key = "taskmanager.network.compression.codec"
    assert BatchCompressor.from_settings(Settings({key: "zstd"})).compress(b"a" * 1000)[0] == 2
    with pytest.raises(ConfigurationError, match="it must be one of NONE, LZ4, ZSTD"):
        BatchCompressor.from_settings(Settings({key: "SNAPPY"}))


def new_file(directory: Path, layer: FaultyFileLayer) -> SpillFile:
    return SpillFile.create(directory / "file", layer, lambda job: job())


@given(pieces=st.lists(st.binary(max_size=50), max_size=2000), are_short=st.booleans())
def test_pieces_are_written_one_behind_the_other_however_few_bytes_a_write_takes(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], are_short: bool
) -> None:
    layer = FaultyFileLayer()
    layer.short_writes = are_short
    file = new_file(tmp_path_factory.mktemp("files"), layer)
    assert file.append([b"first"]) == 0
    assert file.append(pieces) == 5
    assert file.size == 5 + pieces_bytes(pieces)
    assert file.read(5, file.size - 5).to_pybytes() == b"".join(pieces)
    file.let_go()


def test_a_full_disk_and_a_bad_sector_are_named(tmp_path: Path) -> None:
    layer = FaultyFileLayer()
    file = new_file(tmp_path, layer)
    layer.space_bytes = 10
    with pytest.raises(StorageError, match=r"file.*No space left on device.*io\.tmp\.dirs"):
        file.append([b"twelve bytes"])
    layer.bad_from = 5
    with pytest.raises(StorageError, match="cannot be read: Input/output error"):
        file.read(0, 10)
    layer.bad_from = None
    with pytest.raises(CorruptFileError, match="ends at byte 10, but 12 bytes were expected"):
        file.read(0, 12)
    file.let_go()


def test_a_file_goes_with_its_last_user(tmp_path: Path) -> None:
    file = new_file(tmp_path, FaultyFileLayer())
    assert file.retain()
    file.let_go()
    assert file.path.exists()
    file.let_go()
    assert not file.path.exists()
    assert not file.retain()


def test_files_are_spread_over_the_directories_and_go_with_the_task_manager(tmp_path: Path) -> None:
    parents = [tmp_path / "one", tmp_path / "two"]
    for parent in parents:
        parent.mkdir()
    settings = Settings({"io.tmp.dirs": f"{parents[0]}, {parents[1]}"})
    directories = SpillDirectories.from_settings(settings, lambda job: job())
    files = [directories.create_file(".data") for _ in range(4)]
    folders = {file.path.parent for file in files}
    assert {folder.parent for folder in folders} == set(parents)
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in folders)
    assert len(directories.files()) == 4
    directories.close()
    assert not any(folder.exists() for folder in folders)
    for file in files:
        file.let_go()


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    settings = Settings({"io.tmp.dirs": str(tmp_path / "missing")})
    directories = SpillDirectories.from_settings(settings, lambda job: job())
    with pytest.raises(StorageError, match=r"missing.*No such file or directory"):
        directories.create_file(".data")
