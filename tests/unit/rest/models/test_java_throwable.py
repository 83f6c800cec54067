"""The stream that Flink's Java client reads a failure from; that client itself reads it in tests/flink."""

import base64

from headrace.rest.models.java_throwable import serialized_throwable


def stream(text: str) -> bytes:
    return base64.b64decode(serialized_throwable("ValueError", text))


def test_it_holds_the_whole_text_and_its_first_line_as_the_message() -> None:
    written = stream("the disk is full\n  in line 3")
    assert written.startswith(b"\xac\xed\x00\x05sr\x00)org.apache.flink.util.SerializedThrowable")
    assert b"pt\x00\x10the disk is fullppx" in written
    assert written.endswith(b"t\x00\x1cthe disk is full\n  in line 3t\x00\nValueErrorp")


def test_a_text_beyond_a_short_string_of_java_is_written_as_a_long_one() -> None:
    text = "x" * 70_000
    long_string = b"\x7c" + (70_000).to_bytes(8, "big") + text.encode()
    assert stream(text).count(long_string) == 2


def test_characters_that_java_spells_in_another_way_are_replaced() -> None:
    assert b"t\x00\x07a?b?\xc3\xbcct\x00\nValueError" in stream("a\0b\U0001f600üc")
