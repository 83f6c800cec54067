"""IntervalJoin: two keyed streams whose records are paired where they are close in event time."""

from typing import Any

from headrace.api.function_checks import check_function, resolve_type
from headrace.api.streams.data_stream import DataStream, TypeLike
from headrace.api.streams.keyed_stream import KeyedStream, require_keys_of_one_type
from headrace.api.streams.united_streams import require_one_environment
from headrace.api.streams.window_settings import check_tag, declare_late_outputs, id_of
from headrace.core.record_batch import BatchType
from headrace.core.types.time_values import to_millis
from headrace.functions.joins import ProcessJoinFunction
from headrace.functions.process import OutputTag
from headrace.functions.specs.operator_specs import IntervalJoinSpec
from headrace.functions.windowing.assigners import Amount


class IntervalJoin:
    """Made by `keyed1.interval_join(keyed2)`."""

    def __init__(self, stream1: KeyedStream, stream2: KeyedStream) -> None:
        if not isinstance(stream2, KeyedStream):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"interval_join needs a KeyedStream, not {stream2!r}: call key_by on it"
            )
        require_one_environment("interval_join", stream1, stream2)
        require_keys_of_one_type(stream1, stream2)
        self._stream1 = stream1
        self._stream2 = stream2

    def between(self, lower_bound: Amount, upper_bound: Amount) -> "IntervalJoined":
        """Pair a left record at time t with the right ones from t + `lower_bound` to t + `upper_bound`, inclusive."""
        lower_ms, upper_ms = to_millis(lower_bound), to_millis(upper_bound)
        if lower_ms > upper_ms:
            raise ValueError(
                f"the lower bound of an interval join, {lower_ms} ms, must not exceed the upper, {upper_ms} ms"
            )
        return IntervalJoined(self._stream1, self._stream2, lower_ms, upper_ms)


class IntervalJoined:
    """An interval join with its bounds; each call returns the same object."""

    def __init__(
        self, stream1: KeyedStream, stream2: KeyedStream, lower_bound_ms: int, upper_bound_ms: int
    ) -> None:
        self._streams = stream1, stream2
        self._lower_bound_ms = lower_bound_ms
        self._upper_bound_ms = upper_bound_ms
        self._is_lower_exclusive = False
        self._is_upper_exclusive = False
        self._left_late_tag: OutputTag | None = None
        self._right_late_tag: OutputTag | None = None

    def lower_bound_exclusive(self) -> "IntervalJoined":
        """Leave out partners exactly at the lower bound."""
        self._is_lower_exclusive = True
        return self

    def upper_bound_exclusive(self) -> "IntervalJoined":
        """Leave out partners exactly at the upper bound."""
        self._is_upper_exclusive = True
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> "IntervalJoined":
        """Send late records of the left stream to a side output, instead of dropping and counting them."""
        self._left_late_tag = check_tag(output_tag)
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> "IntervalJoined":
        """Send late records of the right stream to a side output, instead of dropping and counting them."""
        self._right_late_tag = check_tag(output_tag)
        return self

    def process(
        self,
        process_join_function: ProcessJoinFunction[Any, Any, Any],
        output_type: TypeLike = None,
    ) -> DataStream:
        """Call a ProcessJoinFunction with each pair; ValueError where exclusive bounds leave no time between them."""
        check_function(process_join_function, ProcessJoinFunction, allow_callable=False)
        lower_ms = self._lower_bound_ms + self._is_lower_exclusive
        upper_ms = self._upper_bound_ms - self._is_upper_exclusive
        if lower_ms > upper_ms:
            raise ValueError(
                f"no millisecond lies between the exclusive bounds {self._lower_bound_ms} ms and "
                f"{self._upper_bound_ms} ms of the interval join"
            )
        late_ids = id_of(self._left_late_tag), id_of(self._right_late_tag)
        environment = self._streams[0].get_execution_environment()
        operator = environment.add_operator(
            IntervalJoinSpec(process_join_function, lower_ms, upper_ms, late_ids),
            tuple(one.transformation for one in self._streams),
            BatchType(resolve_type(output_type)),
            is_function=True,
        )
        declare_late_outputs(operator, self._left_late_tag, self._right_late_tag)
        return DataStream(environment, operator)
