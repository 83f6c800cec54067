"""A cluster whose TaskManagers are processes of this machine that tests may kill and ask; see scanned_task_manager."""

import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.cluster.cluster_handle import ClusterHandle
from headrace.cluster.entrypoint import ClusterEntrypoint
from headrace.cluster.host_services import HostServices
from headrace.cluster.resource_manager.driver import WorkerListener
from headrace.cluster.task_executor.options import OWN_INTERPRETER, TaskManagerConfiguration
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import ResourceId
from headrace.core.process.log_files import private_folder
from headrace.core.randomness import system_random
from headrace.core.resource_profile import ResourceProfile
from headrace.core.threads import start_thread
from tests.architecture.floor_plan import ROOT
from tests.unit.network.exchange import SECRET

PROGRAM = "tests.integration.programs.scanned_task_manager"


class TaskManagerProcess:
    """One of them; `leaks` may be asked by one thread at a time."""

    def __init__(
        self, configuration: TaskManagerConfiguration, interpreter: str = sys.executable
    ) -> None:
        self.name = str(configuration.resource_id)
        self.interpreter = interpreter
        self._is_stopped = False
        self._process = subprocess.Popen(
            [interpreter, "-m", PROGRAM],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._tell(pickle.dumps(configuration))

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def leaks(self) -> list[str]:
        """What its data plane holds at this moment; nothing where it was told to end meanwhile."""
        try:
            self._tell(b"leaks\n")
            assert self._process.stdout is not None
            return json.loads(self._process.stdout.readline())
        except ValueError:  # also of a closed file
            assert self._is_stopped, "it has ended by itself"
            return []

    def kill(self) -> None:
        """As the kernel does when memory is short: it learns nothing of it."""
        self._process.kill()

    def stop(self) -> None:
        """It ends by itself, once it has said goodbye."""
        self._is_stopped = True
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def wait(self) -> int:
        """Wait for its end and return its exit code."""
        code = self._process.wait()
        self.stop()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def _tell(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()


class ProcessDriver:
    """Starts TaskManagers as processes. Implements ResourceManagerDriver."""

    def __init__(
        self,
        settings: Settings,
        scratch: Path,
        count: int,
        *,
        writes_logs: bool = False,
        hosts: Sequence[str] = ("127.0.0.1",),
    ) -> None:
        """`hosts`: loopback addresses as if of several hosts; a TaskManager comes to the one that has the fewest."""
        self._writes_logs = writes_logs
        self._hosts = hosts
        self._host_of: dict[ResourceId, str] = {}
        self._handle: ClusterHandle | None = None
        # A fixed pool is asked for before whoever starts the cluster has its handle.
        self._has_handle = threading.Event()
        self._settings = settings
        self._scratch = scratch
        self.count = count
        """TaskManagers for which there is room."""
        self._listener: WorkerListener | None = None
        # Guards the processes: each is started and awaited by a thread of its own.
        self._lock = threading.Lock()
        self._processes: dict[ResourceId, TaskManagerProcess] = {}
        self._released: set[ResourceId] = set()
        self._is_closed = False

    @property
    def handle(self) -> ClusterHandle | None:
        """The cluster that the TaskManagers join, once it has started."""
        return self._handle

    @handle.setter
    def handle(self, handle: ClusterHandle) -> None:
        self._handle = handle
        self._has_handle.set()

    @property
    def max_worker_count(self) -> int | None:
        return self.count

    @property
    def live(self) -> list[TaskManagerProcess]:
        """Those that run and are to go on."""
        with self._lock:
            wanted = (each for key, each in self._processes.items() if key not in self._released)
            return [each for each in wanted if each.is_alive]

    def refusal_of(self, profile: ResourceProfile, usual: ResourceProfile) -> str:
        # But for their interpreters.
        return "" if profile.is_unspecified else "all TaskManagers are alike here"

    def describe_shortage(self) -> str:
        return "processes are started as they are needed"

    def initialize(self, listener: WorkerListener) -> None:
        self._listener = listener

    def request_worker(self, worker_id: ResourceId, profile: ResourceProfile) -> None:
        interpreter = profile.python_executable
        start_thread(f"host of {worker_id}", lambda: self._host(worker_id, interpreter))

    def release_worker(self, worker_id: ResourceId) -> None:
        with self._lock:
            self._released.add(worker_id)
            process = self._processes.get(worker_id)
        if process is not None:
            process.stop()

    async def close(self) -> None:
        with self._lock:
            self._is_closed = True
            processes = list(self._processes.values())
        for process in processes:
            process.stop()

    def on_host(self, host: str) -> list[TaskManagerProcess]:
        """Those of them that run there."""
        return [one for one in self.live if self._host_of[ResourceId(one.name)] == host]

    def _emptiest_host(self) -> str:
        used = Counter(
            self._host_of[key]
            for key, each in self._processes.items()
            if key not in self._released and each.is_alive
        )
        return min(self._hosts, key=lambda host: used[host])

    def kill_all(self) -> None:
        """Whatever happened, nothing is left of them."""
        with self._lock:
            for process in self._processes.values():
                process.kill()

    def _host(self, worker_id: ResourceId, interpreter: str) -> None:
        self._has_handle.wait(60)
        assert self._listener is not None and self.handle is not None
        directory = self._scratch / str(worker_id)
        directory.mkdir()
        configuration = TaskManagerConfiguration(
            resource_id=worker_id,
            leader_retrieval_address=self.handle.leader_retrieval_address,
            secret=SECRET,
            settings={**self._settings.to_dict(), OWN_INTERPRETER.key: interpreter},
            scratch_directory=directory,
            log_folder=private_folder(directory / "logs") if self._writes_logs else None,
        )
        with self._lock:
            host = self._host_of[worker_id] = self._emptiest_host()
            configuration = replace(configuration, bind_host=host, advertised_host=host)
            if self._is_closed or worker_id in self._released:
                reason = "it is not needed any more"
            else:
                reason = ""
                process = self._processes[worker_id] = TaskManagerProcess(
                    configuration, interpreter or sys.executable
                )
        if not reason:
            self._listener.worker_started(worker_id)
            reason = f"its process ended with {process.wait()}"
        self._listener.worker_terminated(worker_id, reason)


@contextlib.contextmanager
def process_cluster(
    scratch: Path,
    count: int,
    settings: Mapping[str, str],
    log_folder: Path | None = None,
    *,
    hosts: Sequence[str] = ("127.0.0.1",),
) -> Iterator[tuple[ClusterHandle, ProcessDriver]]:
    """A cluster of up to `count` TaskManagers, which come when a job needs them and end with the block.

    `log_folder` is the driver's. With one, each TaskManager writes its log to a folder of its own, as on other hosts.
    """
    chosen = Settings(settings)
    driver: Any = ProcessDriver(
        chosen, scratch, count, writes_logs=log_folder is not None, hosts=hosts
    )
    entrypoint = ClusterEntrypoint(
        chosen,
        driver,
        {},
        SECRET,
        "127.0.0.1",
        "127.0.0.1",
        SystemClock(),
        system_random(),
        host_services=HostServices(log_folder=log_folder),
    )
    handle = driver.handle = entrypoint.start()
    try:
        yield handle, driver
    finally:
        handle.close()
        driver.kill_all()
