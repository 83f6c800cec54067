"""Chains of tasks that exchange rows, and the memory that they take."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.types.type_info import Types
from headrace.graph.job_graph import PartitionerKind
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.gates.gate import BatchElement
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.writers.record_writer import RecordWriter
from tests.unit.network.exchange import gate, numbers, values_of, writer
from tests.unit.network.simulated import SimulatedCluster

PAGE = 32 * 1024


KEYED = BatchType(Types.LONG(), Types.LONG())


def memory_of(pages: int) -> dict[str, str]:
    size = f"{pages * PAGE}b"
    return {"taskmanager_memory_network_min": size, "taskmanager_memory_network_max": size}


def keyed(start: int, count: int, random: SeededRandom) -> RecordBatch:
    """Rows whose key hashes lead anywhere."""
    hashes = np.array([random.randrange(1 << 31) for _ in range(count)], dtype=np.int32)
    keys = pa.array(np.arange(start, start + count))
    return numbers(start, count).with_keys(Types.LONG(), hashes, keys_array=keys)


@dataclass
class Stage:
    """One subtask of a chain: takes a batch, and sends its rows on by key."""

    name: str
    random: SeededRandom
    source: SingleInputGate | None
    sink: RecordWriter | None
    to_send: int = 0
    sent: int = 0
    has_ended: bool = False
    received: list[int] = field(default_factory=list[int])

    def step(self) -> bool:
        """Do one batch's work; False where there was none to do."""
        if self.has_ended:
            return False
        if self.sink is not None and not self.sink.is_available:
            return False
        if self.source is None:
            assert self.sink is not None
            if self.sent == self.to_send:
                return self._end()
            self.sink.emit(keyed(self.sent, 1, self.random))
            self.sent += 1
            return True
        element = self.source.poll()
        if element is None:
            return self.source.is_finished and self._end()
        if isinstance(element, BatchElement):
            values = values_of([element])
            self.received += values
            if self.sink is not None:
                for value in values:
                    self.sink.emit(keyed(value, 1, self.random))
        return True

    def _end(self) -> bool:
        self.has_ended = True
        if self.sink is not None:
            self.sink.finish()
            self.sink.close()
        if self.source is not None:
            self.source.close()
        return True

    def describe(self) -> str:
        queue = 0 if self.source is None else self.source.queue_length
        pool = None if self.sink is None else self.sink.partition.pool
        used = "" if pool is None else f", output {pool.used} of {pool.size}"
        return f"{self.name}: ended {self.has_ended}, input {queue}{used}"


class Chain:
    """source -> by key -> map -> by key -> sink, each `parallelism` times, spread over the task managers."""

    def __init__(
        self,
        seed: int,
        environments: list[tuple[CreditBasedShuffleEnvironment, TaskManagerLocation]],
        rows: int,
    ) -> None:
        count = len(environments)
        random = SeededRandom(seed)
        self.random = random
        locations = [location for _, location in environments]
        self.stages: list[Stage] = []
        sinks: list[list[RecordWriter]] = [
            [
                writer(env, count, PartitionerKind.HASH, 0, number=level * count + index)
                for index, (env, _) in enumerate(environments)
            ]
            for level in range(2)
        ]
        gates = [
            [
                gate(env, locations, index, KEYED, level * count)
                for index, (env, _) in enumerate(environments)
            ]
            for level in range(2)
        ]
        for index in range(count):
            self.stages += [
                Stage(f"source {index}", random, None, sinks[0][index], rows),
                Stage(f"map {index}", random, gates[0][index], sinks[1][index]),
                Stage(f"sink {index}", random, gates[1][index], None),
            ]
        for stage in self.stages:
            if stage.source is not None:
                stage.source.request_partitions()

    def run(self, cluster: SimulatedCluster) -> None:
        """Step tasks and the network at random until nothing moves."""
        moved = True
        while moved:
            moved = self.random.random() < 0.6 and self.random.choice(self.stages).step()
            moved = moved or cluster.loop.step() or any(stage.step() for stage in self.stages)

    def describe(self) -> str:
        return "\n".join(stage.describe() for stage in self.stages)


def minimum_pages(parallelism: int) -> int:
    """What a subtask of each stage needs: two partitions, and two gates with one remote channel per other producer."""
    partitions = 2 * (parallelism + 1)
    return partitions + 2 * (2 * (parallelism - 1) + 1)
