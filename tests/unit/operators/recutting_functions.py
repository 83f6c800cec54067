"""User functions, a sink and a source that show how the batches of an operator were cut, if anything does.

Records are `Row(key, n)` on every input.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.functions.joins import ProcessJoinFunction
from headrace.functions.process import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
)
from headrace.functions.record import (
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    MapFunction,
)
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import Sink, SinkWriter
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.state import MapStateDescriptor, ValueStateDescriptor
from headrace.functions.watermarks import WatermarkGenerator, WatermarkOutput

ROW: Final = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])
SIDE: Final = OutputTag("side", ROW)


class Stateful(Function):
    """Numbers the records of each key."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def number(self) -> int:
        number = (self.seen.value() or 0) + 1
        self.seen.update(number)
        return number


class Map(Stateful, MapFunction):
    """What it is given, numbered by key."""

    def map(self, value: Any) -> Any:
        return value.key, value.n, self.number()


class FlatMap(Stateful, FlatMapFunction):
    """None, one or two results."""

    def flat_map(self, value: Any) -> Any:
        return [(value.key, self.number())] * (value.n % 3)


class Filter(Stateful, FilterFunction):
    """Depends on how many of its key came before."""

    def filter(self, value: Any) -> bool:
        return (value.n + self.number()) % 2 == 0


class CoRecord(CoMapFunction, CoFlatMapFunction):
    """Tells its inputs apart."""

    def map1(self, value: Any) -> Any:
        return 1, value.n

    def map2(self, value: Any) -> Any:
        return 2, value.key

    def flat_map1(self, value: Any) -> Any:
        return [value.key] * (value.n % 3)

    def flat_map2(self, value: Any) -> Any:
        return None if value.n % 2 else [value.n]


class Plain(ProcessFunction):
    """Sees the watermark, and gives odd numbers aside."""

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value.n, ctx.timestamp(), ctx.timer_service().current_watermark()
        if value.n % 2:
            yield SIDE, value


class CoPlain(CoProcessFunction):
    """Gives odd numbers of its second input aside."""

    def process_element1(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield "first", value.n, ctx.timestamp()

    def process_element2(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield (SIDE, value) if value.n % 2 else ("second", value.n, ctx.timestamp())


class Timed(Stateful, KeyedProcessFunction):
    """Timers in both domains, some in the past, some that are deleted again, some set by timers."""

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        timers, time = ctx.timer_service(), ctx.timestamp()
        timers.register_event_time_timer(time + value.n)
        timers.register_processing_time_timer(timers.current_processing_time() + 5 * abs(value.n))
        timers.delete_event_time_timer(time + 2)
        yield value.key, value.n, self.number(), timers.current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        seen = self.seen.value() or 0
        if seen % 3 == 1:
            self.seen.update(seen + 1)
            ctx.timer_service().register_event_time_timer(timestamp + 1)
        yield timestamp, ctx.get_current_key(), seen, str(ctx.time_domain())


class CoTimed(Stateful, KeyedCoProcessFunction):
    """What one input does to the state, timers of the other see."""

    def process_element1(self, value: Any, ctx: Any) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + value.n)
        yield value.key, value.n, self.number()

    def process_element2(self, value: Any, ctx: Any) -> Iterable[Any]:
        ctx.timer_service().delete_event_time_timer(ctx.timestamp() + value.n)
        self.seen.update(value.n)
        yield SIDE, value

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield timestamp, ctx.get_current_key(), self.number()


RULES: Final = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Ruled(BroadcastProcessFunction[Any, Any, Any]):
    """A rule depends on the order of what made it."""

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        rules = ctx.get_broadcast_state(RULES)
        yield value.key, value.n, rules.get(value.key)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        rules = ctx.get_broadcast_state(RULES)
        rules[value.key] = (rules.get(value.key) or 0) * 2 + value.n
        yield SIDE, value


class KeyedRuled(Stateful, KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Timers see all rules."""

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        rules = ctx.get_broadcast_state(RULES)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 3)
        yield value.key, self.number(), rules.get(value.key)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        ctx.get_broadcast_state(RULES)[value.key] = value.n
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        rules = ctx.get_broadcast_state(RULES)
        yield timestamp, self.number(), sorted(rules.items())


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    """Pairs of numbers."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left.key, left.n, right.n, ctx.get_timestamp()


def folded(first: Any, second: Any) -> Any:
    """Depends on the order."""
    return Row(key=first.key, n=first.n * 2 + second.n)


def both(lefts: Iterable[Any], rights: Iterable[Any]) -> Any:
    """Both sides of a window, in their order."""
    yield [one.n for one in lefts], [one.n for one in rights]


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The numbers twice as large."""
    return pa.record_batch({"key": batch.column("key"), "n": pc.multiply(batch.column("n"), 2)})


class StagingSink(Sink):
    """What its writer took since the last checkpoint is prepared as one text."""

    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        return _StagingWriter()

    def committer(self) -> tuple[str, bytes] | None:
        return "nobody", b""


class _StagingWriter(SinkWriter):
    def __init__(self) -> None:
        self._taken: list[str] = []

    def write_batch(self, batch: RecordBatch) -> None:
        assert batch.timestamps is not None
        rows = zip(batch.rows(), batch.timestamps.tolist(), strict=True)
        self._taken += [f"{row.key} {row.n} {time}" for row, time in rows]

    def flush(self, end_of_input: bool) -> None:
        """Nothing is kept back."""

    def prepare_commit(self, checkpoint_id: int) -> Sequence[bytes]:
        taken, self._taken = self._taken, []
        return ["\n".join(taken).encode()]


class HandedOver(Source):
    """Emits the batches that it is handed as events: pickled pairs of rows and timestamps."""

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return _Reader()


class _Reader(SourceReader):
    def __init__(self) -> None:
        self._batches: list[RecordBatch] = []

    def handle_event(self, payload: bytes) -> None:
        rows, timestamps = pickle.loads(payload)
        self._batches.append(RecordBatch.of_rows(BatchType(ROW), rows, timestamps))

    def poll_next(self, output: SourceOutput) -> InputStatus:
        if not self._batches:
            return InputStatus.NOTHING_AVAILABLE
        output.emit(self._batches.pop(0))
        return InputStatus.MORE_AVAILABLE


class Punctuated(WatermarkGenerator):
    """Says something at every second odd number, and at the interval how many events it has seen."""

    def __init__(self) -> None:
        self.seen = 0
        self.odd = 0

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.seen += 1
        self.odd += event.n % 2
        if event.n % 2 and self.odd % 2:
            output.emit_watermark(event_timestamp - self.seen)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(self.seen)


def numbered(values: Iterator[Row]) -> Iterator[Any]:
    """The records of a key, numbered."""
    return enumerate(values)


def added(left: Row, right: Row) -> Row:
    """The older record, with the sum of the numbers."""
    return Row(key=left.key, n=left.n + right.n)
