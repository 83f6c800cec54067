"""DeploymentPlan: from the execution graph and the places of its subtasks to the descriptor of each task. Pure.

Source: Flink TaskDeploymentDescriptorFactory.
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
from headrace.graph.execution_graph import ExecutionEdge, ExecutionGraph

LocationOf = Callable[[ResourceId], TaskManagerLocation]


def describe_task(
    graph: ExecutionGraph, executions: Executions, execution: Execution, location_of: LocationOf
) -> TaskDeploymentDescriptor:
    """Everything a TaskManager needs to run `execution`; every producer must have its slot."""
    attempt_id = execution.attempt_id
    assert execution.slot is not None
    vertex = graph.vertex(attempt_id.execution_vertex_id).job_vertex
    return TaskDeploymentDescriptor(
        attempt_id=attempt_id,
        allocation_id=execution.slot.allocation_id,
        job_name=graph.job_graph.name,
        settings=graph.job_graph.settings,
        vertex=vertex,
        result_partitions=tuple(
            _partition(graph, edge, attempt_id) for edge in graph.edges_out_of(vertex.vertex_id)
        ),
        input_gates=tuple(
            _gate(edge, attempt_id.subtask_index, executions, location_of)
            for edge in graph.edges_into(vertex.vertex_id)
        ),
    )


def partitions_read_by(
    graph: ExecutionGraph, executions: Executions, consumer: Execution
) -> list[ResultPartitionId]:
    """The partitions of which `consumer` reads one subpartition each."""
    attempt_id = consumer.attempt_id
    return [
        _partition_id(edge, partition_number, executions)
        for edge in graph.edges_into(attempt_id.execution_vertex_id.vertex_id)
        for partition_number in edge.producers_of(attempt_id.subtask_index)
    ]


def _partition_id(
    edge: ExecutionEdge, partition_number: int, executions: Executions
) -> ResultPartitionId:
    subtask = ExecutionVertexId(edge.job_edge.source_vertex_id, partition_number)
    producer = executions.current(subtask).attempt_id
    return ResultPartitionId(edge.job_edge.data_set_id, partition_number, producer)


def _partition(
    graph: ExecutionGraph, edge: ExecutionEdge, producer: ExecutionAttemptId
) -> ResultPartitionDeployment:
    job_edge = edge.job_edge
    return ResultPartitionDeployment(
        ResultPartitionDescriptor(
            ResultPartitionId(job_edge.data_set_id, producer.subtask_index, producer),
            job_edge.result_type,
            edge.subpartition_count(producer.subtask_index),
        ),
        job_edge,
        graph.job_graph.vertex(job_edge.target_vertex_id).max_parallelism,
    )


def _gate(
    edge: ExecutionEdge, consumer_index: int, executions: Executions, location_of: LocationOf
) -> InputGateDescriptor:
    job_edge = edge.job_edge
    channels: list[InputChannelDescriptor] = []
    for source in edge.inputs_of(consumer_index):
        subtask = ExecutionVertexId(job_edge.source_vertex_id, source.partition_number)
        producer = executions.current(subtask)
        assert producer.slot is not None
        partition = ResultPartitionId(
            job_edge.data_set_id, source.partition_number, producer.attempt_id
        )
        shuffle = ShuffleDescriptor(partition, location_of(producer.slot.resource_id))
        channels.append(InputChannelDescriptor(shuffle, source.subpartition_index))
    return InputGateDescriptor(job_edge.data_set_id, job_edge.input_number, tuple(channels))
