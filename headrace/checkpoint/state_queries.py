"""StateQuery, StateReadResult, StateTotals: queries of running subtasks' state, their answers, and totals of answers.

They are sent from a client to the task and back inside the messages of `gateways/messages`; only the client reads the
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
"""Number of keys with the most bytes, and of keys with the most rows, that figures list."""
READ_KEYS_MAX: Final = 10_000
"""Maximum number of keys of one read, because all are hashed in its first mail, for which a batch waits."""
TIMER_DUE_LIMITS_MS = (0, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
"""Upper limits (inclusive) of the time until a timer is due; timers beyond the last limit count in a further place."""
DUE_WORDS: Final = ("due", "1 s", "10 s", "1 min", "10 min", "1 h", "1 d", "later")
"""Names of the times of `TIMER_DUE_LIMITS_MS`."""


def refuse_key_count(state: str, key_count: int) -> None:
    """Raise StateKeyMismatchError if there are more keys than one read may look up."""
    if key_count > READ_KEYS_MAX:
        reason = f"there are {key_count}, but one read takes at most {READ_KEYS_MAX}: split them into several reads"
        raise StateKeyMismatchError(state, reason)


class ReadLimit(enum.Enum):
    """Limits at which an answer ends before it has all rows."""

    ROWS = "there are more rows than requested"
    BYTES = "there are more rows than fit into one message"
    TIME = "the time limit was reached"


class StatesQuery(msgspec.Struct, frozen=True, tag=True):
    """Query for the states of an operator in one subtask.

    `duration_ms_max`: time limit from the answer's first mail on.
    """

    duration_ms_max: int = 5_000


class RowsQuery(msgspec.Struct, frozen=True, tag=True):
    """Query for the rows of one state.

    `keys`: an Arrow stream with one column of requested keys, at most READ_KEYS_MAX; empty: all. `row_count_max`:
    maximum number of rows of the answer; `duration_ms_max`: time limit from its first mail on.
    """

    table: StateTable
    state: str
    keys: bytes = b""
    row_count_max: int = 1_000
    size_bytes_max: int = 2 << 20
    duration_ms_max: int = 5_000
    includes_expired: bool = False


class FiguresQuery(msgspec.Struct, frozen=True, tag=True):
    """Query for the sizes of an operator's states. `duration_ms_max`: time limit from the answer's first mail on."""

    duration_ms_max: int = 5_000


StateQuery = StatesQuery | RowsQuery | FiguresQuery
"""Queries of an operator's state in one subtask."""


class LiveStateInfo(msgspec.Struct, frozen=True):
    """A state that a subtask has. `kind`: that of keyed state (`value`, `list`, …). `opaque`: columns of pickles.

    `is_waiting`: it is in the restored checkpoint, and has not been used since.
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
    """Timers of one domain. `due_counts`: numbers of timers by `TIMER_DUE_LIMITS_MS`; `next_ms`: epoch ms.

    Times until due are measured from the clock, or from the operator's watermark (None before the first one: then all
    timers are in the last place).
    """

    domain: str
    now_ms: int | None
    next_ms: int
    due_counts: tuple[int, ...]


class StateFigures(msgspec.Struct, frozen=True):
    """Size of one state in one subtask. `size_bytes`: size of its rows in Arrow, uncompressed.

    `top_keys`: those with the most bytes, and those with the most rows; lower bounds if `are_top_keys_exact` is false,
    because there were too many keys to count each. `expired_count`: rows past their time to live; None without one.
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
    """Answer to a StateQuery, at one moment between two batches of the subtask, `taken_at_ms` (epoch ms).

    `states`: all states of the operator in the subtask. For a RowsQuery: `is_found` is True if the requested state is
    among them; `pieces` are its rows as Arrow streams (an empty one, for the schema, if there are no rows; none if the
    state waits); `limit` is the reason for missing rows. For a FiguresQuery: `figures`. The answer took `mail_count`
    mails, each of at most `mail_row_count_max` rows. `watermark_ms`: the operator's event time.
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
    """Return the totals of each state over all subtasks, by table and name.

    `subtasks`: the figures of each, by index.
    """
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
    """Figures of one state over all subtasks. `subtasks`: the figures of each, by index.

    None if a subtask has no such state. Skews are the largest over the mean, by bytes: of key groups that are not
    empty, and of all subtasks.
    """

    table: str
    state: str
    subtasks: tuple[StateFigures | None, ...]

    @property
    def row_count(self) -> int:
        """Return the number of rows of all subtasks."""
        return sum(one.row_count for one in self._present)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all rows, as in an uncompressed file."""
        return sum(one.size_bytes for one in self._present)

    @property
    def expired_count(self) -> int | None:
        """Return the number of expired rows; None without a time to live."""
        counts = [one.expired_count for one in self._present if one.expired_count is not None]
        return sum(counts) if counts else None

    @property
    def oldest_window_ms(self) -> int | None:
        """Return the earliest start of a non-empty window, epoch ms, or None."""
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
        """Return the keys with the most bytes, and those with the most rows, as `key`, `rows` and `bytes`."""
        keys = [key for one in self._present for key in one.top_keys]
        largest = sorted(keys, key=lambda key: key.size_bytes, reverse=True)[:TOP_KEYS]
        fullest = sorted(keys, key=lambda key: key.row_count, reverse=True)[:TOP_KEYS]
        shown = {id(key): key for key in (*largest, *fullest)}.values()
        return [{"key": one.key, "rows": one.row_count, "bytes": one.size_bytes} for one in shown]

    @property
    def are_top_keys_exact(self) -> bool:
        """Return whether every subtask could count all its keys."""
        return all(one.are_top_keys_exact for one in self._present)

    @property
    def is_partial(self) -> bool:
        """Return whether some rows were not counted."""
        return any(one.is_partial for one in self._present)

    @property
    def timers(self) -> list[dict[str, Any]]:
        """Return by time domain the next timer's due time (epoch ms), and the numbers due within 1 s, 10 s and so on.

        Each timer is counted at the first limit that it meets.
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
    """Return the ratio of the largest size to the mean; None if all are empty."""
    total = sum(sizes)
    return max(sizes) * len(sizes) / total if total else None


assert len(DUE_WORDS) == len(TIMER_DUE_LIMITS_MS) + 1
