"""Jobs whose drivers keep their checkpoints in one folder, one after the other."""

import random
from pathlib import Path

from headrace.checkpoint.handles import Committable, OperatorSubtaskState, StateFile
from headrace.checkpoint.metadata import CheckpointMetadata, CompletedCheckpoint, OperatorSnapshot
from headrace.checkpoint.options import (
    CHECKPOINT_DIRECTORY,
    KEY_FILE,
    SAVEPOINT_DIRECTORY,
)
from headrace.checkpoint.retention.leases import LEASES_FOLDER
from headrace.checkpoint.storage.file_systems import files_below
from headrace.checkpoint.storage.subtask_storage import SubtaskStorage
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import CheckpointStore
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from tests.unit.checkpoint.snapshots import keyed, operator_id

JOB, OTHER_JOB = JobId(b"j" * 16), JobId(b"o" * 16)


BIG = bytes(30_000)


class Jobs:
    """Starts drivers of jobs in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = {
            CHECKPOINT_DIRECTORY.key: str(folder / "checkpoints"),
            SAVEPOINT_DIRECTORY.key: str(folder / "savepoints"),
            KEY_FILE.key: str(folder / "key"),
        }
        self.clock = ManualClock(1_700_000_000_000)
        self._started_count = 0

    def start(self, job_id: JobId = JOB, **more: str) -> CheckpointStore:
        self._started_count += 1
        settings = Settings({**self.settings, **more})
        store = CheckpointStore(
            settings,
            job_id,
            self.clock,
            random.Random(self._started_count),
            # What is deleted is gone when the call returns, so that the test may look.
            start=lambda name, body: body(),
        )
        self.restored = store.recover()
        return store

    def files(self, job_id: JobId = JOB) -> list[str]:
        """What lies in the job's folder beside what is said of the job and leases, without random parts of names."""
        folder = self.folder / "checkpoints" / job_id.hex()
        found = [entry.relative_path for entry in files_below(str(folder))]
        found = [name for name in found if name not in ("lineage", "newest")]
        found = [name for name in found if LEASES_FOLDER not in name]
        return sorted(name.rpartition("-")[0] if "state" in name else name for name in found)


def located(store: CheckpointStore, kind: SnapshotKind = SnapshotKind.CHECKPOINT):
    checkpoint_id = store.take_id()
    return checkpoint_id, store.locate(checkpoint_id, CheckpointOptions(kind=kind), "")


def described(
    store: CheckpointStore,
    checkpoint_id: int,
    *files: StateFile,
    kind: SnapshotKind = SnapshotKind.CHECKPOINT,
) -> CheckpointMetadata:
    state = OperatorSubtaskState(tuple(keyed(file) for file in files), (Committable("k", b"x"),))
    operator = OperatorSnapshot(operator_id(1), "count", 1, 128, "counter", {0: state})
    return CheckpointMetadata(
        checkpoint_id, kind, 0, JOB, "words", store.lineage_id, store.epoch, (operator,)
    )


def take(
    store: CheckpointStore,
    *shared: StateFile,
    kind: SnapshotKind = SnapshotKind.CHECKPOINT,
    shares: bool = False,
) -> CompletedCheckpoint:
    """Take one with a file of its own or, if it `shares`, one that others may use, beside those given."""
    checkpoint_id, options = located(store, kind)
    file = SubtaskStorage(options, "state", Settings()).write("x", BIG, is_shared=shares)
    store.register_shared(checkpoint_id, [file])
    metadata = described(store, checkpoint_id, file, *shared, kind=kind)
    return store.publish(metadata, options)
