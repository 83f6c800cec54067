"""StateMemory: the bytes of a columnar state, counted as managed memory of its process.

A task counts its own states, once per batch; any thread may read the sum. RocksDB, which uses managed memory too,
enforces a limit itself. Columns cannot, because each merge needs all of them: above managed memory they use free memory
of other parts, which is logged, and if the process exceeds its memory, the error names the largest state.
"""

import logging
from typing import Final

import pyarrow as pa

from headrace.core.config import Settings
from headrace.core.ids import size_text
from headrace.core.process.memory_parts import MANAGED_MEMORY, own_memory_parts

_LOG: Final = logging.getLogger(__name__)
_LOOK_BYTES: Final = 1 << 20
"""Growth of a state after which the sum of all states is checked, because a process may have hundreds of them."""
_MEASURED_BYTES: Final = 4 << 20
"""Size of added row buffers after which rows are measured again."""
_ROW_BUFFER_PART: Final = 8
_ROW_BUFFER_MIN_BYTES: Final = 16 << 20
"""Minimum row buffer: each buffer of a sort becomes an open file, of which a process may have about a thousand."""
ROW_BUFFER_MAX_BYTES: Final = 64 << 20
_KEPT_RUNS_MAX_BYTES: Final = 256 << 20


def row_buffer_bytes(settings: Settings) -> int:
    """Return the size of the rows that a sort, or an operator, collects before it writes them out.

    Sorting takes twice as much again, and a chain may have several such operators: so the size is an eighth of managed
    memory, at least 16 and at most 64 mb.
    """
    part = own_memory_parts(settings).managed // _ROW_BUFFER_PART
    return max(_ROW_BUFFER_MIN_BYTES, min(part, ROW_BUFFER_MAX_BYTES))


def kept_runs_bytes(settings: Settings) -> int:
    """Return the size of the sorted rows that a sort keeps in memory, in addition to those being sorted.

    This is half of managed memory, because buffer and sorting take three eighths, and at most 256 mb.
    """
    return min(own_memory_parts(settings).managed // 2, _KEPT_RUNS_MAX_BYTES)


class StateMemory:
    """Account of one state of one subtask. Used only by the task's thread, except `size_bytes`."""

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
        """Add the size of rows that the state now holds, too; return their approximate size in bytes.

        Measuring takes longer than adding a small batch to a state. So only some small batches are measured, and the
        others count with the same bytes per row. For slices the size of the buffers is a fast upper bound.
        """
        self._unmeasured_bytes += rows.get_total_buffer_size()
        if self._unmeasured_bytes >= _MEASURED_BYTES:
            self._unmeasured_bytes = 0
            self._row_bytes = rows.nbytes / max(1, rows.num_rows)
        size_bytes = int(self._row_bytes * rows.num_rows)
        self.grow(size_bytes)
        return size_bytes

    def grow(self, more_bytes: int) -> None:
        """Add `more_bytes` to the size of the state."""
        self.resize(self.size_bytes + more_bytes)

    def resize(self, size_bytes: int) -> None:
        """Set the size of the state."""
        self.size_bytes = size_bytes
        if size_bytes < self._looked_at_bytes:
            self._looked_at_bytes = size_bytes
        elif size_bytes >= self._looked_at_bytes + _LOOK_BYTES:
            self._looked_at_bytes = size_bytes
            _ACCOUNTS.look(self.managed_bytes)

    def close(self) -> None:
        """Record that the state no longer exists. Idempotent."""
        self.size_bytes = 0
        _ACCOUNTS.discard(self)


class _Accounts:
    """All accounts of this process. Any thread: each step is atomic in the interpreter."""

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
        """Warn if the sum of all exceeds managed memory, and again whenever it has doubled."""
        size_bytes = self.size_bytes
        if size_bytes <= managed_bytes:
            self._told_bytes = 0
        elif size_bytes >= 2 * self._told_bytes:
            self._told_bytes = size_bytes
            _LOG.warning(
                "%s; the job continues with memory of other parts: give it more subtasks, or give TaskManagers more "
                "memory in total or more managed memory",
                self.text(),
            )

    def text(self) -> str:
        accounts = sorted(tuple(self._open), key=lambda account: account.size_bytes)
        largest = accounts[-1] if accounts else None
        if largest is None or not largest.size_bytes:
            return ""
        size = size_text(sum(account.size_bytes for account in accounts))
        return (
            f"columnar state takes {size}, but managed memory is {size_text(largest.managed_bytes)} "
            f"('{MANAGED_MEMORY.key}'); operator '{largest.operator_name}' holds the most, "
            f"{size_text(largest.size_bytes)} in '{largest.state_name}'"
        )


_ACCOUNTS: Final = _Accounts()


def columnar_state_bytes() -> int:
    """Return the total size of the columnar states of this process. Any thread."""
    return _ACCOUNTS.size_bytes


def columnar_state_text() -> str:
    """Describe the columnar states of this process and the largest one; empty if there are none."""
    return _ACCOUNTS.text()
