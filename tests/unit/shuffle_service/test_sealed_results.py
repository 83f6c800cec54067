"""Results that a shuffle service finds in its directory: only what was written there with its secret is one."""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.core.config import Settings
from headrace.core.elements import EndOfPartition
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    IntermediateDataSetId,
    JobId,
    JobVertexId,
    ResultPartitionId,
)
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import CorruptFileError
from headrace.network.stored.file_format import INDEX_SEAL_BYTES, StoredElement, split_elements
from headrace.network.stored.io_pool import InlineIo
from headrace.network.stored.partitioned_file import PartitionedFile
from headrace.shuffle_service.partition_store import PartitionStore

JOB = JobId(b"j" * 16)
SECRET = b"s" * 32


def partition(number: int = 0) -> ResultPartitionId:
    vertex = ExecutionVertexId(JobVertexId(b"v" * 16), 0)
    return ResultPartitionId(
        IntermediateDataSetId(b"d" * 16), number, ExecutionAttemptId(JOB, vertex, 0)
    )


def store(directory: Path, secret: bytes = SECRET) -> PartitionStore:
    return PartitionStore(directory, InlineIo(), 1 << 30, Settings(), secret)


def write(directory: Path, number: int = 0) -> None:
    """A result of two batches of the same length, and its end."""
    writer = store(directory).create_writer(partition(number), 1, 64)
    for first in (0, 100):
        rows = pa.RecordBatch.from_pydict({"n": list(range(first, first + 50))})
        sealed = SealedBatch(rows, ())
        lease = writer.pool.try_lease(sealed.size_bytes, 1)
        assert lease is not None
        writer.emit(0, sealed, lease)
        writer.make_room()
    writer.finish()
    writer.close()


def read(file: PartitionedFile) -> list[StoredElement]:
    elements: list[StoredElement] = []
    for region in range(file.region_count):
        extent = file.extent(region, 0)
        data = file.data.read(extent.offset, extent.length)
        found = split_elements(data, file.schemas, "the file", extent.offset)
        elements += [element.decode() for element in found]
    return elements


def found(directory: Path, secret: bytes = SECRET) -> list[PartitionedFile]:
    return [each.file for each in store(directory, secret).recover()]


def only(directory: Path, suffix: str) -> Path:
    (path,) = directory.glob(f"*/*{suffix}")
    return path


def test_what_was_committed_is_found_by_who_knows_the_secret(tmp_path: Path) -> None:
    write(tmp_path)
    (file,) = found(tmp_path)
    first, second, end = read(file)
    assert isinstance(first, SealedBatch) and isinstance(second, SealedBatch)
    assert first.arrow is not None and first.arrow.column(0).to_pylist() == list(range(50))
    assert second.arrow is not None and second.arrow.column(0)[0].as_py() == 100
    assert end == EndOfPartition()
    file.close()


def test_what_was_written_with_another_secret_is_no_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path)
    assert found(tmp_path, b"t" * 32) == []
    assert "was not written under this name with this secret" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_no_byte_of_a_result_can_be_changed(tmp_path: Path) -> None:
    write(tmp_path)
    path = only(tmp_path, ".data")
    content = path.read_bytes()
    (file,) = found(tmp_path)
    for position in range(0, len(content), 7):
        changed = bytearray(content)
        changed[position] ^= 1
        path.write_bytes(changed)
        # Between elements lie zeros which nobody reads.
        if changed[position] != 1:
            with pytest.raises(CorruptFileError):
                read(file)
    file.close()


def test_no_element_can_be_moved_within_a_result(tmp_path: Path) -> None:
    write(tmp_path)
    (file,) = found(tmp_path)
    extent = file.extent(0, 0)
    path = only(tmp_path, ".data")
    content = path.read_bytes()
    first, second = content[: extent.length], content[extent.length : 2 * extent.length]
    path.write_bytes(second + first + content[2 * extent.length :])
    with pytest.raises(CorruptFileError, match="is not the one written there with this secret"):
        read(file)
    file.close()


def _end(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    "change",
    [lambda content: content[:-INDEX_SEAL_BYTES], _end, lambda content: b"\1" + content[1:]],
    ids=["without a seal", "another seal", "another entry"],
)
def test_an_index_that_was_changed_is_none(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    write(tmp_path)
    index = only(tmp_path, ".index")
    index.write_bytes(change(index.read_bytes()))
    assert found(tmp_path) == []


def test_a_result_under_the_name_of_another_one_is_none(tmp_path: Path) -> None:
    write(tmp_path, 0)
    for path in list(tmp_path.glob("*/*")):
        path.rename(path.with_name(path.name.replace("-0-", "-1-", 1)))
    assert found(tmp_path) == []


def test_links_are_neither_read_nor_followed_when_what_is_no_result_goes(tmp_path: Path) -> None:
    directory, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
    write(elsewhere)
    job = elsewhere / str(JOB)
    (directory / str(JOB)).mkdir(parents=True)
    for file in job.iterdir():
        (directory / str(JOB) / file.name).symlink_to(file)
    (directory / str(JobId(b"k" * 16))).symlink_to(job)
    before = sorted(os.listdir(job))
    assert found(directory) == []
    assert sorted(os.listdir(job)) == before and len(before) == 2


def test_a_folder_among_results_does_not_keep_a_service_from_starting(tmp_path: Path) -> None:
    write(tmp_path)
    folder = tmp_path / str(JOB) / "folder"
    folder.mkdir()
    (file,) = found(tmp_path)
    assert not folder.exists()
    file.close()
