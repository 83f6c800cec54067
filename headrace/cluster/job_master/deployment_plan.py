"""DeploymentPlan: from the job's graph and the places of its subtasks to the descriptor of each task. Pure.

Source: Flink TaskDeploymentDescriptorFactory, EdgeManagerBuildUtil.
"""

from collections.abc import Callable

from headrace.cluster.job_master.executions import Execution, Executions
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, ResourceId, ResultPartitionId
from headrace.core.shuffle_descriptors import (
    InputChannelDescriptor,
    InputGateDescriptor,
    ResultPartitionDescriptor,
    ShuffleDescriptor,
    TaskManagerLocation,
)
from headrace.gateways.task_executor import ResultPartitionDeployment, TaskDeploymentDescriptor
from headrace.graph.job_graph import JobEdge, JobGraph

LocationOf = Callable[[ResourceId], TaskManagerLocation]


def describe_task(
    graph: JobGraph, executions: Executions, execution: Execution, location_of: LocationOf
) -> TaskDeploymentDescriptor:
    """Everything a TaskManager needs to run `execution`; every producer must have its slot."""
    attempt_id = execution.attempt_id
    assert execution.slot is not None
    vertex = graph.vertex(attempt_id.execution_vertex_id.vertex_id)
    return TaskDeploymentDescriptor(
        attempt_id=attempt_id,
        allocation_id=execution.slot.allocation_id,
        job_name=graph.name,
        settings=graph.settings,
        vertex=vertex,
        result_partitions=tuple(
            _partition(graph, edge, attempt_id) for edge in graph.edges_out_of(vertex.vertex_id)
        ),
        input_gates=tuple(
            _gate(graph, edge, attempt_id.subtask_index, executions, location_of)
            for edge in graph.edges_into(vertex.vertex_id)
        ),
    )


def _partition(
    graph: JobGraph, edge: JobEdge, producer: ExecutionAttemptId
) -> ResultPartitionDeployment:
    consumers = consumers_of(graph, edge, producer.subtask_index)
    return ResultPartitionDeployment(
        ResultPartitionDescriptor(
            ResultPartitionId(edge.data_set_id, producer.subtask_index, producer),
            edge.result_type,
            subpartition_count=len(consumers),
        ),
        edge,
        graph.vertex(edge.target_vertex_id).max_parallelism,
    )


def _gate(
    graph: JobGraph,
    edge: JobEdge,
    consumer_index: int,
    executions: Executions,
    location_of: LocationOf,
) -> InputGateDescriptor:
    channels: list[InputChannelDescriptor] = []
    for producer_index in range(graph.vertex(edge.source_vertex_id).parallelism):
        consumers = consumers_of(graph, edge, producer_index)
        if consumer_index not in consumers:
            continue
        producer = executions.current(ExecutionVertexId(edge.source_vertex_id, producer_index))
        assert producer.slot is not None
        partition = ResultPartitionId(edge.data_set_id, producer_index, producer.attempt_id)
        shuffle = ShuffleDescriptor(partition, location_of(producer.slot.resource_id))
        channels.append(InputChannelDescriptor(shuffle, consumers.index(consumer_index)))
    return InputGateDescriptor(edge.data_set_id, edge.input_number, tuple(channels))


def consumers_of(graph: JobGraph, edge: JobEdge, producer_index: int) -> range:
    """Consumer subtasks that producer `producer_index` reaches along `edge`; the position is the subpartition."""
    producer_count = graph.vertex(edge.source_vertex_id).parallelism
    consumer_count = graph.vertex(edge.target_vertex_id).parallelism
    if not edge.partitioner.kind.is_pointwise:
        return range(consumer_count)
    if producer_count >= consumer_count:
        # Consumer j reads producers [j*P/C, (j+1)*P/C), rounded down: so each producer has one consumer.
        for consumer_index in range(consumer_count):
            end = (consumer_index + 1) * producer_count // consumer_count
            if producer_index < end:
                return range(consumer_index, consumer_index + 1)
    start = (producer_index * consumer_count + producer_count - 1) // producer_count
    end = ((producer_index + 1) * consumer_count + producer_count - 1) // producer_count
    return range(start, end)
