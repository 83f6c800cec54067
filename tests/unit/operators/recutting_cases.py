"""One operator of every kind, doing something that a wrong cut would show: state, timers, windows, prepared output."""

import pickle
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.operator_events import END, is_last_piece, marked_checkpoint, piece_of
from headrace.core.operator_spec import OperatorSpec
from headrace.core.record_batch import RecordBatch
from headrace.core.types.arrow_mapping import columns_to_rows
from headrace.core.types.arrow_types import data_schema, type_info_from_schema
from headrace.core.types.rows import Row
from headrace.core.types.time_values import Duration
from headrace.core.types.type_info import TimestampTypeInfo, TypeInformation, Types
from headrace.functions.async_io import AsyncOutputMode
from headrace.functions.specs import columnar_specs, operator_specs
from headrace.functions.specs.columnar_specs import LAST, ROWS, SLICE, START
from headrace.functions.specs.operator_specs import ColumnAggregate
from headrace.functions.watermarks import WatermarkStrategy
from headrace.functions.windowing.assigners import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from headrace.operators.runtime.operator import SourceOperator
from headrace.testing.operator_harness import PICKLED, OperatorHarness
from tests.unit.operators import recutting_functions as functions
from tests.unit.operators.record.async_harness import Twice, async_harness
from tests.unit.operators.recutting_functions import ROW

UTC: Final = TimestampTypeInfo("UTC")
SIZE: Final = 10
AGGREGATES: Final = (
    ColumnAggregate("count", None, "rows"),
    ColumnAggregate("sum", "n", "sum"),
    ColumnAggregate("max", "n", "most"),
)
AGGREGATED: Final = Types.ROW_NAMED(
    ["key", "window_start", "window_end", "rows", "sum", "most"],
    [Types.STRING(), UTC, UTC, *[Types.LONG()] * 3],
)
WINDOWS: Final = columnar_specs.EventTimeWindows(SIZE, SIZE, 0)
SLICED: Final = columnar_specs.SlicedAggregation(WINDOWS, ("key",), AGGREGATES)
PARTIAL: Final[Any] = type_info_from_schema(SLICED.partial_schema(data_schema(ROW)))
EXTREMES: Final = columnar_specs.ExtremeRows(WINDOWS, ("key",), "n", is_largest=True)
EXTREME_PARTS: Final = Types.ROW_NAMED(
    ["key", "n", SLICE, ROWS], [Types.STRING(), *[Types.LONG()] * 3]
)
RANKED: Final = columnar_specs.RankedRows(WINDOWS, ("key",), ("n",), is_largest=True, count=2)
DIFFERENT: Final = (*AGGREGATES, ColumnAggregate("count_distinct", "n", "different"))
WITH_DIFFERENT: Final = Types.ROW_NAMED(
    [*AGGREGATED.field_names, "different"], [*AGGREGATED.field_types, Types.LONG()]
)
SESSIONS: Final = columnar_specs.SessionAggregation(4, ("key",), DIFFERENT)
SESSION_PARTIAL: Final[Any] = type_info_from_schema(SESSIONS.partial_schema(data_schema(ROW)))
NO_TAGS: Final = (None, None)
LAST_CHECKPOINT: Final = 10**6

Elements = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """How one kind of operator is made, and what of it is compared beside its output.

    `record` makes a value of a key, a number, a time and the number of its input. `canonical` brings the output into
    the form that cuts do not change; `witness` returns what else the operator did. `is_shippable`: it can be put away
    and come back.
    """

    create: Callable[[], OperatorHarness]
    input_count: int = 1
    record: Callable[..., Any] = lambda key, n, time, side: Row(key=key, n=n)
    feed: Callable[[OperatorHarness, RecordBatch, int], None] = OperatorHarness.process
    canonical: Callable[[Elements], object] = lambda elements: elements
    witness: Callable[[OperatorHarness], object] = lambda harness: None
    is_shippable: bool = True


def _key_of(row: Any) -> Any:
    return row.key


def _case(
    make_spec: Callable[[], OperatorSpec],
    *,
    input_types: tuple[TypeInformation, ...] = (ROW,),
    is_keyed: bool = False,
    keyed_inputs: int | None = None,
    changes: dict[str, Any] | None = None,
    output_type: TypeInformation = PICKLED,
    **rest: Any,
) -> Case:
    """Return the case of a spec; each harness has one of its own, as `open` puts handles into functions."""
    keyed_count = keyed_inputs if keyed_inputs is not None else len(input_types) * is_keyed
    keys = [_key_of] * keyed_count + [None] * (len(input_types) - keyed_count)

    def create() -> OperatorHarness:
        return OperatorHarness(
            make_spec(),
            input_types=input_types,
            output_type=output_type,
            side_types={"side": ROW, "late": ROW},
            keys=keys if keyed_count else (),
            key_type=Types.STRING(),
            **(changes or {}),
        )

    return Case(create, len(input_types), **rest)


def _partial(key: str, n: int, time: int, side: int) -> Any:
    """A partial result that stands for one row."""
    return Row(**{"key": key, SLICE: time - time % SIZE, ROWS: 1, "$1": n, "$2": n})


def _partials_added(elements: Elements) -> list[Any]:
    """What partial results between two watermarks add up to: how many there are depends on cuts."""
    added: list[Any] = []
    sums: dict[Any, list[int]] = {}
    ends: Elements = [("end",)]
    for element in elements + ends:
        if element[0] != "row":
            added += [sorted(sums.items()), element]
            sums = {}
            continue
        row = element[1]
        so_far = sums.setdefault((row["key"], row[SLICE]), [0, 0, -(2**63)])
        so_far[0] += row[ROWS]
        so_far[1] += row["$1"]
        so_far[2] = max(so_far[2], row["$2"])
    return added


def _session_partial(key: str, n: int, time: int, side: int) -> Any:
    """A partial result that stands for one row, or a later piece of a list, which stands for none."""
    extent = {START: time, LAST: time}
    if n % 2:
        more = [n, n + 1]
        return Row(**{"key": key, SLICE: 0, ROWS: 0, "$1": None, "$2": n, "$3": more, **extent})
    return Row(**{"key": key, SLICE: 0, ROWS: 1, "$1": n, "$2": n, "$3": [n][: n % 3], **extent})


def _sessions_merged(elements: Elements) -> list[Any]:
    """What the partial results between two watermarks say of each key: how many there are depends on cuts."""
    merged: list[Any] = []
    sums: dict[str, list[Any]] = {}
    ends: Elements = [("end",)]
    for element in elements + ends:
        if element[0] != "row":
            merged += [sorted(sums.items()), element]
            sums = {}
            continue
        row = element[1]
        rows, total, times, values = sums.setdefault(row["key"], [0, 0, set(), set()])
        times |= {row[START], row[LAST]}
        values.update(row["$3"])
        sums[row["key"]] = [rows + row[ROWS], total + (row["$1"] or 0), times, values]
    for entry in merged:
        if isinstance(entry, list):
            for _, one in entry:
                one[2] = min(one[2]), max(one[2])
    return merged


def _largest(numbers: list[int]) -> list[int]:
    return [n for n in numbers if n == max(numbers)]


def _two_largest(numbers: list[int]) -> list[int]:
    return sorted(numbers)[-2:]


def _rows_left(elements: Elements, stay: Callable[[list[int]], list[int]]) -> list[Any]:
    """Which rows between two watermarks stay, and how many came in: how many more go out depends on cuts."""
    left: list[Any] = []
    numbers: dict[Any, list[int]] = defaultdict(list)
    counts: Counter[int] = Counter()
    ends: Elements = [("end",)]
    for element in elements + ends:
        if element[0] == "row":
            row = element[1]
            numbers[row["key"], row[SLICE]].append(row["n"])
            counts[row[SLICE]] += row[ROWS]
            continue
        kept = {group: stay(ns) for group, ns in numbers.items()}
        left += [sorted(kept.items()), dict(counts), element]
        numbers.clear()
        counts.clear()
    return left


def _collected(harness: OperatorHarness) -> list[object]:
    """The rows, and between them the marks of checkpoints and the end."""
    rows: list[object] = []
    content = b""
    for event in harness.events:
        checkpoint_id = marked_checkpoint(event)
        if event == END or checkpoint_id is not None:
            rows.append((event == END, checkpoint_id))
            continue
        content += piece_of(event)
        if is_last_piece(event):
            for columns in pa.ipc.open_stream(content):
                rows.extend(columns_to_rows(columns, ROW))
            content = b""
    return rows


def _prepared(harness: OperatorHarness) -> list[bytes]:
    """What the sink has prepared and nobody has decided about, in order."""
    return [one.content for one in harness.operator.snapshot_state(LAST_CHECKPOINT)]


def _hand_over(harness: OperatorHarness, batch: RecordBatch, input_number: int) -> None:
    assert batch.timestamps is not None and isinstance(harness.operator, SourceOperator)
    harness.operator.handle_event(pickle.dumps((batch.rows(), batch.timestamps)))
    harness.operator.poll(harness.output)


TWO: Final = (ROW, ROW)
TUMBLING: Final = TumblingEventTimeWindows(SIZE, 0)
BOUNDED: Final = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(3))
PUNCTUATED: Final = WatermarkStrategy.for_generator(functions.Punctuated)
JOINED: Final = Types.ROW_NAMED(["key", "n", "m"], [Types.STRING(), *[Types.LONG()] * 2])
RIGHT: Final = Types.ROW_NAMED(["key", "m"], [Types.STRING(), Types.LONG()])


def _async() -> OperatorHarness:
    return async_harness(
        Twice(), AsyncOutputMode.ORDERED, capacity=3, input_type=ROW, is_immediate=True
    )[0]


def _join(spec: OperatorSpec) -> Case:
    """Return the case of a join of whole rows, whose columns have names of their own but for the key."""

    def create() -> OperatorHarness:
        return OperatorHarness(
            spec,
            input_types=[ROW, RIGHT],
            output_type=JOINED,
            keys=[_key_of, _key_of],
            key_type=Types.STRING(),
        )

    def record(key: str, n: int, time: int, side: int) -> Row:
        return Row(key=key, **{"m" if side else "n": n})

    return Case(create, 2, record)


CASES: Final[dict[str, Case]] = {
    operator_specs.MapSpec.kind: _case(
        lambda: operator_specs.MapSpec(functions.Map()), is_keyed=True
    ),
    operator_specs.FlatMapSpec.kind: _case(
        lambda: operator_specs.FlatMapSpec(functions.FlatMap()), is_keyed=True
    ),
    operator_specs.FilterSpec.kind: _case(
        lambda: operator_specs.FilterSpec(functions.Filter()), is_keyed=True, output_type=ROW
    ),
    operator_specs.MapBatchesSpec.kind: _case(
        lambda: operator_specs.MapBatchesSpec(functions.doubled), output_type=ROW
    ),
    operator_specs.FilterExpressionSpec.kind: _case(
        lambda: operator_specs.FilterExpressionSpec(pc.field("n") > 1), output_type=ROW
    ),
    operator_specs.SelectExpressionsSpec.kind: _case(
        lambda: operator_specs.SelectExpressionsSpec((("n", pc.field("n") * 2),)),
        output_type=Types.ROW_NAMED(["n"], [Types.LONG()]),
    ),
    operator_specs.ProjectSpec.kind: _case(
        lambda: operator_specs.ProjectSpec((1, 0)),
        input_types=(Types.TUPLE([Types.STRING(), Types.LONG()]),),
        output_type=Types.TUPLE([Types.LONG(), Types.STRING()]),
        record=lambda key, n, time, _: (key, n),
    ),
    operator_specs.CacheSpec.kind: _case(operator_specs.CacheSpec, output_type=ROW),
    operator_specs.KeyBySpec.kind: _case(
        lambda: operator_specs.KeyBySpec(None, ("key",), Types.STRING()),
        output_type=ROW,
        changes={"output_key_type": Types.STRING()},
        witness=lambda harness: [key for one in harness.output.batches for key in one.keys()],
    ),
    operator_specs.KeyedValuesSpec.kind: _case(
        lambda: operator_specs.KeyedValuesSpec(with_keys=True),
        is_keyed=True,
        output_type=Types.TUPLE([Types.STRING(), ROW]),
    ),
    operator_specs.TimestampsAndWatermarksSpec.kind: _case(
        lambda: operator_specs.TimestampsAndWatermarksSpec(PUNCTUATED),
        output_type=ROW,
        is_shippable=False,  # its generators begin anew
    ),
    operator_specs.ProcessSpec.kind: _case(lambda: operator_specs.ProcessSpec(functions.Plain())),
    operator_specs.KeyedProcessSpec.kind: _case(
        lambda: operator_specs.KeyedProcessSpec(functions.Timed()), is_keyed=True
    ),
    operator_specs.CoMapSpec.kind: _case(
        lambda: operator_specs.CoMapSpec(functions.CoRecord()), input_types=TWO
    ),
    operator_specs.CoFlatMapSpec.kind: _case(
        lambda: operator_specs.CoFlatMapSpec(functions.CoRecord()), input_types=TWO
    ),
    operator_specs.CoProcessSpec.kind: _case(
        lambda: operator_specs.CoProcessSpec(functions.CoPlain()), input_types=TWO
    ),
    operator_specs.KeyedCoProcessSpec.kind: _case(
        lambda: operator_specs.KeyedCoProcessSpec(functions.CoTimed()),
        input_types=TWO,
        is_keyed=True,
    ),
    operator_specs.BroadcastProcessSpec.kind: _case(
        lambda: operator_specs.BroadcastProcessSpec(functions.Ruled(), (functions.RULES,)),
        input_types=TWO,
    ),
    operator_specs.KeyedBroadcastProcessSpec.kind: _case(
        lambda: operator_specs.KeyedBroadcastProcessSpec(
            functions.KeyedRuled(), (functions.RULES,)
        ),
        input_types=TWO,
        keyed_inputs=1,
    ),
    columnar_specs.MapPartitionSpec.kind: _case(
        lambda: columnar_specs.MapPartitionSpec(functions.numbered), is_keyed=True
    ),
    columnar_specs.SortPartitionSpec.kind: _case(
        lambda: columnar_specs.SortPartitionSpec("n", None, is_descending=False),
        is_keyed=True,
        output_type=ROW,
    ),
    columnar_specs.FoldPartitionSpec.kind: _case(
        lambda: columnar_specs.FoldPartitionSpec(functions.added, ROW), output_type=ROW
    ),
    operator_specs.AsyncWaitSpec.kind: Case(_async, is_shippable=False),
    operator_specs.ReduceSpec.kind: _case(
        lambda: operator_specs.ReduceSpec(functions.folded), is_keyed=True, output_type=ROW
    ),
    operator_specs.RollingAggregationSpec.kind: _case(
        lambda: operator_specs.RollingAggregationSpec("max_by", "n"), is_keyed=True, output_type=ROW
    ),
    operator_specs.SourceSpec.kind: _case(
        lambda: operator_specs.SourceSpec(functions.HandedOver(), BOUNDED),
        output_type=ROW,
        feed=_hand_over,
        is_shippable=False,  # its watermarks begin anew
    ),
    operator_specs.SinkSpec.kind: _case(
        lambda: operator_specs.SinkSpec(functions.StagingSink()), witness=_prepared
    ),
    operator_specs.PrintSinkSpec.kind: _case(lambda: operator_specs.PrintSinkSpec("id")),
    operator_specs.CollectSinkSpec.kind: _case(operator_specs.CollectSinkSpec, witness=_collected),
    operator_specs.WindowSpec.kind: _case(
        lambda: operator_specs.WindowSpec(
            EventTimeSessionWindows(4), None, 5, "late", functions.folded, None, is_keyed=True
        ),
        is_keyed=True,
        output_type=ROW,
    ),
    operator_specs.WindowAggregateSpec.kind: _case(
        lambda: operator_specs.WindowAggregateSpec(
            SlidingEventTimeWindows(SIZE, 4, 1), 6, "late", AGGREGATES, ("key",)
        ),
        is_keyed=True,
        output_type=AGGREGATED,
    ),
    operator_specs.CoGroupSpec.kind: _case(
        lambda: operator_specs.CoGroupSpec(TUMBLING, None, None, 5, NO_TAGS, functions.both),
        input_types=TWO,
        is_keyed=True,
    ),
    operator_specs.WindowJoinSpec.kind: _case(
        lambda: operator_specs.WindowJoinSpec(
            TUMBLING, None, None, 5, ("late", "side"), functions.folded
        ),
        input_types=TWO,
        is_keyed=True,
    ),
    operator_specs.IntervalJoinSpec.kind: _case(
        lambda: operator_specs.IntervalJoinSpec(functions.Pairs(), -4, 2, ("late", "side")),
        input_types=TWO,
        is_keyed=True,
    ),
    columnar_specs.ExtremeRowsSpec.kind: _case(
        lambda: columnar_specs.ExtremeRowsSpec(EXTREMES),
        input_types=(EXTREME_PARTS,),
        is_keyed=True,
        output_type=ROW,
        record=lambda key, n, time, _: Row(
            **{"key": key, "n": n, SLICE: time - time % SIZE, ROWS: 1 + n}
        ),
    ),
    columnar_specs.LocalExtremeRowsSpec.kind: _case(
        lambda: columnar_specs.LocalExtremeRowsSpec(EXTREMES),
        output_type=EXTREME_PARTS,
        canonical=lambda elements: _rows_left(elements, _largest),
    ),
    columnar_specs.RankedRowsSpec.kind: _case(
        lambda: columnar_specs.RankedRowsSpec(RANKED),
        input_types=(EXTREME_PARTS,),
        is_keyed=True,
        output_type=ROW,
        record=lambda key, n, time, _: Row(
            **{"key": key, "n": n, SLICE: time - time % SIZE, ROWS: 1 + n}
        ),
    ),
    columnar_specs.LocalRankedRowsSpec.kind: _case(
        lambda: columnar_specs.LocalRankedRowsSpec(RANKED),
        output_type=EXTREME_PARTS,
        canonical=lambda elements: _rows_left(elements, _two_largest),
    ),
    columnar_specs.RowJoinSpec.kind: _join(columnar_specs.RowJoinSpec(("key",), ("key",))),
    columnar_specs.WindowRowJoinSpec.kind: _join(
        columnar_specs.WindowRowJoinSpec(WINDOWS, ("key",), ("key",))
    ),
    columnar_specs.SessionAggregateSpec.kind: _case(
        lambda: columnar_specs.SessionAggregateSpec(SESSIONS),
        input_types=(SESSION_PARTIAL,),
        is_keyed=True,
        output_type=WITH_DIFFERENT,
        record=_session_partial,
    ),
    columnar_specs.LocalSessionAggregateSpec.kind: _case(
        lambda: columnar_specs.LocalSessionAggregateSpec(SESSIONS),
        output_type=SESSION_PARTIAL,
        canonical=_sessions_merged,
    ),
    columnar_specs.LocalAggregateSpec.kind: _case(
        lambda: columnar_specs.LocalAggregateSpec(SLICED),
        output_type=PARTIAL,
        canonical=_partials_added,
    ),
    columnar_specs.SlicedAggregateSpec.kind: _case(
        lambda: columnar_specs.SlicedAggregateSpec(SLICED),
        input_types=(PARTIAL,),
        is_keyed=True,
        output_type=AGGREGATED,
        record=_partial,
    ),
}
"""By the kind of their spec: one for each operator that there is."""
