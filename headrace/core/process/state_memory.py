"""StateMemory: the bytes that a columnar state holds, counted as managed memory of its process.

A task counts its own states, once per batch; any thread may read the sum. RocksDB, which has managed memory too, keeps
to a bound by itself. Columns cannot, as each merge needs all of them: beyond managed memory they take what other parts
leave free, the log says so, and once the process holds more than it may, the error names who holds most.
"""

import logging
from typing import Final

import pyarrow as pa

from headrace.core.config import Settings
from headrace.core.ids import size_text
from headrace.core.process.memory_parts import MANAGED_MEMORY, own_memory_parts

_LOG: Final = logging.getLogger(__name__)
_LOOK_BYTES: Final = 1 << 20
"""Growth of a state after which the sum of all is looked at: a process may have hundreds of them."""
_MEASURED_BYTES: Final = 4 << 20
"""Size of the buffers of rows, after those that were measured last, with which rows are measured again."""
_ROW_BUFFER_PART: Final = 8
_ROW_BUFFER_MIN_BYTES: Final = 16 << 20
"""Each buffer of a sort becomes an open file, and a process may have about a thousand of those."""
ROW_BUFFER_MAX_BYTES: Final = 64 << 20
_KEPT_RUNS_MAX_BYTES: Final = 256 << 20


def row_buffer_bytes(settings: Settings) -> int:
    """Return the size of the rows that a sort, or an operator, collects before it writes them out.

    To put them in order takes twice as much again, and a chain may have several such operators: so it is an eighth of
    managed memory, but at least 16 and at most 64 mb.
    """
    part = own_memory_parts(settings).managed // _ROW_BUFFER_PART
    return max(_ROW_BUFFER_MIN_BYTES, min(part, ROW_BUFFER_MAX_BYTES))


def kept_runs_bytes(settings: Settings) -> int:
    """Return the size of the sorted rows that a sort keeps in memory, beside those that it is about to put in order.

    Half of managed memory, as buffer and order take three eighths, and at most 256 mb.
    """
    return min(own_memory_parts(settings).managed // 2, _KEPT_RUNS_MAX_BYTES)


class StateMemory:
    """Account of one state of one subtask. Its task's thread only, but for `size_bytes`."""

    def __init__(self, operator_name: str, state_name: str, settings: Settings) -> None:
        self.operator_name: Final = operator_name
        self.state_name: Final = state_name
        self.managed_bytes: Final = own_memory_parts(settings).managed
        self.size_bytes = 0
        self._looked_at_bytes = 0
        self._row_bytes = 0.0
        # The first rows are measured.
        self._unmeasured_bytes = _MEASURED_BYTES
        _ACCOUNTS.add(self)

    def add_rows(self, rows: pa.Table | pa.RecordBatch) -> int:
        """Note that the state holds these rows, too; return about how many bytes they take.

        To measure them takes longer than to add a small batch to a state. So of small ones some are measured, the
        others count as many bytes per row. Of slices the buffers, which are quickly told, are an upper bound.
        """
        self._unmeasured_bytes += rows.get_total_buffer_size()
        if self._unmeasured_bytes >= _MEASURED_BYTES:
            self._unmeasured_bytes = 0
            self._row_bytes = rows.nbytes / max(1, rows.num_rows)
        size_bytes = int(self._row_bytes * rows.num_rows)
        self.grow(size_bytes)
        return size_bytes

    def grow(self, more_bytes: int) -> None:
        """Note that the state holds so much more."""
        self.resize(self.size_bytes + more_bytes)

    def resize(self, size_bytes: int) -> None:
        """Note what the state holds now."""
        self.size_bytes = size_bytes
        if size_bytes < self._looked_at_bytes:
            self._looked_at_bytes = size_bytes
        elif size_bytes >= self._looked_at_bytes + _LOOK_BYTES:
            self._looked_at_bytes = size_bytes
            _ACCOUNTS.look(self.managed_bytes)

    def close(self) -> None:
        """Note that the state is gone. Idempotent."""
        self.size_bytes = 0
        _ACCOUNTS.discard(self)


class _Accounts:
    """All accounts of this process. Any thread: each step is one of the interpreter's, which no other one divides."""

    def __init__(self) -> None:
        self._open: Final[set[StateMemory]] = set()
        self._told_bytes = 0

    def add(self, account: StateMemory) -> None:
        self._open.add(account)

    def discard(self, account: StateMemory) -> None:
        self._open.discard(account)

    @property
    def size_bytes(self) -> int:
        return sum(account.size_bytes for account in tuple(self._open))

    def look(self, managed_bytes: int) -> None:
        """Warn where all together hold more than managed memory, and again where it is twice as much as then."""
        size_bytes = self.size_bytes
        if size_bytes <= managed_bytes:
            self._told_bytes = 0
        elif size_bytes >= 2 * self._told_bytes:
            self._told_bytes = size_bytes
            _LOG.warning(
                "%s; the job goes on with memory that is meant for other parts: give it more subtasks, or TaskManagers "
                "more memory, in all or as managed memory",
                self.text(),
            )

    def text(self) -> str:
        accounts = sorted(tuple(self._open), key=lambda account: account.size_bytes)
        largest = accounts[-1] if accounts else None
        if largest is None or not largest.size_bytes:
            return ""
        size = size_text(sum(account.size_bytes for account in accounts))
        return (
            f"columnar state takes {size}, where managed memory is {size_text(largest.managed_bytes)} "
            f"('{MANAGED_MEMORY.key}'); operator '{largest.operator_name}' holds the most, "
            f"{size_text(largest.size_bytes)} in '{largest.state_name}'"
        )


_ACCOUNTS: Final = _Accounts()


def columnar_state_bytes() -> int:
    """Return what the columnar states of this process hold together. Any thread."""
    return _ACCOUNTS.size_bytes


def columnar_state_text() -> str:
    """Say what the columnar states of this process hold, and which operator most; empty where there are none."""
    return _ACCOUNTS.text()
