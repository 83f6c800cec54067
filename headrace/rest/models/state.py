"""Shapes of the state browser, which are Headrace's own: operators, sizes, rows, and edits into a new savepoint."""

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
    """A snapshot of the job whose state can be looked at. `kind`: checkpoint, savepoint, or restored.

    `savepoint-format`: CANONICAL or NATIVE, null for checkpoints. `problem`: why it cannot be looked at, or null.
    """

    id: int
    kind: Literal["checkpoint", "savepoint", "restored"]
    savepoint_format: str | None
    timestamp: Milliseconds
    size: int | None
    path: str
    problem: str | None


class StateOperator(KebabModel):
    """An operator that may keep state. `vertex` is null, and `size` and `rows` are known, in a snapshot."""

    id: str
    uid: str
    name: str
    vertex: str | None
    parallelism: int
    max_parallelism: int
    size: int | None
    rows: int | None


class StateInfo(KebabModel):
    """Operators of a running job, or of one of its snapshots, and the snapshots that there are.

    `snapshot`: the id of the snapshot that was asked for, null for the running job. `problem`: why its operators cannot
    be told, or null. `savepoint-directory`: the folder of new savepoints, null where none is set.
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
    """Part of a state that lies in one key group."""

    key_group: int
    subtask: int
    rows: int
    size: int


class StateKey(KebabModel):
    """Part of a state that belongs to one key, as Python prints it."""

    key: str
    rows: int
    size: int


class StateTimers(KebabModel):
    """Timers of one domain: when the next one is due, and how many are due within 1 s, 10 s and so on.

    Where the watermark is not known, as in a snapshot, all of event time are `later`; those of processing time are due
    from `taken-at` on.
    """

    domain: str
    next: Milliseconds
    due: dict[str, int]


class StateFiguresInfo(KebabModel):
    """Sizes of one state over all subtasks.

    `size`: bytes of its rows in Arrow, or of its files in a snapshot. Key groups, keys, timers and the oldest window
    are counted from its rows, also in a snapshot, whose files are read for some seconds. `is-partial`: not all rows
    were counted. Of states in RocksDB's own files, and where keys are pickles in a snapshot, less is known: `rows` is
    null where RocksDB's files do not tell it.

    `unreadable`: columns of pickles, which REST does not load. `is-waiting`: it lies in the restored checkpoint, and no
    record has asked for it since. Skews are the largest over the mean, by bytes; null where nothing is known.
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
    """States of one operator with their sizes. `taken-at`: when the last subtask counted them."""

    id: str
    title: str
    snapshot: int | None
    taken_at: Milliseconds
    watermark: int | None
    states: list[StateFiguresInfo]


class StateColumn(KebabModel):
    """A column of rows. `is-readable` is false for pickles, of which the bytes are shown."""

    name: str
    type: str
    is_readable: bool


class StateRow(KebabModel):
    """Values of a row, one per column. `cut`: the columns of which the beginning is shown only."""

    subtask: int
    values: list[Any]
    cut: list[str]


class StateRows(KebabModel):
    """Rows of one state. `notes`: what was left out, in sentences; empty where all rows are here."""

    table: str
    state: str
    snapshot: int | None
    columns: list[StateColumn]
    rows: list[StateRow]
    notes: list[str]


class StateEdit(KebabModel):
    """One change of an operator's state, by key.

    `set` gives a state's value of a key, `delete` removes what the state keeps of it, `delete-key` what all states,
    windows and timers of the operator keep of it. Keys and values are JSON values, as rows show them.
    """

    action: Literal["set", "delete", "delete-key"]
    operator: str = Field(min_length=1, max_length=500)
    state: str | None = Field(default=None, max_length=500)
    key: Any
    value: Any = None


class StateEditRequest(KebabModel):
    """Edits of a snapshot, which is named by its id. `reason` is kept in the new savepoint."""

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
    """Place of the new savepoint and what has changed in it, or why there is none."""

    location: str | None = left_out()
    changes: list[StateChangeInfo] | None = left_out()
    failure_cause: FailureCause | None = left_out()


class StateEditOperationResult(SnakeModel):
    """State and outcome of edits that were asked for."""

    status: OperationStatus
    operation: StateEditOutcome | None
