"""A layer of files on which disks are full, sectors are bad and processes die at the k-th call."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.network.stored.spill_files import OsFileLayer


class FaultyFileLayer(OsFileLayer):
    """The real one, until it is told otherwise.

    `space_bytes`: what fits the disk; `bad_from`: reads at or behind this offset fail; `calls_left`: after so many
    calls that change something the process "dies": every further call fails and changes nothing.
    """

    def __init__(self) -> None:
        self.space_bytes: int | None = None
        self.bad_from: int | None = None
        self.calls_left: int | None = None
        self.short_writes = self.short_reads = False
        self.read_offsets: list[int] = []
        self.read_ends: list[int] = []
        """The first byte behind each read that was wanted."""

    def create(self, path: Path) -> int:
        self._count_call()
        return super().create(path)

    def write(self, descriptor: int, pieces: Sequence[Any], offset: int) -> int:
        self._count_call()
        joined = b"".join(bytes(memoryview(piece).cast("B")) for piece in pieces)
        if self.short_writes and len(joined) > 1:
            joined = joined[: len(joined) // 2]
        if self.space_bytes is not None:
            if not self.space_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            joined = joined[: self.space_bytes]
            self.space_bytes -= len(joined)
        return super().write(descriptor, [joined], offset)

    def read(self, descriptor: int, targets: Sequence[memoryview], offset: int) -> int:
        self.read_offsets.append(offset)
        self.read_ends.append(offset + sum(map(len, targets)))
        if self.bad_from is not None and offset + sum(map(len, targets)) > self.bad_from:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.short_reads:
            targets = [targets[0][:3]]
        return super().read(descriptor, targets, offset)

    def rename(self, path: Path, new_path: Path) -> None:
        self._count_call()
        super().rename(path, new_path)

    def _count_call(self) -> None:
        if self.calls_left is None:
            return
        if self.calls_left == 0:
            raise OSError(errno.EIO, "the process is dead")
        self.calls_left -= 1
