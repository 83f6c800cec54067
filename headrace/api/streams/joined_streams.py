"""Joins of two streams: JoinedStreams and CoGroupedStreams in windows of equal keys, IntervalJoin by time.

Window joins read as a sentence: `a.join(b).where(key).equal_to(key).window(assigner).apply(function)`. An interval join
pairs records of two keyed streams that are close in event time.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, Self, TypeVar

from headrace.api.function_checks import check_function, class_name_of, resolve_type
from headrace.api.streams.data_stream import DataStream, TypeLike, require_one_environment
from headrace.api.streams.keyed_stream import KeyedStream, require_keys_of_one_type
from headrace.api.streams.window_settings import (
    WindowSettings,
    check_tag,
    declare_late_outputs,
    id_of,
)
from headrace.core.record_batch import BatchType
from headrace.core.types.time_values import to_millis
from headrace.functions.joins import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    ProcessJoinFunction,
)
from headrace.functions.process import OutputTag
from headrace.functions.specs.operator_specs import (
    CoGroupSpec,
    IntervalJoinSpec,
    TwoStreamWindowSpec,
    WindowJoinSpec,
)
from headrace.functions.windowing.assigners import Amount

AnyJoinFunction = (
    JoinFunction[Any, Any, Any] | FlatJoinFunction[Any, Any, Any] | Callable[[Any, Any], Any]
)
AnyCoGroupFunction = (
    CoGroupFunction[Any, Any, Any] | Callable[[Iterable[Any], Iterable[Any]], Iterable[Any] | None]
)


class TwoStreamWindows(WindowSettings):
    """Windows over two keyed streams. Triggers and evictors receive the records as TaggedUnions."""

    def __init__(self, stream1: KeyedStream, stream2: KeyedStream, window_assigner: Any) -> None:
        super().__init__(stream1.get_execution_environment(), window_assigner)
        self._streams = stream1, stream2
        self._late_tag1: OutputTag | None = None
        self._late_tag2: OutputTag | None = None

    def side_output_left_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records of the first stream to a side output, instead of dropping and counting them."""
        self._late_tag1 = check_tag(output_tag)
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records of the second stream to a side output, instead of dropping and counting them."""
        self._late_tag2 = check_tag(output_tag)
        return self

    def _windowed(
        self, spec_class: type[TwoStreamWindowSpec], function: Any, output_type: TypeLike
    ) -> DataStream:
        spec = spec_class(
            assigner=self._assigner,
            trigger=self._trigger,
            evictor=self._evictor,
            allowed_lateness_ms=self._allowed_lateness_ms,
            late_tag_ids=(id_of(self._late_tag1), id_of(self._late_tag2)),
            function=function,
        )
        environment = self.get_execution_environment()
        operator = environment.add_operator(
            spec,
            tuple(one.transformation for one in self._streams),
            BatchType(resolve_type(output_type)),
            description=f"{spec.default_name}({self._described(class_name_of(function))})",
            is_function=True,
        )
        declare_late_outputs(operator, self._late_tag1, self._late_tag2)
        return DataStream(environment, operator)


class JoinWindows(TwoStreamWindows):
    """Windows of a join."""

    def apply(self, function: AnyJoinFunction, output_type: TypeLike = None) -> DataStream:
        """Call a JoinFunction (or a callable, for one result) or a FlatJoinFunction with each pair of a window.

        A record without a partner gives no result; use `co_group` for outer joins.
        """
        if not isinstance(function, FlatJoinFunction):
            check_function(function, JoinFunction)
        return self._windowed(WindowJoinSpec, function, output_type)


class CoGroupWindows(TwoStreamWindows):
    """Windows of a co-group."""

    def apply(self, function: AnyCoGroupFunction, output_type: TypeLike = None) -> DataStream:
        """Call a CoGroupFunction, or a callable, with the records of both streams in a window."""
        check_function(function, CoGroupFunction)
        return self._windowed(CoGroupSpec, function, output_type)


W = TypeVar("W", bound=TwoStreamWindows)


class EqualTo(Generic[W]):
    """Two streams with keys."""

    def __init__(self, stream1: KeyedStream, stream2: KeyedStream, windows: type[W]) -> None:
        self._stream1 = stream1
        self._stream2 = stream2
        self._windows = windows

    def window(self, window_assigner: Any) -> W:
        """Cut the records of each key into windows, which are the same for both streams."""
        return self._windows(self._stream1, self._stream2, window_assigner)


class Where(Generic[W]):
    """Two streams with a key for the first one."""

    def __init__(self, stream1: KeyedStream, stream2: DataStream, windows: type[W]) -> None:
        self._stream1 = stream1
        self._stream2 = stream2
        self._windows = windows

    def equal_to(self, key_selector: Any, *columns: Any, **options: Any) -> EqualTo[W]:
        """Set the key of the second stream, as in `key_by`.

        ProgramError unless it has the type of the first one's key.
        """
        stream2 = self._stream2.key_by(key_selector, *columns, **options)
        require_keys_of_one_type(self._stream1, stream2)
        return EqualTo(self._stream1, stream2, self._windows)


class TwoStreams(Generic[W]):
    """Two streams that are joined in windows of the class `_windows`."""

    _method: ClassVar[str]
    _windows: type[W]

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        if not isinstance(stream2, DataStream):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a DataStream is needed to join with, not {stream2!r}")
        require_one_environment(self._method, stream1, stream2)
        self._stream1 = stream1
        self._stream2 = stream2

    def where(self, key_selector: Any, *columns: Any, **options: Any) -> Where[W]:
        """Set the key of the first stream: a selector, or the names of columns, as in `key_by`."""
        stream1 = self._stream1.key_by(key_selector, *columns, **options)
        return Where(stream1, self._stream2, self._windows)


class JoinedStreams(TwoStreams[JoinWindows]):
    """Two streams to be joined in windows; made by `stream1.join(stream2)`."""

    _method = "join"
    _windows = JoinWindows


class CoGroupedStreams(TwoStreams[CoGroupWindows]):
    """Two streams to be grouped in windows; made by `stream1.co_group(stream2)`."""

    _method = "co_group"
    _windows = CoGroupWindows


class IntervalJoin:
    """Two keyed streams to be joined by event time; made by `keyed1.interval_join(keyed2)`."""

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
        """Call a ProcessJoinFunction with each pair; ValueError if exclusive bounds leave no time between them."""
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
