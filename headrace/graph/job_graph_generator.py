"""Makes a JobGraph from a StreamGraph: chains become vertices, functions become bytes, mistakes become errors.

All mistakes in a graph are found here, before submission, and name the operator.
Source: Flink StreamingJobGraphGenerator.
"""

from collections.abc import Sequence
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import FunctionNotPicklableError, ProgramError
from headrace.core.ids import IntermediateDataSetId, JobId, JobVertexId, OperatorId
from headrace.core.key_groups import MAX_PARALLELISM_LIMIT, default_max_parallelism
from headrace.core.shuffle_descriptors import ReleaseBy, ResultPartitionType
from headrace.core.types.pickles import pickle_code
from headrace.graph.chaining import Chain, ChainingRules, build_chains
from headrace.graph.execution_plan import plan_json
from headrace.graph.function_location import (
    culprit_of,
    pickling_failure,
    user_location_of,
)
from headrace.graph.job_graph import (
    ChainEdge,
    ChainedOperator,
    JobEdge,
    JobGraph,
    JobVertex,
    PartitionerKind,
    PartitionerSpec,
    VertexKind,
)
from headrace.graph.operator_ids import murmur3_128, operator_ids
from headrace.graph.pipeline_options import (
    BATCH_SHUFFLE_MODE,
    RUNTIME_MODE,
    RuntimeExecutionMode,
    buffer_timeout_of,
    result_type_of,
    shuffle_mode_of,
)
from headrace.graph.stream_graph import StreamEdge, StreamGraph, StreamNode

AUTO_GENERATE_UIDS: Final = ConfigOption(
    "pipeline.auto-generate-uids",
    bool,
    default=True,
    doc="Whether operators without a uid get an id from the program's structure; if not, every one needs a uid.",
)


def generate_job_graph(stream_graph: StreamGraph, job_id: JobId, settings: Settings) -> JobGraph:
    """Make the graph that is submitted. ProgramError describes mistakes in the program."""
    check_stream_graph(stream_graph, settings)
    ids = operator_ids(stream_graph)
    chains = build_chains(stream_graph, ChainingRules.from_settings(settings))
    vertices = tuple(_vertex(stream_graph, chain, ids) for chain in chains)
    return JobGraph(
        job_id=job_id,
        name=stream_graph.job_name,
        vertices=vertices,
        edges=_job_edges(stream_graph, chains, ids, result_type_of(settings)),
        settings=_job_settings(stream_graph, settings),
        plan_json=plan_json(stream_graph, settings),
        slot_resources=dict(stream_graph.slot_resources),
    )


def _job_settings(graph: StreamGraph, settings: Settings) -> dict[str, str]:
    """Return the job's settings, with its runtime mode if the program names one."""
    said = settings.to_dict()
    if RUNTIME_MODE.key in said:
        said[RUNTIME_MODE.key] = runtime_mode_of(graph, settings).name
    return said


def check_stream_graph(graph: StreamGraph, settings: Settings) -> None:
    """Raise ProgramError for a graph that no cluster could run."""
    check_program(graph, settings)
    for node in graph.nodes:
        limit = node.max_parallelism or default_max_parallelism(node.parallelism)
        if not 1 <= node.parallelism <= limit <= MAX_PARALLELISM_LIMIT:
            raise ProgramError(
                f"operator '{node.display_name}' has parallelism {node.parallelism} and max parallelism {limit}: "
                f"required is 1 <= parallelism <= max parallelism <= {MAX_PARALLELISM_LIMIT}"
            )
    for edge in graph.edges:
        source, target = graph.node(edge.source_id), graph.node(edge.target_id)
        forward = edge.partitioning.kind is PartitionerKind.FORWARD
        if forward and source.parallelism != target.parallelism:
            why = "" if source.cached_input is None else ", in which an earlier job has stored it"
            raise ProgramError(
                f"forward() from '{source.display_name}' (parallelism {source.parallelism}{why}) to "
                f"'{target.display_name}' (parallelism {target.parallelism}) needs equal parallelism; "
                "use rebalance() or rescale() instead"
            )


def check_program(graph: StreamGraph, settings: Settings) -> None:
    """Raise ProgramError for mistakes that do not depend on the parallelism, before an executor is asked for slots."""
    if not graph.nodes:
        raise ProgramError("No operators defined in streaming topology. Cannot execute.")
    _check_runtime_mode(graph, settings)
    _check_shuffle_mode(graph, settings)
    _check_cached_streams(graph)
    for node in graph.nodes:
        if not settings.get_option(AUTO_GENERATE_UIDS) and not (node.uid or node.uid_hash):
            raise ProgramError(
                f"operator '{node.display_name}' has no uid, and automatic ones are switched off "
                f"({AUTO_GENERATE_UIDS.key}): call uid('...') on it"
            )


def _check_shuffle_mode(graph: StreamGraph, settings: Settings) -> None:
    mode = shuffle_mode_of(settings)
    unbounded = next((node for node in graph.nodes if not node.is_bounded), None)
    is_stored = mode.result_type.traits.release_by is ReleaseBy.SCHEDULER
    if is_stored and unbounded is not None:
        raise ProgramError(
            f"{BATCH_SHUFFLE_MODE.key} {mode.name} needs bounded sources, but '{unbounded.display_name}' has no end: "
            "its results would be stored forever"
        )


def _check_cached_streams(graph: StreamGraph) -> None:
    unbounded = next((node for node in graph.nodes if not node.is_bounded), None)
    kept = next((edge for edge in graph.edges if edge.is_kept), None)
    if unbounded is not None and kept is not None:
        cached = graph.node(kept.source_id)
        raise ProgramError(
            f"the cached stream of '{cached.display_name}' can be read only after its job has finished, but "
            f"'{unbounded.display_name}' in the same job has no end: cache it in a job with bounded sources only"
        )


def _check_runtime_mode(graph: StreamGraph, settings: Settings) -> None:
    unbounded = next((node for node in graph.nodes if not node.is_bounded), None)
    if (
        settings.get_option(RUNTIME_MODE) == RuntimeExecutionMode.BATCH.name
        and unbounded is not None
    ):
        raise ProgramError(
            f"BATCH mode needs bounded sources, but '{unbounded.display_name}' has no end: give it one (a KafkaSource "
            "has set_bounded), or run the job in STREAMING mode"
        )


def runtime_mode_of(graph: StreamGraph, settings: Settings) -> RuntimeExecutionMode:
    """Return the mode in which the job runs; AUTOMATIC is resolved here."""
    mode = RuntimeExecutionMode[settings.get_option(RUNTIME_MODE)]
    if mode is not RuntimeExecutionMode.AUTOMATIC:
        return mode
    is_bounded = all(node.is_bounded for node in graph.nodes)
    return RuntimeExecutionMode.BATCH if is_bounded else RuntimeExecutionMode.STREAMING


def _vertex(graph: StreamGraph, chain: Chain, ids: dict[int, OperatorId]) -> JobVertex:
    head = chain.head
    input_count = len({edge.input_number for edge in graph.edges_into(head.node_id)})
    if head.cached_input is not None:
        input_count = 1
    kinds = (VertexKind.SOURCE, VertexKind.ONE_INPUT, VertexKind.TWO_INPUT)
    return JobVertex(
        vertex_id=JobVertexId(ids[head.node_id].value),
        name=_chain_name(chain, head),
        kind=kinds[input_count],
        parallelism=head.parallelism,
        max_parallelism=_max_parallelism(chain),
        has_derived_max_parallelism=all(node.max_parallelism is None for node in chain.nodes),
        slot_sharing_group=head.slot_sharing_group,
        operators=tuple(_chained_operator(node, ids) for node in chain.nodes),
        chain_edges=tuple(
            ChainEdge(ids[edge.source_id], ids[edge.target_id], edge.side_output_tag)
            for edge in chain.edges
        ),
        cached_input=head.cached_input,
    )


def _max_parallelism(chain: Chain) -> int:
    # The head decides, as in Flink; where it says nothing, the first of its chain that does.
    stated = (node.max_parallelism for node in chain.nodes if node.max_parallelism is not None)
    return next(stated, default_max_parallelism(chain.head.parallelism))


def _chain_name(chain: Chain, node: StreamNode) -> str:
    """Return a chain's name: `A -> B`, or `A -> (B, C -> D)` if the chain branches."""
    ids = {edge.target_id for edge in chain.edges if edge.source_id == node.node_id}
    followers = [_chain_name(chain, n) for n in chain.nodes if n.node_id in ids]
    if not followers:
        return node.display_name
    if len(followers) == 1:
        return f"{node.display_name} -> {followers[0]}"
    return f"{node.display_name} -> ({', '.join(followers)})"


def _chained_operator(node: StreamNode, ids: dict[int, OperatorId]) -> ChainedOperator:
    coordinator, coordinator_payload = node.spec.coordinator() or ("", b"")
    committer, committer_payload = node.spec.committer() or ("", b"")
    return ChainedOperator(
        operator_id=ids[node.node_id],
        name=node.display_name,
        kind=node.spec.kind,
        payload=_pickle(node.spec, node, node.display_name, node.spec.user_functions()),
        types_payload=_pickle(node.types, node, node.display_name, ()),
        uid=node.uid,
        description=node.description,
        coordinator=coordinator,
        coordinator_payload=coordinator_payload,
        committer=committer,
        committer_payload=committer_payload,
        location=user_location_of(node.spec.user_functions(), node.location),
    )


def _job_edges(
    graph: StreamGraph,
    chains: Sequence[Chain],
    ids: dict[int, OperatorId],
    default_type: ResultPartitionType,
) -> tuple[JobEdge, ...]:
    chain_of = {node.node_id: chain for chain in chains for node in chain.nodes}
    inside = {id(edge) for chain in chains for edge in chain.edges}
    found: list[JobEdge] = []
    # Two edges may join the same operators (a stream united with itself), so each has an ordinal.
    ordinals: dict[tuple[int, int, int, str | None], int] = {}
    for chain in chains:
        edges_in = [edge for edge in graph.edges_into(chain.head.node_id) if id(edge) not in inside]
        supports_unaligned = all(edge.partitioning.kind.lets_barriers_overtake for edge in edges_in)
        for edge in edges_in:
            place = (edge.source_id, edge.target_id, edge.input_number, edge.side_output_tag)
            ordinal = ordinals[place] = ordinals.get(place, -1) + 1
            producer = chain_of[edge.source_id].head
            kept_type = ResultPartitionType.BLOCKING_PERSISTENT
            result_type = kept_type if edge.is_kept else default_type
            found.append(
                JobEdge(
                    data_set_id=_data_set_id(edge, ordinal, ids),
                    source_vertex_id=JobVertexId(ids[producer.node_id].value),
                    source_operator_id=ids[edge.source_id],
                    target_vertex_id=JobVertexId(ids[chain.head.node_id].value),
                    target_operator_id=ids[edge.target_id],
                    input_number=edge.input_number,
                    partitioner=_partitioner_spec(graph, edge),
                    result_type=result_type,
                    buffer_timeout_ms=buffer_timeout_of(result_type, edge.buffer_timeout_ms),
                    side_output_tag=edge.side_output_tag,
                    supports_unaligned=supports_unaligned,
                )
            )
    return tuple(found)


def _data_set_id(
    edge: StreamEdge, ordinal: int, ids: dict[int, OperatorId]
) -> IntermediateDataSetId:
    place = f"{edge.input_number}:{ordinal}:{edge.side_output_tag or ''}"
    source, target = ids[edge.source_id].value, ids[edge.target_id].value
    return IntermediateDataSetId(murmur3_128(source + target + place.encode()))


def _partitioner_spec(graph: StreamGraph, edge: StreamEdge) -> PartitionerSpec:
    if edge.partitioning.custom is None:
        return PartitionerSpec(edge.partitioning.kind)
    node, custom = graph.node(edge.source_id), edge.partitioning.custom
    payload = _pickle(custom, node, f"{node.display_name} (partition_custom)", custom)
    return PartitionerSpec(edge.partitioning.kind, payload)


def _pickle(
    value: object, node: StreamNode, operator_name: str, functions: Sequence[object]
) -> bytes:
    try:
        payload: bytes = pickle_code(value)
    except Exception as error:  # pickling runs user code: __reduce__, __getstate__
        call_site = node.location or "unknown location"
        raise _not_picklable(error, operator_name, functions, call_site) from error
    return payload


def _not_picklable(
    error: Exception, operator_name: str, functions: Sequence[object], call_site: str
) -> FunctionNotPicklableError:
    for function in functions:
        failure = pickling_failure(function)
        if failure is not None:
            culprit = culprit_of(function)
            reason = f"{failure} (captured {culprit})" if culprit else str(failure)
            location = user_location_of([function], call_site)
            return FunctionNotPicklableError(operator_name, location, reason)
    return FunctionNotPicklableError(operator_name, call_site, str(error))
