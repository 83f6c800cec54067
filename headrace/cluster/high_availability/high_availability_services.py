"""HighAvailabilityServices: the stores that the drivers of a cluster share, so that the next leader can continue.

    <storageDir>/<cluster id>/leader/…          the leader, unless a service stores it (`coordination`)
    <storageDir>/<cluster id>/jobs/…            jobs that have not ended, with their blobs
    <storageDir>/<cluster id>/job-results/…     jobs that have ended
    <storageDir>/<cluster id>/application/…     runs of a program that is one with its cluster
    <storageDir>/<cluster id>/checkpoints/…     checkpoints of jobs that name no folder of their own

Only file systems that create a file atomically, if absent, are suitable: folders of the machine, mounted shared
folders, and S3 stores that support conditional writes. Source: Flink HighAvailabilityServices, FileSystemHaServices.
"""

import os
import socket
from collections.abc import Callable
from typing import Final

from headrace.checkpoint.options import (
    CHECKPOINT_DIRECTORY,
    CREATE_SUBDIR,
    INTERVAL,
    SHARED_FILES,
    STORAGE,
    CheckpointStorageKind,
    storage_kind,
)
from headrace.checkpoint.storage.file_systems import child_uri, files_below, remove_leftovers
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.cluster.high_availability.application_store import ApplicationStore
from headrace.cluster.high_availability.coordination import (
    check_storage,
    open_coordination,
    storage_folder,
)
from headrace.cluster.high_availability.job_graph_store import JobGraphStore
from headrace.cluster.high_availability.job_result_store import JobResultStore
from headrace.cluster.high_availability.leader_election_service import LeaderElectionService
from headrace.cluster.high_availability.options import (
    DELETE_ON_COMMIT,
    HIGH_AVAILABILITY_TYPE,
    cluster_id,
    is_highly_available,
)
from headrace.cluster.high_availability.process_lock import ProcessLock
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.randomness import SeededRandom

_JOBS: Final = "jobs"
_RESULTS: Final = "job-results"
_APPLICATION: Final = "application"


class HighAvailabilityServices:
    """High-availability stores of one process. ConfigurationError if the settings do not name a suitable folder."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        random: SeededRandom,
        process_lock: ProcessLock | None = None,
    ) -> None:
        """Open the stores; `process_lock` is the lock of this process, which `close` closes."""
        folder = storage_folder(settings)
        check_storage(settings)
        key, is_shared = metadata_key(settings), settings.get_option(SHARED_FILES)
        self._coordination: Final = open_coordination(settings, random)
        self._clock: Final = clock
        self._folder: Final = folder
        self._checkpoints: Final = child_uri(folder, "checkpoints")
        self.job_graph_store: Final = JobGraphStore(
            child_uri(folder, _JOBS),
            key,
            random,
            is_shared=is_shared,
            pointers=self._coordination.pointers,
        )
        self.job_result_store: Final = JobResultStore(
            child_uri(folder, _RESULTS),
            key,
            random,
            deletes_clean=settings.get_option(DELETE_ON_COMMIT),
            is_shared=is_shared,
        )
        self.application_store: Final = ApplicationStore(
            child_uri(folder, _APPLICATION), key, random, is_shared=is_shared
        )
        self._process_lock: Final = process_lock
        self.before_release: Callable[[], None] = lambda: None
        """Called when everything of this leadership has ended in the process, while no other process leads yet."""
        self.election: Final = LeaderElectionService(
            self._coordination.records,
            self._coordination.terms,
            clock,
            cluster_id(settings),
            f"process {os.getpid()} of {socket.gethostname()}",
            self._process_lock,
        )

    def remove_leftovers(self) -> None:
        """Delete files that killed leaders have left half-written. Call as the next leader.

        CheckpointStorageError if that fails. Only past leaders write before this one does: if the clock of the file
        system differs from that of this process, such a leader may fail to write, once.
        """
        for name in (_JOBS, _RESULTS, _APPLICATION):
            remove_leftovers(files_below(child_uri(self._folder, name)), self._clock.now_ms())

    def close(self) -> None:
        """Release the leadership, so that the next leader follows at once. Idempotent; may block."""
        before_release, self.before_release = self.before_release, lambda: None
        before_release()
        self.election.close()
        if self._process_lock is not None:
            self._process_lock.close()
        self._coordination.close()

    def settings_for(self, job: Settings) -> dict[str, str]:
        """Return the settings to add to a job so that its checkpoints outlive this driver.

        `job`: the job's settings over the cluster's. ConfigurationError if a setting conflicts.
        """
        if job.get_option(INTERVAL).total_seconds() <= 0:
            return {}
        if not job.get_option(CREATE_SUBDIR):
            raise ConfigurationError(
                CREATE_SUBDIR.key,
                "false",
                "the next leader looks for the checkpoints of a job in the job's own folder; remove this option, or "
                f"set {HIGH_AVAILABILITY_TYPE.key} to NONE",
            )
        if storage_kind(job) is CheckpointStorageKind.FILESYSTEM:
            return {}
        return {
            STORAGE.key: CheckpointStorageKind.FILESYSTEM.name,
            CHECKPOINT_DIRECTORY.key: job.get_option(CHECKPOINT_DIRECTORY) or self._checkpoints,
        }


def open_high_availability(
    settings: Settings, clock: Clock, random: SeededRandom
) -> HighAvailabilityServices | None:
    """Return the services for these settings, or None without high availability. ConfigurationError if invalid."""
    if not is_highly_available(settings):
        return None
    process_lock = ProcessLock(random, clock)
    try:
        return HighAvailabilityServices(settings, clock, random, process_lock)
    except BaseException:
        process_lock.close()
        raise
