"""A stored element of which the length was damaged fails its consumer: no row is missing without a word."""

import struct
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.core.elements import EndOfData
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.network.errors import CorruptFileError
from headrace.network.stored.file_format import element_bytes
from tests.unit.network.exchange import gate, numbers, partition_id, writer
from tests.unit.network.faulty_files import FaultyFileLayer
from tests.unit.network.partition_traces import Consumer
from tests.unit.network.simulated import SimulatedCluster

KINDS = (ResultPartitionType.BLOCKING, ResultPartitionType.HYBRID_FULL)
STORED_BYTES_AT = 20
"""Where a header says how long the body is, in four bytes of which the highest is the first."""
ELEMENT_COUNT = 6
"""Two batches for each of two consumers in turn, and for both the end of data and of the partition."""
SORTED_COUNT = 4
"""One batch for each, and the ends."""


def places_of(content: bytes) -> list[int]:
    """Where the elements of a file begin."""
    places: list[int] = []
    at = 0
    while at < len(content):
        places.append(at)
        at += element_bytes(pa.py_buffer(content[at:]), "the file")
    return places


def lengthen(file: Path, number: int, element_count: int, bit: int = 1 << 16) -> None:
    """Turn over a bit of element `number` of so many, so that it seems to go on for longer than the file."""
    content = bytearray(file.read_bytes())
    places = places_of(bytes(content))
    assert len(places) == element_count
    at = places[number] + STORED_BYTES_AT
    (stored_bytes,) = struct.unpack_from("!I", content, at)
    struct.pack_into("!I", content, at, stored_bytes ^ bit)
    file.write_bytes(content)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damaged", range(ELEMENT_COUNT))
def test_an_element_that_seems_longer_than_the_index_says_fails_who_reads_it(
    kind: ResultPartitionType, damaged: int
) -> None:
    cluster = SimulatedCluster()
    side, location = cluster.start("a")
    sink = writer(side, 2, result_type=kind)
    for number in range(2):
        sink.emit(numbers(number * 10, 10))
        sink.flush_all()
    sink.emit_event(EndOfData())
    sink.finish()
    sink.close()
    cluster.loop.run_all()
    (file,) = side.storage.directories.files()
    lengthen(file, damaged, ELEMENT_COUNT)
    is_event = damaged >= 4
    for index in range(2):
        consumer = Consumer(gate(side, [location], index))
        if is_event or index == damaged % 2:
            with pytest.raises(
                CorruptFileError, match=f"{file.name}.*longer than the index of the file says"
            ):
                consumer.read_all(cluster)
        else:
            consumer.read_all(cluster)
            assert consumer.values == list(range(index, 20, 2))
        consumer.close()
    side.release_partitions([partition_id()])
    cluster.assert_nothing_leaks()


@pytest.mark.parametrize("bit", [1 << 16, 1 << 31])
@pytest.mark.parametrize("damaged", range(SORTED_COUNT))
def test_a_sorted_element_that_seems_longer_than_its_region_is_not_read(
    damaged: int, bit: int
) -> None:
    layer = FaultyFileLayer()
    cluster = SimulatedCluster()
    side, location = cluster.start(
        "a", files=layer, taskmanager_network_sort__shuffle_min__parallelism="1"
    )
    sink = writer(side, 2, result_type=ResultPartitionType.BLOCKING)
    for number in range(2):
        sink.emit(numbers(number * 10, 10))
        sink.flush_all()
    sink.emit_event(EndOfData())
    sink.finish()
    sink.close()
    cluster.loop.run_all()
    (file,) = (each for each in side.storage.directories.files() if each.suffix == ".data")
    file_bytes = file.stat().st_size
    lengthen(file, damaged, SORTED_COUNT, bit)
    failed: list[int] = []
    for index in range(2):
        consumer = Consumer(gate(side, [location], index))
        try:
            consumer.read_all(cluster)
        except CorruptFileError as error:
            assert file.name in str(error) and "longer than the index of the file says" in str(
                error
            )
            failed.append(index)
        else:
            assert consumer.values == list(range(index, 20, 2))
        consumer.close()
    assert len(failed) == (1 if damaged < 2 else 2)
    assert max(layer.read_ends) <= file_bytes
    side.release_partitions([partition_id()])
    cluster.assert_nothing_leaks()


def test_a_region_that_the_index_makes_shorter_than_a_header_fails_who_reads_it() -> None:
    with pytest.raises(CorruptFileError, match="the file: an element has 31 bytes"):
        element_bytes(pa.py_buffer(bytes(31)), "the file")
