"""Identifiers as people see them."""

import re

from headrace.core.ids import ID_PATTERN, JobId


def test_an_id_shows_its_hex_digits() -> None:
    assert repr(JobId(b"\x01" * 16)) == f"JobId({'01' * 16})"
    assert str(JobId(b"\x01" * 16)) == "01" * 16


def test_the_text_form_of_an_id_has_a_pattern_which_is_parsed_in_any_case() -> None:
    text = JobId(b"\xab" * 16).hex()
    for each in (text, text.upper()):
        assert re.fullmatch(ID_PATTERN, each)
        assert JobId.from_hex(each).hex() == text
    for each in (text[1:], f"{text}0", f"g{text[1:]}", f"{text}\n"):
        assert not re.fullmatch(ID_PATTERN, each)
