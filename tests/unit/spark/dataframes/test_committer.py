"""Exactly once through Spark writers: a session that is played by pyarrow, killed wherever a commit may be."""

import pickle
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace.connectors.dataframe.directory_commit as directory_commit
from headrace.connectors.dataframe.directory_commit import TargetExistsError
from headrace.connectors.dataframe.messages import CommitPayload, FunctionPayload
from headrace.connectors.dataframe.sink import BatchId, DataFrameSink, IdempotentForeachBatchSink
from headrace.connectors.dataframe.staging import batch_staging_folder
from headrace.connectors.files.sink.note_file import NoteLostError
from headrace.core.config import Settings
from headrace.core.errors import HostError, ProgramError, UserCodeError
from headrace.functions.sink import (
    CommitterContext,
    DeletesLeftovers,
    DeliveryGuarantee,
    commit_key,
)
from headrace.spark.dataframes.committer import DataFrameCommitter, check_can_commit
from headrace.spark.dataframes.sink_coordinator import SinkCommitError, check_batch_function
from tests.unit.connectors.sink_world import (
    WITH_CHECKPOINTS,
    Crash,
    FailingFileSystem,
    SinkWorld,
    key,
)
from tests.unit.spark.dataframes.committer_world import ArrowSession, Row, rows_in, world_of


def left_beside(path: Path) -> list[str]:
    return sorted(one.name for one in path.parent.iterdir() if one != path)


def test_each_checkpoint_s_rows_join_the_folder_and_nothing_is_left_beside_it(
    tmp_path: Path,
) -> None:
    target = tmp_path / "out"
    world = world_of(DataFrameSink(target), ArrowSession())
    world.write(0, 2)
    world.write(1, 1)
    assert world.last_committed() is None
    world.checkpoint()
    assert sorted(rows_in(target)) == [(0, 0), (0, 1), (1, 0)]
    assert world.last_committed() == 1
    world.write(0, 1)
    world.finish()
    assert Counter(rows_in(target)) == Counter(world.expected)
    assert left_beside(target) == []


def test_overwriting_holds_for_the_first_checkpoint_only(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "part-old.parquet").touch()
    world = world_of(DataFrameSink(target, mode="overwrite"), ArrowSession())
    world.write(0, 1)
    world.checkpoint()
    world.crash()
    world.write(0, 1)
    world.checkpoint()
    assert sorted(rows_in(target)) == [(0, 0), (0, 1)]


def test_results_that_are_there_are_an_error_or_left_as_they_are(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "old.csv").touch()
    world = world_of(DataFrameSink(target), ArrowSession())
    world.write(0, 1)
    with pytest.raises(SinkCommitError, match="holds results already") as caught:
        world.checkpoint()
    assert isinstance(caught.value.__cause__, TargetExistsError)
    assert not caught.value.recoverable
    ignoring = world_of(DataFrameSink(target, mode="ignore"), ArrowSession())
    ignoring.write(0, 1)
    ignoring.checkpoint()
    assert rows_in(target) == []


def test_a_job_without_a_row_leaves_an_empty_result_with_the_schema(tmp_path: Path) -> None:
    target = tmp_path / "out"
    world = world_of(DataFrameSink(target), ArrowSession())
    world.checkpoint()
    assert not target.exists()
    world.finish()
    (file,) = target.rglob("part-*.parquet")
    assert pq.read_table(file).schema.names == ["subtask", "number"]


def test_a_file_that_was_taken_away_after_its_commit_is_not_missed(tmp_path: Path) -> None:
    target = tmp_path / "out"
    world = world_of(DataFrameSink(target), ArrowSession())
    world.write(0, 1)
    checkpoint_id = world.publish()
    assert world.latest is not None
    contents = world.latest.pending[checkpoint_id]
    key = commit_key("l", "s", checkpoint_id)
    world.committer.commit(key, checkpoint_id, contents)
    for file in target.rglob("part-*.parquet"):
        file.unlink()
    world.new_committer().commit(key, checkpoint_id, contents)
    assert rows_in(target) == []


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("mode", ["error", "append", "overwrite", "ignore"])
def test_a_note_that_somebody_deleted_is_an_error_instead_of_a_guess(
    tmp_path: Path, mode: str, is_restarted: bool
) -> None:
    target = tmp_path / "out"
    world = world_of(DataFrameSink(target, mode=mode), ArrowSession())
    world.write(0, 2)
    world.checkpoint()
    (note,) = [one for one in target.glob(".headrace-commits-*") if one.suffix != ".made"]
    note.unlink()
    if is_restarted:
        with pytest.raises(NoteLostError, match="it is unknown whether rows were committed"):
            world.crash()
    world.write(0, 1)
    world.publish()
    with pytest.raises(
        SinkCommitError, match="it is unknown whether rows were committed"
    ) as caught:
        world.commit()
    assert isinstance(caught.value.__cause__, NoteLostError)
    assert not caught.value.recoverable
    # Taken for the first commit, mode overwrite would delete them, and ignore drop what follows.
    assert rows_in(target) == [(0, 0), (0, 1)]


def test_a_table_s_note_that_somebody_deleted_is_an_error_instead_of_a_guess(
    tmp_path: Path,
) -> None:
    target = tmp_path / "table"
    sink = DataFrameSink(target, format="delta", mode="overwrite")
    session = ArrowSession()
    world = world_of(sink, session)
    world.write(0, 2)
    world.checkpoint()
    (note,) = [one for one in tmp_path.glob(".table.headrace-*") if one.suffix != ".made"]
    note.unlink()
    world.write(0, 1)
    world.publish()
    with pytest.raises(SinkCommitError, match="it is unknown whether rows were committed"):
        world.commit()
    assert session.tables[str(target)] == [(0, 0), (0, 1)]


def test_rows_under_a_number_that_was_used_are_an_error_instead_of_a_loss(tmp_path: Path) -> None:
    target = tmp_path / "out"
    world = world_of(DataFrameSink(target), ArrowSession())
    world.write(0, 1)
    world.checkpoint()
    world.write(0, 1)
    world.checkpoint()
    for reused in (2, 1):
        world.next_id = reused
        world.write(0, 1)
        world.publish()
        with pytest.raises(SinkCommitError, match="with other rows") as caught:
            world.commit()
        assert not caught.value.recoverable
        assert world.latest is not None
        world.latest.pending.clear()
    assert sorted(rows_in(target)) == [(0, 0), (0, 1)]


def test_what_a_dead_attempt_staged_is_swept_once_its_successor_commits(tmp_path: Path) -> None:
    target = tmp_path / "out"
    sink = DataFrameSink(target)
    world = world_of(sink, ArrowSession())
    world.write(0, 1)
    world.abort()
    assert len(list(Path(sink.staging_directory).glob("part-*"))) == 1
    world.crash()
    world.write(0, 2)
    world.finish()
    assert left_beside(target) == []
    assert sorted(rows_in(target)) == [(0, 0), (0, 1)]


def test_what_was_staged_for_a_log_and_handed_to_nobody_is_deleted_and_its_batches_stay(
    tmp_path: Path,
) -> None:
    target = tmp_path / "log"
    sink = DataFrameSink(target, "headrace", mode="append")
    world = world_of(sink, ArrowSession())
    world.write(0, 2)
    world.checkpoint()
    world.write(0, 1)
    world.write(1, 1)
    world.abort()
    assert len(list(Path(sink.staging_directory).glob("*.parquet"))) == 2
    committer = world.new_committer()
    assert isinstance(committer, DeletesLeftovers)
    for _ in range(2):
        committer.delete_leftovers("lineage/sink", "owner")
        assert left_beside(target) == []
    assert [pq.read_table(file).num_rows for file in target.glob("*.parquet")] == [2]


def test_a_delta_table_passes_over_the_version_that_it_has(tmp_path: Path) -> None:
    target, session = tmp_path / "table", ArrowSession()
    world = world_of(DataFrameSink(target, format="delta", mode="overwrite"), session)
    session.tables[str(target)] = [(9, 9)]
    world.write(0, 1)
    world.publish()
    session.fails_after_write = True
    with pytest.raises(SinkCommitError) as caught:
        world.commit()
    assert caught.value.recoverable
    world.crash()
    world.write(0, 1)
    world.checkpoint()
    assert session.tables[str(target)] == [(0, 0), (0, 1)]
    assert [mode for mode, _ in session.saves] == ["overwrite", "overwrite", "append"]
    assert session.versions == {(str(target), "lineage/sink"): 2}


def test_a_target_that_cannot_say_what_it_was_given_needs_the_program_s_word() -> None:
    context = CommitterContext("results", WITH_CHECKPOINTS)
    with pytest.raises(ProgramError, match=r"AT_LEAST_ONCE, or use IdempotentForeachBatchSink"):
        check_can_commit(context, CommitPayload("out", "jdbc", "append"))
    sink = DataFrameSink("out", "jdbc", "append", guarantee=DeliveryGuarantee.AT_LEAST_ONCE)
    payload: Any = msgspec.msgpack.decode(sink.committer()[1], type=CommitPayload)
    check_can_commit(context, payload)
    check_can_commit(
        CommitterContext("results", Settings()), CommitPayload("out", "jdbc", "append")
    )
    assert payload.is_at_least_once


def test_a_function_gets_the_rows_of_each_checkpoint_with_its_id(tmp_path: Path) -> None:
    calls: list[tuple[int, list[Row]]] = []
    sink = IdempotentForeachBatchSink(
        lambda df, checkpoint_id: calls.append((checkpoint_id, sorted(df.rows))), str(tmp_path)
    )
    world = world_of(sink, ArrowSession())
    world.write(0, 1)
    world.write(1, 1)
    world.checkpoint()
    world.checkpoint()
    world.write(1, 1)
    world.checkpoint()
    assert calls == [(1, [(0, 0), (1, 0)]), (3, [(1, 1)])]


def test_ids_of_a_function_are_of_one_lineage_until_a_job_begins_anew(tmp_path: Path) -> None:
    calls: list[BatchId] = []
    for lineage, number in (("history", 1), ("history", 4), ("another", 1)):
        staging = str(tmp_path / f"{lineage}-{number}")
        world = world_of(
            IdempotentForeachBatchSink(lambda df, batch: calls.append(batch), staging),
            ArrowSession(),
        )
        world.write(0, 1)
        published = world.publish()
        assert world.latest is not None
        key = commit_key(lineage, "sink", number)
        world.committer.commit(key, number, world.latest.pending[published])
    assert calls == [1, 4, 1]
    first, second, other = (one.lineage for one in calls)
    assert first == second != other
    assert all(len(one) == 32 and int(one, 16) for one in (first, other))
    copied = pickle.loads(pickle.dumps(calls[1]))
    assert (copied, copied.lineage) == (4, first)


def test_a_function_is_called_by_its_own_driver_alone(tmp_path: Path) -> None:
    sink = IdempotentForeachBatchSink(lambda df, checkpoint_id: None, str(tmp_path))
    elsewhere = FunctionPayload("elsewhere")
    world = world_of(sink, ArrowSession())
    world.write(0, 1)
    world.committer = DataFrameCommitter(
        "results", CommitPayload(function=elsewhere), lambda: ArrowSession(), key
    )
    with pytest.raises(SinkCommitError, match="submitted by the process that created the sink"):
        world.checkpoint()
    with pytest.raises(HostError, match="submitted by the process that created the sink"):
        check_batch_function("results", Settings(), elsewhere)


def test_a_batch_that_a_function_has_had_is_not_given_again_though_its_rows_are_deleted(
    tmp_path: Path,
) -> None:
    calls: list[int] = []
    sink = IdempotentForeachBatchSink(lambda df, n: calls.append(n), str(tmp_path / "staging"))
    committer = sink.committer()
    payload: Any = msgspec.msgpack.decode(committer[1], type=CommitPayload)
    notes = str(tmp_path / "notes")
    world = world_of(sink, ArrowSession())
    world.new_committer = lambda: DataFrameCommitter("results", payload, ArrowSession, key, notes)
    world.crash()
    world.write(0, 1)
    number = world.publish()
    assert world.latest is not None
    pending = dict(world.latest.pending)
    world.commit()
    world.latest.pending.update(pending)  # as a checkpoint that was published before has it
    world.crash()
    assert calls == [number]
    assert world.last_committed() == number
    world.write(0, 1)
    world.checkpoint()
    assert calls == [number, number + 1]


def test_an_error_of_a_function_is_the_user_s_and_names_its_line(tmp_path: Path) -> None:
    def fail(df: Any, checkpoint_id: int) -> None:
        raise ValueError("no")

    world = world_of(IdempotentForeachBatchSink(fail, str(tmp_path)), ArrowSession())
    world.write(0, 1)
    with pytest.raises(UserCodeError, match=rf"ValueError: no .*{Path(__file__).name}, line \d+"):
        world.checkpoint()
    assert list(tmp_path.glob("*.parquet")) != []


def test_rows_for_a_function_wait_beside_checkpoints_in_a_named_folder_or_in_a_temporary_one(
    tmp_path: Path,
) -> None:
    payload = FunctionPayload("f", "", "/tmp/.foreach-batch.staging-0")
    assert batch_staging_folder(payload, Settings()) == payload.temporary
    beside = Settings({"execution.checkpointing.dir": "/checkpoints"})
    name = ".foreach-batch.staging-0"
    assert batch_staging_folder(payload, beside) == f"/checkpoints/dataframes/{name}"
    named = FunctionPayload("f", "/named", payload.temporary)
    assert batch_staging_folder(named, WITH_CHECKPOINTS) == "/named"
    # Deleted as a whole at the job's end.
    assert batch_staging_folder(named, Settings()) == f"/named/{name}"


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 1), st.integers(0, 3)),
    st.sampled_from([("checkpoint",), ("abort",), ("publish",), ("crash",), ("fail",)]),
    st.tuples(st.just("crash within"), st.integers(0, 12)),
    st.just(("crash after write",)),
)


@given(steps=st.lists(STEPS, max_size=20))
def test_every_row_is_in_the_folder_once_whatever_comes_between(steps: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        target, session = Path(folder) / "out", ArrowSession()
        world = world_of(DataFrameSink(target), session)
        for step in steps:
            take(world, session, step)
        world.finish()
        assert Counter(rows_in(target)) == Counter(world.expected)


def take(world: SinkWorld, session: ArrowSession, step: tuple[Any, ...]) -> None:
    match step:
        case ("crash after write",):
            session.fails_after_write = True
            commit_or_crash(world)
            session.fails_after_write = False
        case ("crash within", calls_left):
            with failing_after(calls_left):
                commit_or_crash(world, restart=False)
            world.crash()
        case _:
            world.take(step)


def commit_or_crash(world: SinkWorld, *, restart: bool = True) -> None:
    world.publish()
    try:
        world.commit()
    except SinkCommitError as error:
        assert isinstance(error.__cause__, Crash)
        if restart:
            world.crash()


@contextmanager
def failing_after(calls_left: int) -> Iterator[None]:
    """Every file system of the commit together makes so many changes."""
    found = directory_commit.file_system_of

    def failing(path: str) -> tuple[Any, str]:
        file_system, place = found(path)
        return FailingFileSystem(file_system, calls_left), place

    with patch.object(directory_commit, "file_system_of", failing):
        yield
