"""Key -> hash -> key group -> subtask: Flink's formulas, vectorised, the same in every process.

All arithmetic is on 32 bits with wrap-around. Source: Flink KeyGroupRangeAssignment, MathUtils.murmurHash.
"""

import numpy as np
import numpy.typing as npt

MAX_PARALLELISM_LIMIT = 32768
_U32 = np.uint32
_MASK = 0xFFFFFFFF


def default_max_parallelism(parallelism: int) -> int:
    """Number of key groups where none is set: 1.5 x parallelism, up to a power of two, within 128..32768."""
    wanted = parallelism + parallelism // 2
    power = 1 << max(0, (wanted - 1).bit_length())
    return min(max(power, 128), MAX_PARALLELISM_LIMIT)


def mix_hashes(hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Spread 32-bit key hashes (murmur3 of four bytes, seed 0), made non-negative. Shape kept."""
    code = hashes.astype(np.int32, copy=False).view(_U32).copy()
    code *= _U32(0xCC9E2D51)
    code = (code << _U32(15)) | (code >> _U32(17))
    code *= _U32(0x1B873593)
    code = (code << _U32(13)) | (code >> _U32(19))
    code *= _U32(5)
    code += _U32(0xE6546B64)
    code ^= _U32(4)
    code ^= code >> _U32(16)
    code *= _U32(0x85EBCA6B)
    code ^= code >> _U32(13)
    code *= _U32(0xC2B2AE35)
    code ^= code >> _U32(16)
    signed = code.view(np.int32).astype(np.int64)
    signed = np.abs(signed)
    signed[signed == 2**31] = 0
    return signed.astype(np.int32)


def key_groups_of(hashes: npt.NDArray[np.int32], max_parallelism: int) -> npt.NDArray[np.int32]:
    """Key group of each hash, in [0, max_parallelism)."""
    return mix_hashes(hashes) % np.int32(max_parallelism)


def key_group_of(key_hash: int, max_parallelism: int) -> int:
    """Key group of one hash, given as an unsigned number of 32 bits: `key_groups_of` without arrays."""
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


def subtasks_of(
    hashes: npt.NDArray[np.int32], parallelism: int, max_parallelism: int
) -> npt.NDArray[np.int32]:
    """Subtask that owns each hash's key group, in [0, parallelism)."""
    groups = key_groups_of(hashes, max_parallelism).astype(np.int64)
    return (groups * parallelism // max_parallelism).astype(np.int32)


def key_group_range(subtask_index: int, parallelism: int, max_parallelism: int) -> range:
    """Key groups that `subtask_index` owns; the ranges of all subtasks tile 0..max_parallelism-1."""
    start = (subtask_index * max_parallelism + parallelism - 1) // parallelism
    end = ((subtask_index + 1) * max_parallelism - 1) // parallelism
    return range(start, end + 1)
