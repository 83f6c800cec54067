"""Sealed records: what was changed, moved or made by somebody else is refused before anything of it is used."""

import pytest

from headrace.checkpoint.errors import RecordNotTrustedError
from headrace.checkpoint.storage.metadata_key import MetadataKey, seal, unseal

KEY = MetadataKey(bytes(range(32)))
OTHER = MetadataKey(bytes(range(1, 33)))
RECORD = seal(b"content", "subject", KEY)


def test_a_record_is_read_as_it_was_written() -> None:
    assert unseal(RECORD, "subject", KEY, "place") == b"content"


@pytest.mark.parametrize("position", range(len(RECORD)))
def test_no_byte_of_a_record_can_be_changed(position: int) -> None:
    changed = bytearray(RECORD)
    changed[position] ^= 1
    with pytest.raises(RecordNotTrustedError):
        unseal(bytes(changed), "subject", KEY, "place")


@pytest.mark.parametrize("length", range(len(RECORD)))
def test_no_end_of_a_record_can_be_missing(length: int) -> None:
    with pytest.raises(RecordNotTrustedError):
        unseal(RECORD[:length], "subject", KEY, "place")


def test_a_record_about_something_else_is_refused() -> None:
    with pytest.raises(RecordNotTrustedError, match="not written for another"):
        unseal(RECORD, "another", KEY, "place")


def test_a_record_of_another_key_says_which_one_is_missing() -> None:
    with pytest.raises(RecordNotTrustedError, match=KEY.key_id):
        unseal(RECORD, "subject", OTHER, "place")


def test_a_record_without_a_seal_is_refused() -> None:
    with pytest.raises(RecordNotTrustedError, match="it has no seal"):
        unseal(b'{"last_id":7}', "subject", KEY, "place")


def test_a_seal_does_not_authenticate_metadata() -> None:
    """Each kind of content is authenticated for a purpose of its own, though the key is one."""
    assert KEY.mac_of(b"content") != KEY.mac_of(b"content", b"headrace sealed record\0")
