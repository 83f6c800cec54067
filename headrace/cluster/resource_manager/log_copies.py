"""LogCopies: keeps the newest lines of TaskManagers of other hosts in the driver's log folder, for when they are gone.

A TaskManager that writes to the driver's folder itself is not copied. Of the others each answered heartbeat brings what
their `.log` and `.out` have grown by; a process that is killed takes the lines since its last heartbeat with it, and
those stay on its host alone. Main thread of the ResourceManager; files are written on others.
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
"""Bytes that one look copies; of more the newest."""


class CopiedFile:
    """Position in one file of a TaskManager, and what of it is to be written next. Pure."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.offset = -_PIECE_MAX_BYTES
        """Where to read next; negative: from the end."""
        self._file_id = ""
        self._left_out_bytes = 0

    def take(self, piece: LogPiece) -> bytes:
        """Return what to append to the copy after reading `piece` at `offset`."""
        if self._file_id and piece.file_id != self._file_id:
            # The one that was read before was put aside: the new one is read from its own end on.
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
            f"[{missing} bytes are left out here: they stay on its host]\n".encode() + piece.content
        )


class LogCopies:
    """One per ResourceManager. Without a `folder`, and with a `headrace.logs.copy-size` of 0, nothing is copied."""

    def __init__(
        self, endpoint: RpcEndpoint, run_blocking: BlockingRunner, folder: Path | None
    ) -> None:
        self._endpoint: Final = endpoint
        self._run_blocking: Final = run_blocking
        size_bytes = int(endpoint.settings.get_option(LOG_COPY_SIZE))
        # Half of it is the file, and half the one before it.
        self._file_size_bytes: Final = size_bytes // (2 * len(_ENDINGS))
        self._folder: Final = folder if size_bytes else None
        self._copies: Final[dict[ResourceId, list[tuple[CopiedFile, RotatingFile]]]] = {}
        self._busy: Final[set[ResourceId]] = set()
        self._ending: Final[set[ResourceId]] = set()

    def heard(self, resource_id: ResourceId, gateway: TaskExecutorGateway, log_folder: str) -> None:
        """A TaskManager has answered: copy what it has written since, unless that is under way."""
        if self._folder is not None and log_folder and resource_id not in self._busy:
            self._busy.add(resource_id)
            self._endpoint.spawn(self._copy(self._folder, resource_id, gateway), "copy log files")

    async def end(
        self, resource_id: ResourceId, gateway: TaskExecutorGateway, log_folder: str
    ) -> None:
        """Copy the last lines of one that has ended or is about to, if it still answers, and close its copies."""
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
            _LOG.debug("log files of TaskManager %s are not copied now: %s", resource_id, error)
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
                return []  # It writes there itself.
            names = [f"{name}{ending}" for ending in _ENDINGS]
            return [
                (CopiedFile(each), RotatingFile(folder / each, self._file_size_bytes, 1))
                for each in names
            ]

        found = self._copies[resource_id] = await self._run_blocking("look for log files", look)
        return found


def _writing(copy: RotatingFile, content: bytes) -> Callable[[], None]:
    return lambda: copy.write(content)
