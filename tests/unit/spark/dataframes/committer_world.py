"""DataFrame sinks that commit through a session that pyarrow plays."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connectors.dataframe.messages import CommitPayload
from headrace.core.types.type_info import Types
from headrace.functions.sink import Sink
from headrace.spark.dataframes.committer import DataFrameCommitter
from tests.unit.connectors.sink_world import (
    Crash,
    SinkWorld,
    key,
)

ROW = Types.ROW_NAMED(["subtask", "number"], [Types.INT(), Types.INT()])
Row = tuple[int, int]


@dataclass
class ArrowSession:
    """What the committer uses of a SparkSession. `tables`: rows by path, of formats that are no files."""

    tables: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])
    versions: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    saves: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    numbers: Iterator[int] = field(default_factory=count)
    fails_after_write: bool = False

    @property
    def read(self) -> Any:
        return self

    @property
    def sparkContext(self) -> Any:
        return self

    def setJobGroup(self, *_: Any) -> None:
        """Jobs have no groups here."""

    def parquet(self, *paths: str) -> Any:
        return ArrowFrame(self, pa.concat_tables([pq.read_table(path) for path in paths]))


@dataclass
class ArrowFrame:
    session: ArrowSession
    table: pa.Table
    format_name: str = ""
    mode_name: str = ""
    chosen: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def write(self) -> Any:
        return self

    def format(self, name: str) -> Any:
        self.format_name = name
        return self

    def mode(self, name: str) -> Any:
        self.mode_name = name
        return self

    def options(self, **options: str) -> Any:
        self.chosen = options
        return self

    @property
    def rows(self) -> list[Row]:
        return list(zip(*self.table.to_pydict().values(), strict=True))

    def save(self, path: str) -> None:
        session = self.session
        session.saves.append((self.mode_name, self.format_name))
        if self.format_name == "parquet":
            Path(path).mkdir(parents=True)
            pq.write_table(self.table, f"{path}/part-{next(session.numbers)}.parquet")
            Path(path, "_SUCCESS").touch()
        else:
            self._save_to_table(path)
        if session.fails_after_write:
            session.fails_after_write = False
            raise Crash

    def _save_to_table(self, path: str) -> None:
        session = self.session
        if "txnAppId" in self.chosen:
            application = (path, self.chosen["txnAppId"])
            version = int(self.chosen["txnVersion"])
            if version <= session.versions.get(application, -1):
                return
            session.versions[application] = version
        kept = [] if self.mode_name == "overwrite" else session.tables.get(path, [])
        session.tables[path] = [*kept, *self.rows]


def world_of(sink: Sink, session: ArrowSession, **more: Any) -> SinkWorld:
    committer = sink.committer()
    assert committer is not None
    payload: Any = msgspec.msgpack.decode(committer[1], type=CommitPayload)
    new_committer: Callable[[], Any] = lambda: DataFrameCommitter(  # noqa: E731
        "results", payload, lambda: session, key
    )
    return SinkWorld(sink, ROW, new_committer, lambda s, n: (s, n), **more)


def rows_in(path: Path) -> list[Row]:
    found = [pq.read_table(file) for file in path.rglob("part-*.parquet")]
    return [row for table in found for row in zip(*table.to_pydict().values(), strict=True)]
