"""LogCopies: copies the newest log lines of TaskManagers on other hosts to the driver, for use after their end.

A TaskManager that writes to the driver's folder itself is not copied. From the others each answered heartbeat copies
the growth of their `.log` and `.out`; lines that a killed process wrote after its last heartbeat are not copied, and
stay only on its host. Main thread of the ResourceManager; files are written on others.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.cluster.resource_manager.options import LOG_COPY_SIZE
from headrace.core.errors import HeadraceError
from headrace.core.ids import ResourceId
from headrace.core.process.log_files import (
    LogFileNotFoundError,
    LogPiece,
    log_files,
    task_manager_file_name,
)
from headrace.core.process.rotating_file import RotatingFile
from headrace.core.threads import BlockingRunner
from headrace.gateways.task_executor import TaskExecutorGateway
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.proxies import with_timeout

_LOG: Final = logging.getLogger(__name__)

_ENDINGS: Final = (".log", ".out")
_ANSWER_TIMEOUT_MS: Final = 2_000.0
_PIECE_MAX_BYTES: Final = 256 * 1024
"""Most bytes copied at once; of a larger growth only the newest."""


class CopiedFile:
    """Position in one file of a TaskManager; chooses the bytes to write next. Pure."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.offset = -_PIECE_MAX_BYTES
        """Offset of the next read; negative: from the end."""
        self._file_id = ""
        self._left_out_bytes = 0

    def take(self, piece: LogPiece) -> bytes:
        """Return the bytes to append to the copy after reading `piece` at `offset`."""
        if self._file_id and piece.file_id != self._file_id:
            # The previous file was rotated: the new one is read from its own end on.
            self._file_id, self.offset, self._left_out_bytes = "", -_PIECE_MAX_BYTES, 0
            return b"[this file was put aside on its host: lines may be missing here]\n"
        if not self._file_id:
            self._left_out_bytes = piece.offset
        self._file_id = piece.file_id
        end = piece.offset + len(piece.content)
        missing = self._left_out_bytes
        self.offset = max(end, piece.size_bytes - _PIECE_MAX_BYTES)
        self._left_out_bytes = self.offset - end
        if not missing:
            return piece.content
        return (
            f"[{missing} bytes are omitted here; they are in the file on its host]\n".encode()
            + piece.content
        )


class LogCopies:
    """Copies logs for one ResourceManager.

    Without a `folder`, or if `headrace.logs.copy-size` is 0, nothing is copied.
    """

    def __init__(
        self, endpoint: RpcEndpoint, run_blocking: BlockingRunner, folder: Path | None
    ) -> None:
        self._endpoint: Final = endpoint
        self._run_blocking: Final = run_blocking
        size_bytes = int(endpoint.settings.get_option(LOG_COPY_SIZE))
        # One half is for the file, and the other for its predecessor.
        self._file_size_bytes: Final = size_bytes // (2 * len(_ENDINGS))
        self._folder: Final = folder if size_bytes else None
        self._copies: Final[dict[ResourceId, list[tuple[CopiedFile, RotatingFile]]]] = {}
        self._busy: Final[set[ResourceId]] = set()
        self._ending: Final[set[ResourceId]] = set()

    def heard(self, resource_id: ResourceId, gateway: TaskExecutorGateway, log_folder: str) -> None:
        """Copy the lines that an answering TaskManager has written since, unless a copy is in progress."""
        if self._folder is not None and log_folder and resource_id not in self._busy:
            self._busy.add(resource_id)
            self._endpoint.spawn(self._copy(self._folder, resource_id, gateway), "copy log files")

    async def end(
        self, resource_id: ResourceId, gateway: TaskExecutorGateway, log_folder: str
    ) -> None:
        """Copy the last lines of a TaskManager that has ended or soon will, if it still answers; close its copies."""
        if self._folder is None or not log_folder:
            return
        self._ending.add(resource_id)
        if resource_id not in self._busy:
            self._busy.add(resource_id)
            await self._copy(self._folder, resource_id, gateway)

    async def _copy(
        self, folder: Path, resource_id: ResourceId, gateway: TaskExecutorGateway
    ) -> None:
        asked = with_timeout(gateway, _ANSWER_TIMEOUT_MS)
        try:
            for file, copy in await self._files_of(folder, resource_id):
                try:
                    piece = await asked.read_log_file(file.name, file.offset, _PIECE_MAX_BYTES)
                except LogFileNotFoundError:
                    continue
                content = file.take(piece)
                if content:
                    await self._run_blocking("copy log files", _writing(copy, content))
        except (HeadraceError, OSError) as error:
            _LOG.debug("could not copy log files of TaskManager %s now: %s", resource_id, error)
        finally:
            self._busy.discard(resource_id)
            if resource_id in self._ending:
                self._ending.discard(resource_id)
                for _, copy in self._copies.pop(resource_id, ()):
                    copy.close()

    async def _files_of(
        self, folder: Path, resource_id: ResourceId
    ) -> list[tuple[CopiedFile, RotatingFile]]:
        known = self._copies.get(resource_id)
        if known is not None:
            return known
        name = task_manager_file_name(resource_id)

        def look() -> list[tuple[CopiedFile, RotatingFile]]:
            if log_files(folder, name):
                return []  # The TaskManager writes there itself.
            names = [f"{name}{ending}" for ending in _ENDINGS]
            return [
                (CopiedFile(each), RotatingFile(folder / each, self._file_size_bytes, 1))
                for each in names
            ]

        found = self._copies[resource_id] = await self._run_blocking("look for log files", look)
        return found


def _writing(copy: RotatingFile, content: bytes) -> Callable[[], None]:
    return lambda: copy.write(content)
