"""JobState: reads the state of a running job as tables, live or from its last checkpoint, and its sizes.

`JobClient.state()` returns one. Callers need not know the paths of checkpoints.
"""

import contextlib
from collections.abc import Callable, Coroutine, Generator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.api.client.job_client import CompletableFuture
from headrace.api.client.live_state import LiveState, OperatorFigures, SubtaskRead
from headrace.checkpoint.errors import SnapshotSubsumedError, StateKeyMismatchError
from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.state_queries import (
    FiguresQuery,
    LiveStateInfo,
    RowsQuery,
    StateQuery,
    StatesQuery,
    refuse_key_count,
)
from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings
from headrace.core.errors import ErrorDomain, HeadraceError, ProgramError
from headrace.core.ids import JobId
from headrace.core.record_batch import stream_bytes
from headrace.core.types.pickles import unpickle_value
from headrace.gateways.dispatcher import DispatcherGateway
from headrace.gateways.messages import (
    OperatorDescription,
    StoredCheckpoint,
    SubtaskState,
)
from headrace.gateways.state_reads import LIVE_TABLES, live_states_of, read_subtasks
from headrace.state_processor.errors import UnknownStateError

if TYPE_CHECKING:
    from headrace.api.client.committed_state import CommittedState

_NO_ROWS: Final = pa.table({"subtask": pa.array([], pa.int32())})
_LATEST_ATTEMPTS: Final = 3
"""Attempts to open the latest checkpoint, which may be replaced while it is opened."""


class NoCommittedStateError(HeadraceError):
    """Raised if a job has no checkpoint that can be read."""

    domain, recoverable = ErrorDomain.USER, True


class JobState:
    """The state of one running job. Methods block until the cluster answers.

    Call them from any thread except the cluster's own.
    """

    def __init__(
        self,
        job_id: JobId,
        dispatcher: DispatcherGateway,
        ask: Callable[[Coroutine[Any, Any, Any]], CompletableFuture[Any]],
        clock: Clock | None = None,
    ) -> None:
        """`ask` runs a coroutine on the thread on which `dispatcher` may be called."""
        self._job_id = job_id
        self._dispatcher = dispatcher
        self._ask = ask
        self._clock = clock or SystemClock()

    def operators(self) -> tuple[OperatorDescription, ...]:
        """Return the operators of the job. Raises JobAlreadyEndedError."""
        found: tuple[OperatorDescription, ...] = self._ask(
            self._dispatcher.request_operators(self._job_id)
        ).result()
        return found

    def states(self, operator: str) -> tuple[LiveStateInfo, ...]:
        """List the states that an operator (by uid, id or name) has in any of its subtasks now.

        Raises UnknownOperatorError or StateReadError.
        """
        return self._states(self._operator(operator))

    def live(
        self,
        operator: str,
        state: str | None = None,
        *,
        table: str = "keyed",
        keys: Sequence[Any] | None = None,
        row_limit: int = 1_000,
        time_limit: timedelta = timedelta(seconds=5),
        include_expired: bool = False,
        unpickle: bool = False,
    ) -> LiveState:
        """Return the current rows of a state; each subtask reads its own at one moment, between two batches.

        `operator`: its uid, id or name; `state` may be omitted if there is only one. `table`: `keyed`, `timers`,
        `windows` or `operator_state`. `keys`: read only these, written as the column `key` shows them. `row_limit`,
        `time_limit`: limits for each subtask; the result says what was left out. `include_expired`: include rows past
        their time to live, and add a column `expired`. `unpickle`: show values without a declared type by their `repr`,
        which unpickles the job's data.

        Raises UnknownOperatorError, UnknownStateError, StateReadError or JobAlreadyEndedError; ProgramError for an
        invalid limit.
        """
        limits = _row_count(row_limit), _milliseconds(time_limit)
        wanted = _table_named(table)
        found = self._operator(operator)
        if state is None:
            state = _only_state(operator, wanted, self._states(found))
        query = RowsQuery(
            wanted,
            state,
            keys=b"" if keys is None else _encoded(state, keys),
            row_count_max=limits[0],
            duration_ms_max=limits[1],
            includes_expired=include_expired,
        )
        answers = self._read_all(found, query)
        if not any(one.result.is_found for one in answers):
            raise _unknown_state(operator, wanted, state, live_states_of(answers))
        return _live_state(operator, wanted, state, answers, unpickle=unpickle)

    def figures(
        self, operator: str, *, time_limit: timedelta = timedelta(seconds=10)
    ) -> OperatorFigures:
        """Return the sizes of an operator's states, counted by each subtask at one moment of its own.

        `time_limit`: limit for each subtask; figures of states that were not read completely say so. Raises
        UnknownOperatorError, StateReadError or JobAlreadyEndedError.
        """
        duration_ms = _milliseconds(time_limit)
        found = self._operator(operator)
        query = FiguresQuery(duration_ms)
        answers = self._read_all(found, query)
        return OperatorFigures(operator, tuple(one.result.figures for one in answers))

    @contextlib.contextmanager
    def committed(self) -> "Generator[CommittedState]":
        """Return the newest complete checkpoint of the whole job, which is kept while the block runs.

        Before the job's first checkpoint this is the snapshot from which the job started, with `is_own` false. Raises
        NoCommittedStateError if there is neither, or JobAlreadyEndedError.
        """
        with contextlib.ExitStack() as stack:
            yield self._kept(stack)

    def _kept(self, stack: contextlib.ExitStack) -> "CommittedState":
        """Return the newest checkpoint that still exists when it is opened."""
        # Imported late: it loads the readers of state files, which live reads do not need.
        from headrace.api.client.committed_state import CommittedState

        attempt_count = 0
        while True:
            attempt_count += 1
            stored = self._latest_checkpoint()
            settings = Settings({KEY_FILE.key: stored.key_file} if stored.key_file else {})
            kept = CommittedState.kept(stored.uri, settings, self._clock, self._job_id)
            try:
                return stack.enter_context(kept)
            except SnapshotSubsumedError:
                if attempt_count == _LATEST_ATTEMPTS:
                    raise

    def _latest_checkpoint(self) -> StoredCheckpoint:
        stored: StoredCheckpoint | None = self._ask(
            self._dispatcher.request_latest_checkpoint(self._job_id)
        ).result()
        if stored is None:
            raise NoCommittedStateError(
                f"job {self._job_id} has completed no checkpoint yet: wait for one, call trigger_checkpoint(), or "
                f"read its live state with live()"
            )
        if not stored.uri:
            raise NoCommittedStateError(
                f"checkpoint {stored.checkpoint_id} of job {self._job_id} is in its driver's memory: set "
                f"execution.checkpointing.dir to write checkpoints to files, or read the live state"
            )
        return stored

    def _operator(self, named: str) -> OperatorDescription:
        """Return the operator with this uid, id or name. Raises UnknownOperatorError."""
        found: OperatorDescription = self._ask(
            self._dispatcher.request_operator(self._job_id, named)
        ).result()
        return found

    def _states(self, operator: OperatorDescription) -> tuple[LiveStateInfo, ...]:
        return live_states_of(self._read_all(operator, StatesQuery()))

    def _read_all(self, operator: OperatorDescription, query: StateQuery) -> list[SubtaskState]:
        """Return the answers of all subtasks, in their order."""
        answers: list[SubtaskState] = self._ask(
            read_subtasks(
                self._dispatcher,
                self._job_id,
                operator.operator_id,
                range(operator.parallelism),
                query,
            )
        ).result()
        return answers

    def __repr__(self) -> str:
        return f"JobState({self._job_id})"


def _table_named(name: str) -> StateTable:
    table = LIVE_TABLES.get(name)
    if table is None:
        raise UnknownStateError(f"a running job has no table '{name}'", sorted(LIVE_TABLES))
    return table


def _only_state(operator: str, table: StateTable, states: Sequence[LiveStateInfo]) -> str:
    names = sorted(one.name for one in states if one.table is table)
    if len(names) != 1:
        raise _unknown_state(operator, table, None, states)
    return names[0]


def _unknown_state(
    operator: str, table: StateTable, state: str | None, states: Sequence[LiveStateInfo]
) -> HeadraceError:
    names = sorted(one.name for one in states if one.table is table)
    others = sorted(
        {f"'{one.name}' in {_name_of(one.table)}" for one in states}
        - {f"'{name}' in {_name_of(table)}" for name in names}
    )
    said = "several states" if state is None and names else f"no state '{state}'"
    if state is None and not names:
        said = "none"
    beside = f" (but {', '.join(others)})" if others and not names else ""
    return UnknownStateError(
        f"operator '{operator}' has {said} in its table {_name_of(table)} now{beside}", names
    )


def _name_of(table: StateTable) -> str:
    return next(name for name, one in LIVE_TABLES.items() if one is table)


def _encoded(state: str, keys: Sequence[Any]) -> bytes:
    refuse_key_count(state, len(keys))
    try:
        column = pa.table({"key": pa.array(list(keys))})
    except (pa.ArrowException, OverflowError) as error:
        raise StateKeyMismatchError(state, f"they are not all of one type ({error})") from None
    return stream_bytes(column.schema, [column])


def _milliseconds(duration: timedelta) -> int:
    if duration <= timedelta(0):
        raise ProgramError(f"time_limit must be longer than 0, not {duration}")
    return max(1, round(duration.total_seconds() * 1000))


def _row_count(limit: int) -> int:
    if limit < 0:
        raise ProgramError(f"row_limit must be 0 or more rows of each subtask, not {limit}")
    return limit


def _live_state(
    operator: str,
    table: StateTable,
    state: str,
    answers: Sequence[SubtaskState],
    *,
    unpickle: bool,
) -> LiveState:
    infos = [one for one in live_states_of(answers) if (one.table, one.name) == (table, state)]
    opaque = {name for one in infos for name in one.opaque} if unpickle else set[str]()
    tables: list[pa.Table] = []
    reads: list[SubtaskRead] = []
    for index, answer in enumerate(answers):
        result = answer.result
        is_waiting = any(
            (one.table, one.name, one.is_waiting) == (table, state, True) for one in result.states
        )
        reads.append(SubtaskRead.of(index, answer, is_waiting=is_waiting))
        for piece in result.pieces:
            with pa.ipc.open_stream(piece) as stream:
                rows = _shown(stream.read_all(), opaque)
            subtasks = pa.array([index] * rows.num_rows, pa.int32())
            tables.append(rows.add_column(0, "subtask", subtasks))
    rows = pa.concat_tables(tables, promote_options="default") if tables else _NO_ROWS
    return LiveState(operator, state, rows, tuple(reads))


def _shown(rows: pa.Table, opaque: set[str]) -> pa.Table:
    for name in opaque & set(rows.column_names):
        texts = [
            None if one is None else repr(unpickle_value(one))
            for one in rows.column(name).to_pylist()
        ]
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, name, pa.array(texts, pa.string()))
    return rows
