"""Reads of a task's state: how much a mail looks at, what ends an answer, and who hears what when the task ends."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headrace.checkpoint.errors import (
    StateKeyMismatchError,
    StateNotShowableError,
    StateReadsBusyError,
    SubtaskNotReadableError,
)
from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.state_queries import (
    READ_KEYS_MAX,
    FiguresQuery,
    ReadLimit,
    RowsQuery,
    StateQuery,
    StateReadResult,
    StatesQuery,
)
from headrace.core.clock import ManualClock
from headrace.core.ids import OperatorId
from headrace.core.record_batch import stream_bytes
from headrace.core.types.type_info import Types
from headrace.functions.state import ListStateDescriptor, ValueStateDescriptor
from headrace.state.queryable.live_rows import LivePiece
from headrace.task.chain.queryable_state import (
    MAIL_ROWS_MAX,
    QueryableState,
    ReadOperator,
    StateRead,
)
from tests.unit.state.new_states import states_of

OPERATOR = OperatorId(b"o" * 16)
KEY_COUNT = 20_000


class World:
    """One operator with a state `count` of KEY_COUNT keys; mails run one by one, as between batches."""

    def __init__(self, key_count: int = KEY_COUNT) -> None:
        self.clock = ManualClock(1_000)
        self.states = states_of(key_type=Types.LONG())
        self.backend = self.states.create_keyed_backend()
        self.count: Any = self.backend.get_state(
            ValueStateDescriptor("count", Types.LONG()), self.backend.key_scope
        )
        self.set_all(range(key_count), 1)
        self.mails: deque[Callable[[], None]] = deque()
        operator: Any = SimpleNamespace(current_watermark=77)
        self.reads = QueryableState(
            lambda _: ReadOperator(operator, self.states), self.clock, self._mail
        )
        self.answers: list[Any] = []

    def _mail(self, mail: Callable[[], None]) -> bool:
        self.mails.append(mail)
        return True

    def set_all(self, keys: range, value: int) -> None:
        for key in keys:
            self.backend.set_current_key(key)
            self.count.update(value)
        self.backend.end_batch()

    def begin(self, **asked: Any) -> StateRead:
        named: dict[str, Any] = {"table": StateTable.KEYED, "state": "count"}
        return self.ask(RowsQuery(**named | asked))

    def ask(self, query: StateQuery) -> StateRead:
        read = StateRead(OPERATOR, query, self.answers.append)
        self.reads.begin(read)
        return read

    def run(self, between: Callable[[], object] = lambda: None) -> StateReadResult:
        while self.mails:
            between()
            self.mails.popleft()()
        (answer,) = self.answers
        self.answers.clear()
        assert isinstance(answer, StateReadResult), answer
        return answer


def rows_of(result: StateReadResult) -> list[dict[str, Any]]:
    tables = [pa.ipc.open_stream(piece).read_all() for piece in result.pieces]
    return [row for table in tables for row in table.to_pylist()]


def test_a_large_state_is_read_in_many_mails_as_it_was_at_the_first() -> None:
    world = World()
    world.begin(row_count_max=KEY_COUNT, size_bytes_max=1 << 30)
    begins = iter(range(0, KEY_COUNT, 100))

    def batch() -> None:
        begin = next(begins, 0)
        world.set_all(range(begin, begin + 100), 2)

    result = world.run(batch)
    rows = rows_of(result)
    assert {row["value"] for row in rows} == {1}
    assert sorted(row["key"] for row in rows) == list(range(KEY_COUNT))
    assert result.row_count == len(rows)
    assert result.mail_count > KEY_COUNT / MAIL_ROWS_MAX
    assert result.mail_row_count_max <= MAIL_ROWS_MAX
    assert (result.limit, result.is_found) == (None, True)
    assert (result.taken_at_ms, result.watermark_ms) == (1_000, 77)
    world.set_all(range(KEY_COUNT), 3)
    assert isinstance(world.count.entries, dict)


def test_a_mail_looks_at_fewer_rows_where_they_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    taken = LivePiece(None, 1)
    sizes: list[int] = []

    class Slow:
        expired_until_ms = None

        def take(self, count: int) -> LivePiece | None:
            sizes.append(count)
            world.clock.advance_ms(count * 5)
            return None if len(sizes) == 10 else LivePiece(taken.table, count)

        def schema(self) -> pa.Schema:
            return pa.schema([])

        def release(self) -> None:
            pass

    (source,) = world.states.live_sources()
    slow = [SimpleNamespace(**vars(source) | {"open": lambda _: Slow()})]
    monkeypatch.setattr(world.states, "live_sources", lambda: slow)
    world.begin(duration_ms_max=10**6)
    world.run()
    assert sizes[0] == 1
    # 20 ms of the mailbox's time, at 5 ms each.
    assert max(sizes) <= 8
    assert sizes[-1] in range(1, 9)


def test_more_keys_than_one_read_takes_are_refused_before_they_are_looked_for() -> None:
    world = World(10)
    sink = pa.BufferOutputStream()
    keys = pa.table({"key": pa.array(range(READ_KEYS_MAX + 1), pa.int64())})
    with pa.ipc.new_stream(sink, keys.schema) as stream:
        stream.write_table(keys)
    world.begin(keys=sink.getvalue().to_pybytes())
    (error,) = world.answers
    assert isinstance(error, StateKeyMismatchError)
    assert "there are 10001, but one read takes at most 10000" in str(error)


def test_rows_beyond_those_asked_for_are_left_out_and_said_to_be() -> None:
    world = World(100)
    world.begin(row_count_max=100)
    assert world.run().limit is None
    world.begin(row_count_max=99)
    result = world.run()
    assert (result.row_count, len(rows_of(result)), result.limit) == (99, 99, ReadLimit.ROWS)


def test_an_answer_does_not_outgrow_a_message() -> None:
    world = World()
    world.begin(row_count_max=KEY_COUNT, size_bytes_max=50_000)
    result = world.run()
    assert result.limit is ReadLimit.BYTES
    assert 25_000 < sum(map(len, result.pieces)) <= 50_000
    assert len(rows_of(result)) == result.row_count


def test_an_answer_ends_when_its_time_is_over() -> None:
    world = World()
    world.begin(row_count_max=KEY_COUNT, duration_ms_max=100)
    result = world.run(lambda: world.clock.advance_ms(30))
    assert result.limit is ReadLimit.TIME
    assert 0 < result.row_count < KEY_COUNT


def test_one_key_is_found_in_three_mails() -> None:
    world = World()
    sink = pa.BufferOutputStream()
    column = pa.table({"key": [7]})
    with pa.ipc.new_stream(sink, column.schema) as stream:
        stream.write_table(column)
    world.begin(keys=sink.getvalue().to_pybytes())
    result = world.run()
    assert [(row["key"], row["value"]) for row in rows_of(result)] == [(7, 1)]
    assert result.mail_count == 3


@pytest.mark.parametrize("includes_expired", [False, True])
def test_an_answer_without_rows_has_the_columns_of_the_state(includes_expired: bool) -> None:
    world = World(5)
    listed = ListStateDescriptor("list", Types.STRING())
    world.backend.get_state(listed, world.backend.key_scope)
    absent = pa.table({"key": [7]})
    expected = {"key_group": "int32", "key": "int64", "value": "int64"}
    if includes_expired:
        expected["expired"] = "bool"
    keys = stream_bytes(absent.schema, [absent])
    for asked in ({"keys": keys}, {"row_count_max": 0}, {"size_bytes_max": 0}):
        world.begin(includes_expired=includes_expired, **asked)
        (piece,) = world.run().pieces
        rows = pa.ipc.open_stream(piece).read_all()
        assert rows.num_rows == 0
        assert {field.name: str(field.type) for field in rows.schema} == expected
    world.begin(state="list")
    assert pa.ipc.open_stream(world.run().pieces[0]).schema.field("list_pos").type == pa.int32()


def test_what_is_no_column_of_keys_is_refused() -> None:
    world = World(1)
    world.begin(keys=b"nonsense")
    assert isinstance(world.answers.pop(), StateKeyMismatchError)
    assert not world.mails


def test_a_state_that_is_not_there_is_answered_with_those_that_are() -> None:
    world = World(1)
    world.begin(state="other")
    result = world.run()
    assert not result.is_found
    assert [(one.table, one.name, one.kind) for one in result.states] == [
        (StateTable.KEYED, "count", "value")
    ]


def test_which_states_there_are_is_told_without_a_look_at_any_of_them() -> None:
    world = World(1)
    world.ask(StatesQuery())
    result = world.run()
    assert [one.name for one in result.states] == ["count"]
    assert (result.pieces, result.figures, result.mail_row_count_max) == ((), (), 0)


def test_figures_are_of_all_states_and_no_row_leaves_the_task() -> None:
    world = World(5_000)
    listed: Any = world.backend.get_state(
        ListStateDescriptor("list", Types.STRING()), world.backend.key_scope
    )
    world.backend.set_current_key(3)
    listed.add_all(["x"] * 10)
    world.ask(FiguresQuery())
    result = world.run()
    assert (result.pieces, result.row_count, result.limit) == ((), 0, None)
    assert {one.name: one.row_count for one in result.figures} == {"count": 5_000, "list": 10}
    assert not any(one.is_partial for one in result.figures)
    world.ask(FiguresQuery(duration_ms_max=100))
    partly = world.run(lambda: world.clock.advance_ms(40))
    assert [one.is_partial for one in partly.figures] == [True, True]


def test_a_value_that_cannot_be_shown_ends_the_read_and_not_the_task() -> None:
    class Stubborn:
        def __reduce__(self) -> Any:
            raise SystemExit("no")

    world = World(0)
    pickled: Any = world.backend.get_state(
        ValueStateDescriptor("stubborn", Types.PICKLED_BYTE_ARRAY()), world.backend.key_scope
    )
    world.backend.set_current_key(1)
    pickled.update(Stubborn())
    world.begin(state="stubborn")
    (error,) = world.answers
    assert isinstance(error, StateNotShowableError)
    assert "'stubborn'" in str(error)
    pickled.update("fine")
    assert isinstance(pickled.entries, dict)


def test_too_many_reads_at_once_are_refused_until_others_are_done() -> None:
    world = World()
    for _ in range(8):
        world.begin(row_count_max=KEY_COUNT)
    world.begin()
    assert isinstance(world.answers.pop(), StateReadsBusyError)
    while world.mails:
        world.mails.popleft()()
    assert len(world.answers) == 8
    world.answers.clear()
    world.begin(row_count_max=1)
    assert world.run().row_count == 1


def test_a_read_that_was_given_up_ends_with_its_next_mail() -> None:
    world = World()
    read = world.begin(row_count_max=KEY_COUNT)
    read.is_given_up = True
    world.mails.popleft()()
    assert not world.mails
    assert not world.answers
    world.set_all(range(1), 2)
    assert isinstance(world.count.entries, dict)


def test_whoever_waits_when_the_task_ends_is_told() -> None:
    world = World()
    world.begin(row_count_max=KEY_COUNT)
    world.reads.close()
    (error,) = world.answers
    assert isinstance(error, SubtaskNotReadableError)
    world.mails.popleft()()
    assert not world.mails
    assert len(world.answers) == 1
