"""What is copied of a log file that grows, is put aside, or grows faster than it is copied."""

from headrace.cluster.resource_manager.log_copies import CopiedFile
from headrace.core.process.log_files import LogPiece

MAX = 256 * 1024


def test_a_file_is_copied_from_where_the_last_look_ended() -> None:
    file = CopiedFile("a.log")
    assert file.offset == -MAX
    assert file.take(LogPiece(0, 4, b"one\n", "id")) == b"one\n"
    assert file.offset == 4
    assert file.take(LogPiece(4, 8, b"two\n", "id")) == b"two\n"
    assert file.take(LogPiece(8, 8, b"", "id")) == b""


def test_the_beginning_of_a_long_file_is_left_out_and_that_is_said() -> None:
    copied = CopiedFile("a.log").take(LogPiece(100, 104, b"end\n", "id"))
    assert copied == b"[100 bytes are omitted here; they are in the file on its host]\nend\n"


def test_of_a_file_that_grows_faster_the_newest_bytes_are_copied() -> None:
    file = CopiedFile("a.log")
    file.take(LogPiece(0, 4, b"one\n", "id"))
    assert file.take(LogPiece(4, 3 * MAX, b"x" * MAX, "id")) == b"x" * MAX
    assert file.offset == 2 * MAX
    copied = file.take(LogPiece(2 * MAX, 3 * MAX, b"y", "id"))
    assert (
        copied
        == f"[{MAX - 4} bytes are omitted here; they are in the file on its host]\n".encode() + b"y"
    )


def test_a_file_that_was_put_aside_is_followed_by_the_new_one() -> None:
    file = CopiedFile("a.log")
    file.take(LogPiece(0, 4, b"one\n", "id"))
    assert b"put aside" in file.take(LogPiece(2, 2, b"", "other"))
    assert file.offset == -MAX
    assert file.take(LogPiece(0, 2, b"2\n", "other")) == b"2\n"
