"""JdbcSink against a real server: at least once, upserted, and exactly once whatever is killed."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.connectors.postgres.options import (
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    JdbcPayload,
    connect,
)
from headrace.connectors.postgres.sink import JdbcSink
from headrace.connectors.postgres.staged_commit import StagedRowsCommitter, StagedRowsLostError
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types
from headrace.functions.sink import DeletesLeftovers
from testkit.exactly_once import compare_output
from tests.integration.postgres.postgres_server import running_server
from tests.unit.connectors.connector_contexts import ConnectorContext
from tests.unit.connectors.sink_world import WITH_CHECKPOINTS, Crash, SinkWorld

pytestmark = pytest.mark.integration
ROW = Types.ROW_NAMED(["subtask", "number"], [Types.INT(), Types.INT()])
INSERT = "INSERT INTO results VALUES (?, ?)"


@pytest.fixture(scope="module")
def server() -> Iterator[JdbcConnectionOptions]:
    with running_server() as options:
        yield options


@pytest.fixture
def database(server: JdbcConnectionOptions) -> Iterator[Any]:
    with connect(server) as connection:
        connection.autocommit = True
        empty(connection)
        yield connection


def empty(connection: Any) -> None:
    connection.execute("DROP TABLE IF EXISTS results, headrace_staging, headrace_commits")
    connection.execute("CREATE TABLE results (subtask int, number int)")


def results(connection: Any) -> list[tuple[int, int]]:
    return connection.execute("SELECT * FROM results").fetchall()


def world_of(sink: JdbcSink, **more: Any) -> SinkWorld:
    committer = sink.committer()
    assert committer is not None
    payload: Any = msgspec.msgpack.decode(committer[1], type=JdbcPayload)
    return SinkWorld(sink, ROW, lambda: StagedRowsCommitter(payload), lambda s, n: (s, n), **more)


def close(world: SinkWorld) -> None:
    for writer in world.writers:
        writer.close()
    world.committer.close()


def test_rows_appear_with_their_checkpoint(database: Any, server: JdbcConnectionOptions) -> None:
    world = world_of(JdbcSink.exactly_once_sink(INSERT, ROW, server))
    world.write(0, 2)
    world.publish()
    assert results(database) == []
    assert world.last_committed() is None
    world.commit()
    assert results(database) == [(0, 0), (0, 1)]
    assert world.last_committed() == 1
    world.write(1, 1)
    world.finish()
    assert sorted(results(database)) == [(0, 0), (0, 1), (1, 0)]
    assert database.execute("SELECT count(*) FROM headrace_staging").fetchone() == (0,)


def test_a_statement_that_fails_leaves_nothing_of_its_checkpoint(
    database: Any, server: JdbcConnectionOptions
) -> None:
    database.execute("ALTER TABLE results ADD CHECK (number < 2)")
    world = world_of(JdbcSink.exactly_once_sink(INSERT, ROW, server))
    world.write(0, 3)
    with pytest.raises(Exception, match="violates check constraint"):
        world.checkpoint()
    assert results(database) == []
    database.execute("ALTER TABLE results DROP CONSTRAINT results_number_check")
    world.commit()
    assert len(results(database)) == 3
    close(world)


def test_a_job_that_commits_no_more_leaves_no_staged_rows(
    database: Any, server: JdbcConnectionOptions
) -> None:
    world = world_of(JdbcSink.exactly_once_sink(INSERT, ROW, server))
    world.write(0, 2)
    world.publish()
    query = "SELECT owner FROM headrace_staging"
    ((owner,),) = database.execute(query).fetchall()
    insert = (
        "INSERT INTO headrace_staging SELECT %s, 'other', 0, 0, 0, content FROM headrace_staging"
    )
    database.execute(insert, ("of another job",))
    assert isinstance(world.committer, DeletesLeftovers)
    for _ in range(2):
        world.committer.delete_leftovers("lineage/sink", owner)
    assert database.execute(query).fetchall() == [("other",)]
    assert results(database) == []
    close(world)


def test_a_note_or_rows_that_somebody_deleted_are_noticed(
    database: Any, server: JdbcConnectionOptions
) -> None:
    world = world_of(JdbcSink.exactly_once_sink(INSERT, ROW, server))
    world.write(0, 1)
    checkpoint_id = world.publish()
    assert world.latest is not None
    contents = list(world.latest.pending[checkpoint_id])
    world.commit()
    database.execute("DELETE FROM headrace_commits")
    with pytest.raises(StagedRowsLostError, match="1 of 1 staged parts of checkpoint 1 are gone"):
        world.committer.commit("lineage/sink/1", checkpoint_id, contents)
    assert results(database) == [(0, 0)]
    close(world)


def test_rows_that_somebody_changed_while_they_waited_are_refused_before_arrow_reads_them(
    database: Any, server: JdbcConnectionOptions
) -> None:
    world = world_of(JdbcSink.exactly_once_sink(INSERT, ROW, server))
    world.write(0, 3)
    world.publish()
    change = "UPDATE headrace_staging SET content = set_byte(content, length(content) - 20, 255)"
    assert database.execute(change).rowcount == 1
    with pytest.raises(StagedRowsLostError, match="was changed since it was written"):
        world.commit()
    assert results(database) == []
    close(world)


def test_what_a_dead_attempt_staged_is_swept_once_its_successor_commits(
    database: Any, server: JdbcConnectionOptions
) -> None:
    world = world_of(JdbcSink.exactly_once_sink(INSERT, ROW, server))
    world.write(0, 1)
    world.abort()
    world.crash(is_sudden=False)
    world.write(0, 2)
    world.checkpoint()
    assert database.execute("SELECT count(*) FROM headrace_staging").fetchone() == (0,)
    close(world)


@pytest.fixture
def lose_connections(monkeypatch: pytest.MonkeyPatch, database: Any) -> Callable[[], None]:
    def lose() -> None:
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND application_name = 'headrace' AND state = 'idle'"
        )

    return lose


def writing(sink: JdbcSink, value_type: Any = ROW) -> tuple[Any, ConnectorContext]:
    context = ConnectorContext(value_type)
    return sink.create_writer(context), context


def test_an_upsert_is_right_however_often_rows_come(
    database: Any, server: JdbcConnectionOptions
) -> None:
    database.execute("ALTER TABLE results ADD PRIMARY KEY (subtask)")
    upsert = f"{INSERT} ON CONFLICT (subtask) DO UPDATE SET number = EXCLUDED.number"
    sink = JdbcSink.sink(upsert, ROW, server)
    assert sink.committer() is None
    for _ in range(2):
        writer, _ = writing(sink)
        writer.write_batch(RecordBatch.of_rows(BatchType(ROW), [(0, 1), (1, 1), (0, 2)]))
        writer.flush(end_of_input=False)
        writer.close()
    assert sorted(results(database)) == [(0, 2), (1, 1)]


def test_rows_go_in_batches_by_size_and_by_the_clock(
    database: Any, server: JdbcConnectionOptions
) -> None:
    options = JdbcExecutionOptions.builder().with_batch_size(2).with_batch_interval_ms(100).build()
    writer, context = writing(JdbcSink.sink(INSERT, ROW, server, options))
    writer.write_batch(RecordBatch.of_rows(BatchType(ROW), [(0, 0), (0, 1), (0, 2)]))
    assert len(results(database)) == 2
    context.clock.advance_ms(100)
    context.timers.fire_due()
    assert len(results(database)) == 3
    writer.close()


def test_a_lost_connection_is_made_again(
    database: Any, server: JdbcConnectionOptions, lose_connections: Callable[[], None]
) -> None:
    writer, _ = writing(JdbcSink.sink(INSERT, ROW, server))
    lose_connections()
    writer.write_batch(RecordBatch.of_rows(BatchType(ROW), [(0, 0)]))
    writer.flush(end_of_input=True)
    assert results(database) == [(0, 0)]
    writer.close()


def test_without_checkpoints_rows_are_written_as_they_come(
    database: Any, server: JdbcConnectionOptions
) -> None:
    writer, _ = writing(JdbcSink.exactly_once_sink(INSERT, ROW, server))
    writer.write_batch(RecordBatch.of_rows(BatchType(ROW), [(0, 0)]))
    writer.flush(end_of_input=True)
    assert writer.prepare_commit(2**63 - 1) == ()
    assert results(database) == [(0, 0)]
    writer.close()


def test_values_of_every_kind_arrive_as_they_were(
    database: Any, server: JdbcConnectionOptions
) -> None:
    kinds = Types.ROW(
        [Types.STRING(), Types.BOOLEAN(), Types.DOUBLE(), Types.BIG_DEC(), Types.SQL_TIMESTAMP()]
    )
    database.execute("DROP TABLE IF EXISTS kinds")
    database.execute("CREATE TABLE kinds (a text, b boolean, c float8, d numeric, e timestamp)")
    row = ("é%s?", True, 0.5, Decimal("12.50"), datetime(2013, 1, 1, 10, 17))
    nothing = (None, None, None, None, None)
    sink = JdbcSink.exactly_once_sink("INSERT INTO kinds VALUES (?, ?, ?, ?, ?)", kinds, server)
    committer = sink.committer()
    assert committer is not None
    context = ConnectorContext(kinds, settings=WITH_CHECKPOINTS)
    writer = sink.create_writer(context)
    writer.write_batch(RecordBatch.of_rows(BatchType(kinds), [row, nothing]))
    prepared = writer.prepare_commit(1)
    payload: Any = msgspec.msgpack.decode(committer[1], type=JdbcPayload)
    committing = StagedRowsCommitter(payload)
    committing.commit("l/s/1", 1, prepared)
    assert database.execute("SELECT * FROM kinds").fetchall() == [row, nothing]
    writer.close()
    committing.close()


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 1), st.integers(0, 3)),
    st.sampled_from([("checkpoint",), ("abort",), ("publish",), ("crash",), ("commit twice",)]),
    st.tuples(st.just("crash within"), st.sampled_from(["transaction", "answer"])),
)


@settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEPS, max_size=15))
def test_every_row_is_there_once_whatever_comes_between(
    database: Any, server: JdbcConnectionOptions, steps: list[tuple[Any, ...]]
) -> None:
    empty(database)
    world = world_of(JdbcSink.exactly_once_sink(INSERT, ROW, server))
    for step in steps:
        take(world, step)
        assert max(Counter(results(database)).values(), default=1) == 1
    world.finish()
    verdict = compare_output(world.expected, results(database))
    assert verdict.is_exact, verdict


def take(world: SinkWorld, step: tuple[Any, ...]) -> None:
    match step:
        case ("crash",):
            kill(world)
        case ("commit twice",):
            world.publish()
            pending = dict(world.latest.pending) if world.latest else {}
            world.commit()
            for checkpoint_id, contents in pending.items():
                world.committer.commit(f"lineage/sink/{checkpoint_id}", checkpoint_id, contents)
        case ("crash within", "transaction"):
            crash_within(world, "_move")
        case ("crash within", "answer"):
            crash_within(world, "_in_transaction")
        case _:
            world.take(step)


def crash_within(world: SinkWorld, method: str) -> None:
    """Die when the work is done: inside the transaction, or when the database has committed and nobody heard."""
    world.publish()
    carry_out = getattr(world.committer, method)

    def die_after(*arguments: Any) -> None:
        carry_out(*arguments)
        raise Crash

    setattr(world.committer, method, die_after)
    try:
        world.commit()
    except Crash:
        kill(world)
    else:
        delattr(world.committer, method)


def kill(world: SinkWorld) -> None:
    """End everything without a word; only the server's connections are not left open."""
    world.committer.close()
    world.crash(is_sudden=False)
