"""IntervalJoinOperator: pairs of records of one key that are close in event time.

Each side stores its records by timestamp until the watermark shows that no partner can come any more. The later record
of a pair creates it, so that each pair is created once. Source: Flink IntervalJoinOperator.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.errors import USER_EXCEPTIONS
from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.joins import JoinContext
from headrace.functions.process import TimeDomain
from headrace.functions.specs.operator_specs import IntervalJoinSpec
from headrace.functions.state import MapStateDescriptor
from headrace.operators.runtime.emission import timestamps_of
from headrace.operators.runtime.operator import OperatorContext, Output, TwoInputOperator
from headrace.operators.runtime.record_state import RecordsDescriptor, own_state
from headrace.operators.runtime.timed_operator import LateRecords, TimedOperator
from headrace.operators.runtime.user_code import FunctionOperator, user_error
from headrace.state.backend import KeyedStateBackend

_LEFT: Final = "left"
_RIGHT: Final = "right"


class _PairContext(JoinContext):
    """Context of the pair that is being joined."""

    left_timestamp = MIN_TIMESTAMP
    right_timestamp = MIN_TIMESTAMP

    def get_left_timestamp(self) -> int:
        return self.left_timestamp

    def get_right_timestamp(self) -> int:
        return self.right_timestamp

    def get_timestamp(self) -> int:
        return max(self.left_timestamp, self.right_timestamp)


@dataclass(frozen=True)
class _Side:
    """One side of the join: a partner's timestamp minus that of a record of this side is in [lower_ms, upper_ms].

    `buffer` is the list of records, in order of arrival, by key and timestamp as namespace; `times` is a map per key
    whose keys are the timestamps with records. `name` is the namespace of the timers that clean up both.
    """

    name: str
    lower_ms: int
    upper_ms: int
    backend: KeyedStateBackend
    buffer: Any
    times: Any
    late_records: LateRecords

    def add(self, timestamp: int, value: Any) -> None:
        """Add a record of the current key."""
        self.backend.set_current_namespace(timestamp)
        self.buffer.add(value)
        self.times.put(timestamp, True)

    def records_of(self, timestamp: int) -> Sequence[Any]:
        """Return the records of the current key with that timestamp, in order of arrival."""
        self.backend.set_current_namespace(timestamp)
        return self.buffer.get()

    def cleanup_time_ms(self, timestamp: int) -> int:
        """Return the watermark at which records of `timestamp` can have no more partners."""
        return min(timestamp + max(self.upper_ms, 0), MAX_WATERMARK)

    def clean_up(self, time_ms: int) -> None:
        """Delete the records of the current key whose cleanup time is `time_ms`."""
        if time_ms == MAX_WATERMARK:  # several timestamps may have no later cleanup time
            over = self.times.keys()
        else:
            over = (time_ms - max(self.upper_ms, 0),)
        for timestamp in over:
            self.backend.set_current_namespace(timestamp)
            self.buffer.clear()
            self.times.remove(timestamp)


class IntervalJoinOperator(FunctionOperator, TimedOperator, TwoInputOperator):
    """Calls a ProcessJoinFunction for every pair whose timestamps differ by a bounded amount.

    A record that is older than the watermark is late. The pairs of one record are ordered by the partner's timestamp,
    then by the partners' arrival.
    """

    minds_order_of_inputs = False

    def __init__(self, spec: IntervalJoinSpec) -> None:
        super().__init__(spec)
        self._spec = spec

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        lower_ms, upper_ms = self._spec.lower_bound_ms, self._spec.upper_bound_ms
        late_left, late_right = self._spec.late_tag_ids
        left, right = (one.value_type for one in context.types.inputs)
        self._left = self._side(_LEFT, left, lower_ms, upper_ms, late_left)
        self._right = self._side(_RIGHT, right, -upper_ms, -lower_ms, late_right)
        self._pair = _PairContext()
        self._open_function(self._backend)

    def _side(
        self,
        name: str,
        record_type: TypeInformation,
        lower_ms: int,
        upper_ms: int,
        late_tag_id: str | None,
    ) -> _Side:
        backend, operator_name = self._backend, self.context.operator_name
        records = RecordsDescriptor(f"{name}-buffer", record_type)
        buffer = own_state(backend, records, backend.window_scope, operator_name)
        descriptor = MapStateDescriptor(f"{name}-times", Types.LONG(), Types.BOOLEAN())
        times = own_state(backend, descriptor, backend.key_scope, operator_name)
        late_records = LateRecords(self.context, self._collector, late_tag_id)
        return _Side(name, lower_ms, upper_ms, backend, buffer, times, late_records)

    def process_batch1(self, batch: RecordBatch, output: Output) -> None:
        self._process_rows(batch, self._left, self._right, output)

    def process_batch2(self, batch: RecordBatch, output: Output) -> None:
        self._process_rows(batch, self._right, self._left, output)

    def _process_rows(self, batch: RecordBatch, own: _Side, other: _Side, output: Output) -> None:
        watermark_ms = self._timers.current_watermark_ms
        scope = self._scope
        # A batch comes from one side: the other side's records do not change, and are sorted once per key.
        partner_times: dict[Any, Sequence[int]] = {}
        self._backend.begin_batch(batch.num_rows)
        keys = self._backend.event_clock.along(batch.keys(), batch.timestamps)
        try:
            for key, value, timestamp in zip(keys, batch.rows(), timestamps_of(batch), strict=True):
                scope.entry = key
                _require_timestamp(timestamp)
                if timestamp < watermark_ms:
                    own.late_records.take(value, timestamp)
                    continue
                own.add(timestamp, value)
                times = partner_times.get(key)
                if times is None:
                    times = partner_times[key] = sorted(other.times.keys())
                first = bisect_left(times, timestamp + own.lower_ms)
                last = bisect_right(times, timestamp + own.upper_ms)
                for time in times[first:last]:
                    for partner in other.records_of(time):
                        self._join(own, value, timestamp, partner, time)
                cleanup_ms = own.cleanup_time_ms(timestamp)
                self._timers.register(TimeDomain.EVENT_TIME, cleanup_ms, own.name)
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        self._backend.end_batch()
        self._collector.flush(output)

    def _join(
        self, own: _Side, value: Any, timestamp: int, partner: Any, partner_timestamp: int
    ) -> None:
        pair = self._pair
        if own is self._left:
            left, right = value, partner
            pair.left_timestamp, pair.right_timestamp = timestamp, partner_timestamp
        else:
            left, right = partner, value
            pair.left_timestamp, pair.right_timestamp = partner_timestamp, timestamp
        results = self._function.process_element(left, right, pair)
        self._collector.add(
            results, max(timestamp, partner_timestamp), self.context.output, "process_element"
        )

    def _on_event_time(self, time_ms: int, key: Any, namespace: Any) -> None:
        (self._left if namespace == _LEFT else self._right).clean_up(time_ms)

    def _on_processing_time(self, time_ms: int, key: Any, namespace: Any) -> None:
        raise AssertionError("an interval join sets no processing-time timers")


def _require_timestamp(timestamp: int) -> None:
    if timestamp == MIN_TIMESTAMP:
        raise ValueError(
            "a record without a timestamp cannot be joined by interval: "
            "call assign_timestamps_and_watermarks before"
        )
