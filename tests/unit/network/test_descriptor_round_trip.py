"""Shuffle descriptors go round: what a master says is what tasks are deployed with."""

import asyncio
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.shuffle_master import CreditBasedShuffleMaster
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    IntermediateDataSetId,
    JobId,
    JobVertexId,
    ResourceId,
    ResultPartitionId,
)
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import (
    InputChannelDescriptor,
    InputGateDescriptor,
    PartitionDescriptor,
    ProducerDescriptor,
    ResultPartitionDescriptor,
    ResultPartitionType,
    ShuffleDescriptor,
    TaskManagerLocation,
)
from headrace.graph.job_graph import PartitionerKind, PartitionerSpec
from headrace.network.batches.channel_selectors import create_selector
from headrace.network.writers.record_writer import create_record_writer
from tests.unit.network.exchange import NUMBERS, attempt, numbers, values_of
from tests.unit.network.gate_readers import read_all
from tests.unit.network.simulated import SimulatedCluster

counts = st.integers(0, 1 << 31)
ids = st.binary(min_size=16, max_size=16)
kinds = st.sampled_from(ResultPartitionType)
data_sets = st.builds(IntermediateDataSetId, ids)
subtasks = st.builds(ExecutionVertexId, st.builds(JobVertexId, ids), counts)
attempts = st.builds(ExecutionAttemptId, st.builds(JobId, ids), subtasks, counts)
partition_ids = st.builds(ResultPartitionId, data_sets, counts, attempts)
places = st.builds(
    TaskManagerLocation,
    st.builds(ResourceId, st.text()),
    st.text(),
    st.integers(0, 65_535),
    st.none() | st.text(),
    st.text(),
)
shuffles = st.builds(ShuffleDescriptor, partition_ids, places, st.booleans())
channels = st.builds(InputChannelDescriptor, shuffles, counts)
descriptors = st.one_of(
    shuffles,
    st.builds(ProducerDescriptor, attempts, places),
    st.builds(PartitionDescriptor, data_sets, counts, counts, kinds, counts, st.booleans()),
    st.builds(ResultPartitionDescriptor, partition_ids, kinds, counts, st.none() | shuffles),
    st.builds(InputGateDescriptor, data_sets, counts, st.lists(channels, max_size=4).map(tuple)),
)
Described = TypeVar("Described", bound=msgspec.Struct)


def gone_round(descriptor: Described) -> Described:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(descriptor), type=type(descriptor))


@given(descriptors)
def test_every_descriptor_comes_back_as_it_was_and_says_the_same_again(
    descriptor: msgspec.Struct,
) -> None:
    decoded = gone_round(descriptor)
    assert decoded == descriptor and hash(decoded) == hash(descriptor)
    assert msgspec.msgpack.encode(decoded) == msgspec.msgpack.encode(descriptor)
    if isinstance(descriptor, ShuffleDescriptor) and isinstance(decoded, ShuffleDescriptor):
        assert decoded.stored_by == descriptor.stored_by


@pytest.mark.parametrize("is_local", [True, False])
def test_a_consumer_finds_the_rows_by_what_the_master_answered_after_it_went_round(
    is_local: bool,
) -> None:
    cluster = SimulatedCluster()
    producing, place = cluster.start("a")
    consuming = producing if is_local else cluster.start("b")[0]
    data_set = IntermediateDataSetId(b"d" * 16)
    partition = PartitionDescriptor(data_set, 2, 3, ResultPartitionType.PIPELINED_BOUNDED, 1)
    answer = asyncio.run(
        CreditBasedShuffleMaster().register_partition_with_producer(
            JobId(b"j" * 16), partition, ProducerDescriptor(attempt("map", 2), place)
        )
    )
    result = gone_round(
        ResultPartitionDescriptor(answer.partition_id, partition.result_type, 1, answer)
    )
    gate = gone_round(InputGateDescriptor(data_set, 0, (InputChannelDescriptor(answer, 0),)))
    selector = create_selector(PartitionerSpec(PartitionerKind.FORWARD), 1, 128, SeededRandom(0))
    sink = create_record_writer(
        producing.create_result_partition(result), selector, -1, producing.clock, producing.settings
    )
    source = consuming.create_input_gate(gate, attempt("reduce"))
    source.read_as(NUMBERS)
    source.request_partitions()
    sink.emit(numbers(0, 5))
    sink.finish()
    sink.close()
    assert values_of(read_all(cluster, source)) == [0, 1, 2, 3, 4]
    source.close()
    cluster.assert_nothing_leaks()
