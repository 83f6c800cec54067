"""Attempts of one producer beside each other, as a zombie and its successor: each is read by whoever asked for it."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import (
    InputChannelDescriptor,
    InputGateDescriptor,
    ResultPartitionDescriptor,
    ResultPartitionType,
    ShuffleDescriptor,
    TaskManagerLocation,
)
from headrace.graph.job_graph import PartitionerKind, PartitionerSpec
from headrace.network.batches.channel_selectors import create_selector
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.errors import NetworkError, PartitionNotFoundError
from headrace.network.gates.gate import BatchElement
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.writers.record_writer import RecordWriter, create_record_writer
from tests.unit.network.exchange import DATA_SET, NUMBERS, attempt, numbers, partition_id, values_of
from tests.unit.network.simulated import SimulatedCluster

ATTEMPTS = (0, 1)
ROWS_OF_AN_ATTEMPT = 1000
READ_OUT = [("network", 0), ("read", 0), ("read", 1)] * 10


def sink_of(env: CreditBasedShuffleEnvironment, number: int) -> RecordWriter:
    """The output of attempt `number` of the one producer."""
    kind = ResultPartitionType.PIPELINED_BOUNDED
    descriptor = ResultPartitionDescriptor(partition_id(0, number), kind, 1)
    selector = create_selector(PartitionerSpec(PartitionerKind.FORWARD), 1, 128, SeededRandom(1))
    return create_record_writer(env.create_result_partition(descriptor), selector, 0, env.clock)


def source_of(
    env: CreditBasedShuffleEnvironment, there: TaskManagerLocation, number: int
) -> SingleInputGate:
    """A gate that reads attempt `number`."""
    channel = InputChannelDescriptor(ShuffleDescriptor(partition_id(0, number), there), 0)
    descriptor = InputGateDescriptor(DATA_SET, 0, (channel,))
    made = env.create_input_gate(descriptor, attempt("consumer", number))
    made.read_as(NUMBERS)
    made.request_partitions()
    return made


def read(source: SingleInputGate) -> tuple[list[int], NetworkError | None]:
    """All rows that are there, and the error behind them."""
    found: list[int] = []
    try:
        while (element := source.poll()) is not None:
            if isinstance(element, BatchElement):
                found += values_of([element])
            del element
    except NetworkError as error:
        return found, error
    return found, None


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.sampled_from(["emit", "read", "fail", "network"]), st.sampled_from(ATTEMPTS)), max_size=40),
    st.sampled_from(["a", "b"]),
)  # fmt: skip
def test_rows_of_two_attempts_never_mix(steps: Sequence[tuple[str, int]], consumer: str) -> None:
    cluster = SimulatedCluster()
    producer, there = cluster.start("a")
    reader = producer if consumer == "a" else cluster.start("b")[0]
    sinks = [sink_of(producer, number) for number in ATTEMPTS]
    sources = [source_of(reader, there, number) for number in ATTEMPTS]
    emitted: list[list[int]] = [[], []]
    found: list[list[int]] = [[], []]
    failed: set[int] = set()
    for act, number in [*steps, *READ_OUT]:
        if act == "emit" and number not in failed and sinks[number].is_available:
            value = number * ROWS_OF_AN_ATTEMPT + len(emitted[number])
            sinks[number].emit(numbers(value, 1))
            emitted[number].append(value)
        elif act == "fail":
            sinks[number].fail(ValueError("a zombie"))
            failed.add(number)
        elif act == "read":
            rows, error = read(sources[number])
            found[number] += rows
            # The end of one attempt is no end of the other.
            assert error is None or number in failed
        elif act == "network":
            cluster.loop.run_for(1000)
    for number in ATTEMPTS:
        # Of one that failed, what had been delivered by then.
        assert found[number] == emitted[number][: len(found[number])]
        assert number in failed or len(found[number]) == len(emitted[number])
        sources[number].close()
        sinks[number].close()
    cluster.assert_nothing_leaks()


@pytest.mark.parametrize("consumer", ["a", "b"])
@pytest.mark.parametrize("number", [0, 2])
def test_neither_an_older_nor_a_newer_attempt_stands_in_for_the_one_that_was_asked_for(
    number: int, consumer: str
) -> None:
    cluster = SimulatedCluster()
    producer, there = cluster.start("a")
    reader = producer if consumer == "a" else cluster.start("b")[0]
    sink = sink_of(producer, 1)
    sink.emit(numbers(0, 1))
    source = source_of(reader, there, number)
    cluster.loop.run_for(120_000)
    rows, error = read(source)
    assert rows == [] and isinstance(error, PartitionNotFoundError)
    right = source_of(reader, there, 1)
    cluster.loop.run_for(1000)
    assert read(right) == ([0], None)
    for each in (source, right):
        each.close()
    sink.close()
    cluster.assert_nothing_leaks()
