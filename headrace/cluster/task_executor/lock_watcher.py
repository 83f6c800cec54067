"""LockWatcher: a process that measures how long the interpreter lock of its TaskManager is held.

InterpreterLock is the TaskManager's side: while Python runs, a thread postpones the dump of `faulthandler` again and
again. Once C code holds the lock, no Python thread runs, and the C thread of `faulthandler` writes the stacks into
the pipe of the LockWatcher.

The watcher is forked before the TaskManager has threads and files of a job, waits for a WatcherConfiguration as its
first line of input, then reads stacks, runs no user code, answers a single kind of request, and ends with the
TaskManager.
"""

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import re
import select
import signal
import sysconfig
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath
from threading import Event
from typing import Final, Self

import msgspec

from headrace.cluster.task_executor.options import TaskManagerConfiguration
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.randomness import system_random
from headrace.core.security.tls import TlsIdentity
from headrace.core.threads import Thread, start_thread
from headrace.gateways.lock_watcher import HeldLock, LockWatcherGateway
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.options import HEARTBEAT_TIMEOUT, TASK_MANAGER_RPC_PORT
from headrace.rpc.service import RpcService
from headrace.rpc.tcp import TcpRpcService

_DUMP_PERIOD_MIN_S: Final = 2.0
_DUMPS_WITHIN_HEARTBEATS: Final = 2.5
"""Number of dumps before a silent process would count as lost; each is a risk in a process that was only stopped."""
_PARENT_CHECK_S: Final = 5.0
_INPUT, _ANSWER, _FIRST_FREE = 0, 1, 3
"""Descriptors of a watcher: its input, the pipe for its address, and the first one that it does not use."""
_PIPE_READ_BYTES: Final = 1 << 16
RELEASED: Final = b"released\n"
"""Line that the process itself writes once it runs again."""
DUMP_MAX_BYTES: Final = 1 << 20
"""Number of bytes of a dump that are kept; the rest is dropped."""

_TIMEOUT: Final = b"Timeout ("
_FRAME: Final = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.M)
_WAITING: Final = {"threading.py", "selectors.py", "queue.py"}
_LOG = logging.getLogger(__name__)
_SIGNS_IN_PERIOD: Final = 4
_END_TIMEOUT_S: Final = 5.0


def dump_period_s(settings: Settings) -> float:
    """Return the seconds without running Python after which the lock counts as held.

    Also the interval of stack dumps.
    """
    timeout_s = settings.duration_ms(HEARTBEAT_TIMEOUT) / 1000
    return max(_DUMP_PERIOD_MIN_S, timeout_s / _DUMPS_WITHIN_HEARTBEATS)


class WatcherConfiguration(msgspec.Struct, frozen=True):
    """Configuration of a watcher; `parent_pid` is the process that it watches."""

    parent_pid: int
    bind_host: str
    advertised_host: str
    secret: bytes
    settings: dict[str, str]
    tls: TlsIdentity | None


class HeldStacks:
    """Reads the dumps that `faulthandler` writes while a thread holds the interpreter lock. Pure: bytes in.

        armed again in time ──► nothing is written
        not armed for a period ──► 'Timeout (…)!' and the stacks of all threads, once a period until it is armed again

    Source: CPython's Modules/faulthandler.c.
    """

    def __init__(self, period_ns: int, library_folders: Iterable[str]) -> None:
        self._period_ns: Final = period_ns
        self._library_folders: Final = tuple(library_folders)
        self._since_ns: int | None = None
        self._last_dump_ns = 0
        self._dump = b""

    def receive(self, data: bytes, now_ns: int) -> None:
        """Process bytes of the pipe."""
        released = data.rfind(RELEASED)
        if released >= 0:
            self._since_ns, self._dump = None, b""
            data = data[released + len(RELEASED) :]
        start = data.rfind(_TIMEOUT)
        if start >= 0:
            self._last_dump_ns = now_ns
            if self._since_ns is None:
                self._since_ns = now_ns - self._period_ns
            self._dump, data = b"", data[start:]
        self._dump = (self._dump + data)[:DUMP_MAX_BYTES]

    def held_ms(self, now_ns: int) -> int | None:
        """Return for how many ms the lock has been held.

        None if it is not, or dumps have ceased because the process is stopped.
        """
        if self._since_ns is None or now_ns - self._last_dump_ns > 3 * self._period_ns:
            return None
        return (now_ns - self._since_ns) // 1_000_000

    @property
    def function(self) -> str:
        """User function with file and line in the first thread that does not wait in Python's standard library."""
        for thread in self._dump.decode(errors="replace").split("\n\n"):
            frames = list(_FRAME.finditer(thread))
            if not frames or PurePath(frames[0]["file"]).name in _WAITING:
                continue
            for frame in frames:
                file = frame["file"]
                if not file.startswith(("<", *self._library_folders)):
                    return f"{frame['function']} ({file}:{frame['line']})"
        return ""


class LockWatcher(RpcEndpoint, LockWatcherGateway):
    """Endpoint of the watcher; the reader of the pipe fills `stacks`."""

    def __init__(self, rpc_service: RpcService, stacks: HeldStacks) -> None:
        super().__init__(rpc_service, rpc_service.create_endpoint_name("lockwatcher"))
        self._stacks: Final = stacks

    async def request_held_lock(self) -> HeldLock | None:
        held_ms = self._stacks.held_ms(self.clock.monotonic_ns())
        return None if held_ms is None else HeldLock(held_ms, self._stacks.function)


def library_folders() -> tuple[str, ...]:
    """Return the folders that contain no user functions."""
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return (*sorted(paths), str(Path(__file__).parents[2]) + os.sep)


async def serve_watcher(configuration: WatcherConfiguration) -> None:
    """Serve until the watched process is gone."""
    loop = asyncio.get_running_loop()
    clock = SystemClock()
    service = TcpRpcService(
        Settings(configuration.settings),
        bind_host=configuration.bind_host,
        advertised_host=configuration.advertised_host,
        secret=configuration.secret,
        clock=clock,
        random=system_random(),
        tls=configuration.tls,
    )
    await service.start()
    stacks = HeldStacks(int(dump_period_s(service.settings) * 1e9), library_folders())
    watcher = LockWatcher(service, stacks)
    watcher.start()
    ended = asyncio.Event()

    def read() -> None:
        data = os.read(_INPUT, _PIPE_READ_BYTES)
        if not data:
            loop.remove_reader(_INPUT)
            ended.set()
        stacks.receive(data, clock.monotonic_ns())

    loop.add_reader(_INPUT, read)
    os.write(_ANSWER, watcher.address.encode() + b"\n")
    while not ended.is_set() and os.getppid() == configuration.parent_pid:
        # A process forked by user code may keep the pipe open.
        try:
            await asyncio.wait_for(ended.wait(), _PARENT_CHECK_S)
        except TimeoutError:
            continue
    await service.stop()


@dataclass(frozen=True)
class WatcherProcess:
    """Watcher process before it is configured. `request`, `answer`: descriptors of pipes to it and from it."""

    pid: int
    request: int
    answer: int

    @classmethod
    def fork(cls) -> "WatcherProcess":
        """Fork it from this process, on its main thread and before other threads start. OSError if that fails."""
        parent_pid = os.getpid()
        own_request, request = os.pipe()
        answer, own_answer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                _become_watcher(own_request, own_answer)
                _wait_and_serve(parent_pid)
            except BaseException:
                traceback.print_exc()
            finally:
                # Whatever happened, the rest of the program belongs to the TaskManager.
                os._exit(0)
        os.close(own_request)
        os.close(own_answer)
        return cls(pid, request, answer)

    def end(self, timeout_s: float) -> None:
        """Wait for its end, which the end of its input causes; kill it if it does not end in time."""
        poll = select.poll()
        poll.register(self.answer, 0)
        has_ended = poll.poll(timeout_s * 1000)
        os.close(self.answer)
        # User code may have waited for any child of this process, and reaped this one.
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            if not has_ended:
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _become_watcher(own_request: int, own_answer: int) -> None:
    """Close all files of the TaskManager, because processes that wait for its end wait until these are closed."""
    # Its file is closed below.
    faulthandler.disable()
    os.dup2(own_request, _INPUT)
    os.dup2(own_answer, _ANSWER)
    # Not up to the limit, which may be a billion in a container.
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= _FIRST_FREE:
            with contextlib.suppress(OSError):
                os.close(int(name))
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    # Garbage collections would copy memory that both processes share.
    gc.freeze()


def _wait_and_serve(parent_pid: int) -> None:
    line = bytearray()
    while not line.endswith(b"\n"):
        # A process forked by user code may keep the pipe open.
        if os.getppid() != parent_pid:
            return
        if select.select([_INPUT], [], [], _PARENT_CHECK_S)[0]:
            # Read no byte beyond the line: the rest is for the loop.
            byte = os.read(_INPUT, 1)
            if not byte:
                return
            line += byte
    asyncio.run(serve_watcher(msgspec.json.decode(bytes(line), type=WatcherConfiguration)))


class InterpreterLock:
    """Watches the lock of this process, from `start` to `stop`. One per process: `faulthandler` has one timer."""

    def __init__(self, configuration: WatcherConfiguration, process: WatcherProcess) -> None:
        self._configuration: Final = configuration
        self._process: Final = process
        self._period_s: Final = dump_period_s(Settings(configuration.settings))
        self._is_stopped: Final = Event()
        self._thread: Thread | None = None
        self.watcher_address = ""
        """Endpoint of the LockWatcher; empty until it serves, or if there is none."""

    @classmethod
    def of(cls, configuration: TaskManagerConfiguration, process: WatcherProcess) -> Self:
        """Return the lock of this process, which is the TaskManager's own."""
        settings = dict(configuration.settings)
        settings.pop(TASK_MANAGER_RPC_PORT.key, None)
        return cls(
            WatcherConfiguration(
                os.getpid(),
                configuration.bind_host,
                configuration.advertised_host,
                configuration.secret,
                settings,
                configuration.tls,
            ),
            process,
        )

    def start(self) -> None:
        """Configure the watcher process after a delay, so that short-lived processes do without it. Does not wait."""
        self._thread = start_thread("headrace-lock-watch", self._run)

    def stop(self) -> None:
        """Stop the thread and the watcher, and wait for their end."""
        self._is_stopped.set()
        if self._thread is not None:
            self._thread.join(2 * _END_TIMEOUT_S)

    def _run(self) -> None:
        with (
            open(self._process.request, "wb", buffering=0) as pipe,
            open(self._process.answer, "rb", closefd=False) as answer,
            contextlib.suppress(BrokenPipeError),
        ):
            if not self._is_stopped.wait(self._period_s):
                with contextlib.suppress(BrokenPipeError):
                    pipe.write(msgspec.json.encode(self._configuration) + b"\n")
                    self.watcher_address = answer.readline().decode().strip()
                if self.watcher_address:
                    self._keep_quiet(pipe.fileno())
                else:
                    _LOG.warning("the process that watches the interpreter lock has ended")
        self.watcher_address = ""
        self._process.end(_END_TIMEOUT_S)

    def _keep_quiet(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        try:
            while True:
                faulthandler.dump_traceback_later(self._period_s, repeat=True, file=pipe)
                with contextlib.suppress(BlockingIOError):
                    os.write(pipe, RELEASED)
                if self._is_stopped.wait(self._period_s / _SIGNS_IN_PERIOD):
                    return
        finally:
            faulthandler.cancel_dump_traceback_later()
