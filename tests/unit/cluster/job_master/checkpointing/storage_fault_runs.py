"""Runs of a driver on storage that fails at one of its operations."""

import random
from dataclasses import dataclass
from pathlib import Path

from headrace.checkpoint.errors import CheckpointError, PublicationUnknownError
from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.options import (
    CHECKPOINT_DIRECTORY,
    DATA_INLINE_THRESHOLD,
    KEY_FILE,
    NUM_RETAINED,
    RETENTION,
)
from headrace.checkpoint.storage.subtask_storage import StateReader, SubtaskStorage
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import CheckpointStore
from headrace.core.barriers import CheckpointOptions
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from testkit.faulty_file_system import StorageFaults, faults_of
from tests.unit.checkpoint.snapshots import metadata_of

JOB = JobId(b"j" * 16)


@dataclass
class Run:
    """One job over several drivers. `sure`: the id that was last told to be complete; `maybe`: in doubt since."""

    settings: Settings
    faults: StorageFaults
    drawn: random.Random
    sure: int = 0
    maybe: frozenset[int] = frozenset()
    refused_count: int = 0

    def start(self) -> CheckpointStore | None:
        """A new driver; None where the storage does not let it start."""
        store = CheckpointStore(self.settings, JOB, ManualClock(), self.drawn)
        try:
            restored = store.recover()
        except CheckpointError:
            self.refused_count += 1
            return None
        self.check(restored)
        return store

    def check(self, restored: CompletedCheckpoint | None) -> None:
        """What a job starts from is the last one that was complete, or one whose publication was in doubt."""
        found = 0 if restored is None else restored.checkpoint_id
        assert found in {self.sure, *self.maybe}, f"{found} instead of {self.sure} or {self.maybe}"
        if restored is None:
            return
        self.sure, self.maybe = found, frozenset()
        for number, file in enumerate(restored.metadata.files()):
            try:
                content = StateReader().read(file)
            except CheckpointError:
                self.refused_count += 1  # said, by name, and not used
            else:
                assert content == content_of(found, number)

    def checkpoint(self, store: CheckpointStore) -> None:
        """Try to take one; whatever fails ends it alone."""
        checkpoint_id = 0
        options = CheckpointOptions()
        files: list[StateFile] = []
        try:
            checkpoint_id = store.take_id()
            options = store.locate(checkpoint_id, options, "")
            writer = SubtaskStorage(options, "s", self.settings, self.drawn)
            for number in range(3):
                is_shared = number == 2
                content = content_of(checkpoint_id, number)
                files.append(writer.write("x", content, is_shared=is_shared))
                store.register_shared(checkpoint_id, files[-1:])
            store.publish(metadata_of(checkpoint_id, *files), options)
            self.sure, self.maybe = checkpoint_id, frozenset()
        except PublicationUnknownError:
            self.maybe |= {checkpoint_id}
        except CheckpointError:
            store.discard(checkpoint_id, options, files)


def content_of(checkpoint_id: int, number: int) -> bytes:
    return f"{checkpoint_id}/{number} ".encode() * 4000


def a_run(tmp_path: Path, faults: str, seed: int) -> Run:
    # What goes wrong is shared by all who name the same faults: the folder's name makes them this run's own.
    query = f"{faults}&seed={seed}&run={tmp_path.name}"
    uri = f"faulty://{tmp_path}/{seed}?{query}"
    settings = {
        CHECKPOINT_DIRECTORY.key: uri,
        KEY_FILE.key: str(tmp_path / "key"),
        DATA_INLINE_THRESHOLD.key: "0",
        NUM_RETAINED.key: str(1 + seed % 2),
        RETENTION.key: "RETAIN_ON_CANCELLATION",
    }
    return Run(Settings(settings), faults_of(query), random.Random(seed))
