"""Shapes of the state browser, which is Headrace's own: operators, sizes, rows, and edits into a new savepoint."""

from typing import Annotated, Any, Literal

from pydantic import Field

from headrace.rest.models.base_models import (
    KebabModel,
    Milliseconds,
    SnakeModel,
    TriggerId,
    left_out,
)
from headrace.rest.models.jobs import FailureCause, OperationStatus

EDITS_MAX = 1_000


class StateSnapshot(KebabModel):
    """A snapshot of the job whose state can be shown. `kind`: checkpoint, savepoint, or restored.

    `savepoint-format`: CANONICAL or NATIVE, null for checkpoints. `problem`: why it cannot be shown, or null.
    """

    id: int
    kind: Literal["checkpoint", "savepoint", "restored"]
    savepoint_format: str | None
    timestamp: Milliseconds
    size: int | None
    path: str
    problem: str | None


class StateOperator(KebabModel):
    """An operator that may keep state. `vertex` is null in a snapshot; `size` and `rows` are only known there."""

    id: str
    uid: str
    name: str
    vertex: str | None
    parallelism: int
    max_parallelism: int
    size: int | None
    rows: int | None


class StateInfo(KebabModel):
    """Operators of a running job, or of one of its snapshots, and the existing snapshots.

    `snapshot`: the id of the requested snapshot, null for the running job. `problem`: why its operators are
    unknown, or null. `savepoint-directory`: the folder of new savepoints, null if none is set.
    """

    jid: str
    snapshot: int | None
    backend: str
    savepoint_directory: str | None
    operators: list[StateOperator]
    problem: str | None
    snapshots: list[StateSnapshot]


class StateSubtask(KebabModel):
    """Part of a state that one subtask keeps."""

    subtask: int
    rows: int | None
    size: int


class StateKeyGroup(KebabModel):
    """Part of a state in one key group."""

    key_group: int
    subtask: int
    rows: int
    size: int


class StateKey(KebabModel):
    """Part of a state of one key, which is shown as Python prints it."""

    key: str
    rows: int
    size: int


class StateTimers(KebabModel):
    """Timers of one domain: the time of the next one, and how many are due within 1 s, 10 s and so on.

    If the watermark is unknown, as in a snapshot, all timers of event time are `later`; those of processing time are
    due from `taken-at` on.
    """

    domain: str
    next: Milliseconds
    due: dict[str, int]


class StateFiguresInfo(KebabModel):
    """Sizes of one state over all subtasks.

    `size`: bytes of its rows in Arrow, or of its files in a snapshot. Key groups, keys, timers and the oldest window
    are counted from its rows; in a snapshot its files are read for some seconds. `is-partial`: not all rows
    were counted. For states in RocksDB's own files, and for pickled keys in a snapshot, less is known: `rows` is
    null if RocksDB's files do not contain the number.

    `unreadable`: pickled columns, which REST does not load. `is-waiting`: the state is in the restored checkpoint, and
    no record has accessed it since. Skews are the largest over the mean, by bytes; null if unknown.
    """

    table: str
    name: str
    kind: str
    unreadable: list[str]
    is_waiting: bool
    rows: int | None
    size: int
    expired_rows: int | None
    oldest_window: int | None
    subtasks: list[StateSubtask]
    subtask_skew: float | None
    key_group_count: int | None
    key_group_skew: float | None
    key_groups: list[StateKeyGroup]
    keys: list[StateKey]
    are_keys_exact: bool
    timers: list[StateTimers]
    is_partial: bool


class OperatorState(KebabModel):
    """States of one operator with their sizes. `taken-at`: time at which the last subtask counted them."""

    id: str
    title: str
    snapshot: int | None
    taken_at: Milliseconds
    watermark: int | None
    states: list[StateFiguresInfo]


class StateColumn(KebabModel):
    """A column of rows. `is-readable` is false for pickles, whose bytes are shown."""

    name: str
    type: str
    is_readable: bool


class StateRow(KebabModel):
    """Values of a row, one per column. `cut`: the columns whose values are shortened."""

    subtask: int
    values: list[Any]
    cut: list[str]


class StateRows(KebabModel):
    """Rows of one state. `notes`: sentences about omitted rows; empty if all rows are included."""

    table: str
    state: str
    snapshot: int | None
    columns: list[StateColumn]
    rows: list[StateRow]
    notes: list[str]


class StateEdit(KebabModel):
    """One change of an operator's state, by key.

    `set` sets a key's value in a state, `delete` removes the key from the state, `delete-key` removes the key from all
    states, windows and timers of the operator. Keys and values are JSON values, as in shown rows.
    """

    action: Literal["set", "delete", "delete-key"]
    operator: str = Field(min_length=1, max_length=500)
    state: str | None = Field(default=None, max_length=500)
    key: Any
    value: Any = None


class StateEditRequest(KebabModel):
    """Edits of the snapshot with an id. `reason` is stored in the new savepoint."""

    snapshot: Annotated[int, Field(ge=0, le=2**63 - 1)]
    reason: str = Field(min_length=1, max_length=1_000)
    edits: list[StateEdit] = Field(min_length=1, max_length=EDITS_MAX)
    trigger_id: TriggerId | None = Field(default=None, alias="triggerId")


class StateChangeInfo(KebabModel):
    """Result of edits of one state, as the new savepoint records it."""

    operator: str
    state: str
    action: str
    rows_before: int
    rows: int
    added: int
    changed: int
    removed: int


class StateEditOutcome(KebabModel):
    """Location of the new savepoint and its changes, or the failure."""

    location: str | None = left_out()
    changes: list[StateChangeInfo] | None = left_out()
    failure_cause: FailureCause | None = left_out()


class StateEditOperationResult(SnakeModel):
    """Status and outcome of requested edits."""

    status: OperationStatus
    operation: StateEditOutcome | None
