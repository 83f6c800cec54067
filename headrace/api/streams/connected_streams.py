"""ConnectedStreams: two streams of different types that share one operator and its state.

A BroadcastStream is a stream whose records reach every subtask, with descriptors of the states that it feeds;
BroadcastConnectedStream connects it with another stream.
"""

from collections.abc import Sequence
from typing import Any

from headrace.api.function_checks import check_co_function, resolve_type
from headrace.api.streams.data_stream import DataStream, TypeLike, require_one_environment
from headrace.api.streams.keyed_stream import KeyedStream, require_keys_of_one_type
from headrace.api.transformations import PartitionTransformation
from headrace.core.errors import ProgramError
from headrace.core.operator_spec import OperatorSpec
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import TypeInformation
from headrace.functions.process import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from headrace.functions.record import CoFlatMapFunction, CoMapFunction
from headrace.functions.specs.operator_specs import (
    BroadcastProcessSpec,
    CoFlatMapSpec,
    CoMapSpec,
    CoProcessSpec,
    KeyedBroadcastProcessSpec,
    KeyedCoProcessSpec,
)
from headrace.functions.state import MapStateDescriptor
from headrace.graph.job_graph import PartitionerKind
from headrace.graph.stream_graph import Partitioning


class ConnectedStreams:
    """Two connected streams; made by `stream1.connect(stream2)`."""

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        if not isinstance(stream2, DataStream):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"connect needs a DataStream or a BroadcastStream, not {stream2!r}")
        require_one_environment("connect", stream1, stream2)
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self, key_selector1: Any, key_selector2: Any, key_type: TypeInformation | None = None
    ) -> "ConnectedStreams":
        """Key both streams in the same way: by selectors, or by the names of one column each."""
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
        """Call a CoProcessFunction, or a KeyedCoProcessFunction if both streams are keyed."""
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


class BroadcastStream:
    """Stream whose records reach every subtask of the operator it is connected to.

    Made by `stream.broadcast(descriptor, ...)`.

    Example:
        >>> from headrace import StreamExecutionEnvironment, Types
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> limits = MapStateDescriptor("limits", Types.STRING(), Types.INT())
        >>> rules = env.from_collection([("EWR", 15)]).broadcast(limits)
        >>> departures = env.from_collection([("EWR", 41)])
        >>> type(departures.connect(rules)).__name__
        'BroadcastConnectedStream'
    """

    def __init__(
        self,
        input_stream: DataStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        names = [_name_of(descriptor) for descriptor in broadcast_state_descriptors]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ProgramError(
                f"two broadcast states are called '{twice[0]}': give each its own name"
            )
        self.input_stream = input_stream
        self.broadcast_state_descriptors = tuple(broadcast_state_descriptors)


class BroadcastConnectedStream:
    """A stream connected with a broadcast stream; made by `stream.connect(broadcast_stream)`.

    A keyed stream stays keyed.
    """

    def __init__(
        self,
        non_broadcast_stream: DataStream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        require_one_environment("connect", non_broadcast_stream, broadcast_stream.input_stream)
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = tuple(broadcast_state_descriptors)

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, Any]
        | KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        output_type: TypeLike = None,
    ) -> DataStream:
        """Call a BroadcastProcessFunction or, on a keyed stream, a KeyedBroadcastProcessFunction."""
        check_co_function(func, BroadcastProcessFunction, KeyedBroadcastProcessFunction)
        stream = self.non_broadcast_stream
        is_keyed = isinstance(stream, KeyedStream)
        descriptors = self.broadcast_state_descriptors
        spec: BroadcastProcessSpec | KeyedBroadcastProcessSpec
        if isinstance(func, KeyedBroadcastProcessFunction):
            if not is_keyed:
                raise TypeError(
                    "a KeyedBroadcastProcessFunction needs a keyed stream: call key_by on it first"
                )
            spec = KeyedBroadcastProcessSpec(func, descriptors)
        else:
            if is_keyed:
                raise TypeError(
                    "a BroadcastProcessFunction needs a stream without keys: derive the function from "
                    "KeyedBroadcastProcessFunction"
                )
            spec = BroadcastProcessSpec(func, descriptors)
        to_everybody = PartitionTransformation(
            self.broadcast_stream.input_stream.transformation,
            Partitioning(PartitionerKind.BROADCAST),
        )
        environment = stream.get_execution_environment()
        operator = environment.add_operator(
            spec,
            (stream.transformation, to_everybody),
            BatchType(resolve_type(output_type)),
            is_function=True,
        )
        return DataStream(environment, operator)


def _name_of(descriptor: object) -> str:
    if not isinstance(descriptor, MapStateDescriptor):
        raise TypeError(f"broadcast takes MapStateDescriptors, not {descriptor!r}")
    return descriptor.get_name()
