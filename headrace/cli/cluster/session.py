"""Runs a session in this process, from its start to the signal or the client that ends it."""

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from headrace.api.client.program_end import (
    JOBS_GO_ON,
    OWN_JOBS_END,
    Terminated,
    end_in_order_when_terminated,
    ignore_termination,
)
from headrace.cli.cluster.standby import StandbyFile
from headrace.cli.daemon.local_process import comes
from headrace.cli.termination import to_its_end
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.cluster.high_availability.options import is_highly_available
from headrace.core.config import Settings
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.rest.home.home_folder import (
    headrace_home,
    writing_in_home,
)
from headrace.spark.session_cluster import SessionCluster

_LOG: Final = logging.getLogger(__name__)
_LOOK_S: Final = 0.3
_NAMES_MAX: Final = 1_000


class NameTakenError(HeadraceError):
    """Raised if a cluster of this machine has the name already, or is being started with it."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, name: str, place: str) -> None:
        super().__init__(
            f"a cluster called '{name}' runs {place}: stop it with 'headrace cluster stop {name}', or choose another "
            "name"
        )
        self.name = name


@contextlib.contextmanager
def taken_name(name: str) -> Generator[None]:
    """Hold the name of a session for this process, from before its start to its end. Raises NameTakenError.

    The name is a lock of `<home>/names/<name>`, which is always released at the end of the process.
    """
    folder = headrace_home() / "names"
    file = None
    while file is None:
        file = _locked(folder, name)
    _forget_ended(folder, but=name)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / name).unlink()
        os.close(file)


def _locked(folder: Path, name: str) -> int | None:
    """Return the descriptor of a file whose lock is held, or None if the file was deleted meanwhile. NameTakenError."""
    with writing_in_home():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        # Whoever looks for names of ended sessions holds one for a moment.
        if not comes(lambda: _is_locked(file), _LOOK_S):
            os.close(file)
            raise NameTakenError(name, "on this machine, or is being started")
    except OSError as error:
        # A file system without locks: the earlier check that the name was free must suffice.
        _LOG.info("the name '%s' is not locked: %s", name, error)
        return file
    if os.fstat(file).st_nlink:
        return file
    # Who had the name before has deleted its file after this process had opened it.
    os.close(file)
    return None


def _is_locked(file: int) -> bool:
    """Return whether this process has the lock now. OSError if the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _forget_ended(folder: Path, *, but: str) -> None:
    """Delete the files of other names whose locks are free, because their sessions were killed."""
    for path in sorted(folder.iterdir())[:_NAMES_MAX]:
        if path.name == but:
            continue
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if _is_locked(file) and os.fstat(file).st_nlink:
                    path.unlink()
            finally:
                os.close(file)


def serve_session(
    settings: Settings,
    name: str,
    log_folder: Path | None,
    on_ready: Callable[[SessionCluster], None],
    create: Callable[[Settings, str, Path | None], SessionCluster] = SessionCluster,
    on_standby: Callable[[LeaderRecord], None] | None = None,
) -> int:
    """Run a session until a client stops it, or SIGTERM or Ctrl-C arrives; return the exit code, which is 0 then.

    `create` makes another kind of cluster, which may end by itself. `on_standby` is called with the leader while this
    process waits to lead. Any other error that ends the session is raised. Call it in the main thread.
    """
    leads = False

    def fate() -> str:
        if not is_highly_available(settings):
            return OWN_JOBS_END
        return JOBS_GO_ON if leads else ""

    take_back = end_in_order_when_terminated(fate)
    cluster = create(settings, name, log_folder)
    file = StandbyFile(name)

    def stands_by(leader: LeaderRecord | None) -> None:
        file.show(leader)
        if leader is not None and on_standby is not None:
            on_standby(leader)

    try:
        cluster.start(stands_by)
        leads = True
        on_ready(cluster)
        cluster.wait()
        return 0
    except (Terminated, KeyboardInterrupt):
        return 0
    finally:
        ignore_termination()
        try:
            file.remove()
            to_its_end(cluster.close)
        finally:
            take_back()
