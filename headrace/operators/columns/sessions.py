"""Sessions: which stretches of time of one key belong together, for many keys at once. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.core.record_batch import Timestamps
from headrace.operators.columns.group_codes import Codes
from headrace.operators.columns.ordered_integers import begin_stretches


@dataclass(frozen=True)
class Grouping:
    """The session of each stretch, shape (stretches,), and where each session begins and last saw a row."""

    sessions: Codes
    starts: Timestamps
    lasts: Timestamps


def group_stretches(codes: Codes, starts: Timestamps, lasts: Timestamps, gap_ms: int) -> Grouping:
    """Join stretches [start, last] of one key (`codes`) that are at most `gap_ms` apart; at least one stretch."""
    order = np.lexsort((starts, codes))
    codes, starts, lasts = codes[order], starts[order], lasts[order]
    # How far the stretches of a key reach up to each one: by rank, as a key's number times a time could overflow.
    distinct, ranks = np.unique(lasts, return_inverse=True)
    is_new_key = begin_stretches(codes)
    keys = np.cumsum(is_new_key) - 1
    reaches = distinct[np.maximum.accumulate(keys * len(distinct) + ranks) % len(distinct)]
    begins = is_new_key.copy()
    # The distance of two times needs all 64 bits, without a sign.
    distances = (starts[1:] - reaches[:-1]).view(np.uint64)
    begins[1:] |= (starts[1:] > reaches[:-1]) & (distances > gap_ms)
    firsts = np.flatnonzero(begins)
    sessions = np.empty(len(order), dtype=np.int64)
    sessions[order] = np.cumsum(begins) - 1
    return Grouping(sessions, starts[firsts], np.maximum.reduceat(lasts, firsts))


def late_stretches(
    codes: Codes,
    starts: Timestamps,
    lasts: Timestamps,
    sessions: Iterable[tuple[int, int, int]],
    gap_ms: int,
    watermark: int,
) -> npt.NDArray[np.bool_]:
    """Return which stretches [start, last] come too late, as told one by one, in their order.

    One is late whose own session has ended, and that is near no live one. `sessions`: (code, start, last) of those.
    It may be saved by one that came before it, but not by one behind it: so keys with a stretch whose own session has
    ended are gone through in Python, and all others not at all.
    """
    is_late = np.zeros(len(codes), dtype=np.bool_)
    is_behind = lasts <= watermark - gap_ms + 1
    if not is_behind.any():
        return is_late
    affected = np.isin(codes, codes[is_behind])
    live: dict[int, list[tuple[int, int]]] = {code: [] for code in codes[affected].tolist()}
    for code, start, last in sessions:
        if code in live:
            live[code].append((start, last))
    for row in np.flatnonzero(affected).tolist():
        start, last = int(starts[row]), int(lasts[row])
        stretches = live[int(codes[row])]
        near = [one for one in stretches if one[0] - gap_ms <= last and start <= one[1] + gap_ms]
        if not near and is_behind[row]:
            is_late[row] = True
            continue
        joined = min([start, *(one[0] for one in near)]), max([last, *(one[1] for one in near)])
        live[int(codes[row])] = [*(one for one in stretches if one not in near), joined]
    return is_late
