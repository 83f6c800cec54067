"""Snapshots of earlier versions without a job: verified, listed by operator, read as tables."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.cli.main import cli
from headrace.core.config import Settings
from headrace.state_processor.selection import open_snapshot
from headrace.state_processor.table_query import STATE_TABLES, TableQuery
from tests.integration.stored_savepoints.keeping import SAVED
from tests.integration.stored_savepoints.stored import STORED, Stored, unpack

pytestmark = pytest.mark.integration

every_snapshot = pytest.mark.parametrize("stored", STORED, ids=str)
KEEPING_ALL = [one for one in STORED if one.answer.stem == "program"]
IN_TABLES = [one for one in KEEPING_ALL if one.name != "rocksdb-checkpoint"]
"""The others are in RocksDB's own files."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(stored: Stored) -> CompletedCheckpoint:
    return open_snapshot(unpack(stored), Settings({KEY_FILE.key: "key"}))


def rows_of(snapshot: CompletedCheckpoint, table: str, operator: str, state: str) -> list[Any]:
    query = TableQuery(table, operator, state, loads_pickles=True, includes_expired=True)
    return query.open(snapshot).read_all(StateReader()).to_pylist()


@every_snapshot
def test_a_stored_snapshot_is_whole(stored: Stored, folder: Path) -> None:
    arguments = ["checkpoint", "verify", unpack(stored), "--key-file", "key"]
    result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert (result.return_value, result.exception) == (0, None), result.output


@every_snapshot
def test_a_stored_snapshot_is_shown_operator_by_operator(stored: Stored, folder: Path) -> None:
    path = unpack(stored)
    arguments = ["checkpoint", "show", path, "--key-file", "key", "--json"]
    result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    shown = {one["uid"] for one in json.loads(result.output)["operators"]}
    snapshot = open_snapshot(path, Settings({KEY_FILE.key: "key"}))
    assert shown == {one.uid for one in snapshot.metadata.operators}
    assert result.return_value == 0


@every_snapshot
def test_all_rows_of_a_stored_snapshot_are_read_as_tables(stored: Stored, folder: Path) -> None:
    snapshot = opened(stored)
    names = {table: name for name, table in STATE_TABLES.items()}
    counts: Counter[tuple[StateTable, str, str]] = Counter()
    for operator in snapshot.metadata.operators:
        for state in operator.subtasks.values():
            for chunk in state.chunks:
                if chunk.table in names:
                    place = chunk.table, operator.operator_id.hex(), chunk.name
                    counts[place] += chunk.row_count
    read = {
        (table, operator, state): len(rows_of(snapshot, names[table], operator, state))
        for table, operator, state in counts
    }
    assert read == counts


@pytest.mark.parametrize("stored", IN_TABLES, ids=str)
def test_values_of_declared_types_are_read_as_they_were(stored: Stored, folder: Path) -> None:
    rows = rows_of(opened(stored), "keyed", "declared", "highest")
    assert {row["key"]: row["value"] for row in rows} == {0: SAVED - 3, 1: SAVED - 2, 2: SAVED - 1}


@pytest.mark.parametrize("stored", IN_TABLES, ids=str)
def test_values_of_undeclared_types_are_read_as_they_were(stored: Stored, folder: Path) -> None:
    rows = rows_of(opened(stored), "keyed", "undeclared", "last")
    assert sorted(row["value"] for row in rows) == [
        f"Visit(number={number}, at=Instant<{number}, 3>, window=TimeWindow(start=0, end={number}))"
        for number in (SAVED - 2, SAVED - 1)
    ]
