"""RemoteShuffleMaster: registers blocking results at the shuffle service, and monitors the service.

Pipelined results stay with the built-in shuffle, as their consumers run while they are produced. When the service is
lost, every job with results there is notified at once, before each consumer would notice.
Source: Flink Remote Shuffle's RemoteShuffleMaster; FLIP-184.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.cluster.shuffle_master import (
    CreditBasedShuffleMaster,
    JobShuffleContext,
    ShuffleMasterContext,
)
from headrace.core.errors import ConfigurationError, HeadraceError
from headrace.core.host_port import split_host_port
from headrace.core.ids import JobId, ResultPartitionId
from headrace.core.shuffle_descriptors import (
    PartitionDescriptor,
    ProducerDescriptor,
    ShuffleDescriptor,
)
from headrace.core.threads import spawn
from headrace.gateways.shuffle_service import SHUFFLE_SERVICE_ENDPOINT, ShuffleServiceGateway
from headrace.rpc.errors import RpcError
from headrace.rpc.options import TASK_MANAGER_RPC_PORT
from headrace.rpc.proxies import RpcAddress, with_timeout
from headrace.rpc.tcp import TcpRpcService
from headrace.shuffle_service.errors import ShuffleServiceLostError
from headrace.shuffle_service.options import ADDRESS, HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT

if TYPE_CHECKING:
    pass


T = TypeVar("T")

_LOG = logging.getLogger(__name__)

_RETRIES_PER_TIMEOUT: Final = 5
_RELEASE_TRIES: Final = 3
_FAREWELL_S: Final = 2.0


class RemoteShuffleMaster:
    """Registers blocking results at a shuffle service, and notifies their jobs when the service is lost."""

    def __init__(self, context: ShuffleMasterContext) -> None:
        address = context.settings.get_option(ADDRESS)
        try:
            split_host_port(address)
        except OSError as error:
            raise ConfigurationError(
                ADDRESS.key,
                address,
                "the address of a remote shuffle service has the form host:port",
            ) from error
        self._context: Final = context
        self._authority: Final = address
        self._interval_ms: Final = context.settings.duration_ms(HEARTBEAT_INTERVAL)
        self._timeout_ms: Final = context.settings.duration_ms(HEARTBEAT_TIMEOUT)
        self._built_in: Final = CreditBasedShuffleMaster()
        self._jobs: dict[JobId, JobShuffleContext] = {}
        self._external: dict[JobId, set[ResultPartitionId]] = {}
        self._rpc: TcpRpcService | None = None
        self._gateway: ShuffleServiceGateway | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._heard_ms = 0.0
        self._is_lost = False
        self._watching: asyncio.Task[Any] | None = None

    async def start(self) -> None:
        """Start monitoring the service, which may start later; until then blocking results cannot be registered."""
        # It listens for want of a service that only calls; nobody is told where.
        self._rpc = TcpRpcService(
            self._context.settings.with_values({TASK_MANAGER_RPC_PORT.key: "0"}),
            bind_host="127.0.0.1",
            secret=self._context.secret,
            clock=self._context.clock,
            random=self._context.random,
            tls=self._context.tls,
        )
        await self._rpc.start()
        self._heard_ms = self._now_ms()
        self._watching = self._spawn(self._watch(), "watch the shuffle service")
        self._watching.add_done_callback(self._watch_ended)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        if self._tasks:
            # That jobs are over may still be said, if the service listens.
            await asyncio.wait(self._tasks, timeout=_FAREWELL_S)
        for task in tuple(self._tasks):
            task.cancel()
        rpc, self._rpc = self._rpc, None
        if rpc is not None:
            await rpc.stop()

    def register_job(self, context: JobShuffleContext) -> None:
        self._jobs[context.job_id] = context

    def unregister_job(self, job_id: JobId) -> None:
        if self._jobs.pop(job_id, None) is None:
            return
        if self._external.pop(job_id, None) is not None:
            self._spawn(self._tell(lambda service: service.release_job(job_id)), "release job")

    async def register_partition_with_producer(
        self, job_id: JobId, partition: PartitionDescriptor, producer: ProducerDescriptor
    ) -> ShuffleDescriptor:
        """Register a blocking result at the service, and any other result with its producer.

        A result that outlives its job is registered with its producer too, as the service deletes all results of an
        ended job.
        """
        traits = partition.result_type.traits
        if not traits.is_blocking or traits.is_persistent:
            return await self._built_in.register_partition_with_producer(
                job_id, partition, producer
            )
        partition_id = ResultPartitionId(
            partition.data_set_id, partition.partition_number, producer.attempt_id
        )
        # Before the call: it may have an effect, whatever becomes of its answer.
        self._external.setdefault(job_id, set()).add(partition_id)
        try:
            location = await self._call(
                lambda service: service.register_partition(
                    partition_id, partition.subpartition_count
                )
            )
        except RpcError as error:
            raise ShuffleServiceLostError(self._authority, str(error)) from error
        return ShuffleDescriptor(partition_id, location, is_external=True)

    def release_partitions_externally(self, descriptors: Collection[ShuffleDescriptor]) -> None:
        released: list[ResultPartitionId] = []
        for descriptor in descriptors:
            known = self._external.get(descriptor.partition_id.producer.job_id)
            if known is not None and descriptor.partition_id in known:
                known.discard(descriptor.partition_id)
                released.append(descriptor.partition_id)
        if released:
            self._spawn(
                self._tell(lambda service: service.release_partitions(tuple(released))), "release"
            )

    async def _watch(self) -> None:
        """Renew the leases of the jobs at the service; notify the jobs if the service is lost."""
        retry_ms = min(self._interval_ms, self._timeout_ms / _RETRIES_PER_TIMEOUT)
        while True:
            try:
                await self._call(lambda service: service.heartbeat(tuple(self._external)))
                self._heard_ms, self._is_lost = self._now_ms(), False
                delay_ms = self._interval_ms
            except RpcError as error:
                delay_ms = retry_ms
                if not self._is_lost and self._now_ms() - self._heard_ms >= self._timeout_ms:
                    self._is_lost = True
                    self._lose(str(error))
            await asyncio.sleep(delay_ms / 1000)

    def _watch_ended(self, watching: asyncio.Task[Any]) -> None:
        error = None if watching.cancelled() else watching.exception()
        if error is not None:
            self._context.on_fatal_error(error)

    def _lose(self, reason: str) -> None:
        error: HeadraceError = ShuffleServiceLostError(self._authority, reason)
        _LOG.error("%s", error)
        for job_id, known in tuple(self._external.items()):
            context = self._jobs.get(job_id)
            if known and context is not None:
                context.partitions_lost(error)

    async def _call(self, call: Callable[[ShuffleServiceGateway], Awaitable[T]]) -> T:
        """Call the service, connecting first if necessary.

        RpcError if it cannot be reached; its own errors are passed on.
        """
        assert self._rpc is not None, "start() comes first"
        timeout_ms = max(1.0, self._timeout_ms / 2)
        if self._gateway is None:
            address = str(
                RpcAddress(TcpRpcService.scheme, self._authority, SHUFFLE_SERVICE_ENDPOINT)
            )
            gateway = await self._rpc.connect(address, ShuffleServiceGateway)
            self._gateway = with_timeout(gateway, timeout_ms)
        try:
            return await call(self._gateway)
        except RpcError:
            self._gateway = None
            raise

    async def _tell(self, call: Callable[[ShuffleServiceGateway], Awaitable[object]]) -> None:
        """Call the service, several times if it fails; after that the job's lease at the service expires instead."""
        reason: HeadraceError | None = None
        for _ in range(_RELEASE_TRIES):
            try:
                await self._call(call)
                return
            except HeadraceError as error:
                reason = error
        _LOG.info(
            "the shuffle service could not be told to release results; they are deleted when their job's lease "
            "expires: %s",
            reason,
        )

    def _spawn(self, coroutine: Any, name: str) -> asyncio.Task[Any]:
        return spawn(coroutine, asyncio.get_running_loop(), name, self._tasks)

    def _now_ms(self) -> float:
        return self._context.clock.monotonic_ns() / 1e6
