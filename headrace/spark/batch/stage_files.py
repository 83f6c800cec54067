"""StageFiles: the files that travel with a job in BATCH mode, on their way from the driver to the job's Python workers.

Executors get the contents as Spark's broadcasts. A worker makes of them what a TaskManager makes, in the same folder of
its host; so a file is unpacked or installed once there. Workers that import a job's files run jobs with equal ones and
no other: Spark has Python workers of their own for each set of environment variables.

    job's start ──► entries are held ──tasks use and keep them──► job's end: those that no other job holds are deleted
"""

import contextlib
import functools
import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pyspark import Broadcast, SparkContext

from headrace.cluster.blob.artifact_cache import entry_name, located_settings, make_artifacts
from headrace.cluster.blob.artifact_store import ArtifactStore
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import BlobKey
from headrace.core.threads import start_thread
from headrace.graph.job_graph import JobArtifact

_LOG: Final = logging.getLogger(__name__)
_KEPT_MS: Final = 600_000
"""Longest time between two tasks of a job on a host after which the second still finds its files."""
_KILL_S: Final = 10.0
"""Time in which Spark kills the worker of a cancelled task."""


def modules_digest(artifacts: Sequence[JobArtifact]) -> str:
    """Return the name of the workers of jobs that import these files, in their order; empty if they import none.

    Cached files are read by a task, and leave nothing in its process.
    """
    imported = [one for one in artifacts if not one.is_cached_file]
    names = [entry_name(one, tuple(artifacts)) for one in imported]
    return hashlib.sha256(" ".join(names).encode()).hexdigest() if names else ""


class EntriesInUse:
    """Counts the jobs of this process that use each entry. Any thread.

    It has a lock, as jobs begin and end on threads of their own.
    """

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._counts: Final = Counter[str]()

    def hold(self, names: Iterable[str]) -> None:
        """Count a job that has begun."""
        with self._lock:
            self._counts.update(names)

    def release(self, names: Sequence[str]) -> list[str]:
        """Stop counting a job that has ended; return those of its entries that no other job uses."""
        with self._lock:
            self._counts.subtract(names)
            unused = [name for name in names if self._counts[name] <= 0]
            for name in unused:
                del self._counts[name]
            return unused


@dataclass(frozen=True)
class StageFiles:
    """Files that the tasks of a job are given. `parent`: folder on each host, empty for the system's temporary one."""

    artifacts: tuple[JobArtifact, ...]
    contents: Mapping[BlobKey, "Broadcast[bytes]"]
    parent: str

    @classmethod
    def sent(
        cls,
        context: SparkContext,
        artifacts: Sequence[JobArtifact],
        contents: Mapping[BlobKey, bytes],
        parent: Path | None,
    ) -> "StageFiles":
        """Send the contents to the executors, which fetch them as they need them; in the driver."""
        return cls(
            tuple(artifacts),
            {key: context.broadcast(content) for key, content in contents.items()},
            "" if parent is None else str(parent),
        )

    @contextlib.contextmanager
    def settings(self, given: Mapping[str, str]) -> Generator[dict[str, str]]:
        """Have the files on this host, and yield the job's settings with their paths; in a task."""
        store = self._store
        leases = make_artifacts(
            store, self.artifacts, Settings(dict(given)), lambda key: self.contents[key].value
        )
        try:
            _delete_files_of_others(self.parent)
            yield located_settings(store, self.artifacts, given)
        finally:
            for lease in leases:
                # The next task of the job would have to install everything again.
                lease.leave(_KEPT_MS)

    def forget(self, unused: Sequence[str]) -> None:
        """Let the executors drop the contents, and delete the `unused` entries from this host; in the driver.

        On other hosts workers of later jobs with files delete them.
        """
        for content in self.contents.values():
            try:
                content.destroy()
            except Exception as error:
                # The job has its result, which must not be lost to this.
                _LOG.warning("files of an ended job stay with the executors: %s", error)
        store = self._store
        if not store.delete(unused):
            # A task of a job that was cancelled lives on for some seconds.
            start_thread("headrace-stage-files", partial(_delete_late, store, unused))

    @property
    def entry_names(self) -> tuple[str, ...]:
        """Names of the entries that tasks make of the files, each once."""
        return tuple(dict.fromkeys(entry_name(one, self.artifacts) for one in self.artifacts))

    @property
    def _store(self) -> ArtifactStore:
        return _store_in(self.parent)


def _store_in(parent: str) -> ArtifactStore:
    return ArtifactStore(Path(parent) if parent else None, SystemClock())


def _delete_late(store: ArtifactStore, names: Sequence[str]) -> None:
    store.delete(names, _KILL_S)


@functools.cache
def _delete_files_of_others(parent: str) -> None:
    """Delete files of earlier jobs, which nobody on this host uses or keeps; once in a worker, which holds its own."""
    _store_in(parent).delete_unused()
