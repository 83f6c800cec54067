"""ProcessInspection: provides log files, thread dumps, stack samples and profiles of a TaskManager's process.

Called on the main thread of the TaskExecutor; file access and long work run on other threads. Source: Flink
TaskExecutor.requestLogList, requestThreadDump, ThreadInfoSampleService.
"""

from typing import Final

from headrace.cluster.task_executor.task_manager_services import TaskManagerServices
from headrace.cluster.task_executor.task_table import TaskTable
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.ids import JobId, JobVertexId
from headrace.core.process.flame_graph import FlameGraphNode
from headrace.core.process.log_files import (
    LogFile,
    LogFileNotFoundError,
    LogPiece,
    log_files,
    read_log_file_of,
    task_manager_file_name,
)
from headrace.core.process.process_profiler import (
    PROFILING_HISTORY_SIZE,
    ProcessProfiler,
    ProfilingInfo,
    ProfilingMode,
)
from headrace.core.process.stack_sampler import StackSamples, sample_stacks
from headrace.core.process.thread_dump import ThreadInfo, thread_dump
from headrace.gateways.errors import StackSamplerBusyError

_SAMPLING_COUNT_MAX: Final = 4
"""Number of vertices whose stacks are sampled at the same time; each costs the tasks a little."""


class ProcessInspection:
    """Inspection for one TaskExecutor. If the process writes no log there are no files."""

    def __init__(
        self, services: TaskManagerServices, tasks: TaskTable, clock: Clock, settings: Settings
    ) -> None:
        self._services: Final = services
        self._tasks: Final = tasks
        self._clock: Final = clock
        self._file_name: Final = task_manager_file_name(services.resource_id)
        self._profiler: Final = ProcessProfiler(
            self._file_name, clock, settings.get_option(PROFILING_HISTORY_SIZE)
        )
        self._sampling_count = 0

    async def log_files(self) -> tuple[LogFile, ...]:
        """Return the log files of this TaskManager."""
        folder = self._services.log_folder
        if folder is None:
            return ()
        return await self._services.run_blocking(
            "list log files", lambda: log_files(folder, self._file_name)
        )

    async def read_log_file(self, name: str, offset: int, max_bytes: int) -> LogPiece:
        """Return part of a log file. LogFileNotFoundError if it does not exist."""
        folder = self._services.log_folder
        if folder is None:
            raise LogFileNotFoundError(name)
        return await self._services.run_blocking(
            "read a log file",
            lambda: read_log_file_of(folder, self._file_name, name, offset, max_bytes),
        )

    async def thread_dump(self) -> tuple[ThreadInfo, ...]:
        """Return the current stacks of all threads of this process."""
        return await self._services.run_blocking("thread dump", thread_dump)

    def start_profile(self, mode: ProfilingMode, duration_s: int) -> ProfilingInfo:
        """Start a profile of this process. ProfilerBusyError if one is running."""
        return self._profiler.start(mode, duration_s)

    def profiles(self) -> tuple[ProfilingInfo, ...]:
        """Return the newest profiles."""
        return self._profiler.profiles()

    def profile(self, file_name: str) -> FlameGraphNode:
        """Return a profile. ProfileNotFoundError if it does not exist."""
        return self._profiler.profile(file_name)

    async def sample_stacks(
        self,
        job_id: JobId,
        vertex_id: JobVertexId,
        subtask_index: int | None,
        sample_count: int,
        delay_ms: int,
        depth_max: int,
    ) -> StackSamples:
        """Sample the subtasks of a vertex that run here, or one of them.

        StackSamplerBusyError if too many are sampled already.
        """
        threads = {
            entry.attempt_id.subtask_index: ids
            for entry in self._tasks.of_job(job_id)
            if entry.attempt_id.execution_vertex_id.vertex_id == vertex_id
            and subtask_index in (None, entry.attempt_id.subtask_index)
            and not entry.has_ended
            and (ids := entry.task.thread_ids) is not None
        }
        if threads and self._sampling_count >= _SAMPLING_COUNT_MAX:
            raise StackSamplerBusyError(str(self._services.resource_id), self._sampling_count)
        self._sampling_count += 1
        try:
            return await self._services.run_blocking(
                "stack samples",
                lambda: sample_stacks(threads, self._clock, sample_count, delay_ms, depth_max),
            )
        finally:
            self._sampling_count -= 1
