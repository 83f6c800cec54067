"""Sealed batches: cutting, bytes, schemas, events."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.barriers import (
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
)
from headrace.core.elements import (
    EndOfData,
    EndOfOutputChannelState,
    EndOfPartition,
    PlacedMarker,
    StopMode,
    StreamEvent,
    Watermark,
)
from headrace.network.batches.sealed_batch import (
    SchemaAnnouncer,
    SchemaMemory,
    SealedBatch,
    decode_dictionaries,
    decode_event,
    encode_event,
    fingerprint_of,
    read_batch,
)
from headrace.network.errors import CorruptBatchError, ProtocolError


def texts(lengths: list[int]) -> pa.RecordBatch:
    values = [chr(97 + index % 26) * length for index, length in enumerate(lengths)]
    return pa.RecordBatch.from_arrays([pa.array(values, pa.string())], names=["value"])


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=60),
    st.integers(300, 5000),
    st.lists(st.integers(0, 60), max_size=5),
)
def test_pieces_are_the_whole(lengths: list[int], limit: int, offsets: list[int]) -> None:
    arrow = texts(lengths)
    markers = tuple(
        PlacedMarker(offset, Watermark(offset))
        for offset in sorted(offsets)
        if offset <= arrow.num_rows
    )
    pieces = SealedBatch(arrow, markers).cut(limit)
    assert pa.Table.from_batches([piece.arrow for piece in pieces]).equals(
        pa.Table.from_batches([arrow])
    )
    assert all(piece.size_bytes <= limit or piece.row_count == 1 for piece in pieces)
    start = 0
    found: list[int] = []
    for piece in pieces:
        found += [start + placed.row_offset for placed in piece.markers]
        assert all(0 <= placed.row_offset <= piece.row_count for placed in piece.markers)
        start += piece.row_count
    assert found == [placed.row_offset for placed in markers]


def test_a_small_batch_is_not_cut() -> None:
    sealed = SealedBatch(texts([1, 2]), ())
    assert sealed.cut(1 << 20) == [sealed]


def test_the_size_is_the_size_on_the_wire() -> None:
    sealed = SealedBatch(texts([5, 0, 77]), ())
    assert sealed.size_bytes == len(sealed.body())
    assert sealed.body() is sealed.body()


def test_a_batch_of_markers_has_no_bytes() -> None:
    sealed = SealedBatch(None, (PlacedMarker(0, Watermark(1)),))
    assert (sealed.row_count, sealed.size_bytes, len(sealed.body())) == (0, 0, 0)


def test_a_batch_is_rebuilt_from_its_message() -> None:
    arrow = texts([3, 0, 4])
    assert read_batch(arrow.slice(1).serialize(), arrow.schema, 2, "peer").equals(arrow.slice(1))


@pytest.mark.parametrize("body", [b"", b"nonsense" * 20])
def test_bytes_that_are_no_batch_are_an_error(body: bytes) -> None:
    with pytest.raises(CorruptBatchError, match="by peer"):
        read_batch(body, texts([1]).schema, 1, "peer")


def test_no_flipped_bit_kills_the_reader() -> None:
    command = [sys.executable, "-m", "tests.unit.network.batches.flipped_bits"]
    root = Path(__file__).parents[3]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    outcomes = json.loads(ended.stdout)
    assert set(outcomes) == {
        "CorruptBatchError",
        "other rows",
        "read as pickles",
        "same rows",
        "unreadable pickle",
    }
    assert outcomes["CorruptBatchError"] > 100


def test_rows_with_a_right_checksum_are_not_searched_for_errors() -> None:
    arrow = texts([1, 1])
    not_utf8 = arrow.serialize().to_pybytes().replace(b"ab", b"a\xff")
    with pytest.raises(CorruptBatchError, match="by peer"):
        read_batch(not_utf8, arrow.schema, 2, "peer")
    assert read_batch(not_utf8, arrow.schema, 2, "peer", is_verified=True).num_rows == 2


def test_texts_that_are_not_ascii_are_read_and_refused_where_a_letter_is_cut() -> None:
    arrow = pa.RecordBatch.from_arrays([pa.array(["ü", "wörld"])], names=["value"])
    message = arrow.serialize().to_pybytes()
    assert read_batch(message, arrow.schema, 2, "peer").to_pylist() == arrow.to_pylist()
    offsets = (0).to_bytes(4, "little") + (2).to_bytes(4, "little") + (8).to_bytes(4, "little")
    assert offsets in message
    cut = message.replace(offsets, offsets[:4] + (1).to_bytes(4, "little") + offsets[8:])
    with pytest.raises(CorruptBatchError, match="UTF8"):
        read_batch(cut, arrow.schema, 2, "peer")


@pytest.mark.parametrize("offset", [-1, 3, 1 << 30])
def test_offsets_that_lead_elsewhere_are_refused_in_plain_texts_too(offset: int) -> None:
    arrow = texts([2, 2])
    offsets = b"".join(each.to_bytes(4, "little") for each in (0, 2, 4))
    spoilt = offsets[:8] + offset.to_bytes(4, "little", signed=True)
    message = arrow.serialize().to_pybytes()
    assert offsets in message
    if offset == 3:
        assert read_batch(message.replace(offsets, spoilt), arrow.schema, 2, "peer").num_rows == 2
        return
    with pytest.raises(CorruptBatchError, match="the batch cannot be read with its schema"):
        read_batch(message.replace(offsets, spoilt), arrow.schema, 2, "peer")


def test_another_number_of_rows_is_an_error() -> None:
    arrow = texts([1, 1])
    with pytest.raises(CorruptBatchError, match="the batch has 2 rows, but was announced with 3"):
        read_batch(arrow.serialize(), arrow.schema, 3, "peer")


def test_a_schema_is_announced_once_and_when_it_changes() -> None:
    announcer, memory = SchemaAnnouncer(), SchemaMemory("peer")
    first, second = pa.schema([("a", pa.int64())]), pa.schema([("a", pa.int32())])
    for schema, is_news in [(first, True), (first, False), (second, True), (first, True)]:
        message = announcer.changed(schema)
        assert (message is not None) == is_news
        if message is not None:
            memory.announced(announcer.fingerprint, message)
        assert memory.schema_of(announcer.fingerprint).equals(schema)


def test_a_batch_of_an_unannounced_schema_is_an_error() -> None:
    with pytest.raises(CorruptBatchError, match="schema 00000000000000ab, which was not announced"):
        SchemaMemory("peer").schema_of(0xAB)


def test_a_schema_under_a_wrong_name_is_an_error() -> None:
    message = SchemaAnnouncer().changed(pa.schema([("a", pa.int64())]))
    with pytest.raises(CorruptBatchError, match="announced as"):
        SchemaMemory("peer").announced(1, message)
    with pytest.raises(CorruptBatchError, match="cannot be read as an Arrow schema"):
        SchemaMemory("peer").announced(fingerprint_of(b"nonsense"), b"nonsense")


def test_dictionaries_are_decoded() -> None:
    encoded = pa.RecordBatch.from_arrays(
        [pa.array(["x", "y", "x"]).dictionary_encode(), pa.array(np.arange(3))], names=["a", "b"]
    )
    plain = decode_dictionaries(encoded)
    assert plain.column(0).type == pa.string()
    assert plain.column(0).to_pylist() == ["x", "y", "x"]


BARRIER = CheckpointBarrier(
    7, 1_700_000_000_000, CheckpointOptions(exclusive_uri="file:///c/7", aligned_timeout_ms=500), 3
)
EVENTS = [
    EndOfData(),
    EndOfData(StopMode.NO_DRAIN),
    EndOfPartition(),
    BARRIER,
    CancelCheckpointMarker(7),
    EndOfOutputChannelState(),
]


@pytest.mark.parametrize("event", EVENTS)
def test_events_survive_the_wire(event: StreamEvent) -> None:
    assert decode_event(*encode_event(event), "peer") == event


def test_events_keep_their_numbers() -> None:
    numbers = [encode_event(event)[:2] for event in EVENTS]
    assert numbers == [(1, 0), (1, 1), (2, 0), (3, 7), (4, 7), (5, 0)]


@pytest.mark.parametrize(("kind", "value"), [(0, 0), (1, 7), (99, 0)])
def test_unknown_events_are_refused(kind: int, value: int) -> None:
    with pytest.raises(ProtocolError, match="unknown kind"):
        decode_event(kind, value, b"", "peer")


@pytest.mark.parametrize("event", [event for event in EVENTS if event is not BARRIER])
def test_an_event_without_content_that_has_some_is_refused(event: StreamEvent) -> None:
    kind, value, _ = encode_event(event)
    with pytest.raises(ProtocolError, match="a body of 1 bytes"):
        decode_event(kind, value, b"x", "peer")


def test_a_barrier_under_another_id_is_refused() -> None:
    kind, value, body = encode_event(BARRIER)
    with pytest.raises(ProtocolError, match="barrier 7 was announced as 8"):
        decode_event(kind, value + 1, body, "peer")


@given(st.binary(max_size=200))
def test_a_barrier_of_any_bytes_is_read_or_refused_as_what_it_is(body: bytes) -> None:
    kind, value, _ = encode_event(BARRIER)
    try:
        decode_event(kind, value, body, "peer")
    except ProtocolError as error:
        assert "barrier" in str(error)


@given(st.data())
def test_a_barrier_with_a_changed_byte_is_read_or_refused_as_what_it_is(
    data: st.DataObject,
) -> None:
    kind, value, body = encode_event(BARRIER)
    changed = bytearray(body)
    changed[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_event(kind, value, bytes(changed), "peer")
    except ProtocolError as error:
        assert "barrier" in str(error)


@given(row_count=st.integers(2, 3000), limit_bytes=st.integers(1000, 20_000))
def test_rows_of_one_size_are_cut_into_pieces_of_one_size(row_count: int, limit_bytes: int) -> None:
    whole = SealedBatch(pa.RecordBatch.from_pydict({"n": list(range(row_count))}), ())
    counts = [piece.row_count for piece in whole.cut(limit_bytes)]
    assert sum(counts) == row_count
    # A second cut, where the envelopes did not fit any more, halves a piece.
    assert max(counts) <= 2 * min(counts) + 2
