"""State as DataFrames: the format `headrace-state`, which Spark finds by itself, and savepoints edited with Spark."""

import runpy
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace import StreamExecutionEnvironment
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.core.types.type_info import Types
from headrace.spark.session.session import HostSession
from headrace.spark.state_writer import StateWriter
from headrace.state_processor.errors import EditRefusedError, PickledKeysError, StateSchemaError
from headrace.testing.minicluster_executor import MiniClusterExecutor
from tests.architecture.floor_plan import ROOT
from tests.integration.programs.totals import Totals, expected
from tests.unit.state_processor.saved import FILES, UID, savepoint, settings_in

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompletedCheckpoint, Path]:
    folder = tmp_path_factory.mktemp("saved")
    return savepoint(folder / "savepoint", settings_in(folder, **FILES)), folder / "key"


def read(spark: SparkSession, path: str, key: Path, **options: Any) -> DataFrame:
    reader = spark.read.format("headrace-state").option("path", path).option("keyFile", str(key))
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def test_tables_of_a_savepoint_are_dataframes(
    session: HostSession, made: tuple[CompletedCheckpoint, Path]
) -> None:
    spark, (snapshot, key) = session.spark, made
    counts = read(spark, snapshot.uri, key, operator=UID, state="count")
    assert counts.columns == ["key_group", "key", "value"]
    assert counts.rdd.getNumPartitions() == 2
    assert sorted(row["key"] for row in counts.collect()) == [0, 1, 2, 3, 4, 5]
    (operator,) = read(spark, snapshot.uri, key, table="operators").collect()
    assert (operator["uid"], len(operator["states"])) == (UID, 4)
    some = read(spark, snapshot.uri, key, state="words", keys="[3, 77]")
    assert some.rdd.getNumPartitions() == 1
    assert [(row["key"], row["map_key"]) for row in some.collect()] == [(3, "x"), (3, "y")]
    joined = counts.join(read(spark, snapshot.uri, key, table="timers"), "key")
    assert joined.filter("ts >= 1000").count() == 6


def test_what_is_not_there_is_told_by_spark_with_what_is(
    session: HostSession, made: tuple[CompletedCheckpoint, Path]
) -> None:
    with pytest.raises(AnalysisException, match="choose from count, events, words"):
        read(session.spark, made[0].uri, made[1], state="other")
    with pytest.raises(AnalysisException, match="has no option 'stat'"):
        read(session.spark, made[0].uri, made[1], stat="count")


def test_edits_that_cannot_be_are_refused_with_the_row(
    session: HostSession, made: tuple[CompletedCheckpoint, Path], tmp_path: Path
) -> None:
    snapshot, key = made
    counts = read(session.spark, snapshot.uri, key, state="count")
    new = tmp_path / "edited"

    def write(df: DataFrame) -> None:
        writer = StateWriter.from_(snapshot.uri, key_file=str(key)).replace(UID, "count", df)
        writer.write(str(new), reason="a test")

    with pytest.raises(EditRefusedError, match=r"row .*'key': 3.* occurs twice"):
        write(counts.union(counts.filter("key = 3")))
    with pytest.raises(EditRefusedError, match="has no key"):
        write(counts.withColumn("key", F.when(counts["key"] != 3, counts["key"])))
    with pytest.raises(EditRefusedError, match="belongs to key group"):
        write(counts.withColumn("key_group", F.lit(2)))
    with pytest.raises(StateSchemaError, match="'value' is double and was stored as int64"):
        write(counts.withColumn("value", counts["value"] / 2))
    assert not new.exists()


def test_keys_that_are_pickles_are_edited_where_that_was_said(
    session: HostSession, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    keys = [("a", 1), ("b", 2), ("c", 3)]
    snapshot = savepoint(
        tmp_path / "savepoint", settings_in(tmp_path), keys, Types.PICKLED_BYTE_ARRAY()
    )
    counts = read(session.spark, snapshot.uri, key, state="count")
    writer = StateWriter.from_(snapshot.uri, key_file=str(key)).replace(UID, "count", counts)
    with pytest.raises(PickledKeysError):
        writer.write(str(tmp_path / "refused"), reason="a test")
    writer = StateWriter.from_(snapshot.uri, key_file=str(key), allow_pickles=True)
    changed = counts.withColumn("value", counts["value"] + 1)
    new = writer.replace(UID, "count", changed).write(str(tmp_path / "edited"), reason="a test")
    shown = read(session.spark, new, key, state="count", unpickle="true")
    before = read(session.spark, snapshot.uri, key, state="count", unpickle="true")
    assert {row["key"]: row["value"] - 1 for row in shown.collect()} == {
        row["key"]: row["value"] for row in before.collect()
    }
    assert {row["key"] for row in shown.collect()} == set(map(repr, keys))


def test_a_job_goes_on_with_what_the_example_has_corrected(
    session: HostSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = str(tmp_path / "edited")
    with MiniClusterExecutor(slot_count=2):
        env = StreamExecutionEnvironment.get_execution_environment()
        program = Totals(env, tmp_path, "totals corrected by Spark")
        old = program.save("hashmap")
        monkeypatch.setattr("sys.argv", ["corrected_totals.py", old, new, str(program.key_file)])
        runpy.run_path(str(ROOT / "examples" / "corrected_totals.py"), run_name="__main__")
        assert program.go_on("hashmap", new) == expected({3: 1_000}, gone=5)
    (made,) = read(session.spark, new, program.key_file, table="snapshot").collect()
    assert (made["parent_uri"], made["reason"]) == (old, "customer 3 was too low")
    assert [(one["state"], one["changed"], one["removed"]) for one in made["changes"]] == [
        ("total", 1, 0),
        ("seen", 0, 28),
        ("total", 0, 1),
    ]
