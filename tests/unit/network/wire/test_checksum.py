"""The checksum is zlib's CRC-32, whatever computes it: files and peers of other builds are read."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from headrace.network.wire.framing import crc32


@given(st.lists(st.binary(max_size=300), max_size=4), st.integers(0, 2**32 - 1))
def test_it_is_zlibs_crc_32_also_in_pieces(pieces: list[bytes], start: int) -> None:
    checksum = start
    for piece in pieces:
        checksum = crc32(memoryview(piece), checksum)
    assert checksum == zlib.crc32(b"".join(pieces), start)
