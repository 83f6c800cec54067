"""What a TaskManager's process is given by Spark and gives back: address, scratch directory, output streams."""

import contextlib
import logging
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Final, TextIO

from headrace.core.private_values import DiscreetFormatter

LOCAL_DIRECTORIES_VARIABLE: Final = "SPARK_LOCAL_DIRS"
"""Where Spark names the scratch directories of an executor, separated by commas."""

_LIBRARIES: Final = ("headrace", "py4j", "pyspark")
"""Whose loggers are none of the program's."""
_SCRATCH: Final = re.compile(r"headrace-tm-(\d+)(?:-\w+)?\Z")
SOCKET_DIRECTORY_LENGTH_MAX: Final = 80
"""Bytes: what an address of a Unix socket holds (108), less its end and the name of the socket in the directory."""


def routable_address(driver_host: str) -> str:
    """Return the address of this host that `driver_host` is reached from.

    Asks the routing table through a datagram socket, which sends nothing: names of hosts often do not resolve on
    other ones.
    """
    family, kind, _, _, target = socket.getaddrinfo(driver_host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


@contextlib.contextmanager
def scratch_directory(environ: Mapping[str, str]) -> Generator[Path, None, None]:
    """Make a directory of this process alone, below what Spark gives its executor, and remove it at the end.

    Directories of processes that were killed on this executor are swept first: nobody else can. FileNotFoundError
    where Spark's directory is gone, and the executor with it.
    """
    listed = environ.get(LOCAL_DIRECTORIES_VARIABLE, "").split(",")[0]
    root = Path(listed or tempfile.gettempdir())
    sweep(root)
    # Where Spark says nothing others may write, and make a folder of a name that can be foretold.
    own = Path(tempfile.mkdtemp(prefix=f"headrace-tm-{os.getpid()}-", dir=root))
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)


def sweep(root: Path) -> None:
    """Remove what TaskManagers whose process has ended left below `root`."""
    for entry in root.iterdir():
        match = _SCRATCH.match(entry.name)
        if match is not None and not _is_running(int(match.group(1))):
            shutil.rmtree(entry, ignore_errors=True)


def socket_directory(scratch: Path) -> Path | None:
    """Return a path to `scratch` that is short enough for Unix sockets in it, or None where there is none (TCP only).

    Directories of executors are long names below each other. Linux names the directories that a process has open by
    the numbers of process and descriptor; the descriptor stays open as long as the process lives.
    """
    if len(os.fsencode(scratch)) <= SOCKET_DIRECTORY_LENGTH_MAX:
        return scratch
    if sys.platform != "linux" or not Path("/proc/self/fd").is_dir():
        return None
    return Path(f"/proc/{os.getpid()}/fd/{os.open(scratch, os.O_PATH | os.O_DIRECTORY)}")


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def own_streams(
    log_level: int, user_levels: Mapping[str, int] | None = None
) -> Generator[TextIO, None, None]:
    """Write logs to the process's real standard error, whatever Spark has put in the place of `sys.stderr`.

    `user_levels` are those of the program's own loggers, the root one's under the empty name.
    """
    stream = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="replace")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(DiscreetFormatter())
    logger = logging.getLogger("headrace")
    logger.addHandler(handler)
    logger.setLevel(log_level)
    logger.propagate = False
    root = logging.getLogger()
    root.addHandler(handler)
    for name, level in (user_levels or {}).items():
        logging.getLogger(name or None).setLevel(level)
    try:
        yield stream
    finally:
        logger.removeHandler(handler)
        root.removeHandler(handler)
        with contextlib.suppress(ValueError, OSError):
            sys.stdout.flush()
        stream.close()


def program_log_levels() -> dict[str, int]:
    """Return the levels that the program gave to its loggers, by name, for `own_streams` in workers."""
    named = logging.root.manager.loggerDict
    own = {
        name: logger.level
        for name, logger in named.items()
        if isinstance(logger, logging.Logger)
        and logger.level
        and name.partition(".")[0] not in _LIBRARIES
    }
    return {"": logging.root.level, **own}
