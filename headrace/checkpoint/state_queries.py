"""StateQuery, StateReadResult, StateTotals: queries of running subtasks' state, their answers, and these together.

They travel from a client to the task and back inside the messages of `gateways/messages`; only the client reads the
rows, which have the format of a checkpoint's files.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headrace.checkpoint.errors import StateKeyMismatchError
from headrace.checkpoint.handles import StateTable

TOP_KEYS: Final = 10
"""Number of the largest keys, and of those with the most rows, that figures name."""
READ_KEYS_MAX: Final = 10_000
"""Keys that one read may ask for: all are hashed in its first mail, for which a batch waits."""
TIMER_DUE_LIMITS_MS = (0, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
"""Upper ends, each included, of how far ahead a timer is; those behind the last are in one more place."""
DUE_WORDS: Final = ("due", "1 s", "10 s", "1 min", "10 min", "1 h", "1 d", "later")
"""Names of the times within which a timer is due, as `TIMER_DUE_LIMITS_MS` has them."""


def refuse_key_count(state: str, key_count: int) -> None:
    """Raise StateKeyMismatchError for more keys than one read may look up."""
    if key_count > READ_KEYS_MAX:
        reason = f"there are {key_count}, and one read takes {READ_KEYS_MAX} at most: ask for them in parts"
        raise StateKeyMismatchError(state, reason)


class ReadLimit(enum.Enum):
    """Limits that end an answer before all rows are in it."""

    ROWS = "more rows than were asked for"
    BYTES = "more than one message may hold"
    TIME = "the time was over"


class StatesQuery(msgspec.Struct, frozen=True, tag=True):
    """Query for the states of an operator in one subtask. `duration_ms_max`: of the answer, from its first mail on."""

    duration_ms_max: int = 5_000


class RowsQuery(msgspec.Struct, frozen=True, tag=True):
    """Query for the rows of one state.

    `keys`: an Arrow stream with one column, the keys that are wanted, READ_KEYS_MAX at most; empty: all.
    `row_count_max`: rows of the answer; `duration_ms_max`: from its first mail on.
    """

    table: StateTable
    state: str
    keys: bytes = b""
    row_count_max: int = 1_000
    size_bytes_max: int = 2 << 20
    duration_ms_max: int = 5_000
    includes_expired: bool = False


class FiguresQuery(msgspec.Struct, frozen=True, tag=True):
    """Query for the sizes of an operator's states. `duration_ms_max`: of the answer, from its first mail on."""

    duration_ms_max: int = 5_000


StateQuery = StatesQuery | RowsQuery | FiguresQuery
"""Queries of an operator's state in one subtask."""


class LiveStateInfo(msgspec.Struct, frozen=True):
    """A state that a subtask has. `kind`: that of keyed state (`value`, `list`, …). `opaque`: columns of pickles.

    `is_waiting`: it lies in the restored checkpoint, and nobody has asked for it since.
    """

    table: StateTable
    name: str
    kind: str = ""
    opaque: tuple[str, ...] = ()
    is_waiting: bool = False


class KeyFigures(msgspec.Struct, frozen=True):
    """Size of one key's rows in one state. `key`: its repr."""

    key: str
    row_count: int
    size_bytes: int


class KeyGroupFigures(msgspec.Struct, frozen=True, array_like=True):
    """Size of one key group's rows in one state."""

    key_group: int
    row_count: int
    size_bytes: int


class TimerFigures(msgspec.Struct, frozen=True):
    """Timers of one domain. `due_counts`: how many are due by when, see `TIMER_DUE_LIMITS_MS`; `next_ms`: epoch ms.

    Times until due count from the clock, or from the operator's watermark (None before the first one: then all timers
    are in the last place).
    """

    domain: str
    now_ms: int | None
    next_ms: int
    due_counts: tuple[int, ...]


class StateFigures(msgspec.Struct, frozen=True):
    """Size of one state in one subtask. `size_bytes`: of its rows in Arrow, uncompressed.

    `top_keys`: those with the most bytes, and those with the most rows; lower bounds where `are_top_keys_exact` is
    false, as there were too many keys to count each. `expired_count`: rows past their time to live; None without one.
    `oldest_window_ms`: the least start of a window, or time of a namespace. `is_partial`: not all rows were counted.
    """

    table: StateTable
    name: str
    row_count: int
    size_bytes: int
    key_groups: tuple[KeyGroupFigures, ...] = ()
    top_keys: tuple[KeyFigures, ...] = ()
    are_top_keys_exact: bool = True
    expired_count: int | None = None
    oldest_window_ms: int | None = None
    timers: tuple[TimerFigures, ...] = ()
    is_partial: bool = False


class StateReadResult(msgspec.Struct, frozen=True):
    """Answer to a StateQuery, as of one moment between two batches of the subtask, `taken_at_ms` (epoch ms).

    `states`: all that the operator has here. To a RowsQuery belong `is_found`: whether the state that was asked for is
    among them; `pieces`: its rows, each an Arrow stream; one without rows, for its schema, where there are none; none
    where the state waits; and `limit`: why there are not all rows. To a FiguresQuery belong `figures`. `mail_count`
    mails read it, of which the largest looked at `mail_row_count_max` rows. `watermark_ms`: the operator's event time.
    """

    taken_at_ms: int
    watermark_ms: int
    states: tuple[LiveStateInfo, ...]
    is_found: bool = False
    pieces: tuple[bytes, ...] = ()
    row_count: int = 0
    limit: ReadLimit | None = None
    mail_count: int = 0
    mail_row_count_max: int = 0
    figures: tuple[StateFigures, ...] = ()


def totals_of(subtasks: Sequence[Sequence[StateFigures]]) -> tuple["StateTotals", ...]:
    """Return each state over all subtasks, by table and name. `subtasks`: the figures of each, by index."""
    by_subtask = [{(one.table, one.name): one for one in own} for own in subtasks]
    names = sorted(
        {name for own in by_subtask for name in own}, key=lambda one: (one[0].value, one[1])
    )
    return tuple(
        StateTotals(table.value, name, tuple(own.get((table, name)) for own in by_subtask))
        for table, name in names
    )


@dataclass(frozen=True)
class StateTotals:
    """Figures of one state over all subtasks. `subtasks`: their own, by index; None where one has no such state.

    Skews are the largest over the mean, by bytes: of key groups that hold something, and of all subtasks.
    """

    table: str
    state: str
    subtasks: tuple[StateFigures | None, ...]

    @property
    def row_count(self) -> int:
        """Rows of all subtasks."""
        return sum(one.row_count for one in self._present)

    @property
    def size_bytes(self) -> int:
        """Bytes of all rows, as in an uncompressed file."""
        return sum(one.size_bytes for one in self._present)

    @property
    def expired_count(self) -> int | None:
        """Return the number of rows whose time to live is over; None without a time to live."""
        counts = [one.expired_count for one in self._present if one.expired_count is not None]
        return sum(counts) if counts else None

    @property
    def oldest_window_ms(self) -> int | None:
        """The least start of a window that holds something, epoch ms."""
        starts = [one.oldest_window_ms for one in self._present if one.oldest_window_ms is not None]
        return min(starts, default=None)

    @property
    def key_group_skew(self) -> float | None:
        """Return the ratio of the largest key group's size to the mean."""
        return skew_of([group.size_bytes for one in self._present for group in one.key_groups])

    @property
    def subtask_skew(self) -> float | None:
        """Return the ratio of the largest subtask's size to the mean."""
        return skew_of([0 if one is None else one.size_bytes for one in self.subtasks])

    @property
    def top_keys(self) -> list[dict[str, Any]]:
        """The keys with the most bytes, and those with the most rows, as `key`, `rows` and `bytes`."""
        keys = [key for one in self._present for key in one.top_keys]
        largest = sorted(keys, key=lambda key: key.size_bytes, reverse=True)[:TOP_KEYS]
        fullest = sorted(keys, key=lambda key: key.row_count, reverse=True)[:TOP_KEYS]
        shown = {id(key): key for key in (*largest, *fullest)}.values()
        return [{"key": one.key, "rows": one.row_count, "bytes": one.size_bytes} for one in shown]

    @property
    def are_top_keys_exact(self) -> bool:
        """Return whether no subtask had too many keys to remember all."""
        return all(one.are_top_keys_exact for one in self._present)

    @property
    def is_partial(self) -> bool:
        """Return whether time was over before all rows were looked at."""
        return any(one.is_partial for one in self._present)

    @property
    def timers(self) -> list[dict[str, Any]]:
        """Return by time domain when the next timer is due (epoch ms), and how many are due within 1 s, 10 s and so on.

        Each is counted at the first limit that it is within.
        """
        found: dict[str, dict[str, Any]] = {}
        for one in self._present:
            for timers in one.timers:
                counts = dict(zip(DUE_WORDS, timers.due_counts, strict=True))
                known = found.get(timers.domain)
                if known is None:
                    found[timers.domain] = {
                        "domain": timers.domain,
                        "next_ms": timers.next_ms,
                        **counts,
                    }
                    continue
                known["next_ms"] = min(known["next_ms"], timers.next_ms)
                for word, count in counts.items():
                    known[word] += count
        return [found[domain] for domain in sorted(found)]

    @property
    def _present(self) -> list[StateFigures]:
        return [one for one in self.subtasks if one is not None]


def skew_of(sizes: Sequence[int]) -> float | None:
    """Return the ratio of the largest size to the mean; None where there is nothing."""
    total = sum(sizes)
    return max(sizes) * len(sizes) / total if total else None


assert len(DUE_WORDS) == len(TIMER_DUE_LIMITS_MS) + 1
