"""ShuffleService: the data plane of a shuffle service's process.

Consumers read as they read from a TaskManager, with the same connections, credits and views. Only writing
differs, as producers push. The service records which partitions are registered, pushed and committed; a newer attempt
at a partition excludes the older ones. Source: Flink Remote Shuffle's ShuffleWorker.
"""

import logging
import re
import threading
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Final

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.ids import (
    ExecutionVertexId,
    IntermediateDataSetId,
    JobId,
    ResultPartitionId,
)
from headrace.core.randomness import SeededRandom
from headrace.core.security.tls import TlsIdentity
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.errors import ConnectionLostError, NetworkError
from headrace.network.gates.partition_requests import PARTITION_REQUEST_TIMEOUT, to_ms
from headrace.network.memory.local_buffer_pool import LocalBufferPool, NeverWait
from headrace.network.memory.network_buffer_pool import NetworkBufferPool
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.sessions.consumer_session import ConsumerSession
from headrace.network.sessions.peer_session import PeerSession, Session
from headrace.network.sessions.producer_session import ProducerSession
from headrace.network.sessions.transport import Link, Transport
from headrace.network.stored.io_pool import IoExecutor, ThreadIoPool
from headrace.network.stored.partitioned_file import PartitionedFile
from headrace.network.stored.spill_files import FileLayer, OsFileLayer, SpillDirectories
from headrace.network.stored.stored_partition import PartitionStorage
from headrace.network.stored.stored_view import ReadMemory
from headrace.network.transport.socket_transport import SocketTransport
from headrace.network.wire.frames import Feature
from headrace.network.wire.handshake import offered_features
from headrace.network.wire.keepalive import KeepAlivePolicy
from headrace.shuffle_service.options import (
    CONNECTIONS_MAX,
    DIRECTORY,
    DISK_MAX,
    PARTITION_WRITE_MEMORY,
    PUSH_CREDIT,
    READ_MEMORY,
    WRITE_MEMORY,
)
from headrace.shuffle_service.partition_store import PAGE_BYTES, DirectoryLock, PartitionStore
from headrace.shuffle_service.push_session import (
    PUSH_NAME,
    PushNotAllowedError,
    PushSession,
    WriteGrant,
)
from headrace.shuffle_service.served_partition import ServedPartition

_LOG = logging.getLogger(__name__)

GRANT_SHARE: Final = 4
"""Divisor of the remaining memory: a new writer gets at most that part, but the minimum in any case."""
SERVICE_NAME_PREFIX: Final = "shuffle-service-"
_IDENTITY_FILE: Final = "identity"
_IDENTITY_BYTES: Final = 16
_IDENTITY: Final = re.compile("[0-9a-f]{16}")
_Place = tuple[JobId, IntermediateDataSetId, ExecutionVertexId]


class WriteBudget:
    """Shares the memory for results that are being pushed, in pages. Never blocks. Pure.

    A task pushes all its results at once: if one could hold memory while another waits for some, tasks would wait for
    each other for ever. So each new writer gets at least `minimum`, and up to `maximum` while `shared` lasts; it
    keeps its memory until it leaves. All together have at most `shared`, plus `minimum` for each writer.
    Source: Flink Remote Shuffle's write buffer pool.
    """

    def __init__(self, shared: int, minimum: int, maximum: int) -> None:
        assert 0 < minimum <= maximum
        self.shared: Final = shared
        self.minimum: Final = minimum
        self.maximum: Final = maximum
        self._grants: dict[Hashable, int] = {}
        self.granted = 0

    def enter(self, writer: Hashable) -> int:
        """Return the number of pages that a new writer may use."""
        assert writer not in self._grants
        left = self.shared - self.granted
        grant = min(self.maximum, max(self.minimum, left // GRANT_SHARE))
        self._grants[writer] = grant
        self.granted += grant
        return grant

    def leave(self, writer: Hashable) -> None:
        """Take back the pages of a writer that has finished or failed. Idempotent."""
        self.granted -= self._grants.pop(writer, 0)


class ShuffleService:
    """The data plane of a shuffle service; implements TransportHost. Any thread, unless a method says otherwise."""

    def __init__(
        self,
        settings: Settings,
        *,
        directory: Path,
        secret: bytes,
        bind_host: str,
        advertised_host: str,
        clock: Clock,
        random: SeededRandom,
        socket_directory: Path | None = None,
        tls: TlsIdentity | None = None,
        on_fatal_error: Callable[[BaseException], None] | None = None,
        transport: Transport | None = None,
        io: IoExecutor | None = None,
        files: FileLayer | None = None,
    ) -> None:
        self.secret: Final = secret
        self.clock: Final = clock
        self.random: Final = random
        self.features: Final = offered_features(settings)
        self.keep_alive: Final = KeepAlivePolicy.from_settings(settings)
        self._directory: Final = directory
        self._connections_max: Final = settings.get_option(CONNECTIONS_MAX)
        self._request_timeout_ms = to_ms(settings.get_option(PARTITION_REQUEST_TIMEOUT))
        self._transport: Final[Transport] = transport or SocketTransport(
            settings, bind_host, advertised_host, socket_directory, tls, on_fatal_error
        )
        # The transport's thread.
        self._pushes: dict[ResultPartitionId, PushSession] = {}
        self._budget: Final = _write_budget(settings)
        self._credit_max: Final = settings.get_option(PUSH_CREDIT)
        self.batch_bytes_max: Final = self._budget.minimum * PAGE_BYTES
        self._unwritten: Final = _pool_of_what_is_only_read()
        self._io: Final[IoExecutor] = io or ThreadIoPool(
            "shuffle service", on_fatal_error=on_fatal_error
        )
        self._storage: Final = _open_storage(directory, self._io, settings, files)
        self._store: Final = PartitionStore(
            directory, self._io, settings.get_option(DISK_MAX), settings, secret, files
        )
        self._directory_lock: DirectoryLock | None = None
        self.name: str = ""
        self._location: TaskManagerLocation | None = None
        self.partitions: Final = ResultPartitionManager("the shuffle service")
        # Guards the fields below: calls, pushes and the I/O pool meet here.
        self._lock = threading.Lock()
        self._served: dict[ResultPartitionId, ServedPartition] = {}
        self._latest_attempts: dict[_Place, int] = {}
        self._is_closed = False
        self._connection_count = 0  # the transport's thread

    def start(self) -> TaskManagerLocation:
        """Recover the committed results, then begin to accept connections.

        DirectoryInUseError, before anything is touched, if another service uses the directory; ConfigurationError if
        the directory cannot be used; PortInUseError.
        """
        self._directory_lock = DirectoryLock.take(self._directory)
        found = self._store.recover()
        self.name = SERVICE_NAME_PREFIX + self._identity()
        for each in found:
            served = self._new_served(each.partition_id, each.file.subpartition_count, each.file)
            self._served[each.partition_id] = served
            self._note_attempt(each.partition_id)
            self.partitions.register(served)
        if found:
            _LOG.info("recovered %d committed results in %s", len(found), self._directory)
        self._location = self._transport.start(self)
        return self._location

    def close(self) -> None:
        """End connections and threads; committed results stay on disk. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            self._transport.close()
            self._io.close()
            for served in self._served.values():
                if served.file is not None:
                    served.file.close()
        finally:
            # Last: the next service deletes what this one has not committed.
            if self._directory_lock is not None:
                self._directory_lock.release()

    @property
    def location(self) -> TaskManagerLocation:
        """Return the data plane's location, to which producers push and from which consumers read; after `start`."""
        assert self._location is not None, "start() comes first"
        return self._location

    @property
    def stored_bytes(self) -> int:
        """Return the number of bytes in files."""
        return self._store.stored_bytes

    @property
    def partition_count(self) -> int:
        """Return the number of results that are registered or were recovered."""
        return len(self._served)

    @property
    def committed_count(self) -> int:
        """Return the number of results that may be read."""
        with self._lock:
            return sum(served.is_finished for served in self._served.values())

    @property
    def connection_count(self) -> int:
        """Return the present number of authenticated connections."""
        return self._connection_count

    @property
    def job_ids(self) -> frozenset[JobId]:
        """Return the jobs that have results here."""
        with self._lock:
            return frozenset(key.producer.job_id for key in self._served)

    # Registration and release

    def register_partition(self, partition_id: ResultPartitionId, count: int) -> None:
        """Expect a result; consumers that connect before its commit wait. Idempotent."""
        with self._lock:
            if partition_id in self._served:
                return
            served = self._served[partition_id] = self._new_served(partition_id, count, None)
            self._note_attempt(partition_id)
        self.partitions.register(served)

    def release_partitions(self, partition_ids: Iterable[ResultPartitionId]) -> None:
        """Delete results, committed or being pushed; present readers finish. Unknown ids are ignored."""
        released = list(partition_ids)
        with self._lock:
            for partition_id in released:
                self._served.pop(partition_id, None)
        self.partitions.release(released)
        for partition_id in released:
            self._store.forgotten(partition_id)
        self._transport.post(lambda: self._refuse_pushes(released))

    def release_job(self, job_id: JobId) -> None:
        """Delete all results of a job. May block."""
        with self._lock:
            released = [key for key in self._served if key.producer.job_id == job_id]
            self._latest_attempts = {
                place: number
                for place, number in self._latest_attempts.items()
                if place[0] != job_id
            }
        self.release_partitions(released)
        self._io.submit(lambda: self._store.forget_job(job_id))

    def _refuse_pushes(self, partition_ids: list[ResultPartitionId]) -> None:
        for partition_id in partition_ids:
            push = self._pushes.get(partition_id)
            if push is not None:
                push.refuse("it was released")

    def _new_served(
        self, partition_id: ResultPartitionId, count: int, file: PartitionedFile | None
    ) -> ServedPartition:
        return ServedPartition(
            partition_id, count, self._unwritten, self._storage, self.partitions, file
        )

    def _note_attempt(self, partition_id: ResultPartitionId) -> None:
        place, number = _place_of(partition_id), partition_id.producer.attempt_number
        self._latest_attempts[place] = max(number, self._latest_attempts.get(place, 0))

    # Connections: the transport's thread

    def open_session(self, link: Link, peer_name: str, features: int) -> Session:
        """Open the session of a new connection. ConnectionLostError if there are too many connections."""
        if self._connection_count >= self._connections_max:
            reason = (
                f"it has {self._connections_max} connections already: raise {CONNECTIONS_MAX.key}"
            )
            raise ConnectionLostError(peer_name, reason)
        self._connection_count += 1
        has_checksums = bool(features & Feature.CHECKSUM)
        if peer_name == PUSH_NAME:
            ended = self._session_ended
            return PushSession(
                link, self, self._store, self._io, ended, has_checksums=has_checksums
            )
        producer = ProducerSession(
            self.partitions,
            self._transport,
            link,
            self._request_timeout_ms,
            has_checksums=has_checksums,
        )
        return _CountedSession(link, producer, ConsumerSession(link), self._session_ended)

    def _session_ended(self) -> None:
        self._connection_count -= 1

    # What push sessions ask for

    def post(self, callback: Callable[[], None]) -> None:
        """Run `callback` on the transport's thread. Any thread."""
        self._transport.post(callback)

    def open_push(self, session: PushSession, partition_id: ResultPartitionId) -> WriteGrant:
        """Admit one push of a registered partition, by its newest attempt.

        PushNotAllowedError if it may not be pushed.
        """
        with self._lock:
            served = self._served.get(partition_id)
            latest = self._latest_attempts.get(_place_of(partition_id), 0)
        if served is None:
            raise PushNotAllowedError("the result is not registered, or was released")
        if served.is_finished:
            raise PushNotAllowedError("the result is committed already")
        if partition_id.producer.attempt_number < latest:
            raise PushNotAllowedError(f"attempt {latest} of the producer has replaced this one")
        if partition_id in self._pushes:
            raise PushNotAllowedError("the result is being pushed on another connection")
        self._pushes[partition_id] = session
        pages = self._budget.enter(session)
        # What is on its way takes no more memory than what is collected.
        credit = min(self._credit_max, pages // self._budget.minimum)
        return WriteGrant(pages, max(1, credit))

    def end_push(self, session: PushSession) -> None:
        """Remove a session that has ended, for whatever reason. Idempotent."""
        partition_id = session.partition_id
        if partition_id is not None and self._pushes.get(partition_id) is session:
            del self._pushes[partition_id]
        self._budget.leave(session)

    def commit(self, partition_id: ResultPartitionId, file: PartitionedFile) -> str | None:
        """Let consumers read the result; return the reason for a refusal, or None. On the I/O pool."""
        with self._lock:
            served = self._served.get(partition_id)
        if served is None or not served.commit(file):
            return "it was released"
        return None

    def discarded(self, partition_id: ResultPartitionId) -> None:
        """Forget a partition whose push failed, and tell waiting consumers that this attempt will not finish.

        On the I/O pool.
        """
        self._store.forgotten(partition_id)
        with self._lock:
            served = self._served.pop(partition_id, None)
        if served is not None:
            served.fail(None)

    def _identity(self) -> str:
        """Return the name by which consumers recognise this directory's service after restarts."""
        path = self._directory / _IDENTITY_FILE
        partial = path.with_suffix(".partial")
        for each in (path, partial):
            # Left by somebody from when others could write here: where it leads is none of ours to read or write.
            if each.is_symlink():
                each.unlink()
        if not path.exists():
            # Its name last: half a name would be another service's, for which nobody keeps results.
            partial.write_text(f"{self.random.getrandbits(64):016x}", encoding="ascii")
            partial.replace(path)
        name = path.read_bytes()[: _IDENTITY_BYTES + 1].decode("ascii", "replace")
        if not _IDENTITY.fullmatch(name):
            reason = (
                f"its file '{_IDENTITY_FILE}' does not hold the name of a shuffle service: delete the file to get a "
                f"new name"
            )
            raise ConfigurationError(DIRECTORY.key, str(self._directory), reason)
        return name


class _CountedSession(PeerSession):
    """A consumer's connection, which is counted."""

    def __init__(
        self,
        link: Link,
        producer: ProducerSession,
        consumer: ConsumerSession,
        on_ended: Callable[[], None],
    ) -> None:
        super().__init__(link, producer, consumer)
        self._on_ended = on_ended

    def lost(self, error: NetworkError) -> None:
        self._on_ended()
        super().lost(error)


def _pool_of_what_is_only_read() -> LocalBufferPool:
    """Return a pool for partitions that are only read, which never use it."""
    return NetworkBufferPool(PAGE_BYTES, PAGE_BYTES).create_local_pool(
        "stored results",
        required=1,
        maximum=1,
        segment_size=PAGE_BYTES,
        overdraft_max=0,
        wait=NeverWait(),
    )


def _open_storage(
    directory: Path, io: IoExecutor, settings: Settings, files: FileLayer | None
) -> PartitionStorage:
    return PartitionStorage(
        io,
        # Never asked for a file: names are the store's business.
        SpillDirectories((directory,), io.submit, files or OsFileLayer()),
        ReadMemory(settings.get_option(READ_MEMORY)),
    )


def _write_budget(settings: Settings) -> WriteBudget:
    """Return the budget for results that are being pushed. ConfigurationError if not even one batch fits."""
    pages = max(8, settings.get_option(PARTITION_WRITE_MEMORY) // PAGE_BYTES)
    minimum = pages // 4
    size_bytes = settings.get_option(WRITE_MEMORY)
    if size_bytes < minimum * PAGE_BYTES:
        least = f"it must be at least a quarter of {PARTITION_WRITE_MEMORY.key}"
        raise ConfigurationError(WRITE_MEMORY.key, f"{size_bytes} bytes", least)
    return WriteBudget(size_bytes // PAGE_BYTES, minimum, pages)


def _place_of(partition_id: ResultPartitionId) -> _Place:
    """Return the partition's identity without the attempt."""
    producer = partition_id.producer
    return producer.job_id, partition_id.data_set_id, producer.execution_vertex_id
