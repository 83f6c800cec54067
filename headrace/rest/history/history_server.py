"""HistoryServer: shows ended jobs from their archives, long after their clusters. Source: Flink HistoryServer."""

import logging
import threading
from pathlib import Path
from typing import Final

from headrace.checkpoint.storage import file_systems
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.security.tls import TlsIdentity
from headrace.core.threads import start_thread
from headrace.rest.authentication import AsgiApplication, RestGuard
from headrace.rest.history.archive_catalog import ArchiveCatalog, OverviewCache, RetentionRules
from headrace.rest.history.history_app import History, create_history_app
from headrace.rest.history.options import (
    ARCHIVE_DIRECTORY,
    HISTORY_ADDRESS,
    HISTORY_CLEAN_EXPIRED,
    HISTORY_DIRECTORIES,
    HISTORY_PORT,
    HISTORY_REFRESH_INTERVAL,
    HISTORY_RETAINED_JOBS,
    HISTORY_RETAINED_TTL,
    HISTORY_WORK_DIRECTORY,
)
from headrace.rest.home.home_folder import headrace_home
from headrace.rest.http_server import HttpServer, ListeningPlace

_LOG: Final = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S: Final = 5.0


class HistoryServer:
    """History server; the constructor binds the port, begins to serve and to read the folders; `close` ends it.

    ConfigurationError, or PortInUseError, if it cannot start.
    """

    def __init__(
        self, settings: Settings, clock: Clock, *, identity: TlsIdentity | None = None
    ) -> None:
        self.folders: Final = archive_folders(settings)
        self._catalog: Final = ArchiveCatalog(
            self.folders,
            _rules_of(settings),
            OverviewCache(_work_directory(settings), self.folders),
            clock,
        )
        self._interval_s: Final = settings.get_option(HISTORY_REFRESH_INTERVAL).total_seconds()
        history = History(self._catalog, settings, clock)

        def create(guard: RestGuard) -> AsgiApplication:
            return create_history_app(history, guard)

        address = settings.get_option(HISTORY_ADDRESS)
        place = ListeningPlace(
            address,
            HISTORY_ADDRESS.key,
            address,
            settings.get_option(HISTORY_PORT),
            HISTORY_PORT.key,
        )
        self._server: Final = HttpServer(
            place,
            create,
            settings,
            clock,
            name="history server",
            identity=identity,
            is_history=True,
        )
        self.address: Final = self._server.address
        self.first_look: Final = threading.Event()
        """Event that is set when all folders have been read once."""
        self._is_closing: Final = threading.Event()
        self._server.start()
        self._thread: Final = start_thread("headrace-history-refresh", self._refresh_forever)

    def close(self) -> None:
        """End the server; the list of archives is stored for the next start. Idempotent."""
        self._is_closing.set()
        self._server.close()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _refresh_forever(self) -> None:
        while not self._is_closing.is_set():
            try:
                self._catalog.refresh()
            except Exception:
                _LOG.exception("the archives could not be read; the next round tries again")
            self.first_look.set()
            self._is_closing.wait(self._interval_s)
        self._catalog.keep()


def archive_folders(settings: Settings) -> tuple[str, ...]:
    """Return the folders with archives, absolute. ConfigurationError if none is set."""
    text = settings.get_option(HISTORY_DIRECTORIES) or settings.get_option(ARCHIVE_DIRECTORY)
    names = [name.strip() for name in text.split(",")]
    folders = tuple(dict.fromkeys(file_systems.absolute_uri(name) for name in names if name))
    if not folders:
        raise ConfigurationError(
            HISTORY_DIRECTORIES.key,
            text,
            f"set the folders to which clusters write their archives ('{ARCHIVE_DIRECTORY.key}')",
        )
    return folders


def _rules_of(settings: Settings) -> RetentionRules:
    count = settings.get_option(HISTORY_RETAINED_JOBS)
    if count == 0 or count < -1:
        raise ConfigurationError(
            HISTORY_RETAINED_JOBS.key, count, "it must be at least 1, or -1 for all"
        )
    age = settings.get_option(HISTORY_RETAINED_TTL)
    if age is not None and age.total_seconds() <= 0:
        raise ConfigurationError(HISTORY_RETAINED_TTL.key, age, "it must be longer than 0")
    return RetentionRules(
        count,
        None if age is None else age.total_seconds() * 1000,
        settings.get_option(HISTORY_CLEAN_EXPIRED),
    )


def _work_directory(settings: Settings) -> Path:
    given = settings.get_option(HISTORY_WORK_DIRECTORY)
    return Path(given).expanduser().absolute() if given else headrace_home() / "history"
