"""Identifiers as people see them."""

from headrace.core.ids import JobId


def test_an_id_shows_its_hex_digits() -> None:
    assert repr(JobId(b"\x01" * 16)) == f"JobId({'01' * 16})"
    assert str(JobId(b"\x01" * 16)) == "01" * 16
