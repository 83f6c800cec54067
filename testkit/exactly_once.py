"""Oracle of tests that kill processes: checks that every record was committed once, also while the job runs.

`compare_output` distinguishes the mistakes of output: lost, duplicated, corrupted, reordered. `OutputFollower`
reads committed output repeatedly while a job runs, because output that is right in the end may have been
wrong in between: shown before it was committed, changed, or taken back.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow.parquet as pq

from headrace.core.threads import start_thread

SHOWN_MAX: Final = 5
"""Number of examples per kind of mistake in a verdict's text."""


@dataclass(frozen=True)
class Reordered:
    """Two records of one key in the wrong order."""

    key: Hashable
    earlier: Hashable
    later: Hashable


@dataclass(frozen=True)
class Verdict:
    """Differences between actual and expected output; all fields are empty if the output is exact.

    `corrupted`: values that were not expected at all. Counts are of missing or surplus records.
    """

    lost: Counter[Hashable] = field(default_factory=Counter[Hashable])
    duplicated: Counter[Hashable] = field(default_factory=Counter[Hashable])
    corrupted: Counter[Hashable] = field(default_factory=Counter[Hashable])
    reordered: tuple[Reordered, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Return whether there are no mistakes."""
        return not (self.lost or self.duplicated or self.corrupted or self.reordered)

    def check(self) -> None:
        """Raise AssertionError, with examples, unless the output is exact."""
        if not self.is_exact:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        if self.is_exact:
            return "every record came out once"
        counted = {"lost": self.lost, "duplicated": self.duplicated, "corrupted": self.corrupted}
        parts = [
            f"{counts.total()} {name}: {_examples(sorted(counts, key=repr))}"
            for name, counts in counted.items()
            if counts
        ]
        if self.reordered:
            parts.append(f"{len(self.reordered)} reordered: {_examples(self.reordered)}")
        return "; ".join(parts)


def compare_output(
    expected: Iterable[Hashable],
    committed: Iterable[Hashable],
    *,
    key_of: Callable[[Any], Hashable] | None = None,
    position_of: Callable[[Any], Any] | None = None,
) -> Verdict:
    """Compare two multisets of records.

    With `position_of` records must also be in the order of their positions, by `key_of` if that is given: for
    outputs that keep an order. A record that came twice is duplicated, not reordered.

    Example:
        >>> print(compare_output(["a", "b", "c"], ["a", "b", "b"]))
        1 lost: 'c'; 1 duplicated: 'b'
    """
    wanted, found = Counter(expected), list(committed)
    counts = Counter(found)
    corrupted = Counter({value: count for value, count in counts.items() if value not in wanted})
    return Verdict(
        lost=wanted - counts,
        duplicated=counts - wanted - corrupted,
        corrupted=corrupted,
        reordered=_reordered([value for value in found if value in wanted], key_of, position_of),
    )


def _reordered(
    found: Sequence[Hashable],
    key_of: Callable[[Any], Hashable] | None,
    position_of: Callable[[Any], Any] | None,
) -> tuple[Reordered, ...]:
    if position_of is None:
        return ()
    furthest: dict[Hashable, Hashable] = {}
    seen: set[Hashable] = set()
    wrong: list[Reordered] = []
    for value in found:
        if value in seen:
            continue
        seen.add(value)
        key = key_of(value) if key_of else None
        before = furthest.get(key)
        if before is not None and position_of(value) < position_of(before):
            wrong.append(Reordered(key, value, before))
        else:
            furthest[key] = value
    return tuple(wrong)


Units = Mapping[str, Sequence[Hashable]]
"""Committed records by the unit that contains them: a file, a partition, a table."""


class OutputFollower:
    """Reads committed output repeatedly, and notes forbidden changes.

    Committed output stays: a unit never vanishes and its records stay as they are; records are only appended, and
    only if `may_grow` (partitions, tables; not files). No record ever occurs twice.
    """

    def __init__(self, read: Callable[[], Units], *, may_grow: bool = False) -> None:
        self._read = read
        self._may_grow = may_grow
        self._seen: dict[str, tuple[Hashable, ...]] = {}
        self.mistakes: list[str] = []
        self.poll_count = 0

    def poll(self) -> None:
        """Read the output once."""
        now = {unit: tuple(records) for unit, records in self._read().items()}
        self.poll_count += 1
        for unit, before in self._seen.items():
            self._compare(unit, before, now.get(unit))
        twice = Counter(record for records in now.values() for record in records)
        repeated = sorted((one for one, count in twice.items() if count > 1), key=repr)
        if repeated:
            self._note(f"there twice: {_examples(repeated)}")
        self._seen = now

    def check(self) -> None:
        """Raise AssertionError with all mistakes that were ever seen."""
        if self.mistakes:
            raise AssertionError("; ".join(self.mistakes[:SHOWN_MAX]))

    @property
    def records(self) -> list[Hashable]:
        """Return all records of the last read."""
        return [record for records in self._seen.values() for record in records]

    def _compare(
        self, unit: str, before: tuple[Hashable, ...], now: tuple[Hashable, ...] | None
    ) -> None:
        if now is None:
            self._note(f"{unit} was committed and is gone")
        elif now[: len(before)] != before:
            self._note(f"{unit} was committed and has changed")
        elif len(now) > len(before) and not self._may_grow:
            self._note(f"{unit} was committed and has grown")

    def _note(self, mistake: str) -> None:
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)


class Following:
    """Polls a follower on a thread of its own while the body of a `with` runs, and once more after it.

    Example:
        >>> follower = OutputFollower(lambda: {"out": ["a"]})
        >>> with Following(follower, interval_s=0.01):
        ...     pass
        >>> follower.records
        ['a']
    """

    def __init__(self, follower: OutputFollower, *, interval_s: float = 0.1) -> None:
        self._follower = follower
        self._interval_s = interval_s
        self._is_over = threading.Event()
        self._error: BaseException | None = None
        self._thread: Any = None

    def __enter__(self) -> Self:
        self._thread = start_thread("output-follower", self._run)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        if error is None:
            if self._error is not None:
                raise self._error
            self._follower.poll()
            self._follower.check()

    def _run(self) -> None:
        try:
            while not self._is_over.wait(self._interval_s):
                self._follower.poll()
        except Exception as error:
            self._error = error


def lines_of_files(folder: Path) -> dict[str, list[str]]:
    """Return the lines of the text files below a folder that a reader sees, without names beginning with `.` or `_`."""
    return {str(file): file.read_text().splitlines() for file in visible_files(folder)}


def rows_of_parquet(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of the Parquet files below a folder that a reader sees, as tuples in order of columns."""
    return {
        str(file): list(zip(*pq.read_table(file).to_pydict().values(), strict=True))
        for file in visible_files(folder)
    }


def visible_files(folder: Path) -> list[Path]:
    """Return the files below a folder without hidden ones and hidden folders, which may come and go meanwhile."""
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        found += [Path(place) / name for name in files if not name.startswith((".", "_"))]
    return sorted(found)


def _examples(values: Iterable[object]) -> str:
    texts = [repr(value) for value in values]
    more = f" and {len(texts) - SHOWN_MAX} more" if len(texts) > SHOWN_MAX else ""
    return ", ".join(texts[:SHOWN_MAX]) + more
