"""Matching: finds the rows of two tables that have the same key. Pure.

Rows are looked up by a number made of the key, and then their keys are compared. `FindableRows` is a growing set of
rows in runs, each at least twice as long as the next, so that a row is moved only as often as the set doubles. Numbers
are sorted, with the positions of their rows; rows themselves stay in order of arrival, as sorting texts takes ten times
as long as copying them. Equal numbers are in order of position.
Source: O'Neil, Cheng, Gawlick, O'Neil 1996 (log-structured merge tree).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.process.state_memory import StateMemory
from headrace.operators.columns.integer_columns import (
    Indexes,
    Numbers,
    begin_stretches,
    stable_order,
)


@dataclass(frozen=True)
class MatchRun:
    """Rows in order of arrival; `numbers`, ascending, and the `places` of their rows have shape (num_rows,)."""

    numbers: Numbers
    places: Indexes
    rows: pa.Table

    @classmethod
    def of(cls, numbers: Numbers, rows: pa.Table) -> Self:
        """Return a run of `rows`, whose `numbers` have shape (num_rows,)."""
        order = stable_order(numbers)
        return cls(numbers[order], order, rows)


@dataclass(frozen=True)
class Matches:
    """Pairs of row `probes[i]` of the probing table and row `places[i]` of a run; by probe, then by place."""

    probes: Indexes
    places: Indexes


@dataclass(frozen=True)
class Pairs:
    """Pairs of row `probes[i]` of the probing table and row i of `found`; by probe."""

    probes: Indexes
    found: pa.Table


class WantedNumbers:
    """The numbers of the probing rows, shape (num_rows,); each distinct one is looked up once.

    Look-ups go in ascending order, which is ten times as fast as random access to a run larger than the caches.
    """

    def __init__(self, numbers: Numbers) -> None:
        self._order = stable_order(numbers)
        self._in_order = numbers[self._order]
        is_first = begin_stretches(self._in_order)
        self._distinct = self._in_order[is_first]
        self._codes = np.empty(len(numbers), dtype=np.int64)
        self._codes[self._order] = np.cumsum(is_first) - 1

    def as_run(self, rows: pa.Table) -> MatchRun:
        """Return the probing rows as a run; nothing is sorted again."""
        return MatchRun(self._in_order, self._order, rows)

    def spans_in(self, run: MatchRun) -> tuple[Indexes, Indexes]:
        """Return the first position in `run` of each row's number, and the count of equal numbers from there."""
        begins = np.searchsorted(run.numbers, self._distinct, side="left")
        counts = np.searchsorted(run.numbers, self._distinct, side="right") - begins
        return begins[self._codes], counts[self._codes]


class FindableRows:
    """Rows in order of arrival that can be looked up by number; all tables have the columns of `schema`.

    `memory`: the account of their size.
    """

    def __init__(self, schema: pa.Schema, memory: StateMemory) -> None:
        self.schema: Final = schema
        self._memory: Final = memory
        self._runs: list[MatchRun] = []

    @property
    def tables(self) -> list[pa.Table]:
        """All rows, older ones first."""
        return [run.rows for run in self._runs]

    def add(self, run: MatchRun) -> None:
        """Add rows."""
        begin, count = len(self._runs), len(run.numbers)
        while begin and len(self._runs[begin - 1].numbers) < 2 * count:
            begin -= 1
            count += len(self._runs[begin].numbers)
        # All at once, as merging one run after the other would move the newest rows once per run.
        self._runs[begin:] = [merged_runs([*self._runs[begin:], run])]
        # Merged runs take as much memory as separate ones.
        self._memory.add_rows(run.rows)
        self._memory.grow(run.numbers.nbytes + run.places.nbytes)

    def clear(self) -> None:
        """Forget all rows."""
        self._runs = []
        self._memory.resize(0)

    def look_up(self, wanted: WantedNumbers) -> "FoundNumbers":
        """Return the rows that have the numbers of the probing rows."""
        spans = [(run, *wanted.spans_in(run)) for run in self._runs]
        return FoundNumbers(
            [(run, begins, counts) for run, begins, counts in spans if counts.any()]
        )


class FoundNumbers:
    """Rows with the numbers of probing rows, before their keys are compared."""

    def __init__(self, spans: Sequence[tuple[MatchRun, Indexes, Indexes]]) -> None:
        self._spans = spans
        self.count: Final = sum(int(counts.sum()) for _, _, counts in spans)
        """Number of pairs that `find` compares."""

    def find(
        self, probe: pa.Table, keys: Sequence[tuple[str, str]], columns: Sequence[str]
    ) -> Pairs | None:
        """Return the pairs of each row of `probe`, whose numbers were looked up; None if there are none.

        `columns`: those of the found rows that are returned. `keys`: pairs of columns, of the probe and of the found
        rows, that must be equal.
        """
        parts: list[Pairs] = []
        for run, begins, counts in self._spans:
            matches = _compared(_with_numbers(run, begins, counts), probe, run, keys)
            if matches is not None:
                found = run.rows.select(columns).take(pa.array(matches.places))
                parts.append(Pairs(matches.probes, found))
        if len(parts) < 2:
            return parts[0] if parts else None
        probes = np.concatenate([part.probes for part in parts])
        order = np.argsort(probes, kind="stable")
        found = pa.concat_tables([part.found for part in parts]).take(pa.array(order))
        return Pairs(probes[order], found)


def merged_runs(runs: Sequence[MatchRun]) -> MatchRun:
    """Return the rows of all runs (at least one), older ones first, as one."""
    if len(runs) == 1:
        return runs[0]
    begins = np.cumsum([0, *(run.rows.num_rows for run in runs)])
    numbers = np.concatenate([run.numbers for run in runs])
    places = np.concatenate([run.places + begin for run, begin in zip(runs, begins, strict=False)])
    # A stable sort of sorted runs merges them.
    order = np.argsort(numbers, kind="stable")
    rows = pa.concat_tables([run.rows for run in runs]).combine_chunks()
    return MatchRun(numbers[order], places[order], rows)


def matching_rows(
    wanted: WantedNumbers, probe: pa.Table, run: MatchRun, keys: Sequence[tuple[str, str]]
) -> Matches | None:
    """Return the pairs of the rows of `probe` with those of a run; None if there are none.

    `wanted`: the numbers of the probe's rows. `keys`: pairs of columns of both that must be equal.
    """
    return _compared(_with_numbers(run, *wanted.spans_in(run)), probe, run, keys)


def _with_numbers(run: MatchRun, begins: Indexes, counts: Indexes) -> Matches:
    """Return the pairs of each probing row with the run's rows in [begin, begin + count), by probe."""
    probes = np.flatnonzero(counts)
    begins, counts = begins[probes], counts[probes]
    total = int(counts.sum())
    if total == len(probes):
        return Matches(probes, run.places[begins])
    before = np.cumsum(counts) - counts
    at = np.arange(total, dtype=np.int64) + np.repeat(begins - before, counts)
    return Matches(np.repeat(probes, counts), run.places[at])


def _compared(
    found: Matches, probe: pa.Table, run: MatchRun, keys: Sequence[tuple[str, str]]
) -> Matches | None:
    """Return the pairs whose keys are equal; None if there are none."""
    if keys and len(found.probes):
        is_equal = _equal_keys(probe, found.probes, run.rows, found.places, keys)
        if not is_equal.all():
            found = Matches(found.probes[is_equal], found.places[is_equal])
    return found if len(found.probes) else None


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
        # A null in a key of several columns equals nothing.
        is_equal &= equal.fill_null(False).to_numpy()
    return is_equal
