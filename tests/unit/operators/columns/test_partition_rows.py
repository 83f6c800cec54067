"""Rows of a partition go to files of a buffer's size, also where large and small rows alternate."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.config import Settings
from headrace.core.process.state_memory import StateMemory
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types
from headrace.operators.columns import partition_rows
from headrace.operators.columns.partition_rows import PartitionRows, mapped

BUFFER_BYTES = 16 << 20


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PartitionRows:
    """No rows yet, and none that were restored."""

    def begin(self: Any, states: Any) -> None:
        self._memory = states.account_of("rows")

    monkeypatch.setattr(PartitionRows, "_restore", begin)
    states: Any = SimpleNamespace(
        scratch=str(tmp_path),
        row_buffer_bytes=BUFFER_BYTES,
        account_of=lambda name: StateMemory("partition", name, Settings()),
    )
    return PartitionRows(BatchType(Types.STRING()), states)


def batch(texts: list[str]) -> RecordBatch:
    return RecordBatch.of_rows(BatchType(Types.STRING()), texts)


def test_large_rows_now_and_then_make_no_small_files(
    rows: PartitionRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def noted(block: pa.RecordBatch, directory: str | None) -> pa.RecordBatch:
        written.append(block.nbytes)
        return mapped(block, directory)

    monkeypatch.setattr(partition_rows, "mapped", noted)
    large, small = batch(["x" * (5 << 20)]), batch(["y" * 1_000] * 70)
    for _ in range(4):
        rows.add(large)
        for _ in range(30):
            rows.add(small)
    assert sum(block.num_rows for block in rows.take()) == 4 * (1 + 30 * 70)
    assert len(written) == 1 and written[0] >= BUFFER_BYTES
