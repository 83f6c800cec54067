"""TaskManagerInspection: passes requests of people to TaskManagers, and keeps the log files of ended ones.

The log folder of the cluster is on the driver's host. TaskManagers of this host write there too, and for others
LogCopies keeps the newest lines there: they can be read after the end of a TaskManager, or while it does not respond.
Main thread of the ResourceManager; files are read on others.
Source: Flink ResourceManager.requestTaskManagerLogList, requestThreadDump.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from headrace.cluster.resource_manager.log_copies import LogCopies
from headrace.cluster.resource_manager.options import ENDED_TASK_MANAGERS_MAX
from headrace.core.errors import HeadraceError
from headrace.core.ids import JobId, JobVertexId, ResourceId
from headrace.core.process.log_files import (
    LogFile,
    LogFileNotFoundError,
    LogPiece,
    delete_log_files,
    is_of_process,
    log_files,
    read_log_file_of,
    task_manager_file_name,
)
from headrace.core.process.stack_sampler import DURATION_MAX_MS, StackSamples, merged_samples
from headrace.core.threads import BlockingRunner
from headrace.gateways.errors import StackSamplerBusyError, UnknownTaskManagerError
from headrace.gateways.resource_manager import TaskManagerInfo
from headrace.gateways.task_executor import TaskExecutorGateway
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import RpcError
from headrace.rpc.proxies import with_timeout

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)

_ANSWER_TIMEOUT_MS: Final = 5_000.0
"""Time-out in ms, below that of the ResourceManager's callers, so that files of a hanging process can be read."""
_LOOK_MS: Final = 5
"""Time in ms of one stack sample, which matters if samples follow each other closely."""


class EndedTaskManagers:
    """The last `count_max` TaskManagers that were registered and are gone, as they were last. Pure.

    The oldest end is forgotten first; log files are kept while their TaskManager is remembered.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max: Final = count_max
        self._ended: dict[ResourceId, TaskManagerInfo] = {}

    def __contains__(self, resource_id: ResourceId) -> bool:
        return resource_id in self._ended

    def find(self, resource_id: ResourceId) -> TaskManagerInfo | None:
        """Return the last state of an ended TaskManager, or None."""
        return self._ended.get(resource_id)

    def add(self, ended: TaskManagerInfo) -> tuple[ResourceId, ...]:
        """Add one; return those that are forgotten. None comes back: a lost TaskManager may not register again."""
        self._ended[ended.resource_id] = ended
        forgotten = tuple(self._ended)[: max(0, len(self._ended) - self._count_max)]
        for resource_id in forgotten:
            del self._ended[resource_id]
        return forgotten


class TaskManagerInspection:
    """Inspection for one ResourceManager. `gateway_of` finds a registered TaskManager, or None.

    Without a `log_folder` the driver has no log files of ended TaskManagers.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        gateway_of: Callable[[ResourceId], TaskExecutorGateway | None],
        run_blocking: BlockingRunner,
        log_folder: Path | None,
    ) -> None:
        self._endpoint: Final = endpoint
        self._gateway_of: Final = gateway_of
        self._run_blocking: Final = run_blocking
        self._log_folder: Final = log_folder
        count_max = endpoint.settings.get_option(ENDED_TASK_MANAGERS_MAX)
        self.copies: Final = LogCopies(endpoint, run_blocking, log_folder)
        """Copies of log files of other hosts."""
        self.ended: Final = EndedTaskManagers(count_max)
        """Ended TaskManagers, read-only; `task_manager_ended` adds to them."""

    def task_manager_ended(self, info: TaskManagerInfo) -> None:
        """Remember a TaskManager that has ended, and delete the log files of one that is forgotten."""
        folder = self._log_folder
        for forgotten in self.ended.add(info):
            if folder is not None:
                self._endpoint.spawn(self._delete(folder, forgotten), f"log files of {forgotten}")

    async def log_files(self, resource_id: ResourceId) -> tuple[LogFile, ...]:
        """Return the log files of a running or ended TaskManager. UnknownTaskManagerError if it is unknown."""
        name = task_manager_file_name(resource_id)
        return await self._of_either(
            resource_id,
            lambda gateway: gateway.request_log_files(),
            lambda folder: log_files(folder, name),
            nothing=lambda: (),
        )

    async def read_log_file(
        self, resource_id: ResourceId, name: str, offset: int, max_bytes: int
    ) -> LogPiece:
        """Return part of a log file. UnknownTaskManagerError or LogFileNotFoundError if there is none."""
        process_name = task_manager_file_name(resource_id)
        info = self.ended.find(resource_id)
        place = f"{info.host}:{info.log_folder}" if info is not None and info.log_folder else ""

        def look(folder: Path) -> LogPiece:
            try:
                return read_log_file_of(folder, process_name, name, offset, max_bytes)
            except LogFileNotFoundError as error:
                if not place or not is_of_process(name, process_name):
                    raise
                raise LogFileNotFoundError(name, place) from error

        def missing() -> LogPiece:
            raise LogFileNotFoundError(name, place)

        return await self._of_either(
            resource_id,
            lambda gateway: gateway.read_log_file(name, offset, max_bytes),
            look,
            nothing=missing,
        )

    def gateway(self, resource_id: ResourceId) -> TaskExecutorGateway:
        """Return the gateway of a registered TaskManager, for requests that only it can answer.

        UnknownTaskManagerError if it is not registered.
        """
        gateway = self._gateway_of(resource_id)
        if gateway is None:
            raise UnknownTaskManagerError(str(resource_id))
        return gateway

    async def sample_stacks(
        self,
        task_managers: tuple[ResourceId, ...],
        job_id: JobId,
        vertex_id: JobVertexId,
        subtask_index: int | None,
        sample_count: int,
        delay_ms: int,
        depth_max: int,
    ) -> StackSamples:
        """Return the merged samples of all `task_managers`, without those that do not answer.

        StackSamplerBusyError if one is busy, and no other one has samples.
        """
        sampling_ms = min(sample_count * (delay_ms + _LOOK_MS), DURATION_MAX_MS)
        timeout_ms = max(0, sampling_ms) + _ANSWER_TIMEOUT_MS

        async def ask(gateway: TaskExecutorGateway) -> StackSamples | HeadraceError:
            try:
                return await with_timeout(gateway, timeout_ms).request_stack_samples(
                    job_id, vertex_id, subtask_index, sample_count, delay_ms, depth_max
                )
            except HeadraceError as error:
                _LOG.info("stack samples omit a TaskManager: %s", error)
                return error

        gateways = [gateway for each in task_managers if (gateway := self._gateway_of(each))]
        answers = await asyncio.gather(*(ask(gateway) for gateway in gateways))
        samples = [answer for answer in answers if isinstance(answer, StackSamples)]
        busy = [answer for answer in answers if isinstance(answer, StackSamplerBusyError)]
        if busy and not any(part.subtask_indexes for part in samples):
            raise busy[0]
        now_ms = self._endpoint.clock.now_ms()
        # On another thread: a vertex may have a thousand subtasks, and this thread serves the cluster.
        return await self._run_blocking(
            "merge stack samples", lambda: merged_samples(samples, now_ms)
        )

    async def _of_either(
        self,
        resource_id: ResourceId,
        ask: Callable[[TaskExecutorGateway], Awaitable[T]],
        look: Callable[[Path], T],
        *,
        nothing: Callable[[], T],
    ) -> T:
        """Query a TaskManager; if it does not answer or has ended, call `look` with the log folder, if there is one."""
        gateway, folder = self._gateway_of(resource_id), self._log_folder
        if gateway is None and resource_id not in self.ended:
            raise UnknownTaskManagerError(str(resource_id))
        if gateway is not None:
            try:
                return await ask(with_timeout(gateway, _ANSWER_TIMEOUT_MS))
            except RpcError:
                if folder is None:
                    raise
        if folder is None:
            return nothing()
        return await self._run_blocking("read log files", lambda: look(folder))

    async def _delete(self, folder: Path, resource_id: ResourceId) -> None:
        name = task_manager_file_name(resource_id)
        try:
            await self._run_blocking("delete log files", lambda: delete_log_files(folder, name))
        except OSError as error:
            _LOG.warning("could not delete log files of TaskManager %s: %s", resource_id, error)
