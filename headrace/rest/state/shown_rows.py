"""ShownRows: collects rows of state for the REST API, up to a number of rows and of characters."""

import json
from collections.abc import Collection
from typing import Any, Final

import pyarrow as pa

from headrace.rest.models.state import StateColumn, StateRow
from headrace.state_processor.json_values import json_values, shortened

SHOWN_ROWS_MAX: Final = 1_000
"""Maximum number of rows in one answer."""
_CHARACTERS_MAX: Final = 1 << 20
"""Maximum number of characters of all values in one answer."""
_PIECE_ROWS: Final = 100
_SUBTASK: Final = "subtask"
"""Column with the subtask of each row."""


class ShownRows:
    """Collects rows. `limit`: maximum number of rows; `note` names the limit that was reached, empty before."""

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._character_count = 0
        self._columns: dict[str, StateColumn] = {}
        self._rows: list[tuple[int, dict[str, Any], list[str]]] = []
        self.note = ""

    @property
    def is_full(self) -> bool:
        """Return whether a limit was reached."""
        return bool(self.note)

    @property
    def room(self) -> int:
        """Return how many more rows may be added."""
        return self._limit - len(self._rows)

    def add(self, rows: pa.Table, subtask: int, opaque: Collection[str]) -> None:
        """Add rows of a subtask while there is room. `opaque`: pickled columns."""
        names = [name for name in rows.column_names if name != _SUBTASK]
        for name in names:
            column = StateColumn(
                name=name,
                type=str(rows.schema.field(name).type),
                is_readable=name not in opaque,
            )
            self._columns.setdefault(name, column)
        for start in range(0, rows.num_rows, _PIECE_ROWS):
            if self.is_full:
                return
            piece = rows.slice(start, _PIECE_ROWS)
            values = {name: json_values(piece.column(name)) for name in names}
            for place in range(piece.num_rows):
                self._add_row({name: values[name][place] for name in names}, subtask)

    def columns(self) -> list[StateColumn]:
        """Return the columns of all rows."""
        return list(self._columns.values())

    def rows(self) -> list[StateRow]:
        """Return the rows, each with a value per column."""
        return [
            StateRow(subtask=subtask, values=[row.get(name) for name in self._columns], cut=cut)
            for subtask, row, cut in self._rows
        ]

    def _add_row(self, row: dict[str, Any], subtask: int) -> None:
        if self.is_full:
            return
        if not self.room:
            self.note = f"There are more than {self._limit} rows: select keys, or one subtask."
            return
        shown: dict[str, Any] = {}
        cut: list[str] = []
        for name, value in row.items():
            shown[name], is_cut = shortened(value)
            if is_cut:
                cut.append(name)
        self._character_count += len(json.dumps(shown, ensure_ascii=False))
        if self._character_count > _CHARACTERS_MAX:
            self.note = (
                f"There are more rows than an answer of {_CHARACTERS_MAX >> 20} MB can hold: select keys, or one "
                f"subtask."
            )
            return
        self._rows.append((subtask, shown, cut))
