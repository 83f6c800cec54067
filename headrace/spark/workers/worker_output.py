"""Carries the output that user code prints in workers to the standard output of the user's own process.

Spark sends a worker's standard output to its executor's standard error. Where both ends share a host, a named pipe
carries the lines: the driver reads it, every worker writes whole lines to it. On other hosts a worker collects the
lines from a pipe of its own, and its TaskManager sends them as calls. Each line begins with the PRINT_PREFIX of the
thread that wrote it: the number of its subtask.
"""

import contextlib
import fcntl
import io
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

from headrace.cluster.printed_output import PrintedOutput
from headrace.core.process.process_log import PRINT_PREFIX
from headrace.core.threads import Thread, start_thread

_LOG = logging.getLogger(__name__)

_READ_SIZE_BYTES: Final = 1 << 16

OutputCopy = Callable[[bytes], None]
"""Function that gets a copy of printed lines, for the `.out` file of a process."""


def no_copy(_: bytes) -> None:
    """Keep no copy."""


class StandardOutput:
    """The standard output of the driver. Lines are written to the current `sys.stdout`; any thread.

    If its reader has closed it, as with `| head`, the program is interrupted as by Ctrl-C. `copy` gets the lines
    in any case.
    """

    def __init__(self, copy: OutputCopy = no_copy) -> None:
        self._copy: Final = copy
        self._is_refused = self._is_closing = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Ignore from now on that the reader has closed standard output."""
        self._is_closing = True

    def show(self, lines: bytes) -> None:
        """Write whole lines; waits for the reader."""
        with self._lock:
            if lines:
                self._copy(lines)
            if lines and not self._is_refused:
                self._write(lines.decode(errors="replace"))

    def _write(self, text: str) -> None:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        try:
            # What the user's terminal has no character for must not end the program.
            sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
            sys.stdout.flush()
        except (OSError, ValueError) as error:
            # Accept lines nevertheless: workers would wait for ever for room in the pipe.
            self._is_refused = True
            _LOG.error("standard output is broken, and printed lines are lost: %s", error)
            _forget_standard_output()
            if self._is_closing:
                return
            main_thread = threading.main_thread().ident
            assert main_thread is not None
            # A real signal, as the main thread waits for the job's end, which nothing else interrupts.
            signal.pthread_kill(main_thread, signal.SIGINT)


class LinePipe:
    """The reading end of a named pipe. A thread passes whole lines, written by processes of this host, to `take`."""

    def __init__(self, path: Path, take: Callable[[bytes], None], thread_name: str) -> None:
        self.path = path
        self._take = take
        os.mkfifo(path, 0o600)
        # Opened for reading and writing: it never waits for a writer, and never ends when the last one leaves.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._end_read, self._end_write = os.pipe()
        self._is_closing = False
        self._thread = start_thread(thread_name, self._run)

    def close(self) -> None:
        """Read the lines written so far, then end."""
        if self._is_closing:
            return
        self._is_closing = True
        os.close(self._end_write)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            os.close(self._descriptor)
            os.close(self._end_read)
        # Otherwise `take` is still running, and the thread needs both descriptors.
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    def _run(self) -> None:
        pending = b""
        is_ended = False
        # `select.select` takes no descriptor from 1024 on, and a program may have opened as many files.
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._end_read, select.POLLIN)
        while not is_ended:
            is_ended = any(descriptor == self._end_read for descriptor, _ in poll.poll())
            while (content := self._read()) is not None:
                pending += content
                whole, newline, pending = pending.rpartition(b"\n")
                self._take(whole + newline)
        self._take(pending)

    def _read(self) -> bytes | None:
        try:
            return os.read(self._descriptor, _READ_SIZE_BYTES)
        except BlockingIOError:
            return None


class OutputPipe(LinePipe):
    """Shows printed lines on the driver's standard output. `copy` gets all lines too."""

    def __init__(self, path: Path, copy: OutputCopy = no_copy) -> None:
        self._standard_output = StandardOutput(copy)
        super().__init__(path, self._standard_output.show, "headrace-output")

    def close(self) -> None:
        """Read the lines written so far, then end."""
        self._standard_output.close()
        super().close()


def _forget_standard_output() -> None:
    """Discard later output, as the interpreter's flush at its end would report an error."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


class _WholeLines(io.RawIOBase):
    """Writes whole lines, of any length, to a pipe that other processes write to as well.

    A line belongs to one thread and one prefix, which precedes it in the pipe but not in the copy.
    """

    def __init__(self, descriptor: int, copy: OutputCopy) -> None:
        self._descriptor = descriptor
        self._copy = copy
        self._begun: dict[tuple[Thread, str], bytes] = {}
        # Threads of this process share one open file, so that a file lock does not separate them.
        self._lock = threading.Lock()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, content: Any) -> int:
        prefix = PRINT_PREFIX.get()
        # By the prefix, too: calls of several subtasks may take turns on one event loop.
        writer = (threading.current_thread(), prefix)
        with self._lock:
            whole, newline, rest = bytes(content).rpartition(b"\n")
            if newline:
                self._send(self._begun.pop(writer, b"") + whole + newline, prefix)
                for ended in [one for one in self._begun if not one[0].is_alive()]:
                    self._send(self._begun.pop(ended) + b"\n", ended[1])
            if rest:
                self._begun[writer] = self._begun.get(writer, b"") + rest
        return len(content)

    def flush(self) -> None:
        """Do nothing: incomplete lines wait for their end, or for `close`."""

    def close(self) -> None:
        with self._lock:
            if not self.closed:
                try:
                    for begun in list(self._begun):
                        line = self._begun.pop(begun)
                        self._send(line + b"\n" * bool(self._begun), begun[1])
                finally:
                    super().close()
                    os.close(self._descriptor)

    def _send(self, lines: bytes, prefix: str) -> None:
        # First, and by itself: the pipe waits for its reader.
        self._copy(lines)
        if prefix:
            front = prefix.encode()
            lines = front + lines[:-1].replace(b"\n", b"\n" + front) + lines[-1:]
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)


@contextlib.contextmanager
def redirect_standard_output(pipe: str, copy: OutputCopy = no_copy) -> Generator[None, None, None]:
    """Redirect this process's standard output to `pipe`; no effect if it is empty or cannot be opened.

    Both the file descriptor and `sys.stdout` are redirected. Output through `sys.stdout` arrives in whole lines;
    output to the descriptor itself only as far as the system writes it at once (4 KB). `copy` gets the former.
    """
    descriptor = _open_for_writing(pipe)
    if descriptor is None:
        yield
        return
    with _standard_output_to(descriptor, copy):
        yield


@contextlib.contextmanager
def copied_standard_error(copy: OutputCopy) -> Generator[None, None, None]:
    """Copy to `copy` what user code writes to `sys.stderr`, such as tracebacks, which is also written as before."""
    stream = sys.stderr
    sys.stderr = _CopiedText(stream, copy)
    try:
        yield
    finally:
        sys.stderr = stream


class _CopiedText(io.TextIOBase):
    """Writes texts to a stream, and their bytes to a copy. All other attributes are the stream's."""

    def __init__(self, stream: Any, copy: OutputCopy) -> None:
        self._stream = stream
        self._copy = copy

    @property
    # A property in the C class, too; the stubs say attribute.
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return getattr(self._stream, "encoding", None) or "utf-8"

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return bool(self._stream.isatty())

    def fileno(self) -> int:
        return int(self._stream.fileno())

    def write(self, text: str, /) -> int:
        self._copy(text.encode(errors="replace"))
        self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


@contextlib.contextmanager
def collected_output(
    receiver_address: str, copy: OutputCopy = no_copy
) -> Generator[PrintedOutput, None, None]:
    """Collect what this process prints, to be sent to `receiver_address`; standard output is restored at the end."""
    reading_end, writing_end = os.pipe()
    try:
        with contextlib.ExitStack() as redirection:
            redirection.enter_context(_standard_output_to(writing_end, copy))
            yield PrintedOutput(reading_end, receiver_address, redirection.close)
    finally:
        os.close(reading_end)


@contextlib.contextmanager
def _standard_output_to(descriptor: int, copy: OutputCopy) -> Generator[None, None, None]:
    """Redirect standard output to `descriptor`, which is closed at the end."""
    previous, stream = os.dup(1), sys.stdout
    os.dup2(descriptor, 1)
    # No buffer in between, as it would mix parts of several threads' lines.
    sys.stdout = io.TextIOWrapper(
        _WholeLines(descriptor, copy),  # type: ignore[arg-type]
        encoding="utf-8",
        errors="replace",
        write_through=True,
    )
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.close()
        sys.stdout = stream
        os.dup2(previous, 1)
        os.close(previous)


def _open_for_writing(pipe: str) -> int | None:
    if not pipe:
        return None
    try:
        # Not waiting for a reader: where there is none, the driver is gone.
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
    os.set_blocking(descriptor, True)
    return descriptor
