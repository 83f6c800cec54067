"""What bytewax's flow reads and where its results go: row groups of Parquet files, and nowhere or CSV files."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from bytewax.inputs import (  # pyright: ignore[reportMissingImports]
    FixedPartitionedSource,
    StatefulSourcePartition,
)
from bytewax.outputs import (  # pyright: ignore[reportMissingImports]
    DynamicSink,
    StatelessSinkPartition,
)

WORKERS: Final = 2


class RowGroups(FixedPartitionedSource):
    """The row groups of one kind, a part of them for each worker, in order of time."""

    def __init__(self, files: Path, columns: tuple[str, ...], times: Any) -> None:
        self._files = files
        self._columns = list(columns)
        self._times = times

    def list_parts(self) -> list[str]:
        return [str(part) for part in range(WORKERS)]

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> "_Part":
        return _Part(self._tables(int(for_part)), self._times)

    def _tables(self, part: int) -> Iterator[pa.Table]:
        number = 0
        for file in sorted(self._files.glob("*.parquet")):
            opened = pq.ParquetFile(file)
            for group in range(opened.num_row_groups):
                if number % WORKERS == part:
                    yield opened.read_row_group(group, columns=self._columns, use_threads=False)
                number += 1


class _Part(StatefulSourcePartition):
    def __init__(self, tables: Iterator[pa.Table], times: Any) -> None:
        self._tables = tables
        self._times = times

    def next_batch(self) -> list[pa.Table]:
        with self._times.get_lock():
            self._times[0] = self._times[0] or time.monotonic()
        return [next(self._tables)]

    def snapshot(self) -> None:
        return None


class Results(DynamicSink):
    """Takes tables and tuples: throws them away, or writes them."""

    def __init__(self, out: Path | None) -> None:
        self._out = out

    def build(self, step_id: str, worker_index: int, worker_count: int) -> "StatelessSinkPartition":
        return _Nowhere() if self._out is None else _Written(self._out, worker_index)


class _Nowhere(StatelessSinkPartition):
    def write_batch(self, items: list[Any]) -> None:
        pass


class _Written(StatelessSinkPartition):
    def __init__(self, out: Path, worker: int) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._file = (out / f"part-{worker}.csv").open("wb")

    def write_batch(self, items: list[Any]) -> None:
        for item in items:
            if isinstance(item, pa.Table):
                options = pyarrow.csv.WriteOptions(include_header=False)
                pyarrow.csv.write_csv(item, self._file, options)
            else:
                self._file.write((",".join(map(str, item)) + "\n").encode())
        self._file.flush()
