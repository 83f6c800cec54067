"""TaskManager runner: runs a complete TaskManager in this process, from its first socket to its end.

A Spark worker, a plain process and a test's thread call the same `run_task_manager`. Source: Flink TaskManagerRunner.
"""

import asyncio
import contextlib
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final, NoReturn

from headrace.checkpoint.options import LOCAL_BACKUP_SIZE
from headrace.cluster.printed_output import OutputSender, PrintedOutput
from headrace.cluster.task_executor.deployment import StreamTaskFactory
from headrace.cluster.task_executor.external_resources import task_manager_resources
from headrace.cluster.task_executor.lock_watcher import InterpreterLock, WatcherProcess
from headrace.cluster.task_executor.options import (
    CPU_CORES,
    NUMBER_OF_TASK_SLOTS,
    TaskManagerConfiguration,
)
from headrace.cluster.task_executor.shuffle_service_loader import load_shuffle_service_factory
from headrace.cluster.task_executor.task_executor import TaskExecutor
from headrace.cluster.task_executor.task_local_state import TaskLocalState
from headrace.cluster.task_executor.task_manager_services import TaskManagerServices
from headrace.cluster.versions import software_versions
from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings
from headrace.core.process import failpoints
from headrace.core.process.memory_parts import (
    PROCESS_MEMORY,
    MemoryParts,
    own_memory_parts,
    process_memory_bytes,
)
from headrace.core.process.process_memory import physical_memory_bytes, resident_memory_bytes
from headrace.core.process.state_memory import columnar_state_bytes
from headrace.core.randomness import SeededRandom, quick_random, system_random
from headrace.core.resource_profile import ResourceProfile
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import EventLoopThread, run_in_thread
from headrace.gateways.messages import MemoryUsage
from headrace.gateways.resource_manager import HardwareDescription
from headrace.metrics.cluster_names import MANAGED_TOTAL, MANAGED_USED
from headrace.metrics.groups import MetricGroup, samples_of
from headrace.metrics.process_metrics import ProcessWatcher, process_metrics
from headrace.metrics.readings import GroupReading
from headrace.metrics.reporters.reporter_setup import create_metric_registry
from headrace.metrics.scopes import GroupKind
from headrace.network.shuffle_environment import ShuffleEnvironmentContext
from headrace.network.stored.spill_files import TMP_DIRS
from headrace.rpc.options import HELD_LOCK_TIMEOUT, TASK_MANAGER_RPC_PORT
from headrace.rpc.service import RpcService
from headrace.rpc.tcp import TcpRpcService
from headrace.state.rocksdb.database import shared_memory_usage
from headrace.task.task_runner import ThreadTaskRunner

_LOG = logging.getLogger(__name__)

FATAL_EXIT_CODE: Final = 239
_CONTROL_THREAD: Final = "headrace-control"
_CLOSE_TIMEOUT_S: Final = 10.0
_TELL_TIMEOUT_S: Final = 2.0
_OWN_PACKAGE: Final = "headrace."


class EndKind(Enum):
    """Kinds of end that a TaskManager may be told."""

    NOW = "NOW"
    ONCE_LEFT = "ONCE_LEFT"


class EndRequest:
    """Tells a TaskManager to end, from any thread and from a signal handler."""

    def __init__(self) -> None:
        # Unlike `set` of an event, `put` is reentrant.
        self._told: Final = queue.SimpleQueue[str | EndKind]()

    def set(self) -> None:
        """Let the TaskManager end now; may be called repeatedly, and before it has started.

        For callers that run TaskManagers themselves and wait for no job, as tests do; Spark and Headrace use
        `decommission`.
        """
        self._told.put(EndKind.NOW)

    def decommission(self) -> None:
        """Let the TaskManager end once its jobs have left it; a second call ends it at once."""
        self._told.put(EndKind.ONCE_LEFT)

    def has_ended(self, reason: str) -> None:
        """Record the end of the TaskManager."""
        self._told.put(reason)

    def wait(self) -> str | EndKind:
        """Wait, without waking meanwhile; return the requested kind of end, or the reason if it has ended."""
        return self._told.get()


def run_task_manager(
    configuration: TaskManagerConfiguration,
    *,
    should_stop: EndRequest | None = None,
    exit_process: Callable[[str], None] | None = None,
    output: PrintedOutput | None = None,
    lock_watcher: WatcherProcess | None = None,
) -> str:
    """Run a TaskManager until it is stopped by RPC, gives up or is told by `should_stop`; return the reason.

    A task that cannot be stopped ends the process at once with FATAL_EXIT_CODE, unless `exit_process` replaces this.
    `output`: printed lines that the driver must show. `lock_watcher`: forked from this process, which belongs to the
    TaskManager, before it had threads.
    """
    failpoints.arm(Settings(configuration.settings))
    control = EventLoopThread(_CONTROL_THREAD)
    exits = exit_process or _exit_on_the_spot

    def exit_after(error: BaseException) -> None:
        exits(f"fatal error: {type(error).__name__}: {error}")

    try:
        with LocalTaskManager(configuration, exit_after) as task_manager:
            return _serve(
                configuration,
                control,
                task_manager,
                should_stop or EndRequest(),
                exits,
                exit_after,
                output,
                lock_watcher,
            )
    finally:
        control.stop()


class LocalTaskManager:
    """Data plane of one TaskManager, with the TaskExecutor that connects it to the cluster.

    A context manager: entering binds the data plane's sockets, leaving closes them. `metrics` belong to the process;
    each task has a separate group.
    """

    def __init__(
        self,
        configuration: TaskManagerConfiguration,
        on_fatal_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Make the data plane, without binding sockets; for `on_fatal_error` see ShuffleEnvironmentContext."""
        self._configuration: Final = configuration
        self._settings: Final = _with_result_directory(
            Settings(configuration.settings), configuration.scratch_directory
        )
        self._clock: Final[Clock] = SystemClock()
        self._random: Final[SeededRandom] = system_random()
        self.metrics: Final = MetricGroup(self._clock, (str(configuration.resource_id),))
        # First of all, before anything that must be closed: settings of reporters may be wrong.
        self.registry: Final = create_metric_registry(
            self._settings, self._clock, str(configuration.resource_id)
        )
        self.registry.add("process", self._read_process)
        self._shuffle: Final = load_shuffle_service_factory(
            self._settings
        ).create_shuffle_environment(
            ShuffleEnvironmentContext(
                resource_id=configuration.resource_id,
                settings=self._settings,
                secret=configuration.secret,
                bind_host=configuration.bind_host,
                advertised_host=configuration.advertised_host,
                clock=self._clock,
                random=self._random,
                socket_directory=configuration.socket_directory,
                tls=configuration.tls,
                metrics=self.metrics,
                on_fatal_error=on_fatal_error,
            )
        )
        self._location: TaskManagerLocation | None = None
        self._task_metrics: Callable[[], dict[str, float]] = dict[str, float]

    def __enter__(self) -> "LocalTaskManager":
        self._location = self._shuffle.start()
        self.registry.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.registry.close()
        finally:
            self._shuffle.close()

    def process_metrics(self) -> dict[str, float]:
        """Return the metrics of the process, including network, managed memory and tasks, by full names. Any thread."""
        network = {f"Status.{name}": value for name, value in self.metrics.snapshot().items()}
        in_rocksdb, of_rocksdb = shared_memory_usage()
        # RocksDB may have been given more than managed memory.
        total = max(of_rocksdb, own_memory_parts(self._settings).managed)
        used = in_rocksdb + columnar_state_bytes()
        managed = {MANAGED_USED.name: float(used), MANAGED_TOTAL.name: float(total)}
        of_process = process_metrics(process_memory_bytes(self._settings))
        return of_process | network | managed | self._task_metrics()

    def _read_process(self) -> tuple[GroupReading]:
        configuration = self._configuration
        variables = {
            "host": configuration.advertised_host,
            "tm_id": str(configuration.resource_id),
        }
        samples = samples_of(self.process_metrics())
        return (GroupReading(GroupKind.TASK_MANAGER, variables, samples),)

    def _measure_memory(self) -> MemoryUsage:
        return MemoryUsage(resident_memory_bytes(), process_memory_bytes(self._settings))

    @property
    def location(self) -> TaskManagerLocation:
        """Location of the data plane."""
        assert self._location is not None, "enter first"
        return self._location

    def create_executor(
        self,
        rpc_service: RpcService,
        *,
        exit_process: Callable[[str], None],
        on_terminated: Callable[[str], None],
        lock_watcher_address: Callable[[], str] = str,
        owns_process: bool = False,
    ) -> TaskExecutor:
        """Make the endpoint, on the loop of `rpc_service`; the caller starts it."""
        configuration = self._configuration
        local_copies = _local_copies(configuration.scratch_directory, self._settings)
        slot_count = self._settings.get_option(NUMBER_OF_TASK_SLOTS)
        parts = own_memory_parts(self._settings)
        services = TaskManagerServices(
            resource_id=configuration.resource_id,
            location=self.location,
            leader_retrieval_address=configuration.leader_retrieval_address,
            slot_count=slot_count,
            slot_profile=self._told_resources(slot_count, parts).times(1 / slot_count),
            versions=dict(configuration.versions or software_versions()),
            pid=os.getpid(),
            attempt_number=configuration.attempt_number,
            measure_memory=self._measure_memory,
            process_metrics=self.process_metrics,
            metric_registry=self.registry,
            task_factory=self._create_task_factory(local_copies),
            run_blocking=run_in_thread,
            exit_process=exit_process,
            on_terminated=on_terminated,
            scratch=configuration.scratch_directory,
            local_copies=local_copies,
            partitions=self._shuffle.partitions,
            log_folder=configuration.log_folder,
            lock_watcher_address=lock_watcher_address,
            hardware=self._describe_hardware(parts),
            external_resources=configuration.external_resources,
            owns_process=owns_process,
        )
        executor = TaskExecutor(rpc_service, services)
        self._task_metrics = executor.task_metrics
        return executor

    def _create_task_factory(self, local_copies: TaskLocalState | None) -> StreamTaskFactory:
        return StreamTaskFactory(
            resource_id=self._configuration.resource_id,
            shuffle=self._shuffle,
            runner=ThreadTaskRunner(),
            settings=self._settings,
            clock=self._clock,
            # Tasks draw a number for each row that they deal out by chance.
            random=quick_random(self._random),
            metrics=self.metrics,
            ingest=self._shuffle.ingest,
            scratch=self._configuration.scratch_directory,
            local_copies=local_copies,
        )

    def _describe_hardware(self, parts: MemoryParts) -> HardwareDescription:
        return HardwareDescription(
            self._settings.get_option(CPU_CORES) or float(_core_count()),
            physical_memory_bytes(),
            parts.managed,
            parts,
        )

    def _told_resources(self, slot_count: int, parts: MemoryParts) -> ResourceProfile:
        """Log the resources that this TaskManager has for its slots, and return them."""
        configuration = self._configuration
        addresses = configuration.external_resources
        amounts = tuple((name, len(found)) for name, found in addresses.items())
        total = task_manager_resources(self._settings, parts, amounts)
        _LOG.info(
            "TaskManager %s has %s in %d slot(s); memory of %s",
            configuration.resource_id,
            total,
            slot_count,
            parts,
        )
        if parts.is_shrunk:
            _LOG.warning(
                "the memory of a TaskManager, %d mb, is less than its parts take by default, so they were made smaller "
                "and tasks have %d mb: raise %s",
                parts.process_bytes >> 20,
                parts.task_heap >> 20,
                PROCESS_MEMORY.key,
            )
        return total


def _serve(
    configuration: TaskManagerConfiguration,
    control: EventLoopThread,
    task_manager: LocalTaskManager,
    should_stop: EndRequest,
    exit_process: Callable[[str], None],
    exit_after: Callable[[BaseException], None],
    output: PrintedOutput | None,
    lock_watcher: WatcherProcess | None,
) -> str:
    is_own = threading.current_thread() is threading.main_thread()
    lock = None if lock_watcher is None else InterpreterLock.of(configuration, lock_watcher)

    async def start() -> tuple[TcpRpcService, TaskExecutor]:
        rpc_service = await open_rpc_service(configuration)
        rpc_service.on_fatal_error = control.on_fatal_error = exit_after
        executor = task_manager.create_executor(
            rpc_service,
            exit_process=exit_process,
            on_terminated=should_stop.has_ended,
            lock_watcher_address=lambda: "" if lock is None else lock.watcher_address,
            owns_process=is_own,
        )
        executor.start()
        return rpc_service, executor

    rpc_service, executor = control.run(start())
    if lock is not None:
        lock.start()
    watcher = ProcessWatcher(SystemClock(), control.loop.call_soon_threadsafe).start()
    sender = None if output is None else OutputSender(output, control, rpc_service)

    def tell_exit(reason: str) -> None:
        executor.call_async(lambda: executor.say_goodbye(reason)).result(_TELL_TIMEOUT_S)
        # Written data leaves at the end of the loop's round; one more round must have begun by then.
        control.run(asyncio.sleep(0), _TELL_TIMEOUT_S)

    told_exit = ToldExit(tell_exit, (_CONTROL_THREAD,)) if is_own else contextlib.nullcontext()
    try:
        with told_exit:
            while isinstance(told := should_stop.wait(), EndKind):
                end = executor.end if told is EndKind.NOW else executor.decommission
                end("the process that hosts it was told to stop")
            return told
    finally:
        watcher.stop()
        if lock is not None:
            lock.stop()
        if sender is not None:
            sender.close()
        # Disconnect messages have been written; let them leave before the connections close.
        with contextlib.suppress(TimeoutError):
            control.run(rpc_service.stop(), _CLOSE_TIMEOUT_S)


async def open_rpc_service(configuration: TaskManagerConfiguration) -> TcpRpcService:
    """Start the RPC service of a process with a TaskManager's rights, on the running loop."""
    rpc_service = TcpRpcService(
        Settings(configuration.settings),
        bind_host=configuration.bind_host,
        advertised_host=configuration.advertised_host,
        port_option=TASK_MANAGER_RPC_PORT,
        secret=configuration.secret,
        clock=SystemClock(),
        random=system_random(),
        tls=configuration.tls,
    )
    await rpc_service.start()
    return rpc_service


def fork_lock_watcher(settings: Settings) -> WatcherProcess | None:
    """Fork the process that watches the interpreter lock of this TaskManager's process, which has no threads yet.

    None if the option switches it off, or the fork fails.
    """
    if not settings.duration_ms(HELD_LOCK_TIMEOUT):
        return None
    try:
        return WatcherProcess.fork()
    except OSError as error:
        _LOG.warning("cannot start the process that watches the interpreter lock: %s", error)
        return None


def _core_count() -> int:
    """Return the number of cores that this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _local_copies(scratch: Path | None, settings: Settings) -> TaskLocalState | None:
    """Return the local copies of tasks' state, deleted with the process; None without a directory of its own."""
    if scratch is None:
        return None
    return TaskLocalState(scratch / "local-state", settings.get_option(LOCAL_BACKUP_SIZE))


def _with_result_directory(settings: Settings, scratch: Path | None) -> Settings:
    """Return settings that store results in `scratch`, unless the user has set a directory.

    Results are then deleted with the process, even if it is killed.
    """
    if scratch is None or settings.get_option(TMP_DIRS):
        return settings
    return settings.with_values({TMP_DIRS.key: str(scratch)})


def _exit_on_the_spot(reason: str) -> None:
    """End the process at once: a thread cannot be stopped from outside, and may hold any lock."""
    _LOG.critical("the TaskManager's process ends at once: %s", reason)
    logging.shutdown()
    os._exit(FATAL_EXIT_CODE)


class ToldExit:
    """Replaces `os._exit` within its block, to report why the process ends when a job's function calls it.

    The kernel reports the exit code only to the parent, and Spark's forking daemon ignores it.

    `tell(reason)` returns once the reason has been sent, or cannot be. Calls of Headrace itself, of forks of this
    process and of the threads named in `silent_threads` end the process as usual.
    """

    def __init__(self, tell: Callable[[str], None], silent_threads: tuple[str, ...]) -> None:
        self._tell: Final = tell
        self._silent_threads: Final = silent_threads
        self._pid: Final = os.getpid()
        self._exit: Final = os._exit

    def __enter__(self) -> "ToldExit":
        os._exit = self
        return self

    def __exit__(self, *_: object) -> None:
        os._exit = self._exit

    def __call__(self, status: int) -> NoReturn:
        """End the process, after a report to the driver if a function of a job calls."""
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        if (
            os.getpid() == self._pid
            and not str(caller.f_globals.get("__name__", "")).startswith(_OWN_PACKAGE)
            and threading.current_thread().name not in self._silent_threads
        ):
            with contextlib.suppress(Exception):
                self._tell(
                    f"os._exit({status}) was called in {caller.f_code.co_name} "
                    f"({caller.f_code.co_filename}:{caller.f_lineno})"
                )
        self._exit(status)
