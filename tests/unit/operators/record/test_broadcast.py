"""Broadcast process functions: who may write, what a key sees, timers, and that cuts and order do not show."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.errors import UserCodeError
from headrace.core.types.type_info import Types
from headrace.functions.process import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    OutputTag,
)
from headrace.functions.runtime_context import RuntimeContext
from headrace.functions.specs.operator_specs import BroadcastProcessSpec, KeyedBroadcastProcessSpec
from headrace.functions.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from headrace.testing.operator_harness import (
    PICKLED,
    HarnessStep,
    OperatorHarness,
    Rows,
    TimeAt,
    WatermarkAt,
)
from headrace.testing.operator_ways import run_all_ways

LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.LONG())
SUM = ValueStateDescriptor("sum", Types.LONG())
REFUSED = OutputTag("refused")
FIRST = [lambda value: value[0], None]


class _Limit(BroadcastProcessFunction[Any, Any, Any]):
    """Lets a pair pass up to the limit of its name."""

    def process_element(
        self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any]:
        name, number = value
        limits = ctx.get_broadcast_state(LIMITS)
        if name in limits and number <= (limits[name] or 0):
            yield name, number, ctx.timestamp(), ctx.current_watermark()
        else:
            yield REFUSED, value

    def process_broadcast_element(
        self, value: Any, ctx: BroadcastProcessFunction.Context
    ) -> Iterable[Any]:
        name, limit = value
        ctx.get_broadcast_state(LIMITS)[name] = limit
        yield "limit", name, ctx.timestamp(), ctx.current_processing_time()


def _plain(function: Any, *descriptors: MapStateDescriptor) -> OperatorHarness:
    return OperatorHarness(
        BroadcastProcessSpec(function, descriptors or (LIMITS,)),
        input_types=[PICKLED, PICKLED],
        side_types={"refused": PICKLED},
        start_ms=1000,
    )


def test_the_data_stream_sees_what_the_broadcast_stream_wrote_before() -> None:
    harness = run_all_ways(
        lambda: _plain(_Limit()),
        [
            Rows([("a", 1)], [5]),
            Rows([("a", 3), ("b", 1)], [6, 7], input_number=1),
            WatermarkAt(4),
            Rows([("a", 3), ("a", 4), ("b", 1)], [8, 9, MIN_TIMESTAMP]),
        ],
        finishes=False,
    )
    assert harness.output.timed_rows == [
        (("limit", "a", 6, 1000), 6),
        (("limit", "b", 7, 1000), 7),
        (("a", 3, 8, 4), 8),
        (("b", 1, None, 4), None),
    ]
    assert harness.output.sides["refused"] == [("row", ("a", 1), 5), ("row", ("a", 4), 9)]


class _Write(_Limit):
    def __init__(self, write: Any) -> None:
        self.write = write

    def process_element(
        self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any]:
        self.write(ctx.get_broadcast_state(LIMITS))
        return ()


@pytest.mark.parametrize(
    "write",
    [
        lambda state: state.put("a", 1),
        lambda state: state.put_all({"a": 1}),
        lambda state: state.remove("a"),
        lambda state: state.clear(),
        lambda state: state.__setitem__("a", 1),
        lambda state: state.__delitem__("a"),
    ],
)
def test_the_data_side_cannot_write(write: Any) -> None:
    harness = _plain(_Write(write))
    with pytest.raises(
        UserCodeError, match=r"'limits' can only be read here.*write it in process_"
    ):
        harness.perform(Rows([1]))


def test_the_data_side_reads_all_that_a_map_offers() -> None:
    seen: list[Any] = []

    def read(state: Any) -> None:
        seen.append(
            (
                state.get("a"),
                state["b"],
                state.contains("c"),
                sorted(state.items()),
                sorted(state),
                sorted(state.values()),
                state.is_empty(),
            )
        )

    harness = _plain(_Write(read))
    harness.perform(Rows([1]))
    harness.perform(Rows([("a", 1), ("b", 2)], input_number=1))
    harness.perform(Rows([1]))
    assert seen == [
        (None, None, False, [], [], [], True),
        (1, 2, False, [("a", 1), ("b", 2)], ["a", "b"], [1, 2], False),
    ]


def test_a_state_that_was_not_declared_is_named() -> None:
    harness = _plain(_Limit(), MapStateDescriptor("rules", Types.STRING(), Types.LONG()))
    with pytest.raises(
        UserCodeError, match=r"no broadcast state 'limits'.*which was called with those of 'rules'"
    ):
        harness.perform(Rows([("a", 1)]))


class _Sums(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Sums by key. "reset" on the broadcast side sets all sums to that, "report" gives them; the clock does too."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(SUM)

    def process_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any]:
        key, number = value
        assert key == ctx.get_current_key()
        self.sum.update((self.sum.value() or 0) + number)
        if ctx.timestamp() is not None:
            ctx.timer_service().register_event_time_timer((ctx.timestamp() or 0) + 10)
        else:
            ctx.timer_service().register_processing_time_timer(2000)
        yield key, self.sum.value()

    def process_broadcast_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterable[Any]:
        what, number = value
        sums: list[Any] = []
        if what == "reset":
            ctx.apply_to_keyed_state(SUM, lambda key, state: state.update(number))
        elif what == "forget":
            ctx.apply_to_keyed_state(SUM, lambda key, state: state.clear())
        elif what == "limit":
            ctx.get_broadcast_state(LIMITS).put("all", number)
        elif what == "touch":
            self.sum.value()
        ctx.apply_to_keyed_state(SUM, lambda key, state: sums.append((key, state.value())))
        yield what, sorted(sums)

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterable[Any]:
        limit = ctx.get_broadcast_state(LIMITS).get("all")
        yield ctx.time_domain().name, timestamp, ctx.get_current_key(), self.sum.value(), limit


def _keyed() -> OperatorHarness:
    return OperatorHarness(
        KeyedBroadcastProcessSpec(_Sums(), (LIMITS,)), input_types=[PICKLED, PICKLED], keys=FIRST
    )


def test_the_broadcast_side_reaches_the_state_of_every_key() -> None:
    harness = run_all_ways(
        _keyed,
        [
            Rows([("a", 1), ("b", 2), ("a", 3)], [1, 2, 3]),
            Rows([("report", 0), ("reset", 7)], [4, 5], input_number=1),
            Rows([("a", 1), ("c", 5)], [6, 7]),
            Rows([("forget", 0)], [8], input_number=1),
        ],
        finishes=False,
    )
    assert harness.output.rows == [
        ("a", 1),
        ("b", 2),
        ("a", 4),
        ("report", [("a", 4), ("b", 2)]),
        ("reset", [("a", 7), ("b", 7)]),
        ("a", 8),
        ("c", 5),
        ("forget", []),
    ]


def test_timers_of_the_data_side_know_their_key_and_read_broadcast_states() -> None:
    harness = _keyed()
    harness.perform(Rows([("a", 1), ("b", 2)], [1, 2]))
    harness.perform(Rows([("limit", 9)], [3], input_number=1))
    harness.perform(WatermarkAt(11))
    assert harness.output.timed_rows[-1] == (("EVENT_TIME", 11, "a", 1, 9), 11)
    harness.perform(Rows([("c", 4)]))
    harness.perform(TimeAt(3000))
    assert harness.output.timed_rows[-1] == (("PROCESSING_TIME", 2000, "c", 4, 9), None)
    harness.finish()
    assert harness.output.main[-2:] == [
        ("row", ("EVENT_TIME", 12, "b", 2, 9), 12),
        ("watermark", MAX_WATERMARK),
    ]


def test_no_key_is_current_on_the_broadcast_side() -> None:
    harness = _keyed()
    harness.perform(Rows([("a", 1)], [1]))
    with pytest.raises(UserCodeError, match="without a current key"):
        harness.perform(Rows([("touch", 0)], [2], input_number=1))


def test_an_error_inside_of_keyed_states_leaves_no_key_behind() -> None:
    class Failing(_Sums):
        def process_broadcast_element(
            self, value: Any, ctx: KeyedBroadcastProcessFunction.Context
        ) -> Iterable[Any]:
            try:
                ctx.apply_to_keyed_state(SUM, lambda key, state: state.update(1 // value[1]))
            except ZeroDivisionError:
                self.sum.value()
            return ()

    spec = KeyedBroadcastProcessSpec(Failing(), (LIMITS,))
    harness = OperatorHarness(spec, input_types=[PICKLED, PICKLED], keys=FIRST)
    harness.perform(Rows([("a", 1)], [1]))
    with pytest.raises(UserCodeError, match="without a current key"):
        harness.perform(Rows([("any", 0)], [2], input_number=1))


def test_functions_have_operator_state_of_their_subtask() -> None:
    class Positions(_Limit):
        def open(self, runtime_context: RuntimeContext) -> None:
            store = runtime_context.get_operator_state_store()
            self.seen = store.get_list_state(ListStateDescriptor("seen", Types.LONG()))
            self.all_seen = store.get_union_list_state(ListStateDescriptor("all", Types.LONG()))

        def process_element(
            self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext
        ) -> Iterable[Any]:
            self.seen.add(value)
            self.all_seen.add(-value)
            yield [*self.seen, *self.all_seen]

    harness = _plain(Positions())
    harness.perform(Rows([1, 2]))
    assert harness.output.rows == [[1, -1], [1, 2, -1, -2]]


RULES = st.tuples(st.just(1), st.sampled_from("ab"), st.integers(0, 3))
RECORDS = st.tuples(st.just(0), st.sampled_from("abc"), st.integers(0, 3))


@given(st.lists(st.one_of(RULES, RECORDS), max_size=20))
def test_any_cut_of_any_interleaving_gives_what_a_plain_loop_gives(
    inputs: list[tuple[int, str, int]],
) -> None:
    limits: dict[str, int] = {}
    wanted: list[Any] = []
    steps: list[HarnessStep] = []
    for input_number, name, number in inputs:
        last = steps[-1] if steps else None
        if isinstance(last, Rows) and last.input_number == input_number:
            steps[-1] = Rows([*last.values, (name, number)], input_number=input_number)
        else:
            steps.append(Rows([(name, number)], input_number=input_number))
        if input_number == 1:
            limits[name] = number
            wanted.append(("limit", name, None, 1000))
        elif name in limits and number <= limits[name]:
            wanted.append((name, number, None, MIN_TIMESTAMP))
    harness = run_all_ways(lambda: _plain(_Limit()), steps, finishes=False)
    assert harness.output.rows == wanted


class _Totals(BroadcastProcessFunction[Any, Any, Any]):
    """Adds up what is broadcast under each name; a record of data asks for all totals."""

    def process_element(
        self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any]:
        yield sorted(ctx.get_broadcast_state(LIMITS).items())

    def process_broadcast_element(
        self, value: Any, ctx: BroadcastProcessFunction.Context
    ) -> Iterable[Any]:
        name, number = value
        totals = ctx.get_broadcast_state(LIMITS)
        totals[name] = (totals.get(name) or 0) + number
        return ()


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9)), min_size=1, max_size=12),
    st.lists(st.randoms(use_true_random=False), min_size=2, max_size=3),
)
def test_subtasks_that_heard_the_same_in_any_order_agree_and_new_ones_get_copies(
    updates: list[tuple[str, int]], orders: list[Any]
) -> None:
    subtasks = [_plain(_Totals()) for _ in orders]
    for harness, order in zip(subtasks, orders, strict=True):
        heard = list(updates)
        order.shuffle(heard)
        for update in heard:
            harness.perform(Rows([update], input_number=1))
    state = subtasks[-1].snapshot()
    added = _plain(_Totals())
    added.restart(state, parallelism=5, subtask_index=4)
    names = {name for name, _ in updates}
    totals = [(one, sum(n for name, n in updates if name == one)) for one in sorted(names)]
    for harness in [*subtasks, added]:
        harness.perform(Rows(["ask"]))
        assert harness.output.rows == [totals]
