"""Contents of windows and joins are of the types that their streams declare: in snapshots, in changes, in errors."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.checkpoint.handles import OperatorSubtaskState, StateTable
from headrace.core.elements import MAX_WATERMARK
from headrace.core.errors import UserCodeError
from headrace.core.operator_spec import OperatorSpec
from headrace.core.types.rows import Row, RowKind
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.evictors import CountEvictor
from headrace.functions.joins import ProcessJoinFunction
from headrace.functions.process import WindowFunction
from headrace.functions.record import AggregateFunction
from headrace.functions.specs.operator_specs import (
    CoGroupSpec,
    IntervalJoinSpec,
    ReduceSpec,
    RollingAggregationSpec,
    WindowSpec,
)
from headrace.functions.windowing.assigners import EventTimeSessionWindows, TumblingEventTimeWindows
from headrace.state.evolution import StateIncompatibleError
from headrace.state.keyed_chunks import OPAQUE
from headrace.testing.operator_harness import OperatorHarness, Rows, WatermarkAt

LONG, STRING = Types.LONG(), Types.STRING()
ORDER = Types.ROW_NAMED(["name", "amount"], [STRING, LONG])
PAYMENT = Types.ROW_NAMED(["name", "paid"], [STRING, Types.DOUBLE()])
TUMBLING = TumblingEventTimeWindows(10, 0)
NO_TAGS = (None, None)

ORDER_STRUCT = pa.struct([("name", pa.string()), ("amount", pa.int64())])
PAYMENT_STRUCT = pa.struct([("name", pa.string()), ("paid", pa.float64())])
WINDOW_STRUCT = pa.struct(
    [pa.field("start", pa.int64(), nullable=False), pa.field("end", pa.int64(), nullable=False)]
)


class _Listed(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        yield list(inputs)


class _Total(AggregateFunction):
    """Count and sum of the amounts; `first` is what the accumulator begins as."""

    def __init__(self, first: Any = (0, 0)) -> None:
        self.first = first

    def create_accumulator(self) -> Any:
        return self.first

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + 1, accumulator[1] + value.amount

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class _Near(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left, right


def _window(**changes: Any) -> WindowSpec:
    spec = WindowSpec(TUMBLING, None, 0, None, None, _Listed(), is_keyed=True)
    return replace(spec, **changes)


def _last(older: Any, newer: Any) -> Any:
    return newer


def _together(first: Iterable[Any], second: Iterable[Any]) -> Iterable[Any]:
    yield list(first), list(second)


PAIR = Types.TUPLE([LONG, LONG])
LIST = _window()
SUM = _window(incremental=_Total(), window_function=None, accumulator_type=PAIR)
LAST = _window(incremental=_last, window_function=None)
SESSION = _window(assigner=EventTimeSessionWindows(5))
EVICTING = _window(evictor=CountEvictor.of(9))
CO_GROUP = CoGroupSpec(TUMBLING, None, None, 0, NO_TAGS, _together)
EVICTING_CO_GROUP = replace(CO_GROUP, evictor=CountEvictor.of(9))
INTERVAL = IntervalJoinSpec(_Near(), -5, 5, NO_TAGS)


@pytest.fixture(params=["hashmap", "rocksdb"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    return {
        "state.backend.type": request.param,
        "state.backend.rocksdb.localdir": str(tmp_path),
    }


def _harness(
    spec: OperatorSpec,
    types: Sequence[TypeInformation] = (ORDER,),
    settings: dict[str, str] | None = None,
) -> OperatorHarness:
    return OperatorHarness(
        spec,
        input_types=types,
        keys=[lambda value: "k"] * len(types),
        key_type=STRING,
        settings=settings,
        operator_name="Orders",
    )


def _columns(state: OperatorSubtaskState) -> dict[str, pa.Schema]:
    """The columns of each keyed state's files; none of them is flagged as pickles."""
    found: dict[str, pa.Schema] = {}
    for chunk in state.chunks:
        if chunk.table is StateTable.KEYED:
            assert OPAQUE not in chunk.attributes
            found[chunk.name] = pq.read_schema(pa.BufferReader(chunk.file.content))
    return found


STORED: list[tuple[str, OperatorSpec, dict[str, dict[str, pa.DataType]]]] = [
    ("list", LIST, {"window-contents": {"value": ORDER_STRUCT}}),
    ("reduce", LAST, {"window-contents": {"value": ORDER_STRUCT}}),
    (
        "aggregate",
        SUM,
        {"window-contents": {"value": pa.struct([("f0", pa.int64()), ("f1", pa.int64())])}},
    ),
    (
        "evictor",
        EVICTING,
        {"window-contents": {"value": pa.struct([("value", ORDER_STRUCT), ("timestamp", pa.int64())])}},
    ),
    (
        "sessions",
        SESSION,
        {
            "window-contents": {"value": ORDER_STRUCT},
            "merging-window-set": {"map_key": WINDOW_STRUCT, "value": WINDOW_STRUCT},
        },
    ),
    (
        "co-group",
        CO_GROUP,
        {
            "window-contents-one": {"value": ORDER_STRUCT},
            "window-contents-two": {"value": PAYMENT_STRUCT},
        },
    ),
    (
        "co-group with evictor",
        EVICTING_CO_GROUP,
        {
            "window-contents": {
                "value": pa.struct(
                    [
                        ("is_one", pa.bool_()),
                        ("one", ORDER_STRUCT),
                        ("two", PAYMENT_STRUCT),
                        ("timestamp", pa.int64()),
                    ]
                )
            }
        },
    ),
    (
        "interval join",
        INTERVAL,
        {
            "left-buffer": {"namespace": pa.int64(), "value": ORDER_STRUCT},
            "right-buffer": {"namespace": pa.int64(), "value": PAYMENT_STRUCT},
            "left-times": {"map_key": pa.int64(), "value": pa.bool_()},
            "right-times": {"map_key": pa.int64(), "value": pa.bool_()},
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "wanted"), [one[1:] for one in STORED], ids=[one[0] for one in STORED]
)
def test_snapshots_hold_columns_of_the_declared_types(
    spec: OperatorSpec, wanted: dict[str, dict[str, pa.DataType]], backend: dict[str, str]
) -> None:
    has_two = not isinstance(spec, WindowSpec)
    one = _harness(spec, (ORDER, PAYMENT) if has_two else (ORDER,), backend)
    one.perform(Rows([Row(name="a", amount=1)], [1]))
    if has_two:
        one.perform(Rows([Row(name="a", paid=0.5)], [2], 1))
    stored = _columns(one.snapshot())
    one.operator.close()
    assert stored.keys() == wanted.keys()
    for name, columns in wanted.items():
        assert {column: stored[name].field(column).type for column in columns} == columns


def test_windows_over_the_whole_stream_have_a_key_of_a_declared_type_too(
    backend: dict[str, str],
) -> None:
    whole = OperatorHarness(
        _window(is_keyed=False), input_types=[ORDER], settings=backend, operator_name="Orders"
    )
    whole.perform(Rows([Row(name="a", amount=1)], [1]))
    stored = _columns(whole.snapshot())
    whole.operator.close()
    assert stored["window-contents"].field("key").type == pa.int64()


@pytest.mark.parametrize("spec", [LIST, SESSION], ids=["tumbling", "sessions"])
@pytest.mark.parametrize("timestamp", [2**63 - 2, -(2**63) + 1], ids=["last", "first"])
def test_windows_at_either_end_of_time_can_be_stored(
    spec: OperatorSpec, timestamp: int, backend: dict[str, str]
) -> None:
    one = _harness(spec, settings=backend)
    one.perform(Rows([Row(name="a", amount=1)], [timestamp]))
    one.restart(one.snapshot())
    one.perform(WatermarkAt(MAX_WATERMARK))
    assert [row.name for ((row,), _) in one.output.timed_rows] == ["a"]
    one.operator.close()


DELETED = Row.of_kind(RowKind.DELETE, name="b", amount=2)
RECORDS = [Row(name="a", amount=1), None, DELETED]


def _kinds(results: Iterable[Any]) -> list[Any]:
    """The records in results, with the kinds of rows."""
    return [one and (one.get_row_kind().name, one.amount) for one in results]


TOLD = [("INSERT", 1), None, ("DELETE", 2)]


@pytest.mark.parametrize("spec", [LIST, EVICTING, SESSION], ids=["list", "evictor", "sessions"])
def test_records_that_are_none_and_kinds_of_rows_outlive_a_failure(
    spec: WindowSpec, backend: dict[str, str]
) -> None:
    one = _harness(spec, settings=backend)
    one.perform(Rows(RECORDS, [1, 2, 3]))
    one.restart(one.snapshot())
    one.perform(WatermarkAt(20))
    (listed,) = one.output.rows
    assert _kinds(listed) == TOLD
    one.operator.close()


@pytest.mark.parametrize("spec", [CO_GROUP, EVICTING_CO_GROUP], ids=["lists", "evictor"])
def test_both_sides_of_a_co_group_outlive_a_failure_as_they_were(
    spec: CoGroupSpec, backend: dict[str, str]
) -> None:
    one = _harness(spec, (ORDER, ORDER), backend)
    one.perform(Rows(RECORDS, [1, 2, 3]))
    one.perform(Rows(RECORDS[::-1], [1, 2, 3], 1))
    one.restart(one.snapshot())
    one.perform(WatermarkAt(20))
    ((first, second),) = one.output.rows
    assert (_kinds(first), _kinds(second)) == (TOLD, TOLD[::-1])
    one.operator.close()


def test_an_interval_join_keeps_records_as_they_were_in_order_of_arrival(
    backend: dict[str, str],
) -> None:
    one = _harness(INTERVAL, (ORDER, ORDER), backend)
    one.perform(Rows([*RECORDS, Row(name="c", amount=3)], [7, 7, 7, 6]))
    one.restart(one.snapshot())
    one.perform(Rows([Row(name="d", amount=4)], [8], 1))
    assert _kinds(left for left, _ in one.output.rows) == [("INSERT", 3), *TOLD]
    one.operator.close()


WIDER = Types.ROW_NAMED(["name", "amount", "city"], [STRING, LONG, STRING])


@pytest.mark.parametrize("spec", [LIST, EVICTING, LAST], ids=["list", "evictor", "reduce"])
def test_the_contents_of_a_window_follow_a_field_that_is_added(
    spec: WindowSpec, backend: dict[str, str]
) -> None:
    old = _harness(spec, settings=backend)
    old.perform(Rows([Row(name="a", amount=1)], [1]))
    new = _harness(spec, (WIDER,), backend)
    new.restart(old.snapshot())
    new.perform(WatermarkAt(20))
    (result,) = new.output.rows
    found = result[0] if isinstance(result, list) else result
    assert found == Row(name="a", amount=1, city=None)
    for one in (old, new):
        one.operator.close()


def _refused(old: OperatorHarness, new: OperatorHarness) -> str:
    """What the new operator says of the old one's snapshot."""
    state = old.snapshot()
    old.operator.close()
    with pytest.raises(StateIncompatibleError) as refused:
        new.restart(state)
    new.states.close()
    return str(refused.value)


def test_pickled_contents_are_refused_where_a_type_is_declared_now(backend: dict[str, str]) -> None:
    pickled = Types.PICKLED_BYTE_ARRAY()
    old = _harness(LIST, (pickled,), backend)
    old.perform(Rows([("k", 1)], [1]))
    assert _refused(old, _harness(LIST, settings=backend)) == (
        "operator 'Orders' cannot restore its state: state 'window-contents' cannot be converted to its new type: "
        "'value' was undeclared and is declared now; the value was binary and is struct<name: string, amount: int64> "
        "now: give the stream its former type, or the operator another uid() to start with empty state"
    )


def test_contents_in_another_layout_are_refused_and_not_left_behind() -> None:
    for old_spec, new_spec in ((CO_GROUP, EVICTING_CO_GROUP), (EVICTING_CO_GROUP, CO_GROUP)):
        old = _harness(old_spec, (ORDER, PAYMENT))
        old.perform(Rows([Row(name="a", paid=1.5)], [1], 1))
        told = _refused(old, _harness(new_spec, (ORDER, PAYMENT)))
        assert "operator 'Orders' cannot restore its state: state 'window-contents" in told


def test_an_accumulator_of_no_declared_type_is_pickled() -> None:
    one = _harness(replace(SUM, accumulator_type=None))
    one.perform(Rows([Row(name="a", amount=1)], [1]))
    (chunk,) = [one for one in one.snapshot().chunks if one.name == "window-contents"]
    assert chunk.attributes[OPAQUE] == "value"


def _told_of(spec: OperatorSpec, records: Sequence[Any], record_type: TypeInformation) -> str:
    one = _harness(spec, (record_type,))
    with pytest.raises(UserCodeError) as told:
        one.perform(Rows(records, range(1, len(records) + 1)))
    return str(told.value).partition("\n")[0]


HERE = __file__


def test_an_accumulator_of_another_type_is_told_with_operator_and_function() -> None:
    spec = replace(SUM, incremental=_Total(("a",)), accumulator_type=Types.TUPLE([STRING]))
    spec.incremental.add = lambda value, accumulator: value.amount
    told = _told_of(spec, [Row(name="a", amount=1)], ORDER)
    assert told.startswith(
        "TypeError: the accumulator must be of the accumulator_type TupleTypeInfo(String), but it is 1: "
        f"expected a tuple, got int 1 (in operator 'Orders', {HERE}, line "
    )


def _to_text(older: Any, newer: Any) -> Any:
    return "text"


@pytest.mark.parametrize(
    "spec",
    [
        ReduceSpec(_to_text),
        _window(incremental=_to_text, window_function=None),
        _window(incremental=_to_text, window_function=None, assigner=EventTimeSessionWindows(5)),
    ],
    ids=["reduce", "window", "sessions"],
)
def test_a_reduce_that_returns_another_type_is_told_with_operator_and_function(
    spec: OperatorSpec,
) -> None:
    line = _to_text.__code__.co_firstlineno
    assert _told_of(spec, [1, 2], LONG) == (
        "TypeError: reduce must return the type of its input, Long, but it returned 'text': "
        f"expected an integer, got str 'text' (in operator 'Orders', {HERE}, line {line})"
    )


@pytest.mark.parametrize("spec", [ReduceSpec(_to_text), LAST, LIST], ids=["reduce", "fold", "list"])
def test_a_record_that_does_not_fit_is_not_blamed_on_the_function(spec: OperatorSpec) -> None:
    told = _told_of(spec, ["text"], LONG)
    assert "StateAccessError: state '" in told
    assert "' cannot hold 'text': it is declared as Long, expected an integer" in told
    assert "(in operator 'Orders', " in told


def test_a_sum_that_outgrows_its_type_asks_for_a_wider_one() -> None:
    told = _told_of(RollingAggregationSpec("sum", 0), [2**31 - 1, 1], Types.INT())
    assert told.startswith(
        "TypeError: the current sum, 2147483648, does not fit the stream's type Integer: "
        "expected an integer of 32 bits, got int 2147483648 (Types.LONG() holds 64); "
        "declare a wider type (in operator 'Orders'"
    )
