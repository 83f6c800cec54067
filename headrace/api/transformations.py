"""Transformations: the program under construction, one object per call on a stream.

Operators can still be renamed, moved and given a uid after they were made; partitioning, union and side outputs only
define how the next operator reads. `stream_graph_generator` makes the frozen StreamGraph of them.
Source: Flink Transformation and its subclasses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headrace.core.errors import ProgramError
from headrace.core.ids import ClusterDataSetId
from headrace.core.operator_spec import OperatorSpec
from headrace.core.record_batch import BatchType
from headrace.core.resource_profile import ResourceProfile
from headrace.graph.stream_graph import ChainingStrategy, NodeRole, Partitioning


@dataclass(frozen=True)
class CachedResult:
    """A data set of the cluster that holds a whole stream, in as many partitions as its operator had subtasks."""

    data_set: ClusterDataSetId
    partition_count: int


@dataclass(eq=False)
class Cache:
    """State of a cached stream's data sets.

    `made_by_jobs`: data sets of jobs that have produced the stream or still do: first the one that jobs read, then the
    others, oldest first. `stored`: the data set that the next job reads; None if that job runs the producers.
    """

    made_by_jobs: list[ClusterDataSetId] = field(default_factory=list[ClusterDataSetId])
    stored: CachedResult | None = None


@dataclass(eq=False)
class OperatorTransformation:
    """One operator. `inputs` holds the transformations of each input, by input number.

    `parallelism` None takes that of `parallelism_like`, if set, and otherwise the executor's, when the graph is made.
    An operator that is not `is_parallel` has parallelism 1 for good.
    `slot_sharing_group` and `buffer_timeout_ms` None are inherited from the inputs and from the environment;
    `slot_resources`: the resources of the group's slots, if the program gave them here.
    `location` is the file and line of the user's call. `cache` is the state of the cached result, for the operator
    behind a cached stream.
    """

    transformation_id: int
    name: str
    spec: OperatorSpec
    inputs: "tuple[Transformation, ...]"
    output_type: BatchType
    parallelism: int | None = None
    parallelism_like: "OperatorTransformation | None" = None
    max_parallelism: int | None = None
    is_parallel: bool = True
    role: NodeRole = NodeRole.OPERATOR
    is_function: bool = False
    is_bounded: bool = True
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS
    slot_sharing_group: str | None = None
    slot_resources: ResourceProfile | None = None
    uid: str | None = None
    uid_hash: str | None = None
    description: str = ""
    buffer_timeout_ms: int | None = None
    location: str = ""
    side_outputs: dict[str, BatchType] = field(default_factory=dict[str, BatchType])
    cache: "Cache | None" = None

    @property
    def needed_inputs(self) -> "tuple[Transformation, ...]":
        """Return the transformations that must run before this one: none if an earlier job stored its result."""
        return () if self.cache is not None and self.cache.stored is not None else self.inputs

    def set_parallelism(self, parallelism: int) -> None:
        """Set the parallelism; ProgramError on an operator that cannot be parallel."""
        if parallelism < 1:
            raise ProgramError(
                f"operator '{self.name}' cannot have parallelism {parallelism}: it must be at least 1"
            )
        if not self.is_parallel and parallelism != 1:
            raise ProgramError(
                f"the parallelism of the non-parallel operator '{self.name}' must be 1"
            )
        self.parallelism = parallelism

    def declare_side_output(self, tag_id: str, side_type: BatchType) -> None:
        """Declare that a side output is read; ProgramError if it was read as another type before."""
        known = self.side_outputs.setdefault(tag_id, side_type)
        if known != side_type:
            raise ProgramError(
                f"side output '{tag_id}' of operator '{self.name}' is read as {known.value_type} and as "
                f"{side_type.value_type}: use one OutputTag for both"
            )


@dataclass(frozen=True, eq=False)
class PartitionTransformation:
    """Rows of `input`, to be distributed by `partitioning`."""

    input: "Transformation"
    partitioning: Partitioning


@dataclass(frozen=True, eq=False)
class UnionTransformation:
    """Rows of all `inputs`, which have one type."""

    inputs: "tuple[Transformation, ...]"


@dataclass(frozen=True, eq=False)
class SideOutputTransformation:
    """Rows that one operator sent to a tag."""

    input: OperatorTransformation
    tag_id: str
    side_type: BatchType


@dataclass(frozen=True, eq=False)
class ValuesTransformation:
    """Rows of the stream `keyed` without their keys; `origin` is the stream that was keyed.

    Each operator that reads them gets an operator in front of it, with the same parallelism, that removes the keys:
    rows reach the reader's subtasks by key and in order at any parallelism.
    """

    keyed: "Transformation"
    origin: "Transformation"


Transformation = (
    OperatorTransformation
    | PartitionTransformation
    | UnionTransformation
    | SideOutputTransformation
    | ValuesTransformation
)
ProducingTransformation = OperatorTransformation | SideOutputTransformation


@dataclass(frozen=True)
class Upstream:
    """Operator that produces a stream's rows, found by folding the virtual steps."""

    operator: OperatorTransformation
    partitioning: Partitioning | None
    side_output_tag: str | None


def upstreams_of(
    transformation: Transformation, partitioning: Partitioning | None = None
) -> Iterator[Upstream]:
    """Fold virtual steps: one Upstream per operator; the last of several partitionings counts."""
    match transformation:
        case OperatorTransformation():
            yield Upstream(transformation, partitioning, None)
        case SideOutputTransformation():
            yield Upstream(transformation.input, partitioning, transformation.tag_id)
        case PartitionTransformation():
            yield from upstreams_of(
                transformation.input, partitioning or transformation.partitioning
            )
        case UnionTransformation():
            for one in transformation.inputs:
                yield from upstreams_of(one, partitioning)
        case ValuesTransformation():
            yield from upstreams_of(transformation.origin, partitioning)


def producers_of(transformation: Transformation) -> tuple[ProducingTransformation, ...]:
    """Return the producers of the rows, before any exchange; for nested unions, the producers of each stream."""
    match transformation:
        case OperatorTransformation() | SideOutputTransformation():
            return (transformation,)
        case PartitionTransformation():
            return producers_of(transformation.input)
        case UnionTransformation():
            return tuple(made for one in transformation.inputs for made in producers_of(one))
        case ValuesTransformation():
            return producers_of(transformation.origin)


def united(streams: Sequence[Transformation]) -> Transformation:
    """Return the union of the streams."""
    return streams[0] if len(streams) == 1 else UnionTransformation(tuple(streams))


def batch_type_of(transformation: Transformation) -> BatchType:
    """Return the type of the rows, as batches carry them."""
    match transformation:
        case OperatorTransformation():
            return transformation.output_type
        case SideOutputTransformation():
            return transformation.side_type
        case PartitionTransformation():
            return batch_type_of(transformation.input)
        case UnionTransformation():
            return batch_type_of(transformation.inputs[0])
        case ValuesTransformation():
            return batch_type_of(transformation.origin)


def is_bounded(transformation: Transformation) -> bool:
    """Return whether every source of the stream has an end."""
    pending, seen = [transformation], set[int]()
    while pending:
        for upstream in upstreams_of(pending.pop()):
            operator = upstream.operator
            if not operator.is_bounded:
                return False
            if operator.transformation_id not in seen:
                seen.add(operator.transformation_id)
                pending += operator.inputs
    return True


def operator_behind(transformation: Transformation) -> OperatorTransformation | None:
    """Return the operator that made the stream, or None for a union, which has several."""
    match transformation:
        case OperatorTransformation():
            return transformation
        case PartitionTransformation():
            return operator_behind(transformation.input)
        case SideOutputTransformation():
            return transformation.input
        case ValuesTransformation():
            return operator_behind(transformation.origin)
        case UnionTransformation():
            return None
