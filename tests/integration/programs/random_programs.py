"""Programs drawn at random, with what they promise: the parallelism of each operator, and the order of rows of a key.

A row is (trail, origin, number): the operators it came through, the subtask that numbered it, and its number there.
Rows have two keys, both made of the number. A model follows what users are told: rows stay with their subtask where the
parallelism stays, by their key behind `key_by`, and anywhere behind another parallelism, `rebalance()` and the like.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hypothesis import strategies as st

from headrace import OutputTag, StreamExecutionEnvironment, WatermarkStrategy
from headrace.api.streams.data_stream import DataStream
from headrace.api.streams.keyed_stream import KeyedStream
from headrace.common import Time, Types
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.datastream import (
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    CoGroupFunction,
    CoMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from headrace.datastream.state import MapStateDescriptor
from headrace.datastream.window import TumblingEventTimeWindows

ROW_COUNT: Final = 240
SLOT_COUNT: Final = 5
Trail = tuple[str, ...]
LabelledRow = tuple[Trail, tuple[str, int], int]

collected: list[tuple[str, int, LabelledRow]] = []
"""(sink, its subtask, row), as they came: functions of a MiniCluster run in the process of the test."""


def first_key(row: LabelledRow) -> int:
    return row[2] % 3


def second_key(row: LabelledRow) -> int:
    return row[2] % 7


Key = Callable[[LabelledRow], int]
KEYS: Final[tuple[Key, ...]] = (first_key, second_key)
ANYWHERE: Final = "anywhere"
SEEN: Final = MapStateDescriptor("seen", Types.LONG(), Types.LONG())


class Number(MapFunction):
    """Gives rows their origin and number: here the order begins that is promised."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> LabelledRow:
        self._count += 1
        return (self._name,), (self._name, self._subtask), self._count


class Collect(MapFunction):
    def __init__(self, name: str) -> None:
        self._name = name

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: LabelledRow) -> LabelledRow:
        collected.append((self._name, self._subtask, value))
        return value


def through(row: LabelledRow, name: str) -> LabelledRow:
    return (*row[0], name), row[1], row[2]


class Pass(ProcessFunction):
    """Sends every row on, those of odd numbers to the side output where there is one."""

    def __init__(self, name: str, side: OutputTag | None) -> None:
        self._name = name
        self._side = side

    def process_element(self, value: LabelledRow, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if self._side is not None and value[2] % 2:
            yield self._side, through(value, f"{self._name}, side")
        else:
            yield through(value, self._name)


class KeyedPass(KeyedProcessFunction):
    def __init__(self, name: str) -> None:
        self._name = name

    def process_element(
        self, value: LabelledRow, ctx: KeyedProcessFunction.Context
    ) -> Iterator[LabelledRow]:
        yield through(value, self._name)


class WindowPass(ProcessWindowFunction[Any, Any, Any, Any]):
    def __init__(self, name: str) -> None:
        self._name = name

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[LabelledRow]:
        for value in elements:
            yield through(value, self._name)


class ConnectedPass(CoMapFunction):
    def __init__(self, name: str) -> None:
        self._name = name

    def map1(self, value: LabelledRow) -> LabelledRow:
        return through(value, self._name)

    def map2(self, value: LabelledRow) -> LabelledRow:
        return through(value, self._name)


class _PassBesideBroadcast:
    """Lets the rows through; those of the broadcast side are numbered themselves and would come several times."""

    def __init__(self, name: str) -> None:
        self._name = name

    def process_element(self, value: LabelledRow, ctx: Any) -> Iterator[LabelledRow]:
        yield through(value, self._name)

    def process_broadcast_element(self, value: LabelledRow, ctx: Any) -> None:
        ctx.get_broadcast_state(SEEN).put(value[2], value[2])


class BroadcastPass(_PassBesideBroadcast, BroadcastProcessFunction[Any, Any, Any]): ...


class KeyedBroadcastPass(
    _PassBesideBroadcast, KeyedBroadcastProcessFunction[Any, Any, Any, Any]
): ...


class BothSides(CoGroupFunction):
    """Gives the rows of both sides, each once."""

    def __init__(self, name: str) -> None:
        self._name = name

    def co_group(self, first: Any, second: Any) -> Iterator[LabelledRow]:
        for row in (*first, *second):
            yield through(row, self._name)


class OneTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return 0


class LatePass(AsyncFunction[Any, Any]):
    """Answers the later, the smaller the rest: the operator brings the answers back into order."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def async_invoke(self, value: LabelledRow) -> list[LabelledRow]:
        for _ in range(3 - value[2] % 4):
            await asyncio.sleep(0)
        return [through(value, self._name)]


@dataclass(frozen=True)
class Branch:
    """Rows of one trail on their way to a reader.

    `in_order_by`: keys whose rows of one origin lie in one subtask of the producer each, in their order. `spread`: the
    key by which they go to the reader, `ANYWHERE`, or None, to the same subtask where the parallelism stays.
    """

    trail: Trail
    parallelism: int
    in_order_by: frozenset[Key]
    spread: Key | str | None = None

    def arrived(self, parallelism: int) -> frozenset[Key]:
        """By which keys they are in order in the subtasks of a reader of this parallelism."""
        if callable(self.spread):
            return self.in_order_by & {self.spread}
        if parallelism == 1 or (self.spread is None and parallelism == self.parallelism):
            return self.in_order_by
        return frozenset()


@dataclass(frozen=True)
class Drawn:
    """A stream of the program, with its branches."""

    stream: DataStream
    branches: tuple[Branch, ...]

    @property
    def is_keyed(self) -> bool:
        return isinstance(self.stream, KeyedStream)

    def spread(self, stream: DataStream, how: Key | str) -> "Drawn":
        """Make the stream whose rows go that way: the last way holds."""
        return Drawn(stream, tuple(replace(branch, spread=how) for branch in self.branches))


@dataclass
class RandomProgram:
    """A program under construction. `parallelisms`: what each of its operators must have, by its name.

    `promised`: by which keys the rows of each trail must reach a sink in order, by the sink's name.
    """

    env: StreamExecutionEnvironment
    environments_parallelism: int | None
    parallelisms: dict[str, int] = field(default_factory=dict[str, int])
    promised: dict[str, dict[Trail, frozenset[Key]]] = field(
        default_factory=dict[str, dict[Trail, frozenset[Key]]]
    )
    streams: list[Drawn] = field(default_factory=list[Drawn])

    def set_parallelism(self, parallelism: int) -> None:
        self.env.set_parallelism(parallelism)
        self.environments_parallelism = parallelism

    def next_name(self, kind: str) -> str:
        return f"{kind}-{len(self.parallelisms)}"

    def add_source(self, parallelism: int | None) -> None:
        name = self.next_name("source")
        numbered = self.env.from_collection(list(range(ROW_COUNT))).map(Number(name))
        chosen = self.finish(numbered, name, parallelism)
        self.streams.append(Drawn(numbered, (Branch((name,), chosen, frozenset(KEYS)),)))

    def add_operator(
        self, read: Drawn, name: str, stream: DataStream, parallelism: int | None, mark: str | None
    ) -> Drawn:
        """Add an operator of the environment's parallelism or its own; `mark`: what it adds to its rows' trails."""
        chosen = self.finish(stream, name, parallelism)
        branches = tuple(
            Branch(
                branch.trail if mark is None else (*branch.trail, mark),
                chosen,
                branch.arrived(chosen),
            )
            for branch in read.branches
        )
        self.streams.append(Drawn(stream, branches))
        return self.streams[-1]

    def finish(self, stream: DataStream, name: str, parallelism: int | None) -> int:
        stream.name(name)
        if parallelism is not None:
            stream.set_parallelism(parallelism)
        chosen = parallelism or self.environments_parallelism or SLOT_COUNT
        self.parallelisms[name] = chosen
        return chosen

    def add_sink(self, read: Drawn, parallelism: int | None) -> None:
        name = self.next_name("sink")
        sink = self.add_operator(read, name, read.stream.map(Collect(name)), parallelism, None)
        self.promised[name] = {branch.trail: branch.in_order_by for branch in sink.branches}


_parallelisms: Final = st.none() | st.integers(1, 4)


@st.composite
def random_programs(
    draw: st.DrawFn, make: Callable[[int | None], StreamExecutionEnvironment]
) -> RandomProgram:
    """Draw a program of an environment that `make` gives for the parallelism of a command line."""
    asked = draw(_parallelisms)
    program = RandomProgram(make(asked), asked)
    if draw(st.integers(0, 4)) == 4:
        program.env.disable_operator_chaining()
    for _ in range(draw(st.integers(1, 2))):
        program.add_source(draw(_parallelisms))
    for _ in range(draw(st.integers(1, 8))):
        step = draw(st.sampled_from(_STEPS))
        step(draw, program, draw(st.sampled_from(program.streams)))
    for drawn in program.streams[-2:]:
        program.add_sink(drawn, draw(_parallelisms))
    return program


def _set_parallelism(draw: st.DrawFn, program: RandomProgram, _: Drawn) -> None:
    program.set_parallelism(draw(st.integers(1, 4)))


def _process(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    name = program.next_name("process")
    function = KeyedPass(name) if read.is_keyed else Pass(name, None)
    processed = read.stream.process(function)  # pyright: ignore[reportArgumentType]
    program.add_operator(read, name, processed, draw(_parallelisms), name)
    _chain(draw, processed)


def _map(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    name = program.next_name("map")
    mapped = read.stream.map(lambda row: through(row, name))
    program.add_operator(read, name, mapped, draw(_parallelisms), name)
    _chain(draw, mapped)


def _filter(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    name = program.next_name("filter")
    filtered = read.stream.filter(lambda row: row[2] % 5 != 0)
    program.add_operator(read, name, filtered, draw(_parallelisms), None)


def _chain(draw: st.DrawFn, stream: DataStream) -> None:
    match draw(st.integers(0, 5)):
        case 0:
            stream.disable_chaining()
        case 1:
            stream.start_new_chain()
        case _:
            pass


def _timestamps(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    """On a keyed stream, an operator that reads values without their keys."""
    name = program.next_name("timestamps")
    timed = read.stream.assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks())
    program.add_operator(read, name, timed, draw(_parallelisms), None)


def _side_output(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    if read.is_keyed:
        return
    name, tag = program.next_name("split"), OutputTag(program.next_name("odd"))
    split = read.stream.process(Pass(name, tag))
    main = program.add_operator(read, name, split, draw(_parallelisms), name)
    branches = tuple(
        replace(branch, trail=(*branch.trail[:-1], f"{name}, side")) for branch in main.branches
    )
    program.streams.append(Drawn(split.get_side_output(tag), branches))


def _union(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    other = draw(st.sampled_from(program.streams))
    if {one.trail for one in read.branches} & {one.trail for one in other.branches}:
        return
    program.streams.append(Drawn(read.stream.union(other.stream), read.branches + other.branches))


def _connect(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    other = draw(st.sampled_from(program.streams))
    if {one.trail for one in read.branches} & {one.trail for one in other.branches}:
        return
    if read.is_keyed != other.is_keyed:
        return
    name = program.next_name("connect")
    connected = read.stream.connect(other.stream).map(ConnectedPass(name))
    both = Drawn(read.stream, read.branches + other.branches)
    program.add_operator(both, name, connected, draw(_parallelisms), name)


def _map_batches(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    name = program.next_name("batches")
    mapped = read.stream.map_batches(lambda batch: batch)
    program.add_operator(read, name, mapped, draw(_parallelisms), None)


def _broadcast(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    other = draw(st.sampled_from([one for one in program.streams if not one.is_keyed]))
    name = program.next_name("broadcast")
    connected = read.stream.connect(other.stream.broadcast(SEEN))
    function = KeyedBroadcastPass(name) if read.is_keyed else BroadcastPass(name)
    processed = connected.process(function)  # pyright: ignore[reportArgumentType]
    program.add_operator(read, name, processed, draw(_parallelisms), name)


def _timed(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> Drawn:
    """Give all rows one time: they come to one window, and none is late."""
    name = program.next_name("timed")
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(OneTime())
    timed = read.stream.assign_timestamps_and_watermarks(strategy)
    return program.add_operator(read, name, timed, draw(_parallelisms), None)


def _co_group(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    other = draw(st.sampled_from(program.streams))
    if {one.trail for one in read.branches} & {one.trail for one in other.branches}:
        return
    key = draw(st.sampled_from(KEYS))
    first, second = _timed(draw, program, read), _timed(draw, program, other)
    name = program.next_name("co-group")
    joined = (
        first.stream.co_group(second.stream)
        .where(key)
        .equal_to(key)
        .window(TumblingEventTimeWindows.of(Time.days(1)))
        .apply(BothSides(name))
    )
    both = Drawn(first.stream, first.branches + second.branches).spread(first.stream, key)
    program.add_operator(both, name, joined, draw(_parallelisms), name)


def _ordered_wait(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    name = program.next_name("async")
    waited = AsyncDataStream.ordered_wait(
        read.stream, LatePass(name), Time.seconds(60), draw(st.integers(1, 5))
    )
    program.add_operator(read, name, waited, draw(_parallelisms), name)


def _key_by(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    key = draw(st.sampled_from(KEYS))
    program.streams.append(read.spread(read.stream.key_by(key), key))


def _windows(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    name, key = program.next_name("window"), draw(st.sampled_from(KEYS))
    keyed = read.spread(read.stream.key_by(key), key)
    windowed = keyed.stream.count_window(draw(st.integers(1, 3))).process(WindowPass(name))  # pyright: ignore
    program.add_operator(keyed, name, windowed, draw(_parallelisms), name)


def _partition(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    if read.is_keyed:
        return
    how = draw(st.sampled_from(["rebalance", "rescale", "shuffle"]))
    program.streams.append(read.spread(getattr(read.stream, how)(), ANYWHERE))


def _partition_custom(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    key = draw(st.sampled_from(KEYS))
    spread = read.stream.partition_custom(lambda value, count: value % count, key)
    program.streams.append(read.spread(spread, key))


def _forward(draw: st.DrawFn, program: RandomProgram, read: Drawn) -> None:
    """Forward needs the parallelism of every producer."""
    (parallelism, *others) = {branch.parallelism for branch in read.branches}
    if read.is_keyed or others:
        return
    forward = Drawn(
        read.stream.forward(), tuple(replace(branch, spread=None) for branch in read.branches)
    )
    name = program.next_name("forward")
    mapped = forward.stream.map(lambda row: through(row, name))
    program.add_operator(forward, name, mapped, parallelism, name)


_STEPS: Final = (
    _set_parallelism,
    _process,
    _map,
    _filter,
    _timestamps,
    _side_output,
    _union,
    _union,
    _connect,
    _map_batches,
    _broadcast,
    _co_group,
    _ordered_wait,
    _key_by,
    _key_by,
    _windows,
    _partition,
    _partition_custom,
    _forward,
)
