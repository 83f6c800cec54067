"""Ids, graphs and reports that the cluster's tests share."""

from headrace.core.ids import (
    AllocationId,
    ExecutionAttemptId,
    ExecutionVertexId,
    IntermediateDataSetId,
    JobId,
    JobVertexId,
    OperatorId,
    ResourceId,
    SlotId,
)
from headrace.core.resource_profile import ResourceProfile
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.gateways.messages import SlotStatus
from headrace.graph.job_graph import (
    ChainedOperator,
    JobEdge,
    JobGraph,
    JobVertex,
    PartitionerKind,
    PartitionerSpec,
    VertexKind,
)

JOB = JobId(b"j" * 16)
OTHER_JOB = JobId(b"k" * 16)
ANY_PROFILE = ResourceProfile()
SLOT_PROFILE = ResourceProfile(1.0, 1 << 30)
TM_1 = ResourceId("tm-1")
TM_2 = ResourceId("tm-2")


def allocation(number: int) -> AllocationId:
    return AllocationId(number.to_bytes(16, "big"))


def empty_slots(resource_id: ResourceId, count: int) -> tuple[SlotStatus, ...]:
    return tuple(SlotStatus(SlotId(resource_id, index), SLOT_PROFILE) for index in range(count))


def vertex_id(number: int) -> JobVertexId:
    return JobVertexId(number.to_bytes(16, "big"))


def attempt(subtask_index: int, vertex: int = 1, number: int = 0) -> ExecutionAttemptId:
    return ExecutionAttemptId(JOB, ExecutionVertexId(vertex_id(vertex), subtask_index), number)


def vertex(
    number: int, parallelism: int, *, group: str = "default", coordinator: str = ""
) -> JobVertex:
    operator = ChainedOperator(
        OperatorId(number.to_bytes(16, "big")),
        f"operator {number}",
        "test",
        b"",
        b"",
        coordinator=coordinator,
    )
    return JobVertex(
        vertex_id(number),
        f"vertex {number}",
        VertexKind.SOURCE if number == 1 else VertexKind.ONE_INPUT,
        parallelism,
        128,
        group,
        (operator,),
        (),
    )


def edge(
    source: int,
    target: int,
    kind: PartitionerKind = PartitionerKind.HASH,
    result_type: ResultPartitionType = ResultPartitionType.PIPELINED_BOUNDED,
) -> JobEdge:
    return JobEdge(
        IntermediateDataSetId((source * 100 + target).to_bytes(16, "big")),
        vertex_id(source),
        OperatorId(source.to_bytes(16, "big")),
        vertex_id(target),
        OperatorId(target.to_bytes(16, "big")),
        0,
        PartitionerSpec(kind),
        result_type,
        100,
    )


def job_graph(
    vertices: tuple[JobVertex, ...],
    edges: tuple[JobEdge, ...] = (),
    settings: dict[str, str] | None = None,
) -> JobGraph:
    return JobGraph(JOB, "a job", vertices, edges, settings or {})
