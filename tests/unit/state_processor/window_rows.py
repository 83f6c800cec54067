"""Tables of a savepoint with windows, and a window function that lists what its window holds."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.functions.process import WindowFunction
from headrace.state_processor.table_query import TableQuery
from tests.unit.state_processor.saved import UID

LATENESS_MS = 3


class Listed(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        yield list(inputs)


def rows(made: CompletedCheckpoint, state: str | None, table: str = "keyed") -> pa.Table:
    return TableQuery(table, UID, state).open(made).read_all(StateReader())
