"""Results of reading a running job's state: rows, notes on rows left out, and figures. Pure values that print."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.checkpoint.state_queries import (
    DUE_WORDS,
    ReadLimit,
    StateFigures,
    StateTotals,
    totals_of,
)
from headrace.core.config import bytes_text
from headrace.gateways.messages import SubtaskState

_SHOWN_KEYS: Final = 3
_KEY: Final = pa.struct(
    [pa.field("key", pa.string()), pa.field("rows", pa.int64()), pa.field("bytes", pa.int64())]
)
_TIMERS: Final = pa.struct(
    [
        pa.field("domain", pa.string()),
        pa.field("next_ms", pa.int64()),
        *(pa.field(word, pa.int64()) for word in DUE_WORDS),
    ]
)
_FIGURES: Final = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("state", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("expired_rows", pa.int64()),
        pa.field("oldest_window_ms", pa.int64()),
        pa.field("key_groups", pa.int32()),
        pa.field("key_group_skew", pa.float64()),
        pa.field("subtask_skew", pa.float64()),
        pa.field("top_keys", pa.list_(_KEY)),
        pa.field("are_top_keys_exact", pa.bool_()),
        pa.field("timers", pa.list_(_TIMERS)),
        pa.field("is_partial", pa.bool_()),
    ]
)
_KEY_GROUPS: Final = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("state", pa.string()),
        pa.field("subtask", pa.int32()),
        pa.field("key_group", pa.int32()),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
    ]
)


@dataclass(frozen=True)
class SubtaskRead:
    """Report on reading one subtask: its rows were read at `taken_at_ms` (epoch ms), between two batches.

    `limit`: the reason why rows are missing, if any are. `is_waiting`: the state is still in the restored checkpoint,
    because no record has used it in this subtask. The read took `mail_count` mails of the task's mailbox, each of at
    most `mail_row_count_max` entries; the task processed a batch after each.
    """

    subtask: int
    attempt_number: int
    resource_id: str
    taken_at_ms: int
    watermark_ms: int
    row_count: int
    limit: ReadLimit | None
    is_waiting: bool
    mail_count: int
    mail_row_count_max: int

    @classmethod
    def of(cls, subtask: int, answer: SubtaskState, *, is_waiting: bool) -> "SubtaskRead":
        """Make the report from the answer of a subtask, without its rows."""
        result = answer.result
        return cls(
            subtask,
            answer.attempt_number,
            answer.resource_id,
            result.taken_at_ms,
            result.watermark_ms,
            result.row_count,
            result.limit,
            is_waiting,
            result.mail_count,
            result.mail_row_count_max,
        )

    @property
    def is_partial(self) -> bool:
        """Return whether rows are missing from the result."""
        return self.limit is not None or self.is_waiting


@dataclass(frozen=True)
class LiveState:
    """Rows of a running state: the column `subtask`, then the columns of a checkpoint's files; in no order.

    Each subtask reads its rows at one moment, which differs between subtasks.
    """

    operator: str
    state: str
    rows: pa.Table
    subtasks: tuple[SubtaskRead, ...]

    @property
    def is_partial(self) -> bool:
        """Return whether rows of any subtask are missing."""
        return any(one.is_partial for one in self.subtasks)

    def __str__(self) -> str:
        lines = [f"state '{self.state}' of operator '{self.operator}': {self.rows.num_rows} rows"]
        for one in self.subtasks:
            said = f"  subtask {one.subtask}: {one.row_count} rows"
            if one.limit is not None:
                said += f", not all: {one.limit.value}"
            if one.is_waiting:
                said += ", not all: the restored checkpoint has it, and no record has used it yet"
            lines.append(said)
        return "\n".join(lines)


@dataclass(frozen=True)
class OperatorFigures:
    """Sizes of an operator's states. `subtasks`: the figures of each subtask's states."""

    operator: str
    subtasks: tuple[tuple[StateFigures, ...], ...]

    @property
    def states(self) -> tuple[StateTotals, ...]:
        """Totals of each state over all subtasks, by table and name."""
        return totals_of(self.subtasks)

    def state(self, name: str) -> StateTotals:
        """Return the totals of the state of this name. KeyError lists the names that exist."""
        for one in self.states:
            if one.state == name:
                return one
        raise KeyError(
            f"no state '{name}': there are {', '.join(one.state for one in self.states)}"
        )

    def table(self) -> pa.Table:
        """Return a row per state."""
        rows = [
            {
                "table": one.table,
                "state": one.state,
                "rows": one.row_count,
                "bytes": one.size_bytes,
                "expired_rows": one.expired_count,
                "oldest_window_ms": one.oldest_window_ms,
                "key_groups": sum(len(own.key_groups) for own in one.subtasks if own is not None),
                "key_group_skew": one.key_group_skew,
                "subtask_skew": one.subtask_skew,
                "top_keys": one.top_keys,
                "are_top_keys_exact": one.are_top_keys_exact,
                "timers": one.timers,
                "is_partial": one.is_partial,
            }
            for one in self.states
        ]
        return pa.Table.from_pylist(rows, schema=_FIGURES)

    def key_groups(self) -> pa.Table:
        """Return a row per state and key group that is not empty."""
        return pa.Table.from_pylist(list(self._key_groups()), schema=_KEY_GROUPS)

    def _key_groups(self) -> Iterator[dict[str, Any]]:
        for index, own in enumerate(self.subtasks):
            for one in own:
                for group in one.key_groups:
                    yield {
                        "table": one.table.value,
                        "state": one.name,
                        "subtask": index,
                        "key_group": group.key_group,
                        "rows": group.row_count,
                        "bytes": group.size_bytes,
                    }

    def __str__(self) -> str:
        lines = [f"operator '{self.operator}', {len(self.subtasks)} subtasks"]
        return "\n".join([*lines, *(line for one in self.states for line in _lines(one))])


def _lines(one: StateTotals) -> Iterator[str]:
    said = f"  {one.state} ({one.table}): {one.row_count} rows, {bytes_text(one.size_bytes)}"
    if one.key_group_skew is not None:
        said += f", key groups x{one.key_group_skew:.1f}"
    if one.subtask_skew is not None:
        said += f", subtasks x{one.subtask_skew:.1f}"
    if one.expired_count is not None and one.row_count:
        said += f", {one.expired_count / one.row_count:.0%} expired"
    if one.oldest_window_ms is not None:
        said += f", oldest window {one.oldest_window_ms}"
    yield said + (", only partly read" if one.is_partial else "")
    keys = [f"{key['key']} {key['rows']} rows" for key in one.top_keys[:_SHOWN_KEYS]]
    if keys:
        yield f"    largest keys: {', '.join(keys)}"
    for timers in one.timers:
        due = [f"{timers[word]} {_word(word)}" for word in DUE_WORDS if timers[word]]
        yield f"    {timers['domain']} timers: {', '.join(due)}"


def _word(word: str) -> str:
    return word if word in ("due", "later") else f"within {word}"
