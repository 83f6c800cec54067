"""Deployment plan: makes the descriptor of each task from the execution graph and the slots of subtasks. Pure.

Source: Flink TaskDeploymentDescriptorFactory.
"""

from collections.abc import Callable, Mapping

from headrace.checkpoint.handles import SubtaskRestore
from headrace.cluster.job_master.connections.partition_registrar import PartitionRegistration
from headrace.cluster.job_master.executions import Execution, Executions
from headrace.cluster.job_master.results.cached_inputs import CachedInputs
from headrace.core.ids import ExecutionAttemptId, ResourceId, ResultPartitionId
from headrace.core.shuffle_descriptors import (
    InputChannelDescriptor,
    InputGateDescriptor,
    PartitionDescriptor,
    ProducerDescriptor,
    ResultPartitionDescriptor,
    ShuffleDescriptor,
    TaskManagerLocation,
)
from headrace.gateways.task_executor import ResultPartitionDeployment, TaskDeploymentDescriptor
from headrace.graph.execution_graph import ExecutionEdge, ExecutionGraph
from headrace.graph.job_graph import PartitionerKind

LocationOf = Callable[[ResourceId], TaskManagerLocation]
ShuffleDescriptors = Mapping[ResultPartitionId, ShuffleDescriptor]


def registrations_of(
    graph: ExecutionGraph, execution: Execution, location_of: LocationOf
) -> list[PartitionRegistration]:
    """Return the partitions that `execution`, which must have its slot, will produce."""
    assert execution.slot is not None
    attempt_id = execution.attempt_id
    producer = ProducerDescriptor(attempt_id, location_of(execution.slot.resource_id))
    vertex_id, number = attempt_id.execution_vertex_id.vertex_id, attempt_id.subtask_index
    return [
        PartitionRegistration(
            PartitionDescriptor(
                edge.job_edge.data_set_id,
                number,
                edge.producer_count,
                edge.job_edge.result_type,
                edge.subpartition_count(number),
                edge.job_edge.partitioner.kind is PartitionerKind.BROADCAST,
            ),
            producer,
        )
        for edge in graph.edges_out_of(vertex_id)
    ]


def describe_task(
    graph: ExecutionGraph,
    executions: Executions,
    execution: Execution,
    shuffle_descriptors: ShuffleDescriptors,
    cached_inputs: CachedInputs,
    restore: SubtaskRestore | None,
) -> TaskDeploymentDescriptor:
    """Return the descriptor with which a TaskManager runs `execution`.

    Shuffle descriptors of all partitions must exist. `cached_inputs`: locations of results of earlier jobs. `restore`:
    state to start from, or None to start anew.
    """
    attempt_id = execution.attempt_id
    assert execution.slot is not None
    vertex = graph.vertex(attempt_id.execution_vertex_id).job_vertex
    cached_gate = cached_inputs.gate_of(attempt_id.execution_vertex_id)
    return TaskDeploymentDescriptor(
        attempt_id=attempt_id,
        allocation_id=execution.slot.allocation_id,
        job_name=graph.job_graph.name,
        settings=graph.job_graph.settings,
        vertex=vertex,
        result_partitions=tuple(
            _partition(graph, edge, attempt_id, shuffle_descriptors)
            for edge in graph.edges_out_of(vertex.vertex_id)
        ),
        input_gates=(cached_gate,)
        if cached_gate is not None
        else tuple(
            _gate(edge, attempt_id.subtask_index, executions, shuffle_descriptors)
            for edge in graph.edges_into(vertex.vertex_id)
        ),
        restore=restore,
        artifacts=graph.job_graph.artifacts,
    )


def partitions_read_by(
    graph: ExecutionGraph, executions: Executions, consumer: Execution
) -> list[ResultPartitionId]:
    """Return the partitions of which `consumer` reads one subpartition each."""
    attempt_id = consumer.attempt_id
    return [
        executions.partition_id_of(edge, partition_number)
        for edge in graph.edges_into(attempt_id.execution_vertex_id.vertex_id)
        for partition_number in edge.producers_of(attempt_id.subtask_index)
    ]


def _partition(
    graph: ExecutionGraph,
    edge: ExecutionEdge,
    producer: ExecutionAttemptId,
    shuffle_descriptors: ShuffleDescriptors,
) -> ResultPartitionDeployment:
    job_edge = edge.job_edge
    partition_id = ResultPartitionId(job_edge.data_set_id, producer.subtask_index, producer)
    return ResultPartitionDeployment(
        ResultPartitionDescriptor(
            partition_id,
            job_edge.result_type,
            edge.subpartition_count(producer.subtask_index),
            shuffle_descriptors[partition_id],
        ),
        job_edge,
        graph.job_graph.vertex(job_edge.target_vertex_id).max_parallelism,
    )


def _gate(
    edge: ExecutionEdge,
    consumer_index: int,
    executions: Executions,
    shuffle_descriptors: ShuffleDescriptors,
) -> InputGateDescriptor:
    job_edge = edge.job_edge
    channels = tuple(
        InputChannelDescriptor(
            shuffle_descriptors[executions.partition_id_of(edge, source.partition_number)],
            source.subpartition_index,
        )
        for source in edge.inputs_of(consumer_index)
    )
    return InputGateDescriptor(
        job_edge.data_set_id, job_edge.input_number, channels, job_edge.result_type
    )
