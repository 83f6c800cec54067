"""Key -> hash -> key group -> subtask: Flink's formulas, vectorised, the same in every process.

All arithmetic is on 32 bits with wrap-around. Source: Flink KeyGroupRangeAssignment, MathUtils.murmurHash.
"""

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

MAX_PARALLELISM_LIMIT = 32768
_U32 = np.uint32
_MASK = 0xFFFFFFFF
FEW_HASHES: Final = 32
"""Number of hashes up to which a look-up of each in a dict is faster than twenty calls of numpy."""


def default_max_parallelism(parallelism: int) -> int:
    """Return the default number of key groups: 1.5 x parallelism, rounded up to a power of two, within 128..32768."""
    wanted = parallelism + parallelism // 2
    power = 1 << max(0, (wanted - 1).bit_length())
    return min(max(power, 128), MAX_PARALLELISM_LIMIT)


def mix_hashes(hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Spread 32-bit key hashes (murmur3 of four bytes, seed 0), made non-negative. Shape kept."""
    code = hashes.astype(np.int32, copy=False).view(_U32) * _U32(0xCC9E2D51)
    # In place: on large batches each array that is made anew costs as much as the arithmetic.
    shifted = np.empty_like(code)
    _rotate(code, 15, shifted)
    code *= _U32(0x1B873593)
    _rotate(code, 13, shifted)
    code *= _U32(5)
    code += _U32(0xE6546B64)
    code ^= _U32(4)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        code ^= np.right_shift(code, _U32(shift), out=shifted)
        code *= _U32(factor)
    code ^= np.right_shift(code, _U32(16), out=shifted)
    signed = code.view(np.int32)
    np.abs(signed, out=signed)
    # The one number without an opposite, -2**31, becomes 0.
    return np.maximum(signed, np.int32(0), out=signed)


def _rotate(code: npt.NDArray[np.uint32], count: int, scratch: npt.NDArray[np.uint32]) -> None:
    """Rotate each number to the left by `count` bits, in place."""
    np.right_shift(code, _U32(32 - count), out=scratch)
    code <<= _U32(count)
    code |= scratch


def key_groups_of(hashes: npt.NDArray[np.int32], max_parallelism: int) -> npt.NDArray[np.int32]:
    """Return the key group of each hash, in [0, max_parallelism)."""
    if len(hashes) <= FEW_HASHES:
        few = hashes.astype(np.int32, copy=False).view(_U32).tolist()
        return np.array([_known_group_of(one, max_parallelism) for one in few], dtype=np.int32)
    mixed = mix_hashes(hashes)
    if max_parallelism & (max_parallelism - 1) == 0:
        # As by default: none of these numbers is negative, and a mask is ten times as fast as a division.
        return np.bitwise_and(mixed, np.int32(max_parallelism - 1), out=mixed)
    return mixed % np.int32(max_parallelism)


def key_group_of(key_hash: int, max_parallelism: int) -> int:
    """Return the key group of one hash, given as an unsigned 32-bit number: `key_groups_of` without arrays."""
    code = key_hash * 0xCC9E2D51 & _MASK
    code = (code << 15 | code >> 17) & _MASK
    code = code * 0x1B873593 & _MASK
    code = (code << 13 | code >> 19) & _MASK
    code = (code * 5 + 0xE6546B64) & _MASK ^ 4
    code ^= code >> 16
    code = code * 0x85EBCA6B & _MASK
    code ^= code >> 13
    code = code * 0xC2B2AE35 & _MASK
    code ^= code >> 16
    if code == 1 << 31:
        return 0
    return (code if code < 1 << 31 else (1 << 32) - code) % max_parallelism


_known_group_of = lru_cache(maxsize=1 << 14)(key_group_of)


def subtasks_of(
    hashes: npt.NDArray[np.int32], parallelism: int, max_parallelism: int
) -> npt.NDArray[np.int32]:
    """Return the subtask that owns each hash's key group, in [0, parallelism)."""
    owners = owners_of_groups(parallelism, max_parallelism)
    return owners[key_groups_of(hashes, max_parallelism)]


@lru_cache(maxsize=64)
def owners_of_groups(parallelism: int, max_parallelism: int) -> npt.NDArray[np.int32]:
    """Return the subtask that owns each key group, shape (max_parallelism,)."""
    groups = np.arange(max_parallelism, dtype=np.int64)
    return (groups * parallelism // max_parallelism).astype(np.int32)


def key_group_range(subtask_index: int, parallelism: int, max_parallelism: int) -> range:
    """Return the key groups that `subtask_index` owns; the ranges of all subtasks cover 0..max_parallelism-1 once."""
    start = (subtask_index * max_parallelism + parallelism - 1) // parallelism
    end = ((subtask_index + 1) * max_parallelism - 1) // parallelism
    return range(start, end + 1)
