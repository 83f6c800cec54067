"""The stored snapshots: each an archive of the folder that a program ran in, beside the lines that it gives in the end.

An archive holds the key of the metadata, the snapshot, the file that the program reads and what its sinks had staged.
"""

import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace import StreamExecutionEnvironment
from headrace.checkpoint.retention.inspection import find_snapshots
from tests.integration.stored_savepoints import overtaken, program
from tests.integration.stored_savepoints.program import HERE, Run

FOLDER: Final = Path(__file__).parent
SNAPSHOTS: Final = f"{HERE}/snapshots"
"""Where the programs leave snapshots, in the folder that they run in."""
RunToEnd = Callable[[StreamExecutionEnvironment, Run], list[str]]


@dataclass(frozen=True)
class Stored:
    """A snapshot. `backends`: those that can restore it; the first one made it. `generation`: who wrote it."""

    generation: str
    name: str
    backends: tuple[str, ...]
    is_savepoint: bool
    run_to_end: RunToEnd = program.run_to_end

    def __str__(self) -> str:
        return f"{self.generation} {self.name}"

    @property
    def archive(self) -> Path:
        return FOLDER / self.generation / f"{self.name}.tar.xz"

    @property
    def answer(self) -> Path:
        """The lines, which are the same for all snapshots of a program."""
        name = self.run_to_end.__module__.rpartition(".")[2]
        return FOLDER / "answers" / f"{name}.txt"

    def settings(self) -> dict[str, str]:
        """Those that a run has beside what all runs have."""
        if self.is_savepoint:
            return {}
        return {
            "execution.checkpointing.dir": SNAPSHOTS,
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        }


def _generation(folder: str) -> tuple[Stored, ...]:
    return (
        Stored(folder, "heap-savepoint", ("hashmap", "rocksdb"), is_savepoint=True),
        Stored(folder, "rocksdb-savepoint", ("rocksdb", "hashmap"), is_savepoint=True),
        Stored(folder, "heap-checkpoint", ("hashmap", "rocksdb"), is_savepoint=False),
        Stored(folder, "rocksdb-checkpoint", ("rocksdb",), is_savepoint=False),
        Stored(folder, "unaligned-checkpoint", ("hashmap",), False, overtaken.run_to_end),
    )


NEWEST: Final = _generation("snapshots_0_1")
"""The folder is named after the version that wrote it. A later one comes beside it, and both are restored."""
STORED: Final = (*NEWEST,)


def pack(stored: Stored) -> None:
    """Make the archive of the current folder."""
    with tarfile.open(stored.archive, "w:xz", preset=9) as archive:
        for file in sorted(Path().rglob("*")):
            archive.add(file, recursive=False, filter=_of_nobody)


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = int(member.mtime)
    return member


def unpack(stored: Stored) -> str:
    """Put the content of the archive into the current folder; return where the snapshot in it lies."""
    with tarfile.open(stored.archive) as archive:
        archive.extractall(filter="data")
    (snapshot,) = find_snapshots(SNAPSHOTS)
    return snapshot
