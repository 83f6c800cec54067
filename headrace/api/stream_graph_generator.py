"""Makes the StreamGraph of a program's transformations.

Virtual steps become edges, unset settings get their defaults, and filters are pushed into their sources.
Source: Flink StreamGraphGenerator.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.api.transformations import (
    OperatorTransformation,
    Upstream,
    batch_type_of,
    upstreams_of,
)
from headrace.core.errors import ProgramError
from headrace.core.operator_spec import OperatorSpec, OperatorTypes
from headrace.core.resource_profile import ResourceProfile
from headrace.functions.column_conditions import ColumnCondition, Or
from headrace.functions.specs.operator_specs import FilterExpressionSpec, SourceSpec
from headrace.graph.job_graph import PartitionerKind
from headrace.graph.stream_graph import (
    DEFAULT_SLOT_SHARING_GROUP,
    NodeRole,
    Partitioning,
    StreamEdge,
    StreamGraph,
    StreamNode,
)


@dataclass(frozen=True)
class GraphDefaults:
    """Default settings of operators that do not set their own.

    `is_assumed`: the parallelism is a placeholder for the executor's, which is not known yet. `slot_resources`:
    resources of the slot sharing groups that the program declared, by name.
    """

    job_name: str
    parallelism: int
    max_parallelism: int | None
    buffer_timeout_ms: int
    settings: Mapping[str, str]
    is_assumed: bool = False
    slot_resources: Mapping[str, ResourceProfile | None] = field(
        default_factory=dict[str, ResourceProfile | None]
    )


def generate_stream_graph(
    leaves: Iterable[OperatorTransformation], defaults: GraphDefaults
) -> StreamGraph:
    """Make the graph of `leaves` and of all their inputs, each operator once."""
    operators = _reachable(leaves)
    parallelisms = {one.transformation_id: _parallelism(one, defaults) for one in operators}
    specs = _sources_with_filters(operators)
    groups: dict[int, str] = {}
    nodes: list[StreamNode] = []
    edges: list[StreamEdge] = []
    for operator in operators:
        number = operator.transformation_id
        inputs = [list(upstreams_of(one)) for one in operator.needed_inputs]
        groups[number] = operator.slot_sharing_group or _inherited_group(inputs, groups)
        node = _node(operator, parallelisms[number], groups[number], defaults)
        nodes.append(replace(node, spec=specs[number]) if number in specs else node)
        edges += [
            _edge(upstream, operator, input_number, parallelisms, defaults)
            for input_number, upstreams in enumerate(inputs)
            for upstream in upstreams
        ]
    assumes = defaults.is_assumed and any(_deciding(one).parallelism is None for one in operators)
    return StreamGraph(
        defaults.job_name,
        tuple(nodes),
        tuple(edges),
        dict(defaults.settings),
        defaults.parallelism if assumes else None,
        _slot_resources(operators, set(groups.values()), defaults),
    )


def _slot_resources(
    operators: Iterable[OperatorTransformation], used: set[str], defaults: GraphDefaults
) -> dict[str, ResourceProfile]:
    """Return the resources of the used groups' slots; ProgramError if a group was given two sizes."""
    found = {
        name: profile
        for name, profile in defaults.slot_resources.items()
        if profile is not None and name in used
    }
    for operator in operators:
        name, profile = operator.slot_sharing_group, operator.slot_resources
        if name is None or profile is None:
            continue
        if found.setdefault(name, profile) != profile:
            raise ProgramError(
                f"the slot sharing group '{name}' has two sizes: {found[name]}, and, for operator "
                f"'{operator.name}', {profile}; give it one"
            )
    return found


def _reachable(leaves: Iterable[OperatorTransformation]) -> list[OperatorTransformation]:
    """Return all operators that the leaves need, by ascending id; without recursion, for long programs."""
    found: dict[int, OperatorTransformation] = {}
    pending = list(leaves)
    while pending:
        operator = pending.pop()
        if operator.transformation_id in found:
            continue
        found[operator.transformation_id] = operator
        pending += [up.operator for one in operator.needed_inputs for up in upstreams_of(one)]
    return [found[number] for number in sorted(found)]


def _parallelism(operator: OperatorTransformation, defaults: GraphDefaults) -> int:
    decides = _deciding(operator)
    if decides.cache is not None and decides.cache.stored is not None:
        return decides.cache.stored.partition_count
    return defaults.parallelism if decides.parallelism is None else decides.parallelism


def _deciding(operator: OperatorTransformation) -> OperatorTransformation:
    """Return the operator whose parallelism `operator` takes: itself, unless it follows another one."""
    while operator.parallelism is None and operator.parallelism_like is not None:
        if operator.cache is not None and operator.cache.stored is not None:
            return operator
        operator = operator.parallelism_like
    return operator


def _inherited_group(inputs: list[list[Upstream]], groups: dict[int, str]) -> str:
    names = {groups[up.operator.transformation_id] for ups in inputs for up in ups}
    return names.pop() if len(names) == 1 else DEFAULT_SLOT_SHARING_GROUP


def _node(
    operator: OperatorTransformation, parallelism: int, group: str, defaults: GraphDefaults
) -> StreamNode:
    stored = None if operator.cache is None else operator.cache.stored
    return StreamNode(
        node_id=operator.transformation_id,
        name=operator.name,
        spec=operator.spec,
        types=OperatorTypes(
            inputs=tuple(batch_type_of(one) for one in operator.inputs),
            output=operator.output_type,
            side_outputs=dict(operator.side_outputs),
        ),
        parallelism=parallelism,
        max_parallelism=operator.max_parallelism or defaults.max_parallelism,
        role=operator.role if stored is None else NodeRole.SOURCE,
        chaining=operator.chaining,
        slot_sharing_group=group,
        uid=operator.uid,
        uid_hash=operator.uid_hash,
        description=operator.description,
        is_function=operator.is_function,
        is_bounded=operator.is_bounded,
        location=operator.location,
        cached_input=None if stored is None else stored.data_set,
    )


def _edge(
    upstream: Upstream,
    target: OperatorTransformation,
    input_number: int,
    parallelisms: dict[int, int],
    defaults: GraphDefaults,
) -> StreamEdge:
    source_id, target_id = upstream.operator.transformation_id, target.transformation_id
    partitioning = upstream.partitioning
    if partitioning is None:
        same = parallelisms[source_id] == parallelisms[target_id]
        partitioning = Partitioning(PartitionerKind.FORWARD if same else PartitionerKind.REBALANCE)
    timeout_ms = upstream.operator.buffer_timeout_ms
    return StreamEdge(
        source_id=source_id,
        target_id=target_id,
        input_number=input_number,
        partitioning=partitioning,
        buffer_timeout_ms=defaults.buffer_timeout_ms if timeout_ms is None else timeout_ms,
        side_output_tag=upstream.side_output_tag,
        is_kept=target.cache is not None,
    )


def _sources_with_filters(operators: Sequence[OperatorTransformation]) -> dict[int, OperatorSpec]:
    """Return new specs, by operator id, of the sources that only filters read; such a source skips rows if it can.

    The filters stay, because a source may skip fewer rows. Skipped rows produce no watermarks, so event time may
    advance later, but never earlier. Source: Flink PushFilterIntoTableSourceScanRule.
    """
    readers: dict[int, list[OperatorTransformation]] = defaultdict(list)
    sources: dict[int, SourceSpec] = {}
    for operator in operators:
        if isinstance(operator.spec, SourceSpec):
            sources[operator.transformation_id] = operator.spec
        for one in operator.needed_inputs:
            for upstream in upstreams_of(one):
                readers[upstream.operator.transformation_id].append(operator)
    changed: dict[int, OperatorSpec] = {}
    for number, spec in sources.items():
        condition = _condition_of(readers[number])
        if condition is not None:
            source = spec.source.with_condition(condition)
            if source is not spec.source:
                changed[number] = SourceSpec(source, spec.strategy)
    return changed


def _condition_of(readers: Sequence[OperatorTransformation]) -> ColumnCondition | None:
    """Return the condition on rows that any of the readers keeps, or None if it is not known."""
    conditions: list[ColumnCondition] = []
    for one in readers:
        if not isinstance(one.spec, FilterExpressionSpec) or one.spec.implied is None:
            return None
        conditions.append(one.spec.implied)
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else Or(tuple(conditions))
