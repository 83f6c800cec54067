"""StageFiles: the files that travel with a job in BATCH mode, on their way from the driver to the job's Python workers.

Executors get the contents as Spark's broadcasts. A worker makes of them what a TaskManager makes, in the same folder of
its host; so a file is unpacked or installed once there. Workers that import a job's files run no other job: Spark has
Python workers of their own for each set of environment variables.
"""

import contextlib
import functools
import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark import Broadcast, SparkContext

from headrace.cluster.blob.artifact_cache import located_settings, make_artifacts
from headrace.cluster.blob.artifact_store import ArtifactStore
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import BlobKey
from headrace.graph.job_graph import JobArtifact

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class StageFiles:
    """What the tasks of a job are given. `parent`: folder on each host, empty for the system's temporary one."""

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
                lease.leave()

    def forget(self, *, is_this_host: bool) -> None:
        """Let the executors drop the contents, and delete the files if workers run on this host; in the driver.

        On other hosts the workers of the next job with files delete them.
        """
        for content in self.contents.values():
            try:
                content.destroy()
            except Exception as error:
                # The job has its result, which must not be lost to this.
                _LOG.warning("files of an ended job stay with the executors: %s", error)
        if is_this_host:
            self._store.delete_unused()

    @property
    def _store(self) -> ArtifactStore:
        return _store_in(self.parent)


def _store_in(parent: str) -> ArtifactStore:
    return ArtifactStore(Path(parent) if parent else None, SystemClock())


@functools.cache
def _delete_files_of_others(parent: str) -> None:
    """Delete files of earlier jobs, which no task on this host uses; once in a worker, which holds those of its job."""
    _store_in(parent).delete_unused()
