"""JobResultStore: records which jobs of a cluster have ended, and whether their files are deleted. All calls block.

    <folder>/<job id>_DIRTY-<epoch>.json   the job has ended under the leader of that epoch, and never runs again; its
                                           files may still exist. Or: that leader can no longer end the job
    <folder>/<job id>.json                 its other files are deleted (only without job-result-store.delete-on-commit)

A dirty entry is written when all output of a job is committed and before the first of its checkpoints is deleted: a
job without its checkpoints, and without an entry, would start anew. A leader that continues a job creates the entries
of all earlier leaders: one that was frozen between its check of the lease and its write finds its entry
taken, or has ended the job. Creation is the only step that must be atomic.
Source: Flink FileSystemJobResultStore, FLIP-194.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from headrace.checkpoint.errors import RecordNotTrustedError
from headrace.checkpoint.storage.file_systems import (
    child_uri,
    files_below,
    is_there,
    is_there_or_never,
    make_folder,
    put_if_absent,
    read_all,
    remove_file,
)
from headrace.checkpoint.storage.metadata_key import MetadataKey, seal, unseal
from headrace.core.errors import DECODE_ERRORS
from headrace.core.ids import JobId
from headrace.core.randomness import SeededRandom
from headrace.gateways.dispatcher import JobResult

_NAME: Final = re.compile(r"(?P<job>[0-9a-f]+)(?:_DIRTY-(?P<epoch>[0-9]+))?\.json")


class JobResultEntry(msgspec.Struct, frozen=True):
    """The end of a job. `keeps_latest`: its newest checkpoint stays, because a user may start a job from it."""

    result: JobResult
    keeps_latest: bool = False


@dataclass(frozen=True)
class JobResults:
    """Entries by job: jobs of `dirty` entries have files left to delete, those of `clean` ones have none.

    `shut_out`: the epochs of leaders that can no longer end a job.
    """

    dirty: dict[JobId, JobResultEntry] = field(default_factory=dict[JobId, JobResultEntry])
    clean: dict[JobId, JobResultEntry] = field(default_factory=dict[JobId, JobResultEntry])
    shut_out: dict[JobId, set[int]] = field(default_factory=dict[JobId, set[int]])
    dirty_epochs: dict[JobId, int] = field(default_factory=dict[JobId, int])

    def leave_out_before(self, stored_epochs: Mapping[JobId, int]) -> None:
        """Leave out entries of leaders before the one that stored a job.

        Such a leader was refusing the job when its client had submitted it to a later one.
        """
        for job_id, epoch in stored_epochs.items():
            if self.dirty_epochs.get(job_id, epoch) < epoch:
                self.dirty.pop(job_id, None)


class JobResultStore:
    """Results of one cluster. CheckpointStorageError if the storage fails; one call at a time for each job."""

    def __init__(
        self,
        folder_uri: str,
        key: MetadataKey,
        random: SeededRandom,
        *,
        deletes_clean: bool,
        is_shared: bool = False,
    ) -> None:
        """Set the folder and its key; for `is_shared` see file_systems.make_folder."""
        self._folder: Final = folder_uri
        self._key: Final = key
        self._random: Final = random
        self._deletes_clean: Final = deletes_clean
        self._is_shared: Final = is_shared

    def create_dirty(self, entry: JobResultEntry, epoch: int) -> bool:
        """Record that a job has ended under the leader of `epoch`; the first entry of a job stays.

        It is durable when this returns. Returns False if a later leader continues the job.
        """
        job_id = entry.result.job_id
        if self._put(job_id, epoch, entry):
            return True
        uri = self._uri(job_id, epoch)
        return is_there_or_never(uri) and self._read(uri, job_id, epoch) is not None

    def shut_out(self, job_id: JobId, epochs: Iterable[int]) -> JobResultEntry | None:
        """Prevent the leaders of these epochs from ending a job that continues.

        Return the entry of one that has ended it. Oldest first: it stops at the leader that has ended the job, and
        creates no later entries.
        """
        for epoch in sorted(epochs):
            uri = self._uri(job_id, epoch)
            if not self._put(job_id, epoch, None) and is_there_or_never(uri):
                found = self._read(uri, job_id, epoch)
                if found is not None:
                    return found
        return None

    def take_back(self, job_id: JobId, epoch: int) -> None:
        """Delete the entry of the leader of `epoch`, which is the caller, so that it may create another one."""
        uri = self._uri(job_id, epoch)
        remove_file(uri)
        remove_file(f"{uri}.claim")

    def mark_clean(self, entry: JobResultEntry) -> None:
        """Record that all other files of the job are deleted."""
        job_id = entry.result.job_id
        if not self._deletes_clean:
            self._put(job_id, None, entry)
        self.forget(job_id)

    def find_clean(self, job_id: JobId) -> JobResultEntry | None:
        """Return the clean entry of a job; None if there is none, or such entries are not kept."""
        uri = self._uri(job_id, None)
        if self._deletes_clean or not is_there(uri):
            return None
        return self._read(uri, job_id, None)

    def discard(self, job_id: JobId) -> None:
        """Delete all entries of a job whose other files are deleted."""
        self.forget(job_id)
        remove_file(self._uri(job_id, None))

    def recover(self) -> JobResults:
        """Return all entries, and delete dirty ones of clean jobs.

        RecordNotTrustedError if an entry cannot be read: its job might run twice.
        """
        found = JobResults()
        for file in files_below(self._folder, is_recursive=False):
            if file.relative_path.startswith(".") or not file.relative_path.endswith(".json"):
                continue
            job_id, epoch = _parsed(file.relative_path, file.uri)
            entry = self._read(file.uri, job_id, epoch)
            if entry is None:
                assert epoch is not None, "a clean entry has a result"
                found.shut_out.setdefault(job_id, set()).add(epoch)
            elif epoch is None:
                found.clean[job_id] = entry
            elif epoch > found.dirty_epochs.get(job_id, -1):
                found.dirty[job_id], found.dirty_epochs[job_id] = entry, epoch
        for job_id in found.clean.keys() & found.dirty.keys():
            # The last step of its clean-up was not done.
            del found.dirty[job_id]
            self.forget(job_id)
        return found

    def _put(self, job_id: JobId, epoch: int | None, entry: JobResultEntry | None) -> bool:
        content = seal(msgspec.json.encode(entry), _subject(job_id, epoch), self._key)
        make_folder(self._folder, is_shared=self._is_shared)
        return put_if_absent(self._uri(job_id, epoch), content, self._random.randbytes(8).hex())

    def _read(self, uri: str, job_id: JobId, epoch: int | None) -> JobResultEntry | None:
        content = bytes(read_all(uri))
        kinds = JobResultEntry if epoch is None else JobResultEntry | None
        try:
            sealed = unseal(content, _subject(job_id, epoch), self._key, uri)
            return msgspec.json.decode(sealed, type=kinds)
        except DECODE_ERRORS as error:
            raise _not_trusted(uri, error) from error

    def forget(self, job_id: JobId) -> None:
        """Delete all dirty entries of a job, and partial ones of killed leaders.

        The newest entry, which records the end, is deleted last.
        """
        found: list[tuple[int, str]] = []
        for file in files_below(self._folder, is_recursive=False):
            name = _NAME.fullmatch(file.relative_path)
            if file.relative_path.startswith(f".{job_id.hex()}"):
                remove_file(file.uri)
            if name is not None and name["job"] == job_id.hex() and name["epoch"] is not None:
                found.append((int(name["epoch"]), file.uri))
        for _, uri in sorted(found):
            remove_file(uri)

    def _uri(self, job_id: JobId, epoch: int | None) -> str:
        return child_uri(
            self._folder, f"{job_id.hex()}{'' if epoch is None else f'_DIRTY-{epoch}'}.json"
        )


def _parsed(name: str, uri: str) -> tuple[JobId, int | None]:
    """Return the job and the epoch of a file; the epoch is None for a clean entry.

    RecordNotTrustedError for another name.
    """
    found = _NAME.fullmatch(name)
    try:
        if found is None:
            raise ValueError("its name is not <job id>.json or <job id>_DIRTY-<epoch>.json")
        epoch = found["epoch"]
        return JobId.from_hex(found["job"]), None if epoch is None else int(epoch)
    except DECODE_ERRORS as error:
        raise _not_trusted(uri, error) from error


def _not_trusted(uri: str, error: Exception) -> RecordNotTrustedError:
    reason = (
        f"another version of Headrace or another program wrote it ({error}): start that version, or delete the file "
        "if its job may run again"
    )
    return RecordNotTrustedError(uri, reason)


def _subject(job_id: JobId, epoch: int | None) -> str:
    under = "" if epoch is None else f" under leader {epoch}"
    return f"result of job {job_id}{under}"
