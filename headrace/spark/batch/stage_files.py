"""StageFiles: sends the files that travel with a BATCH job from the driver to the job's Python workers.

Executors get the contents as Spark broadcasts. A worker unpacks or installs them as a TaskManager does, in the same
folder of its host, once per host. Workers that import a job's files run only jobs with equal files: Spark has separate
Python workers for each set of environment variables.

    job's start ──► entries are held ──tasks use and keep them──► job's end: entries that no other job holds are deleted
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
"""Maximum time between two tasks of a job on a host for which the files are kept."""
_KILL_S: Final = 10.0
"""Time in which Spark kills the worker of a cancelled task."""


def modules_digest(artifacts: Sequence[JobArtifact]) -> str:
    """Return the name of workers for jobs that import these files, in their order; empty if they import none.

    Cached files are only read by a task, and leave nothing in its process.
    """
    imported = [one for one in artifacts if not one.is_cached_file]
    names = [entry_name(one, tuple(artifacts)) for one in imported]
    return hashlib.sha256(" ".join(names).encode()).hexdigest() if names else ""


class EntriesInUse:
    """Counts the jobs of this process that use each entry. Any thread: jobs begin and end on their own threads."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._counts: Final = Counter[str]()

    def hold(self, names: Iterable[str]) -> None:
        """Count a job that has begun and uses these entries."""
        with self._lock:
            self._counts.update(names)

    def release(self, names: Sequence[str]) -> list[str]:
        """Stop counting a job that has ended; return its entries that no other job uses."""
        with self._lock:
            self._counts.subtract(names)
            unused = [name for name in names if self._counts[name] <= 0]
            for name in unused:
                del self._counts[name]
            return unused


@dataclass(frozen=True)
class StageFiles:
    """Files for the tasks of a job. `parent`: folder on each host; if empty, the system's temporary one."""

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
        """Send the contents to the executors, which fetch them when needed; in the driver."""
        return cls(
            tuple(artifacts),
            {key: context.broadcast(content) for key, content in contents.items()},
            "" if parent is None else str(parent),
        )

    @contextlib.contextmanager
    def settings(self, given: Mapping[str, str]) -> Generator[dict[str, str]]:
        """Prepare the files on this host, and yield the job's settings with their paths; in a task."""
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

        On other hosts, workers of later jobs with files delete them.
        """
        for content in self.contents.values():
            try:
                content.destroy()
            except Exception as error:
                # The job has its result, which must not be lost to this.
                _LOG.warning(
                    "files of an ended job could not be removed from the executors: %s", error
                )
        store = self._store
        if not store.delete(unused):
            # A task of a job that was cancelled lives on for some seconds.
            start_thread("headrace-stage-files", partial(_delete_late, store, unused))

    @property
    def entry_names(self) -> tuple[str, ...]:
        """Return the names of the entries that tasks make from the files, each once."""
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
    """Delete files of earlier jobs that nothing on this host uses; once per worker, which holds its own files."""
    _store_in(parent).delete_unused()
