"""Windows over two streams: co-group, and the join that is its cross product.

Records of both streams are put into one window, tagged with their stream; a window stores them separately.
Source: Flink CoGroupedStreams, JoinedStreams.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import RowTypeInfo, TypeInformation, Types
from headrace.functions.evictors import TimestampedValue
from headrace.functions.joins import FlatJoinFunction, TaggedUnion
from headrace.functions.specs.operator_specs import CoGroupSpec, TwoStreamWindowSpec, WindowJoinSpec
from headrace.functions.windows import Window
from headrace.operators.runtime.interleaved_inputs import interleaved
from headrace.operators.runtime.operator import (
    InputNumbers,
    OperatorContext,
    Output,
    TwoInputOperator,
)
from headrace.operators.runtime.record_state import (
    RecordsDescriptor,
    own_state,
    record_in,
    refuse_other_layout,
    row_around,
)
from headrace.operators.runtime.timed_operator import LateRecords
from headrace.operators.runtime.user_code import method_of, not_iterable
from headrace.operators.windowing.window_contents import (
    CONTENTS,
    EmitElements,
    EvictedContents,
    TimedRecords,
    WindowContents,
)
from headrace.operators.windowing.window_operator import WindowingOperator
from headrace.state.backend import KeyedStateBackend

_SIDES: Final = (f"{CONTENTS}-one", f"{CONTENTS}-two")
"""Names of the states of the first and of the second stream's records."""


class SidedContents(WindowContents):
    """Stores the records of two streams, each in a list of its own type, and emits both lists."""

    def __init__(
        self,
        record_types: Sequence[TypeInformation],
        backend: KeyedStateBackend,
        operator_name: str,
    ) -> None:
        refuse_other_layout(backend, CONTENTS, operator_name)
        self._backend = backend
        self._descriptors = [
            RecordsDescriptor(name, record_type)
            for name, record_type in zip(_SIDES, record_types, strict=True)
        ]
        self._ones, self._twos = (
            own_state(backend, one, backend.window_scope, operator_name)
            for one in self._descriptors
        )

    def add(self, value: TaggedUnion, timestamp: int) -> None:
        if value.is_one():
            self._ones.add(value.get_one())
        else:
            self._twos.add(value.get_two())

    def fire(self, window: Window, state_window: Window, emit: EmitElements) -> None:
        ones, twos = self._ones.get(), self._twos.get()
        if ones or twos:
            emit(window, (ones, twos))

    def merge(self, target: Window, sources: Sequence[Window]) -> None:
        for descriptor in self._descriptors:
            self._backend.merge_namespaces(descriptor, target, sources)

    def clear(self) -> None:
        self._ones.clear()
        self._twos.clear()


class TaggedRecords(TimedRecords):
    """Stores a TaggedUnion with its timestamp as a row that has one column for the records of each stream."""

    def __init__(self, record_types: Sequence[TypeInformation]) -> None:
        names = ["is_one", "one", "two", "timestamp"]
        self.row_type = RowTypeInfo([Types.BOOLEAN(), *record_types, Types.LONG()], names)

    def row_of(self, value: TaggedUnion, timestamp: int) -> Any:
        is_one, one, two = value.is_one(), value.get_one(), value.get_two()
        values = (is_one, one, two, timestamp)
        return row_around(one if is_one else two, self.row_type.field_names, values)

    def value_of(self, row: Any) -> TimestampedValue:
        is_one: bool = row[0]
        return TimestampedValue(TaggedUnion(record_in(row, 1 if is_one else 2), is_one), row[3])


class EvictedSides(EvictedContents):
    """Stores the records of two streams in one list for an evictor, and emits those of each stream."""

    def _elements(self, values: list[Any]) -> Sequence[Any] | None:
        return _sides(values)


class TwoStreamWindowOperator(WindowingOperator, TwoInputOperator):
    """Base: windows over the records of two inputs; `call` returns results for a window's two sides."""

    def __init__(
        self, spec: TwoStreamWindowSpec, call: Callable[[list[Any], list[Any]], Any]
    ) -> None:
        super().__init__(spec, lambda key, window, sides, context: call(*sides))
        self._late_tag_ids = spec.late_tag_ids

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        one, two = self._late_tag_ids
        self._late_ones = LateRecords(context, self._collector, one)
        self._late_twos = LateRecords(context, self._collector, two)

    def _create_contents(self) -> WindowContents:
        context, backend, name = self.context, self._backend, self.context.operator_name
        record_types = [one.value_type for one in context.types.inputs]
        if self._evictor is None:
            return SidedContents(record_types, backend, name)
        for side in _SIDES:
            refuse_other_layout(backend, side, name)
        records = TaggedRecords(record_types)
        return EvictedSides(None, records, backend, name, self._evictor, self._evictor_context())

    def process_batch1(self, batch: RecordBatch, output: Output) -> None:
        self._process_rows(batch, batch.keys(), map(TaggedUnion.one, batch.rows()), output)

    def process_batch2(self, batch: RecordBatch, output: Output) -> None:
        self._process_rows(batch, batch.keys(), map(TaggedUnion.two, batch.rows()), output)

    def process_interleaved(
        self,
        input_numbers: InputNumbers,
        batch1: RecordBatch,
        batch2: RecordBatch,
        output: Output,
    ) -> None:
        batch = interleaved(input_numbers, batch1, batch2)
        tag = (TaggedUnion.one, TaggedUnion.two)
        values = (tag[number](value) for number, value in batch.rows())
        self._process_rows(batch, batch.keys(), values, output)

    def _take_late(self, value: TaggedUnion, timestamp: int) -> None:
        if value.is_one():
            self._late_ones.take(value.get_one(), timestamp)
        else:
            self._late_twos.take(value.get_two(), timestamp)


class CoGroupOperator(TwoStreamWindowOperator):
    """Operator of a CoGroupFunction: both sides of a window at once, in order of arrival; one of them may be empty."""

    def __init__(self, spec: CoGroupSpec) -> None:
        super().__init__(spec, method_of(spec.function, "co_group"))


class WindowJoinOperator(TwoStreamWindowOperator):
    """Calls a JoinFunction or FlatJoinFunction for each pair of a window, by the first, then the second stream."""

    def __init__(self, spec: WindowJoinSpec) -> None:
        join = method_of(spec.function, "join")
        is_flat = isinstance(spec.function, FlatJoinFunction)

        def pairs(first: list[Any], second: list[Any]) -> Any:
            results = (join(one, two) for one in first for two in second)
            return _flattened(results) if is_flat else results

        super().__init__(spec, pairs)


def _sides(elements: Iterable[TaggedUnion]) -> tuple[list[Any], list[Any]]:
    """Return the records of the first and of the second stream, each in order of arrival."""
    first: list[Any] = []
    second: list[Any] = []
    for element in elements:
        if element.is_one():
            first.append(element.get_one())
        else:
            second.append(element.get_two())
    return first, second


def _flattened(results: Iterable[Any]) -> Iterator[Any]:
    for several in results:
        if several is None:
            continue
        if not isinstance(several, Iterable):
            raise not_iterable(several, "join")
        yield from several
