"""ExchangeScan: checks the data planes of a simulated cluster for leaks, and for results that are released too early.

Every TaskManager's shuffle environment is the real one, and also reports its gates and sessions to the scan.
Nothing of a job may be left on any live TaskManager once the job has ended; and no result is released while its
job runs and uses the TaskManager, and a gate may still read the result.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final
from weakref import ref

from headrace.core.ids import ExecutionAttemptId, JobId, ResultPartitionId
from headrace.core.shuffle_descriptors import InputGateDescriptor, ResultPartitionDescriptor
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.partitions.result_partition import ResultPartition
from headrace.network.sessions.peer_session import PeerSession, Session
from headrace.network.sessions.transport import Link


class ExchangeScan:
    """Scan of all data planes of a cluster.

    `counts_on` returns whether a job runs that still uses the TaskManager of this name.
    """

    def __init__(self, counts_on: Callable[[JobId, str], bool]) -> None:
        self._counts_on: Final = counts_on
        self._exchanges: list[ScannedExchange] = []
        self.early_releases: list[str] = []
        """Results that were released although a gate may still have read them."""
        self.release_count = 0
        """Number of released results that were checked."""

    def create_exchange(self, **arguments: Any) -> "ScannedExchange":
        """Create the data plane of one more TaskManager; the arguments are those of CreditBasedShuffleEnvironment."""
        place = str(arguments["resource_id"])
        exchange = ScannedExchange(
            partitions=_ScannedPartitions(place, self._counts_on, self._releasing), **arguments
        )
        self._exchanges.append(exchange)
        return exchange

    @property
    def has_finished_results(self) -> bool:
        """Return whether any TaskManager has a completely written result."""
        return any(exchange.has_finished_results for exchange in self._exchanges)

    def killed(self, exchange: "ScannedExchange") -> None:
        """Forget a TaskManager that was killed."""
        self._exchanges.remove(exchange)

    def _releasing(self, place: str, partition_ids: Sequence[ResultPartitionId]) -> None:
        for partition_id in partition_ids:
            self.release_count += 1
            self.early_releases += [
                f"{place} releases {partition_id}, which {consumer} may still read"
                for exchange in self._exchanges
                for consumer in exchange.readers_of(partition_id)
            ]


class _ScannedPartitions(ResultPartitionManager):
    """Reports results that are released, one by one or with a job that still uses the TaskManager."""

    def __init__(
        self,
        owner: str,
        counts_on: Callable[[JobId, str], bool],
        releasing: Callable[[str, Sequence[ResultPartitionId]], None],
    ) -> None:
        super().__init__(owner)
        self._place: Final = owner
        self._counts_on: Final = counts_on
        self._releasing: Final = releasing
        self._is_nobodys_loss = False

    def release(self, partition_ids: Iterable[ResultPartitionId]) -> None:
        found = tuple(partition_ids)
        if not self._is_nobodys_loss:
            self._releasing(self._place, found)
        super().release(found)

    def release_job(self, job_id: JobId, kept: Collection[ResultPartitionId] = ()) -> None:
        """Release the partitions of a job that has ended; its tasks may still be ending elsewhere."""
        self._is_nobodys_loss = not self._counts_on(job_id, self._place)
        super().release_job(job_id, kept)
        self._is_nobodys_loss = False


class ScannedExchange(CreditBasedShuffleEnvironment):
    """The data plane of one TaskManager."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._gates: Final[
            list[tuple[ExecutionAttemptId, InputGateDescriptor, SingleInputGate]]
        ] = []
        # Weak references: a session whose connection was lost refers to data that it was receiving.
        self._sessions: Final[list[ref[PeerSession]]] = []
        self._results: Final[list[ResultPartition]] = []

    @property
    def has_finished_results(self) -> bool:
        """Return whether a result here is completely written."""
        return any(each.is_finished for each in self._results)

    def create_result_partition(self, descriptor: ResultPartitionDescriptor) -> ResultPartition:
        result = super().create_result_partition(descriptor)
        self._results.append(result)
        return result

    def create_input_gate(
        self, descriptor: InputGateDescriptor, consumer: ExecutionAttemptId
    ) -> SingleInputGate:
        gate = super().create_input_gate(descriptor, consumer)
        self._gates.append((consumer, descriptor, gate))
        return gate

    def open_session(self, link: Link, peer_name: str, features: int) -> Session:
        session = super().open_session(link, peer_name, features)
        if isinstance(session, PeerSession):
            self._sessions.append(ref(session))
        return session

    def readers_of(self, partition_id: ResultPartitionId) -> Iterator[ExecutionAttemptId]:
        """Return the attempts here that read a partition and have neither finished nor ended."""
        for consumer, descriptor, gate in self._gates:
            reads = any(each.shuffle.partition_id == partition_id for each in descriptor.channels)
            if reads and not gate.is_closed and not gate.is_finished:
                yield consumer

    def leaks(self) -> list[str]:
        """Return descriptions of the resources still held, once no task is left."""
        self._forget_what_is_over()
        pool = self.buffer_pool
        sessions = [session for each in self._sessions if (session := each()) is not None]
        held = {
            "pages of network memory": pool.total_pages - pool.count_idle_pages(),
            "reserved pages": pool.total_pages - pool.unreserved_pages,
            "partitions": self.partitions.partition_count,
            "files of results": len(self.storage.directories.files()),
            "bytes that were read ahead": self.storage.read_memory.used_bytes,
            "open gates": sum(not gate.is_closed for _, _, gate in self._gates),
            "channels that read": sum(each.consumer.channel_count for each in sessions),
            "channels that are read": sum(each.producer.reader_count for each in sessions),
        }
        return [f"{self.name} holds {count} {what}" for what, count in held.items() if count]

    def _forget_what_is_over(self) -> None:
        """Drop closed gates and destroyed results, as they refer to their tasks and the tasks' data."""
        self._gates[:] = [each for each in self._gates if not each[2].is_closed]
        self._results[:] = [each for each in self._results if not each.pool.is_destroyed]
