"""murmur3_128 (x64, seed 0) of bytes: the hash that Flink makes operator ids with.

Equal uids therefore give equal ids here and in Flink. Source: Appleby, MurmurHash3_x64_128; Guava asBytes order.
"""

from typing import Final

_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


def murmur3_128(data: bytes) -> bytes:
    """Return the 16 bytes of the hash: both halves, each little-endian."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for offset in range(0, whole, 16):
        h1 ^= _mix_k1(int.from_bytes(data[offset : offset + 8], "little"))
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mix_k2(int.from_bytes(data[offset + 8 : offset + 16], "little"))
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    tail = data[whole:]
    h2 ^= _mix_k2(int.from_bytes(tail[8:], "little"))
    h1 ^= _mix_k1(int.from_bytes(tail[:8], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _finish(h1), _finish(h2)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return h1.to_bytes(8, "little") + h2.to_bytes(8, "little")


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _mix_k1(k1: int) -> int:
    return _rotate(k1 * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_k2(k2: int) -> int:
    return _rotate(k2 * _C2 & _MASK, 33) * _C1 & _MASK


def _finish(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
