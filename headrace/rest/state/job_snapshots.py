"""JobSnapshots: the snapshots that a job has reported, by id, and the settings for reading them.

The paths come from the checkpoint statistics of the running or ended job; no client can pass a path.
"""

from dataclasses import dataclass
from typing import Final, Literal

from headrace.checkpoint.options import KEY_FILE, SAVEPOINT_DIRECTORY, SHARED_FILES
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.redaction import HIDDEN
from headrace.gateways.checkpoint_statistics import CheckpointRecord, CheckpointStatus
from headrace.rest.cluster_view import ClusterView
from headrace.rest.handler_errors import ConflictError, NotFoundError

_IN_MEMORY: Final = (
    "It is in the driver's memory: set execution.checkpointing.dir to store checkpoints in files."
)
_DISCARDED: Final = "Newer checkpoints have replaced it."
_SECRET: Final = "Its address contains a secret, which is not shown here: read it with headrace-state, by its path."


@dataclass(frozen=True)
class JobSnapshot:
    """A snapshot that a job has taken, or was restored from. `problem`: why it cannot be read; empty if it can.

    `savepoint_format`: CANONICAL or NATIVE, empty for checkpoints.
    """

    checkpoint_id: int
    kind: Literal["checkpoint", "savepoint", "restored"]
    savepoint_format: str
    timestamp_ms: int
    size_bytes: int | None
    uri: str
    problem: str = ""


class JobSnapshots:
    """Snapshots of one job, the newest first."""

    def __init__(self, cluster: ClusterView, job: JobId) -> None:
        self._cluster: Final = cluster
        self._job: Final = job

    async def all(self) -> list[JobSnapshot]:
        """Return the completed snapshots that are still recorded, and the one that the job was restored from."""
        found = await self._cluster.checkpoints(self._job)
        records = (found.latest_completed, found.latest_savepoint, *found.history)
        snapshots = {
            one.checkpoint_id: _snapshot(one)
            for one in records
            if one is not None and one.status is CheckpointStatus.COMPLETED
        }
        restored = found.restored
        if restored is not None:
            one = JobSnapshot(
                restored.checkpoint_id,
                "restored",
                restored.kind.savepoint_format,
                restored.restore_timestamp_ms,
                None,
                restored.external_path,
                _problem(restored.external_path, is_discarded=False),
            )
            snapshots.setdefault(one.checkpoint_id, one)
        return [snapshots[number] for number in sorted(snapshots, reverse=True)]

    async def find(self, checkpoint_id: int) -> JobSnapshot:
        """Return a snapshot that can be read. NotFoundError if it is unknown, ConflictError if it cannot be read."""
        for one in await self.all():
            if one.checkpoint_id == checkpoint_id:
                if one.problem:
                    raise ConflictError(f"Snapshot {checkpoint_id} cannot be read. {one.problem}")
                return one
        raise NotFoundError(f"Job {self._job.hex()} has no recorded snapshot {checkpoint_id}.")

    async def settings(self) -> Settings:
        """Return the job's settings for reading snapshots and writing savepoints."""
        known = (await self._cluster.configuration(self._job)).settings
        wanted = (KEY_FILE, SAVEPOINT_DIRECTORY, SHARED_FILES)
        names = [name for one in wanted for name in (one.key, *one.deprecated_keys)]
        return Settings({name: known[name] for name in names if name in known})


def _snapshot(record: CheckpointRecord) -> JobSnapshot:
    return JobSnapshot(
        record.checkpoint_id,
        "savepoint" if record.kind.is_savepoint else "checkpoint",
        record.savepoint_format,
        record.trigger_timestamp_ms,
        record.state_size_bytes,
        record.external_path,
        _problem(record.external_path, is_discarded=record.is_discarded),
    )


def _problem(path: str, *, is_discarded: bool) -> str:
    if is_discarded:
        return _DISCARDED
    if not path:
        return _IN_MEMORY
    return _SECRET if HIDDEN in path else ""
