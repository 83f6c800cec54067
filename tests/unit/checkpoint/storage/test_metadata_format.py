import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.errors import (
    MetadataAuthenticationError,
    MetadataError,
    MetadataMissingError,
    MetadataTruncatedError,
    MetadataVersionError,
)
from headrace.checkpoint.metadata import CheckpointMetadata
from headrace.checkpoint.storage.metadata_format import (
    abandonment,
    decode_metadata,
    encode_metadata,
    is_abandonment,
    read_untrusted,
)
from headrace.checkpoint.storage.metadata_key import MetadataKey
from headrace.core.barriers import SnapshotKind
from tests.unit.checkpoint.snapshots import KEY, drawn_metadata, inside, metadata_of, stored

FOLDER = "s3://bucket/job/chk-7"
URI = f"{FOLDER}/_metadata"
PLAIN = metadata_of(7, stored(f"{FOLDER}/counts"), inside(b"few"))
WRITTEN = encode_metadata(PLAIN, KEY, FOLDER)


@pytest.mark.slow
@given(drawn_metadata(FOLDER))
def test_what_is_written_is_read(metadata: CheckpointMetadata) -> None:
    assert decode_metadata(encode_metadata(metadata, KEY, FOLDER), KEY, URI) == metadata


def test_no_part_of_a_file_passes_for_the_whole() -> None:
    for length in range(len(WRITTEN)):
        with pytest.raises((MetadataTruncatedError, MetadataVersionError)):
            decode_metadata(WRITTEN[:length], KEY, URI)


@pytest.mark.parametrize("bit", [0x01, 0x20, 0x80])
def test_no_change_of_a_bit_goes_unnoticed(bit: int) -> None:
    for place in range(len(WRITTEN)):
        spoiled = bytearray(WRITTEN)
        spoiled[place] ^= bit
        with pytest.raises(MetadataError):
            decode_metadata(bytes(spoiled), KEY, URI)


def test_any_json_reader_reads_it() -> None:
    document = json.loads(WRITTEN)
    assert document["format"] == "headrace-checkpoint"
    assert (document["checkpoint_id"], document["kind"]) == (7, "CHECKPOINT")
    assert document["time"] == "1970-01-01T00:00:07.000+00:00"
    operator = document["operators"][0]
    assert (operator["uid"], operator["name"], operator["parallelism"]) == ("counter", "count", 1)
    chunk = operator["subtasks"][0]["chunks"][0]
    assert (chunk["path"], chunk["key_groups"]) == (f"{FOLDER}/counts", [0, 127])


def test_a_later_version_is_named_before_anything_of_it_is_read() -> None:
    later = WRITTEN.replace(b'"version": 1,', b'"version": 2,')
    with pytest.raises(MetadataVersionError, match=r"version '2', but only 1"):
        decode_metadata(later, KEY, URI)


def test_what_somebody_else_wrote_is_not_believed() -> None:
    forged = encode_metadata(PLAIN, MetadataKey(b"f" * 32), FOLDER)
    with pytest.raises(MetadataAuthenticationError, match=r"headrace\.checkpoint\.key-file"):
        decode_metadata(forged, KEY, URI)
    assert read_untrusted(forged, URI) == PLAIN


def test_a_forger_who_names_our_key_is_not_believed() -> None:
    forger = MetadataKey(b"f" * 32)
    forged = encode_metadata(PLAIN, forger, FOLDER).replace(
        forger.key_id.encode(), KEY.key_id.encode()
    )
    with pytest.raises(MetadataAuthenticationError, match="changed after it was written"):
        decode_metadata(forged, KEY, URI)


@pytest.mark.parametrize("kind", [one for one in SnapshotKind if one.is_savepoint])
def test_a_savepoint_may_be_moved(kind: SnapshotKind) -> None:
    folder = "s3://bucket/savepoint-1?region=eu-west-1"
    file = stored("s3://bucket/savepoint-1/counts?region=eu-west-1")
    written = encode_metadata(metadata_of(7, file, kind=kind), KEY, folder)
    moved = decode_metadata(written, KEY, "moved/elsewhere/_metadata")
    assert moved.kind is kind
    assert [one.uri for one in moved.files()] == ["moved/elsewhere/counts"]


@pytest.mark.parametrize("name", ["what?", "?", "a?b", "a?b=c"])
def test_a_question_mark_is_a_letter_of_a_savepoint_s_path_on_this_machine(name: str) -> None:
    folder = f"/somewhere/{name}/savepoint-1"
    files = [stored(f"{folder}/counts"), stored(f"{folder}/odd?")]
    for file in files:
        metadata = metadata_of(7, file, kind=SnapshotKind.SAVEPOINT)
        written = encode_metadata(metadata, KEY, folder)
        assert decode_metadata(written, KEY, f"{folder}/_metadata") == metadata
        moved = decode_metadata(written, KEY, "/else?where/_metadata")
        relative = file.uri.removeprefix(f"{folder}/")
        assert [one.uri for one in moved.files()] == [f"/else?where/{relative}"]


def test_a_checkpoint_says_where_its_files_are_wherever_it_lies_itself() -> None:
    moved = decode_metadata(WRITTEN, KEY, "moved/elsewhere/_metadata")
    assert [one.uri for one in moved.files()] == [f"{FOLDER}/counts"]


def test_a_checkpoint_that_was_given_up_is_none() -> None:
    assert is_abandonment(abandonment(3))
    assert not is_abandonment(WRITTEN)
    with pytest.raises(MetadataMissingError):
        decode_metadata(abandonment(3), KEY, URI)


@pytest.mark.parametrize("content", [b"", b"{}", b"PAR1", b"\x00" * 100, b'{"format": "other"}'])
def test_what_is_no_metadata_says_so(content: bytes) -> None:
    with pytest.raises(MetadataTruncatedError, match="does not begin"):
        decode_metadata(content, KEY, URI)


@given(
    position=st.integers(0, len(WRITTEN)),
    length=st.integers(0, 20),
    put=st.sampled_from(
        [b"[" * 100_000, b"9" * 5000, b"1e999999", b"\xff\xfe", b"null", b'"', b"{}"]
    ),
)
def test_what_anybody_wrote_into_metadata_is_shown_or_refused_by_name(
    position: int, length: int, put: bytes
) -> None:
    changed = WRITTEN[:position] + put + WRITTEN[position + length :]
    shown = None
    with contextlib.suppress(MetadataError):
        shown = read_untrusted(changed, URI)
    assert shown is None or isinstance(shown, CheckpointMetadata)


def test_values_within_values_without_end_are_refused_by_name() -> None:
    deep = WRITTEN.replace(
        b'"checkpoint_id":', b'"more": %s,\n  "checkpoint_id":' % (b"[" * 100_000)
    )
    assert deep != WRITTEN
    with pytest.raises(MetadataTruncatedError):
        read_untrusted(deep, URI)
    assert not is_abandonment(deep)
