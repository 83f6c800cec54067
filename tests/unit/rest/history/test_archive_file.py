"""The file of an archive: its text, the search for one answer, and damage."""

import gzip
import json
import random
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.rest.history.archive_file import (
    PART_BYTES_MAX,
    DamagedArchiveError,
    pack_archive,
    read_answer,
    read_index,
)

JOB = "0123456789abcdef" * 2


class StoredBytes:
    """A file in memory that counts what is read of it."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.read_bytes = 0

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        found = self.content[offset : offset + length]
        self.read_bytes += len(found)
        return found


def many_answers(count: int) -> list[tuple[str, bytes]]:
    return [
        (f"/jobs/{JOB}/{i:06d}", json.dumps({"i": i, "q": '"ü'}).encode()) for i in range(count)
    ]


def packed(count: int, *, is_compressed: bool = False) -> bytes:
    return pack_archive(JOB, b'{"jid":"x"}', many_answers(count), is_compressed=is_compressed)


def answer(content: bytes, path: str) -> bytes | None:
    file = StoredBytes(content)
    return read_answer("archive", file, read_index("archive", file), path)


def test_the_text_of_an_archive_is_that_of_flinks() -> None:
    text = json.loads(packed(3))
    assert [entry["path"] for entry in text["archive"]] == [path for path, _ in many_answers(3)]
    assert json.loads(text["archive"][2]["json"]) == {"i": 2, "q": '"ü'}


def test_a_compressed_archive_unpacks_to_the_same_entries() -> None:
    text = json.loads(gzip.decompress(packed(20_000, is_compressed=True)))
    assert text["archive"] == json.loads(packed(20_000))["archive"]


@pytest.mark.parametrize("is_compressed", [False, True])
def test_one_answer_costs_the_end_of_the_file_and_one_block(is_compressed: bool) -> None:
    content = packed(50_000, is_compressed=is_compressed)
    file = StoredBytes(content)
    index = read_index("archive", file)
    path, body = many_answers(50_000)[31_234]
    assert read_answer("archive", file, index, path) == body
    assert file.read_bytes < 200_000
    assert is_compressed or len(content) > 3_000_000


@pytest.mark.parametrize("path", ["", "/", f"/jobs/{JOB}/0000005", "/jobs/zzz", "/overview"])
def test_a_path_that_an_archive_has_not_is_none(path: str) -> None:
    assert answer(packed(10), path) is None


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=200), max_size=50))
def test_every_answer_comes_back_as_it_was(texts: dict[str, str]) -> None:
    answers = [(path, json.dumps(text).encode()) for path, text in sorted(texts.items())]
    for is_compressed in (False, True):
        content = pack_archive(JOB, b"{}", answers, is_compressed=is_compressed)
        for path, body in answers:
            found = answer(content, path)
            assert found is not None
            assert json.loads(found) == json.loads(body)


@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 50, 96, 119, 1000])
def test_an_archive_that_is_cut_off_is_damaged(kept: int, is_compressed: bool) -> None:
    content = packed(500, is_compressed=is_compressed)[:kept]
    with pytest.raises(DamagedArchiveError, match="not a complete archive"):
        read_index("archive", StoredBytes(content))


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_changed_byte_is_never_shown(is_compressed: bool) -> None:
    content = packed(2_000, is_compressed=is_compressed)
    expected = dict(many_answers(2_000))
    chosen = random.Random(7)
    for _ in range(300):
        damaged = bytearray(content)
        damaged[chosen.randrange(len(damaged))] ^= 1 << chosen.randrange(8)
        path = f"/jobs/{JOB}/{chosen.randrange(2_000):06d}"
        try:
            found = answer(bytes(damaged), path)
        except DamagedArchiveError:
            continue
        assert found in (expected[path], None)


def with_index(
    index: bytes, *, change: Callable[[bytes], bytes] = lambda trailer: trailer
) -> bytes:
    """Return an archive whose index is what a stranger wrote."""
    head = b'{"archive":[\n'
    trailer = f',"index-at":[{len(head)},{len(index)},{zlib.crc32(index)}]}}'.encode()
    return head + index + change(trailer).ljust(95) + b"\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{}" * 100, "the file does not end like an archive"),
        (with_index(b"[]"), "the index cannot be read"),
        (with_index(b"[" * 100_000), "the index cannot be read"),
        (
            with_index(b'{"version":7,"job":"x","overview":{},"blocks":[]}'),
            "the archive has version 7",
        ),
        (
            with_index(b"{}", change=lambda t: t.replace(b"[13", b"[99999999")),
            "outside of the file",
        ),
        (
            with_index(b"{}", change=lambda t: t.replace(b",2,", b",999999999999,")),
            "outside of the file",
        ),
        (with_index(b"{}", change=lambda t: t.replace(b",2,", b",1,")), "changed or cut off"),
    ],
)
def test_an_index_of_a_stranger_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(DamagedArchiveError, match=reason):
        read_index("archive", StoredBytes(content))


@pytest.mark.parametrize("block", ['["/a",-5,10,1]', '["/a",0,-1,1]', '["/a",0,999999999,1]'])
def test_a_block_outside_of_the_file_is_refused(block: str) -> None:
    index = f'{{"version":1,"job":"x","overview":{{}},"blocks":[{block}]}}'
    with pytest.raises(DamagedArchiveError, match=r"outside of the file|changed or cut off"):
        answer(with_index(index.encode()), "/a")


def test_a_block_that_unpacks_to_too_much_is_refused() -> None:
    packing = zlib.compressobj(9, zlib.DEFLATED, 31)
    pieces = PART_BYTES_MAX // (1 << 20) + 1
    bomb = b"".join(packing.compress(bytes(1 << 20)) for _ in range(pieces))
    bomb += packing.flush()
    index = f'{{"version":1,"job":"x","overview":{{}},"blocks":[["/a",0,{len(bomb)},{zlib.crc32(bomb)}]]}}'
    text = index.encode()
    trailer = f',"index-at":[{len(bomb)},{len(text)},{zlib.crc32(text)}]}}'.encode()
    content = bomb + text + trailer.ljust(95) + b"\n"
    with pytest.raises(DamagedArchiveError, match="has more than"):
        answer(content, "/a")


def test_an_answer_that_is_no_json_is_refused() -> None:
    block = b'{"path":"/a","json":"<script>"}\n'
    index = f'{{"version":1,"job":"x","overview":{{}},"blocks":[["/a",0,{len(block)},{zlib.crc32(block)}]]}}'
    text = index.encode()
    trailer = f',"index-at":[{len(block)},{len(text)},{zlib.crc32(text)}]}}'.encode()
    with pytest.raises(DamagedArchiveError, match="a block cannot be read"):
        answer(block + text + trailer.ljust(95) + b"\n", "/a")
