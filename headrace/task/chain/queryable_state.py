"""QueryableState: reads the states of a running task on its own thread, in mails between two batches.

The first mail freezes the requested state, as a checkpoint does, so that all further mails see the same moment. Each
mail examines a bounded number of rows and appends the next one to the mailbox, so that a batch waits for one mail of a
read at most, however large the state is. No other thread touches state.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from headrace.checkpoint.errors import (
    StateKeyMismatchError,
    StateNotShowableError,
    StateReadError,
    StateReadsBusyError,
    SubtaskNotReadableError,
)
from headrace.checkpoint.state_queries import (
    FiguresQuery,
    LiveStateInfo,
    ReadLimit,
    RowsQuery,
    StateFigures,
    StateQuery,
    StateReadResult,
    StatesQuery,
    refuse_key_count,
)
from headrace.core.clock import Clock
from headrace.core.errors import USER_EXCEPTIONS
from headrace.core.ids import OperatorId
from headrace.core.record_batch import stream_bytes
from headrace.operators.runtime.operator import Operator
from headrace.state.columns import EXPIRED, LAST_ACCESS
from headrace.state.operator_state_handler import OperatorStateHandler
from headrace.state.queryable.live_figures import FigureCollector
from headrace.state.queryable.live_rows import LiveRows, LiveSource
from headrace.task.mailbox import Mail
from headrace.task.paced_rows import Pace

MAIL_ROWS_MAX: Final = 4_096
"""Limit of entries that one mail examines; fewer if a turn of the mailbox would take longer."""
_READS_MAX: Final = 8

StateOutcome = StateReadResult | StateReadError


@dataclass(frozen=True)
class ReadOperator:
    """An operator of a running task whose state is read. `states` is None if it had finished before a restore."""

    operator: Operator
    states: OperatorStateHandler | None

    def live_sources(self) -> Sequence[LiveSource]:
        """Return the operator's states."""
        return () if self.states is None else self.states.live_sources()


@dataclass
class StateRead:
    """A request to read state. `answer` is called at most once, on any thread."""

    operator_id: OperatorId
    query: StateQuery
    answer: Callable[[StateOutcome], None]
    # Set by the caller, read by the mailbox: a single assignment needs no lock.
    is_given_up: bool = False


class QueryableState:
    """Serves the requests to read a task's state. Mailbox thread only."""

    def __init__(
        self,
        operator: Callable[[OperatorId], ReadOperator],
        clock: Clock,
        mail: Callable[[Mail], bool],
    ) -> None:
        """Set up the reads of one task. `mail` appends a mail to the mailbox."""
        self._operator: Final = operator
        self._clock: Final = clock
        self._mail: Final = mail
        self._running: list[_RunningRead] = []

    def begin(self, read: StateRead) -> None:
        """Freeze the requested state and read its first rows."""
        if len(self._running) >= _READS_MAX:
            read.answer(StateReadsBusyError(_READS_MAX))
            return
        running = _RunningRead(read, self._clock)
        self._running.append(running)
        self._step(running, lambda: running.open(self._operator(read.operator_id)))

    def close(self) -> None:
        """Release frozen state and answer open requests, because the task ends."""
        for running in list(self._running):
            self._end(running)
            reason = "it ended while it was being read"
            running.read.answer(SubtaskNotReadableError("the subtask", reason))

    def _step(self, running: "_RunningRead", work: Callable[[], None]) -> None:
        if running not in self._running:
            return  # the task ends
        outcome: StateOutcome | None
        if running.read.is_given_up:
            self._end(running)
            return
        try:
            work()
            outcome = running.look()
        except StateReadError as error:
            outcome = error
        except USER_EXCEPTIONS as error:
            # An error of the user's values: the task goes on, whatever they raise when they are shown.
            outcome = StateNotShowableError(running.state_name, f"{type(error).__name__}: {error}")
        if outcome is None:
            self._mail(lambda: self._step(running, _nothing))
            return
        self._end(running)
        running.read.answer(outcome)

    def _end(self, running: "_RunningRead") -> None:
        self._running.remove(running)
        running.release()


@dataclass
class _OpenState:
    source: LiveSource
    rows: LiveRows
    figures: FigureCollector
    is_over: bool = False


class _RowAnswer:
    """Rows collected for an answer."""

    def __init__(self, query: RowsQuery) -> None:
        self._query: Final = query
        self._size_bytes = 0
        self.pieces: Final[list[bytes]] = []
        self.row_count = 0

    def take(self, table: pa.Table, expired_until_ms: int | None) -> ReadLimit | None:
        """Add rows while there is room; return the limit that ends the answer, if one is reached."""
        shown = self.by_life(table, expired_until_ms)
        limit: ReadLimit | None = None
        room = self._query.row_count_max - self.row_count
        if shown.num_rows > room:
            limit = ReadLimit.ROWS
            shown = shown.slice(0, room)
        while shown.num_rows:
            content = stream_bytes(shown.schema, [shown])
            if self._size_bytes + len(content) <= self._query.size_bytes_max:
                self.pieces.append(content)
                self.row_count += shown.num_rows
                self._size_bytes += len(content)
                break
            limit = ReadLimit.BYTES
            shown = shown.slice(0, shown.num_rows // 2)
        return limit

    def by_life(self, table: pa.Table, expired_until_ms: int | None) -> pa.Table:
        """Return the rows with a column that marks expired ones, or only those that have not expired."""
        is_expired = np.zeros(table.num_rows, dtype=np.bool_)
        if expired_until_ms is not None and LAST_ACCESS in table.column_names:
            # Rows without a time live from the restore on.
            accesses = table.column(LAST_ACCESS)
            last = pc.fill_null(accesses, pa.scalar(0, pa.int64())).to_numpy()
            is_expired = (last <= expired_until_ms) & accesses.is_valid().to_numpy()
        if self._query.includes_expired:
            return table.append_column(EXPIRED, pa.array(is_expired))
        return table.filter(pa.array(~is_expired)) if is_expired.any() else table


class _RunningRead:
    """A state read in progress over several mails."""

    def __init__(self, read: StateRead, clock: Clock) -> None:
        self.read: Final = read
        self._clock: Final = clock
        self._began_ns: Final = clock.monotonic_ns()
        self._pace: Final = Pace()
        self._states: list[_OpenState] = []
        self._infos: tuple[LiveStateInfo, ...] = ()
        self._is_found = False
        self._taken_at_ms = self._watermark_ms = 0
        self._mail_count = self._mail_rows_max = 0
        self._limit: ReadLimit | None = None
        query = read.query
        self._rows: Final = _RowAnswer(query) if isinstance(query, RowsQuery) else None

    @property
    def state_name(self) -> str:
        """Name of the state that is being read, for errors."""
        present = [one.source.name for one in self._states if not one.is_over]
        query = self.read.query
        return present[0] if present else query.state if isinstance(query, RowsQuery) else ""

    def open(self, operator: ReadOperator) -> None:
        """Freeze the requested state. StateKeyMismatchError if the keys do not fit it."""
        sources = operator.live_sources()
        self._infos = tuple(map(_info, sources))
        self._watermark_ms = operator.operator.current_watermark
        self._taken_at_ms = self._clock.now_ms()
        keys: pa.Array | None = None
        match self.read.query:
            case StatesQuery():
                wanted: Sequence[LiveSource] = ()
            case RowsQuery(table, state) as query:
                wanted = [one for one in sources if (one.table, one.name) == (table, state)]
                keys = _keys_of(query)
                self._is_found = bool(wanted)
            case FiguresQuery():
                wanted = sources
        for source in wanted:
            if source.open is None:
                continue
            rows = source.open(keys)
            figures = FigureCollector(source, rows.expired_until_ms)
            self._states.append(_OpenState(source, rows, figures))

    def look(self) -> StateReadResult | None:
        """Read the next rows; return the answer once it is complete or has reached its limit."""
        self._mail_count += 1
        state = next((one for one in self._states if not one.is_over), None)
        if state is None or self._limit is not None:
            return self._result()
        started_ns = self._clock.monotonic_ns()
        if started_ns - self._began_ns >= self.read.query.duration_ms_max * 1_000_000:
            self._limit = ReadLimit.TIME
            return self._result()
        piece = state.rows.take(self._pace.rows_now(MAIL_ROWS_MAX))
        if piece is None:
            state.is_over = True
            state.rows.release()
        else:
            if piece.table is not None and piece.table.num_rows:
                self._take(state, piece.table)
            self._mail_rows_max = max(self._mail_rows_max, piece.looked_at)
            self._pace.took(piece.looked_at, self._clock.monotonic_ns() - started_ns)
        return None

    def release(self) -> None:
        """Release the frozen state."""
        for state in self._states:
            with suppress(*USER_EXCEPTIONS):
                state.rows.release()

    def _take(self, state: _OpenState, table: pa.Table) -> None:
        if self._rows is None:
            state.figures.add(table)
        else:
            self._limit = self._rows.take(table, state.rows.expired_until_ms)

    def _result(self) -> StateReadResult:
        result = StateReadResult(
            self._taken_at_ms,
            self._watermark_ms,
            self._infos,
            self._is_found,
            limit=self._limit,
            mail_count=self._mail_count,
            mail_row_count_max=self._mail_rows_max,
        )
        if self._rows is None:
            return structs.replace(result, figures=tuple(map(self._figures_of, self._states)))
        pieces = tuple(self._rows.pieces or self._no_rows(self._rows))
        return structs.replace(result, pieces=pieces, row_count=self._rows.row_count)

    def _no_rows(self, answer: _RowAnswer) -> Iterator[bytes]:
        """Yield streams without rows that have the columns of the states."""
        for state in self._states:
            schema = answer.by_life(state.rows.schema().empty_table(), None).schema
            yield stream_bytes(schema, [])

    def _figures_of(self, state: _OpenState) -> StateFigures:
        return state.figures.figures(
            watermark_ms=self._watermark_ms,
            now_ms=self._taken_at_ms,
            is_partial=not state.is_over,
        )


def _keys_of(query: RowsQuery) -> pa.Array | None:
    if not query.keys:
        return None
    try:
        with pa.ipc.open_stream(query.keys) as stream:
            keys = stream.read_all().column(0).combine_chunks()
    except (pa.ArrowException, IndexError) as error:
        raise StateKeyMismatchError(
            query.state, f"the keys cannot be converted to one Arrow type ({error})"
        ) from None
    refuse_key_count(query.state, len(keys))
    return keys


def _info(source: LiveSource) -> LiveStateInfo:
    return LiveStateInfo(
        source.table, source.name, source.kind, source.opaque, is_waiting=source.open is None
    )


def _nothing() -> None:
    pass
