"""A job goes on from a savepoint whose state was corrected and whose keys were deleted in between, without a job."""

from pathlib import Path

import pyarrow as pa
import pytest

from headrace import StreamExecutionEnvironment
from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.core.config import Settings
from headrace.state_processor.savepoint_editor import SavepointEditor
from headrace.state_processor.selection import open_snapshot, operator_in
from headrace.state_processor.table_query import TableQuery
from tests.integration.programs.totals import KEY_COUNT, UID, Totals, expected

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("saved_by", "restored_by"),
    [("hashmap", "hashmap"), ("rocksdb", "rocksdb"), ("hashmap", "rocksdb")],
)
def test_a_job_goes_on_with_the_totals_that_were_corrected(
    env: StreamExecutionEnvironment,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    saved_by: str,
    restored_by: str,
) -> None:
    program = Totals(env, tmp_path, request.node.name)
    old = program.save(saved_by)
    settings = Settings({KEY_FILE.key: str(program.key_file)})
    query = TableQuery(operator=UID, state="total")
    totals = query.open(open_snapshot(old, settings)).read_all(StateReader())
    rows = [one | {"value": one["value"] + 1_000 * (one["key"] == 3)} for one in totals.to_pylist()]
    corrected = pa.Table.from_pylist(rows, schema=totals.schema)
    editor = SavepointEditor.open(old, settings).replace(UID, "total", corrected)
    new = editor.remove_keys(UID, [5]).write(str(tmp_path / "edited"), reason="3 was too low")
    assert program.go_on(restored_by, new.uri) == expected({3: 1_000}, gone=5)


@pytest.mark.parametrize("restored_by", ["hashmap", "rocksdb"])
def test_a_job_goes_on_in_another_number_of_key_groups(
    env: StreamExecutionEnvironment,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    restored_by: str,
) -> None:
    program = Totals(env, tmp_path, request.node.name)
    old = program.save("hashmap")
    settings = Settings({KEY_FILE.key: str(program.key_file)})
    before = operator_in(open_snapshot(old, settings).metadata, UID).max_parallelism
    editor = SavepointEditor.open(old, settings).with_max_parallelism(UID, 5)
    new = editor.write(str(tmp_path / "edited"), reason="another max parallelism")
    assert before != 5
    assert program.go_on(restored_by, new.uri, max_parallelism=5) == expected({}, gone=KEY_COUNT)
