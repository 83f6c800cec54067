"""JobEnvironment: the Python environment that a job brings, in which its TaskManagers run.

Spark starts a Python worker before any file of a job is on its host. So that worker fetches the files, and builds
an interpreter from them, once per host. The TaskManager is a child process with this interpreter; the worker waits for
it.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark import SparkFiles

from headrace.cluster.blob.artifact_cache import (
    REQUIREMENT_KINDS,
    environment_interpreter,
    make_artifacts,
)
from headrace.cluster.blob.artifact_store import ArtifactLease, ArtifactStore
from headrace.cluster.blob.blob_client import content_of
from headrace.cluster.blob.options import storage_parent
from headrace.cluster.blob.virtual_environment import INSTALL_TIMEOUT
from headrace.cluster.task_executor.options import TaskManagerConfiguration
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import BlobKey, JobId
from headrace.gateways.blob_server import BlobServerGateway
from headrace.graph.job_graph import JobArtifact, JobGraph
from headrace.graph.pipeline_options import (
    ARTIFACT_SIZE_MAX,
    PYTHON_EXECUTABLE,
    archive_interpreter,
)
from headrace.rpc.options import TASK_MANAGER_RPC_PORT
from headrace.spark.session.spark_errors import (
    LASTING_ERRNOS,
    EnvironmentNotMadeError,
    UnusableEnvironmentError,
)
from headrace.spark.workers.worker_process import PASSED_ON

_PROGRAM: Final = "headrace.spark.workers.environment_process"
READY: Final = "ready\n"
"""Message that the program sends before it becomes a TaskManager."""
_ANSWER_BYTES_MAX: Final = 1 << 16
_KEPT_MS: Final = 600_000
"""Maximum time after a crash for which the environment is kept for the next TaskManager on the host."""


@dataclass(frozen=True)
class JobEnvironment:
    """Python environment of one job, which is built on each host.

    `archived`: path of its interpreter in an archive of the job, or empty. `executable`: interpreter of the worker that
    builds it, if it differs from the cluster's.
    """

    job_id: JobId
    archived: str
    executable: str
    artifacts: tuple[JobArtifact, ...]
    settings: Mapping[str, str]

    @classmethod
    def of(cls, graph: JobGraph) -> "JobEnvironment":
        """Return the Python environment that a job brings; for jobs that have one.

        Only the settings it needs are kept, as others may be secret.
        """
        settings = Settings(graph.settings)
        archived = archive_interpreter(settings)
        archive = archived.partition("/")[0]
        # Spark's own setting wins: a cluster of the job's own runs by it.
        has_other = archived or "spark.pyspark.python" in graph.settings
        return cls(
            graph.job_id,
            archived,
            "" if has_other else settings.get_option(PYTHON_EXECUTABLE),
            tuple(
                one
                for one in graph.artifacts
                if one.kind in REQUIREMENT_KINDS or (archive and one.name == archive)
            ),
            {
                option.key: graph.settings[option.key]
                for option in (INSTALL_TIMEOUT, ARTIFACT_SIZE_MAX)
                if option.key in graph.settings
            },
        )


@contextlib.contextmanager
def made_environment(
    environment: JobEnvironment,
    configuration: TaskManagerConfiguration,
    blob_server_address: str,
    note: Callable[[str], None],
) -> Generator[Path]:
    """Build the environment on this host, and yield its interpreter.

    `note` is called with a line for each file. Blocking.

    It is deleted when no process uses it any more; after a crash, some minutes later at the earliest.

    UnusableEnvironmentError if it cannot work; EnvironmentNotMadeError if it may be built later, or on another host.
    """
    settings = Settings({**configuration.settings, **environment.settings})
    making_s = settings.duration_ms(INSTALL_TIMEOUT) / 1000
    store = ArtifactStore(storage_parent(settings, None), SystemClock(), making_s)

    def fetch(key: BlobKey) -> bytes:
        if key.size_bytes == 0:
            return b""
        return asyncio.run(_fetch(environment.job_id, key, blob_server_address, configuration))

    artifacts, archived = environment.artifacts, environment.archived
    leases: list[ArtifactLease] = []
    try:
        try:
            leases = make_artifacts(store, artifacts, settings, fetch, archived, note)
            interpreter = environment_interpreter(store, artifacts, archived)
        except (HeadraceError, OSError) as error:
            raise _unusable(error) from None
        try:
            yield interpreter
        except RuntimeError:
            for lease in leases:
                # The TaskManager that replaces this one would have to install everything again.
                lease.leave(_KEPT_MS)
            raise
    finally:
        for lease in leases:
            lease.release()
        # There may be no other TaskManager on this host that does.
        store.delete_unused()


def _unusable(error: HeadraceError | OSError) -> UnusableEnvironmentError:
    """Return the error of the job if it is at fault, else that of the host: its disk, or its connections."""
    if isinstance(error, HeadraceError) and not error.recoverable:
        return UnusableEnvironmentError.here(str(error))
    return EnvironmentNotMadeError.here(str(error))


def run_program(interpreter: Path, content: bytes) -> str:
    """Run a TaskManager with the interpreter until it ends; return the reason. Main thread of a worker.

    UnusableEnvironmentError if it cannot start, RuntimeError if it crashes.
    """
    environ = _environ(interpreter)
    reader, writer = os.pipe()
    try:
        command = [str(interpreter), "-m", _PROGRAM, str(os.getpid()), str(writer)]
        # Standard output of Spark's workers is where Spark's daemon talks to its JVM.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=2, pass_fds=(writer,), env=environ
        )
        signal.signal(signal.SIGTERM, lambda *_: process.send_signal(PASSED_ON))
        process.communicate(content)
        code, said = process.returncode, ""
        # A process that functions have started may still hold the other end.
        os.set_blocking(reader, False)
        with contextlib.suppress(BlockingIOError):
            said = os.read(reader, _ANSWER_BYTES_MAX).decode()
    except OSError as error:
        is_lasting = error.errno in LASTING_ERRNOS
        kind = UnusableEnvironmentError if is_lasting else EnvironmentNotMadeError
        raise kind.here(f"{interpreter} does not run: {error.strerror}") from error
    finally:
        os.close(reader)
        os.close(writer)
    # Where no reason follows, a function has ended the process with `os._exit(0)`.
    if code == 0 and said.startswith(READY) and said != READY:
        return said.removeprefix(READY)
    if code > 0 and not said and (reason := _import_failure(interpreter, environ)):
        raise UnusableEnvironmentError.here(
            f"its interpreter, {interpreter}, does not run Headrace: {reason}; install the driver's versions of "
            "Headrace, PySpark and PyArrow into it, of the driver's version of Python"
        )
    raise RuntimeError(f"the process of the TaskManager ended with {code}")


def _environ(interpreter: Path) -> dict[str, str]:
    """Return the environment variables of the process: packages and programs of the job precede all others.

    Files that Spark has put onto this process's path are included.
    """
    shipped = SparkFiles.getRootDirectory()
    places = [str(one) for one in interpreter.parent.parent.glob("lib/python*/site-packages")]
    places += [place for place in sys.path if place.startswith(shipped)]
    places += filter(None, [os.environ.get("PYTHONPATH", "")])
    programs = f"{interpreter.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PATH": programs}


def _import_failure(interpreter: Path, environ: Mapping[str, str]) -> str:
    """Return the error with which an interpreter fails to import the program, or an empty text."""
    done = subprocess.run(
        [str(interpreter), "-c", f"import {_PROGRAM}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=environ,
    )
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


async def _fetch(
    job_id: JobId, key: BlobKey, server_address: str, configuration: TaskManagerConfiguration
) -> bytes:
    # Imported late: the driver, which only names the environment, needs no data plane.
    from headrace.cluster.task_executor.task_manager_runner import open_rpc_service

    # The port is the TaskManager's.
    settings = Settings(
        {
            key: value
            for key, value in configuration.settings.items()
            if key != TASK_MANAGER_RPC_PORT.key
        }
    )
    service = await open_rpc_service(replace(configuration, settings=settings.to_dict()))
    try:
        server = service.gateway(server_address, BlobServerGateway)
        return await content_of(server, job_id, key, settings)
    finally:
        await service.stop()
