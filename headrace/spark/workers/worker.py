"""The body of a TaskManager's Spark task: runs a TaskExecutor on the main thread, with watches that end the process.

The forked process is Spark's; SIGHUP keeps its default action, because Spark ends its workers with it when an
executor goes. The task returns normally after a graceful stop; Spark then throws the process away, because its
input was not read.
"""

import contextlib
import logging
import os
import signal
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark import TaskContext

from headrace.cluster.printed_output import PrintedOutput
from headrace.cluster.task_executor.options import TaskManagerConfiguration
from headrace.cluster.versions import software_versions
from headrace.core.config import Settings
from headrace.core.process.interpreter import settle_interpreter
from headrace.core.process.log_files import private_folder, task_manager_file_name
from headrace.core.process.process_log import ProcessLog
from headrace.core.threads import share_interpreter
from headrace.spark.session.authentication import received_secrets
from headrace.spark.session.spark_errors import UnusableEnvironmentError
from headrace.spark.workers.cpu_affinity import take_place
from headrace.spark.workers.job_environment import JobEnvironment, made_environment, run_program
from headrace.spark.workers.worker_output import (
    collected_output,
    copied_standard_error,
    redirect_standard_output,
)
from headrace.spark.workers.worker_process import (
    PASSED_ON,
    ParentWatch,
    connected_stream_descriptors,
    die_with_parent,
    end_process,
    external_resources,
    is_spark_process,
    on_termination,
    own_streams,
    routable_address,
    scratch_directory,
    socket_directory,
)

if TYPE_CHECKING:
    from headrace.cluster.task_executor.lock_watcher import WatcherProcess

_LOG: Final = logging.getLogger(__name__)

SPARK_SECRET_VARIABLE: Final = "_SPARK_AUTH_SECRET"
"""Environment variable in which Spark gives executors its secret; their children inherit it."""


@dataclass(frozen=True)
class WorkerSpec:
    """Contents of the closure that starts a worker.

    `configuration` lacks values that only the worker knows (addresses and directories) and values that no closure may
    contain (secret, key and settings). An empty `bind_host` means the address under which others reach this host.
    Lines of standard output go to `output_pipe` if it is not empty, else to the endpoint at `output_address`. Log files
    are written to the folder `log_folder`, or, if it is empty, to the scratch directory of the process.
    `log_levels` are those that the program gave to its own loggers, by name; the root logger's name is empty.
    Files of a job's environment are at `blob_server_address`; `notes`: log lines from before there was a log.
    """

    configuration: TaskManagerConfiguration
    driver_host: str
    log_level: int
    output_pipe: str = ""
    output_address: str = ""
    log_levels: Mapping[str, int] = field(default_factory=dict[str, int])
    log_folder: str = ""
    blob_server_address: str = ""
    notes: tuple[str, ...] = ()


@dataclass
class _ProcessUse:
    """Ensures that a process hosts one TaskManager in its life, as threads and modules of another would interfere."""

    is_used: bool = field(default=False)


_process: _ProcessUse = _ProcessUse()


def run_worker(
    spec: WorkerSpec, environment: JobEnvironment | None, rows: Iterable[int]
) -> Iterator[str]:
    """Run a TaskManager until it is stopped; the one result row is the reason of its end. `rows` is left unread.

    It runs in the Python environment of its job, if the job brings one; if it cannot, the result says why.
    """
    parent_pid = os.getppid()
    descriptors = connected_stream_descriptors()
    task_context = TaskContext.get()
    if task_context is not None and task_context.attemptNumber() > 0:
        # The ResourceManager decides about restarts; it requests a new worker with a new id.
        return iter(["rerun refused"])
    if _process.is_used:
        raise RuntimeError("this Python process has hosted a TaskManager before")
    _process.is_used = True
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if not (die_with_parent(parent_pid) and is_spark_process(parent_pid) and descriptors):
        # The parent that would receive the result, or end this process, is gone.
        end_process("its Spark executor was gone before the worker started")
    configuration = replace(
        _with_secrets(spec.configuration), external_resources=external_resources(task_context)
    )
    if environment is None:
        return iter([host_task_manager(spec, configuration, parent_pid, descriptors)])
    watch = ParentWatch(parent_pid, descriptors)
    try:
        configuration = _with_addresses(spec, configuration)
        notes: list[str] = []
        address = spec.blob_server_address
        with made_environment(environment, configuration, address, notes.append) as interpreter:
            spec = replace(spec, configuration=configuration, notes=tuple(notes))
            return iter([run_program(interpreter, msgspec.msgpack.encode(spec))])
    except UnusableEnvironmentError as error:
        return iter([error.as_result()])
    finally:
        watch.stop()


def host_task_manager(
    spec: WorkerSpec,
    configuration: TaskManagerConfiguration,
    parent_pid: int,
    descriptors: tuple[int, ...] = (),
) -> str:
    """Run a TaskManager in this process, the child of `parent_pid`, until it is stopped; return the reason."""
    share_interpreter()
    settle_interpreter()
    # Before any thread is started, as threads inherit the cores of the thread that starts them.
    settings = Settings(configuration.settings)
    # Imported late: the driver only names this function, and needs no data plane.
    from headrace.cluster.task_executor.task_manager_runner import fork_lock_watcher

    lock_watcher = fork_lock_watcher(settings)
    place = take_place(settings)
    watch = ParentWatch(parent_pid, descriptors)
    try:
        return _host_task_manager(spec, configuration, lock_watcher)
    finally:
        watch.stop()
        if place is not None:
            place.release()


def _with_addresses(spec: WorkerSpec, given: TaskManagerConfiguration) -> TaskManagerConfiguration:
    own_address = given.advertised_host or routable_address(spec.driver_host)
    return replace(given, bind_host=given.bind_host or own_address, advertised_host=own_address)


def _with_secrets(configuration: TaskManagerConfiguration) -> TaskManagerConfiguration:
    secrets = received_secrets()
    # Programs that user code starts have no use for Spark's own secret.
    os.environ.pop(SPARK_SECRET_VARIABLE, None)
    return replace(configuration, secret=secrets.secret, tls=secrets.tls, settings=secrets.settings)


@contextlib.contextmanager
def _standard_output(
    spec: WorkerSpec, log: ProcessLog
) -> Generator[PrintedOutput | None, None, None]:
    """Redirect printed lines to the driver and to `log`; yield the lines that the TaskManager must send, or None."""
    with copied_standard_error(log.write_printed):
        if spec.output_address and not spec.output_pipe:
            with collected_output(spec.output_address, log.write_printed) as output:
                yield output
        else:
            with redirect_standard_output(spec.output_pipe, log.write_printed):
                yield None


@contextlib.contextmanager
def _process_log(
    spec: WorkerSpec, configuration: TaskManagerConfiguration, scratch: Path
) -> Generator[ProcessLog, None, None]:
    """Open this TaskManager's log files in the configured folder; in its scratch directory if that fails."""
    trouble: OSError | None = None
    folder = private_folder(scratch / "logs")
    if spec.log_folder:
        try:
            folder = private_folder(Path(spec.log_folder))
        except OSError as error:
            trouble = error
    name = task_manager_file_name(configuration.resource_id)
    log = ProcessLog(folder, name, Settings(configuration.settings))
    try:
        with own_streams(spec.log_level, spec.log_levels, log):
            if trouble is not None:
                _LOG.warning(
                    "log files are written to %s, and are deleted with it: %s", folder, trouble
                )
            yield log
    finally:
        log.close()


def _host_task_manager(
    spec: WorkerSpec, given: TaskManagerConfiguration, lock_watcher: "WatcherProcess | None"
) -> str:
    from headrace.cluster.task_executor.task_manager_runner import EndRequest, run_task_manager

    with (
        scratch_directory(os.environ) as scratch,
        _process_log(spec, given, scratch) as log,
        _standard_output(spec, log) as output,
    ):
        configuration = replace(
            _with_addresses(spec, given),
            socket_directory=socket_directory(scratch),
            scratch_directory=scratch,
            log_folder=log.folder,
            versions=software_versions(),
        )
        _LOG.info(
            "TaskManager %s in process %d, scratch %s", given.resource_id, os.getpid(), scratch
        )
        for note in spec.notes:
            _LOG.info("%s", note)
        should_stop = EndRequest()
        # Sent to every process of a machine that shuts down: peers are notified before this process is gone.
        handler = on_termination(should_stop.decommission)
        signal.signal(signal.SIGTERM, handler)
        signal.signal(PASSED_ON, handler)
        return run_task_manager(
            configuration, output=output, should_stop=should_stop, lock_watcher=lock_watcher
        )
