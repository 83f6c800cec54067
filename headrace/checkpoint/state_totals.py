"""StateTotals: figures of one state over all subtasks that have it, as people look at them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.checkpoint.state_queries import TIMER_DUE_LIMITS_MS, TOP_KEYS, StateFigures

DUE_WORDS: Final = ("due", "1 s", "10 s", "1 min", "10 min", "1 h", "1 d", "later")
"""Names of the times within which a timer is due, as `TIMER_DUE_LIMITS_MS` has them."""


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
