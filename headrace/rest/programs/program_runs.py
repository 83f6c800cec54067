"""ProgramRuns: runs each uploaded program in a process of its own, and returns the outcome of its first job.

ProgramService is the interface for the routes: the files of programs, and their runs on this cluster.

The driver imports no user code. The time and the number of the processes are limited, and all of them end
with the cluster, as do the processes that they started: they are killed when it closes, and end by themselves when its
process is gone, as their standard input ends then. Source: Flink JarRunHandler, which runs `main` in the JobManager
itself.
"""

import asyncio
import contextlib
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from headrace.core.clock import Clock
from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import DECODE_ERRORS
from headrace.core.process.scratch_folder import make_scratch_folder, remove_scratch_folder
from headrace.core.threads import Thread, start_thread
from headrace.rest.handler_errors import BadRequestError, UnavailableError
from headrace.rest.home.connections import TOKEN_VARIABLE
from headrace.rest.options import REST_ADDRESS, REST_PORT
from headrace.rest.programs.program_messages import (
    MESSAGE_LENGTH,
    PROCESS_MODULE,
    ProgramOutcome,
    ProgramRequest,
)
from headrace.rest.programs.uploaded_programs import (
    UPLOAD_DIRECTORY,
    UPLOAD_SIZE_MAX,
    UploadedPrograms,
)

WEB_TIMEOUT: Final = ConfigOption(
    "web.timeout",
    timedelta,
    timedelta(minutes=10),
    "Time for which the process of an uploaded program may run; its jobs continue without it.",
    least=timedelta(milliseconds=1),
)
_LOG: Final = logging.getLogger(__name__)
_STARTING_MAX: Final = 4
_PROCESSES_MAX: Final = 64
_OUTCOME_BYTES_MAX: Final = 16 << 20
_TAIL_BYTES: Final = 16_384
_TAIL_LINES: Final = 25
_READ_BYTES: Final = 1 << 16
_LOOK_S: Final = 0.2
"""Interval at which a thread checks whether to kill the process, if nothing else wakes it, in seconds."""
_JOIN_S: Final = 10.0
_LAST_READS_MAX: Final = 64
"""Maximum number of reads from the pipes of an ended process, as its children may write there without end."""


class ProgramRuns:
    """The processes of one cluster. `run` is called on the REST loop; `close` from any thread."""

    def __init__(self, clock: Clock, timeout_ms: float) -> None:
        self._clock: Final = clock
        self._timeout_ms: Final = timeout_ms
        # Guards the sets and the flag, which threads of runs change too.
        self._lock: Final = threading.Lock()
        self._runs: Final[set[ProgramRun]] = set()
        # Processes that have not submitted their first job yet.
        self._starting: Final[set[ProgramRun]] = set()
        self._is_closed = False

    async def run(self, request: ProgramRequest) -> ProgramOutcome:
        """Run a program and return its outcome.

        BadRequestError with its last lines; UnavailableError if too many run.
        """
        answer: asyncio.Future[ProgramOutcome] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._is_closed:
                raise UnavailableError("The cluster is ending, and no longer runs programs.")
            if len(self._starting) >= _STARTING_MAX:
                raise UnavailableError(
                    f"{_STARTING_MAX} programs are being started; try again a little later."
                )
            if len(self._runs) >= _PROCESSES_MAX:
                raise UnavailableError(
                    f"{_PROCESSES_MAX} programs still run after their first job; try again when some have ended, "
                    f"which happens after {WEB_TIMEOUT.key} at the latest."
                )
            run = ProgramRun(
                request, self._clock, self._timeout_ms, answer, self._answered, self._ended
            )
            self._runs.add(run)
            self._starting.add(run)
        run.start()
        outcome = await answer
        if outcome.error:
            raise BadRequestError("The program did not submit a job.", outcome.error)
        return outcome

    def close(self) -> None:
        """Kill all processes, and wait for their ends."""
        with self._lock:
            self._is_closed = True
            runs = list(self._runs)
        for run in runs:
            run.kill()
        for run in runs:
            run.join()

    def _answered(self, run: "ProgramRun") -> None:
        with self._lock:
            self._starting.discard(run)

    def _ended(self, run: "ProgramRun") -> None:
        with self._lock:
            self._starting.discard(run)
            self._runs.discard(run)


class ProgramRun:
    """One process. A thread starts it, reads its output and answers, and kills it after its time limit."""

    def __init__(
        self,
        request: ProgramRequest,
        clock: Clock,
        timeout_ms: float,
        answer: "asyncio.Future[ProgramOutcome]",
        on_answered: Callable[["ProgramRun"], None],
        on_ended: Callable[["ProgramRun"], None],
    ) -> None:
        self._request: Final = request
        self._clock: Final = clock
        self._deadline_ms: Final = clock.monotonic_ms() + timeout_ms
        self._timeout_ms: Final = timeout_ms
        self._answer: Final = answer
        self._loop: Final = answer.get_loop()
        self._on_answered: Final = on_answered
        self._on_ended: Final = on_ended
        self._is_killed: Final = threading.Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = start_thread("headrace-program", self._body)

    def kill(self) -> None:
        """Request that the process is killed soon."""
        self._is_killed.set()

    def join(self) -> None:
        """Wait until the process is gone."""
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def _body(self) -> None:
        folder = make_scratch_folder("headrace-program-")
        try:
            self._run(folder)
        except Exception as error:
            _LOG.exception("an uploaded program could not be run")
            self._tell(ProgramOutcome(error=f"the process could not be started: {error}"))
        finally:
            remove_scratch_folder(folder)
            self._on_ended(self)

    def _run(self, folder: Path) -> None:
        outcome_end, write_end = os.pipe()
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", PROCESS_MODULE, str(write_end)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(write_end,),
                cwd=folder,
                env=_environment(),
                start_new_session=True,
            )
        except BaseException:
            os.close(outcome_end)
            raise
        finally:
            os.close(write_end)
        assert process.stdin is not None and process.stdout is not None
        try:
            content = msgspec.msgpack.encode(self._request)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(MESSAGE_LENGTH.pack(len(content)) + content)
                process.stdin.flush()
            self._watch(process, process.stdout.fileno(), outcome_end)
        finally:
            os.close(outcome_end)
            _end(process)
        if process.returncode != 0 and not self._is_killed.is_set():
            _LOG.warning(
                "the process of the uploaded program %s ended with code %d",
                Path(self._request.path).name,
                process.returncode,
            )

    def _watch(self, process: "subprocess.Popen[bytes]", output: int, outcome_end: int) -> None:
        """Read until the process has ended, or must end.

        Processes that it started may hold both pipes open for longer.
        """
        tail, outcome = bytearray(), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            selector.register(outcome_end, selectors.EVENT_READ)
            last_reads = iter(range(_LAST_READS_MAX))
            while True:
                if self._is_killed.is_set():
                    self._tell(ProgramOutcome(error=_said(tail, "the cluster ended")))
                    return
                if self._clock.monotonic_ms() >= self._deadline_ms:
                    seconds = self._timeout_ms / 1000
                    reason = f"the process was ended after {seconds:g} s ({WEB_TIMEOUT.key})"
                    self._tell(ProgramOutcome(error=_said(tail, reason)))
                    return
                code = process.poll()
                ready = selector.select(0 if code is not None else _LOOK_S)
                for key, _ in ready:
                    content = os.read(key.fd, _READ_BYTES)
                    if not content:
                        selector.unregister(key.fd)
                    elif key.fd == output:
                        tail += content
                        del tail[:-_TAIL_BYTES]
                    elif len(outcome) < _OUTCOME_BYTES_MAX:
                        outcome += content
                        self._tell_whole(outcome, tail)
                if code is not None and (not ready or next(last_reads, None) is None):
                    self._tell(
                        ProgramOutcome(error=_said(tail, f"the process ended with code {code}"))
                    )
                    return

    def _tell_whole(self, content: bytearray, tail: bytearray) -> None:
        """Answer with the outcome, if it has arrived completely."""
        begin = MESSAGE_LENGTH.size
        if len(content) < begin or len(content) - begin < MESSAGE_LENGTH.unpack_from(content)[0]:
            return
        try:
            outcome = msgspec.msgpack.decode(content[begin:], type=ProgramOutcome)
        except DECODE_ERRORS:
            outcome = ProgramOutcome(error=_said(tail, "the answer of its process is invalid"))
        self._tell(outcome)

    def _tell(self, outcome: ProgramOutcome) -> None:
        """Answer the waiting request, once; its loop may have ended."""
        self._on_answered(self)

        def answer() -> None:
            if not self._answer.done():
                self._answer.set_result(outcome)

        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(answer)


def _said(tail: bytearray, reason: str) -> str:
    """Return a reason, followed by the last lines that the process printed."""
    lines = bytes(tail).decode("utf-8", "replace").splitlines()[-_TAIL_LINES:]
    return "\n".join([reason, *lines])


def _environment() -> dict[str, str]:
    """Return the environment of a process that has another working folder and finds the same modules."""
    found = [str(Path(entry).resolve()) for entry in sys.path if entry]
    # A token in the driver's environment is for another cluster; this cluster's is in its connection file.
    kept = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    return {**kept, "PYTHONPATH": os.pathsep.join(found)}


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the process and the processes that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


_TARGET: Final = "execution.target"
_ATTACHED: Final = "execution.attached"


class ProgramService:
    """The programs of the cluster at `address`, whose token their processes read from its connection file."""

    def __init__(self, address: str, settings: Settings, clock: Clock) -> None:
        self.address: Final = address
        self.uploaded: Final = UploadedPrograms(
            settings.get_option(UPLOAD_DIRECTORY), settings.get_option(UPLOAD_SIZE_MAX)
        )
        self._runs: Final = ProgramRuns(clock, settings.duration_ms(WEB_TIMEOUT))

    async def run(self, request: ProgramRequest) -> ProgramOutcome:
        """Run a program and return its outcome; its jobs go to this cluster, whatever its settings say."""
        own = {_TARGET: "remote", _ATTACHED: "false", REST_ADDRESS.key: self.address}
        given = {key: value for key, value in request.settings.items() if key != REST_PORT.key}
        return await self._runs.run(msgspec.structs.replace(request, settings={**given, **own}))

    def close(self) -> None:
        """Kill the processes, and remove temporary files."""
        self._runs.close()
        self.uploaded.close()
