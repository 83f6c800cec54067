"""Matching: which rows of two tables have one key. Pure. Rows are found by a number made of the key, then compared.

`SortedRows` is a set of rows that grows: runs in order of these numbers, each at least twice as long as the next, so
that a row is moved as often as the set doubles. Within equal numbers rows stay in order of arrival.
Source: O'Neil, Cheng, Gawlick, O'Neil 1996 (log-structured merge tree).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.integer[Any]]
Indexes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MatchRun:
    """Rows in order of `numbers`, shape (num_rows,)."""

    numbers: Numbers
    rows: pa.Table


@dataclass(frozen=True)
class Pairs:
    """Rows `probes` of the table that asked, and the rows `found` beside them: of the same length, by probe."""

    probes: Indexes
    found: pa.Table


class WantedNumbers:
    """The numbers of the rows that ask, shape (num_rows,): each different one is looked for once.

    In ascending order, as that is ten times as fast as to jump about in a run that no cache holds.
    """

    def __init__(self, numbers: Numbers) -> None:
        self._distinct, self._codes = np.unique(numbers, return_inverse=True)

    def places_in(self, run: "MatchRun") -> tuple[Indexes, Indexes]:
        """Return where the rows with the number of each row begin in `run`, and how many there are."""
        begins = np.searchsorted(run.numbers, self._distinct, side="left")
        counts = np.searchsorted(run.numbers, self._distinct, side="right") - begins
        return begins[self._codes], counts[self._codes]


class SortedRows:
    """Rows that can be found by number, in order of arrival. `schema` is that of every table."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema: Final = schema
        self._runs: list[MatchRun] = []

    @property
    def tables(self) -> list[pa.Table]:
        """All rows, older ones first among those of equal numbers."""
        return [run.rows for run in self._runs]

    def add(self, numbers: Numbers, rows: pa.Table) -> None:
        """Take rows in."""
        self._runs.append(sorted_run(numbers, [rows]))
        while len(self._runs) > 1 and len(self._runs[-2].numbers) < 2 * len(self._runs[-1].numbers):
            newer, older = self._runs.pop(), self._runs.pop()
            both = np.concatenate([older.numbers, newer.numbers])
            self._runs.append(sorted_run(both, [older.rows, newer.rows]))

    def clear(self) -> None:
        """Forget all rows."""
        self._runs = []

    def count_of(self, wanted: "WantedNumbers") -> int:
        """Return how many pairs `find` would look at."""
        return sum(int(wanted.places_in(run)[1].sum()) for run in self._runs)

    def find(
        self, wanted: "WantedNumbers", probe: pa.Table, keys: Sequence[tuple[str, str]]
    ) -> Pairs | None:
        """Return the rows beside each row of `probe`, None if there are none.

        `wanted`: the numbers of the probe's rows. `keys`: pairs of columns, of the probe and of these rows, that
        must be equal.
        """
        parts = [
            pairs
            for run in self._runs
            if (pairs := matching_rows(wanted, probe, run, keys)) is not None
        ]
        if len(parts) < 2:
            return parts[0] if parts else None
        probes = np.concatenate([part.probes for part in parts])
        order = np.argsort(probes, kind="stable")
        found = pa.concat_tables([part.found for part in parts]).take(pa.array(order))
        return Pairs(probes[order], found)


def sorted_run(numbers: Numbers, tables: Sequence[pa.Table]) -> MatchRun:
    """Return rows in order of their numbers."""
    rows = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
    # Two runs behind one another: this sort sees that and merges them.
    order = np.argsort(numbers, kind="stable")
    return MatchRun(numbers[order], rows.take(pa.array(order)).combine_chunks())


def matching_rows(
    wanted: WantedNumbers, probe: pa.Table, run: MatchRun, keys: Sequence[tuple[str, str]]
) -> Pairs | None:
    """Return the rows of a run beside each row of `probe`, None if there are none; see SortedRows.find."""
    begins, counts = wanted.places_in(run)
    total = int(counts.sum())
    if total == 0:
        return None
    probes = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    before = np.cumsum(counts) - counts
    places = np.arange(total, dtype=np.int64) + np.repeat(begins - before, counts)
    is_equal = _equal_keys(probe, probes, run.rows, places, keys)
    if not is_equal.all():
        probes, places = probes[is_equal], places[is_equal]
        if len(probes) == 0:
            return None
    return Pairs(probes, run.rows.take(pa.array(places)))


def _equal_keys(
    one: pa.Table,
    ones: Indexes,
    other: pa.Table,
    others: Indexes,
    keys: Sequence[tuple[str, str]],
) -> npt.NDArray[np.bool_]:
    is_equal = np.ones(len(ones), dtype=np.bool_)
    at_ones, at_others = pa.array(ones), pa.array(others)
    for left, right in keys:
        arrays = [one.column(left).take(at_ones), other.column(right).take(at_others)]
        equal = pc.call_function("equal", arrays)
        # A null inside a key of several columns equals nothing.
        is_equal &= equal.fill_null(False).to_numpy()
    return is_equal
