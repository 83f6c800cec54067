"""Windows over two streams: co-group, and the join that is its cross product.

Records of both streams are put into one window, tagged with where they came from, and told apart when it fires.
Source: Flink CoGroupedStreams, JoinedStreams.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headrace.core.record_batch import RecordBatch
from headrace.functions.joins import FlatJoinFunction, TaggedUnion
from headrace.functions.window_specs import CoGroupSpec, TwoStreamWindowSpec, WindowJoinSpec
from headrace.functions.windows import Window
from headrace.operators.late_records import LateRecords
from headrace.operators.operator import OperatorContext, Output, TwoInputOperator
from headrace.operators.user_code import method_of, not_iterable
from headrace.operators.windowing.contents import EmitElements, StreamedContents, WindowContents
from headrace.operators.windowing.window_operator import WindowingOperator


class TaggedContents(StreamedContents):
    """The records of both streams, in state as plain pairs: (whether it is of the first stream, record)."""

    def add(self, value: TaggedUnion, timestamp: int) -> None:
        is_one = value.is_one()
        super().add((is_one, value.get_one() if is_one else value.get_two()), timestamp)

    def fire(self, window: Window, state_window: Window, emit: EmitElements) -> None:
        def emit_tagged(window: Window, pairs: Iterable[tuple[bool, Any]]) -> None:
            emit(window, [TaggedUnion(value, is_one) for is_one, value in pairs])

        super().fire(window, state_window, emit_tagged)


class TwoStreamWindowOperator(WindowingOperator, TwoInputOperator):
    """Base: windows that take the records of two inputs; `call` makes results of a window's two sides."""

    def __init__(
        self, spec: TwoStreamWindowSpec, call: Callable[[list[Any], list[Any]], Any]
    ) -> None:
        super().__init__(spec, None, lambda key, window, elements, context: call(*_sides(elements)))
        self._late_tag_ids = spec.late_tag_ids

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        one, two = self._late_tag_ids
        self._late_ones = LateRecords(context, self._collector, one)
        self._late_twos = LateRecords(context, self._collector, two)

    def _create_contents(self) -> WindowContents:
        if self._evictor is None:
            return TaggedContents(None, self._backend)
        return super()._create_contents()

    def process_batch1(self, batch: RecordBatch, output: Output) -> None:
        self._process_rows(batch, batch.keys(), map(TaggedUnion.one, batch.rows()), output)

    def process_batch2(self, batch: RecordBatch, output: Output) -> None:
        self._process_rows(batch, batch.keys(), map(TaggedUnion.two, batch.rows()), output)

    def _take_late(self, value: TaggedUnion, timestamp: int) -> None:
        if value.is_one():
            self._late_ones.take(value.get_one(), timestamp)
        else:
            self._late_twos.take(value.get_two(), timestamp)


class CoGroupOperator(TwoStreamWindowOperator):
    """CoGroupFunction: both sides of a window at once, each in order of arrival; one of them may be empty."""

    def __init__(self, spec: CoGroupSpec) -> None:
        super().__init__(spec, method_of(spec.function, "co_group"))


class WindowJoinOperator(TwoStreamWindowOperator):
    """JoinFunction or FlatJoinFunction: each pair of a window, in order of the first, then of the second stream."""

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
