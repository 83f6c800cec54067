"""BroadcastStream: a stream that every subtask gets whole, with the states it feeds; and what it is connected to."""

from collections.abc import Sequence
from typing import Any

from headrace.api.function_checks import check_co_function, resolve_type
from headrace.api.streams.data_stream import DataStream, TypeLike
from headrace.api.streams.keyed_stream import KeyedStream
from headrace.api.streams.united_streams import require_one_environment
from headrace.api.transformations import PartitionTransformation
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType
from headrace.functions.process import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from headrace.functions.specs.operator_specs import BroadcastProcessSpec, KeyedBroadcastProcessSpec
from headrace.functions.state import MapStateDescriptor
from headrace.graph.job_graph import PartitionerKind
from headrace.graph.stream_graph import Partitioning


class BroadcastStream:
    """Made by `stream.broadcast(descriptor, ...)`; its records reach every subtask of what it is connected to.

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
            raise ProgramError(f"two broadcast states are called '{twice[0]}': give each a name")
        self.input_stream = input_stream
        self.broadcast_state_descriptors = tuple(broadcast_state_descriptors)


class BroadcastConnectedStream:
    """Made by `stream.connect(broadcast_stream)`; a keyed stream stays keyed."""

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
