"""ConnectedStreams: two streams, of types of their own, that share one operator and its state."""

from typing import Any

from headrace.api.function_checks import check_co_function, resolve_type
from headrace.api.streams.data_stream import DataStream, TypeLike
from headrace.api.streams.keyed_stream import KeyedStream, require_keys_of_one_type
from headrace.api.streams.united_streams import require_one_environment
from headrace.core.operator_spec import OperatorSpec
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import TypeInformation
from headrace.functions.process import CoProcessFunction, KeyedCoProcessFunction
from headrace.functions.record import CoFlatMapFunction, CoMapFunction
from headrace.functions.specs.operator_specs import (
    CoFlatMapSpec,
    CoMapSpec,
    CoProcessSpec,
    KeyedCoProcessSpec,
)


class ConnectedStreams:
    """Made by `stream1.connect(stream2)`."""

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        if not isinstance(stream2, DataStream):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"connect needs a DataStream or a BroadcastStream, not {stream2!r}")
        require_one_environment("connect", stream1, stream2)
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self, key_selector1: Any, key_selector2: Any, key_type: TypeInformation | None = None
    ) -> "ConnectedStreams":
        """Key both streams alike: by selectors, or by the names of one column each."""
        options = {} if key_type is None else {"key_type": key_type}
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, **options),
            self.stream2.key_by(key_selector2, **options),
        )

    def map(self, func: CoMapFunction, output_type: TypeLike = None) -> DataStream:
        """Turn every record of either stream into one result."""
        check_co_function(func, CoMapFunction)
        return self._then(CoMapSpec(func), output_type)

    def flat_map(self, func: CoFlatMapFunction, output_type: TypeLike = None) -> DataStream:
        """Turn every record of either stream into any number of results; keyed state is allowed after key_by."""
        check_co_function(func, CoFlatMapFunction)
        return self._then(CoFlatMapSpec(func), output_type)

    def process(
        self, func: CoProcessFunction | KeyedCoProcessFunction, output_type: TypeLike = None
    ) -> DataStream:
        """Call a CoProcessFunction, or a KeyedCoProcessFunction where both streams are keyed."""
        check_co_function(func, CoProcessFunction, KeyedCoProcessFunction)
        if not isinstance(func, KeyedCoProcessFunction):
            return self._then(CoProcessSpec(func), output_type)
        if not self._is_keyed():
            raise TypeError(
                "a KeyedCoProcessFunction needs keyed streams: call key_by on both of them"
            )
        return self._then(KeyedCoProcessSpec(func), output_type)

    def _is_keyed(self) -> bool:
        return isinstance(self.stream1, KeyedStream) and isinstance(self.stream2, KeyedStream)

    def _then(self, spec: OperatorSpec, output_type: TypeLike) -> DataStream:
        environment = self.stream1.get_execution_environment()
        inputs = (self.stream1, self.stream2)
        if isinstance(self.stream1, KeyedStream) and isinstance(self.stream2, KeyedStream):
            require_keys_of_one_type(self.stream1, self.stream2)
        else:
            # Keys of one side alone cannot be used, so that side is an ordinary stream again.
            inputs = (self.stream1.without_keys(), self.stream2.without_keys())
        operator = environment.add_operator(
            spec,
            tuple(one.transformation for one in inputs),
            BatchType(resolve_type(output_type)),
            is_function=True,
        )
        return DataStream(environment, operator)
