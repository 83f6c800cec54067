"""Windows over two streams: co-group, and the join that is its cross product.

Records of both streams go through one window, tagged with where they came from, and are kept apart in it.
Source: Flink CoGroupedStreams, JoinedStreams.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headrace.core.record_batch import RecordBatch
from headrace.functions.joins import FlatJoinFunction, TaggedUnion
from headrace.functions.record import AggregateFunction
from headrace.functions.window_specs import CoGroupSpec, TwoStreamWindowSpec, WindowJoinSpec
from headrace.operators.late_records import LateRecords
from headrace.operators.operator import OperatorContext, Output, TwoInputOperator
from headrace.operators.user_code import method_of, not_iterable
from headrace.operators.windowing.window_operator import WindowingOperator

Sides = tuple[list[Any], list[Any]]
"""The records of the first and of the second stream in a window, each in order of arrival."""


class BothSides(AggregateFunction):
    """Folds tagged records into the two sides of a window."""

    def create_accumulator(self) -> Sides:
        return [], []

    def add(self, value: TaggedUnion, accumulator: Sides) -> Sides:
        if value.is_one():
            accumulator[0].append(value.get_one())
        else:
            accumulator[1].append(value.get_two())
        return accumulator

    def get_result(self, accumulator: Sides) -> Sides:
        return list(accumulator[0]), list(accumulator[1])

    def merge(self, acc_a: Sides, acc_b: Sides) -> Sides:
        for side, more in zip(acc_a, acc_b, strict=True):
            side.extend(more)
        return acc_a


class TwoStreamWindowOperator(WindowingOperator, TwoInputOperator):
    """Base: windows that take the records of two inputs; `call` makes results of a window's two sides."""

    def __init__(
        self, spec: TwoStreamWindowSpec, call: Callable[[list[Any], list[Any]], Any]
    ) -> None:
        super().__init__(
            spec, BothSides(), lambda key, window, elements, context: call(*elements[0])
        )
        self._late_tag_ids = spec.late_tag_ids

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        one, two = self._late_tag_ids
        self._late_ones = LateRecords(context, self._collector, one)
        self._late_twos = LateRecords(context, self._collector, two)

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


def _flattened(results: Iterable[Any]) -> Iterator[Any]:
    for several in results:
        if several is None:
            continue
        if not isinstance(several, Iterable):
            raise not_iterable(several, "join")
        yield from several
