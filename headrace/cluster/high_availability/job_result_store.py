"""JobResultStore: which jobs of a cluster have ended, and whether anything is left of them. All calls block.

    <folder>/<job id>_DIRTY.json    the job has ended and never runs again; its files may still be there
    <folder>/<job id>.json          nothing else is left of it (only without job-result-store.delete-on-commit)

A dirty entry is written when all output of a job is committed and before the first of its checkpoints is deleted: a
job without its checkpoints, and without an entry, would begin again. Source: Flink FileSystemJobResultStore, FLIP-194.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from headrace.checkpoint.errors import RecordNotTrustedError
from headrace.checkpoint.storage.file_systems import (
    child_uri,
    files_below,
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

_DIRTY: Final = "_DIRTY.json"
_CLEAN: Final = ".json"


class JobResultEntry(msgspec.Struct, frozen=True):
    """The end of a job. `keeps_latest`: its newest checkpoint stays, because somebody may go on from it by hand."""

    result: JobResult
    keeps_latest: bool = False


@dataclass(frozen=True)
class JobResults:
    """Entries by job: `dirty` ones have something left to delete, `clean` ones have not."""

    dirty: dict[JobId, JobResultEntry]
    clean: dict[JobId, JobResultEntry]


class JobResultStore:
    """Results of one cluster. CheckpointStorageError; one call at a time for each job."""

    def __init__(
        self,
        folder_uri: str,
        key: MetadataKey,
        random: SeededRandom,
        *,
        deletes_clean: bool,
        is_shared: bool = False,
    ) -> None:
        """`is_shared`: see file_systems.make_folder."""
        self._folder: Final = folder_uri
        self._key: Final = key
        self._random: Final = random
        self._deletes_clean: Final = deletes_clean
        self._is_shared: Final = is_shared

    def create_dirty(self, entry: JobResultEntry) -> None:
        """Record that a job has ended. It is durable when this returns; the first entry of a job stays."""
        self._put(entry, _DIRTY)

    def mark_clean(self, entry: JobResultEntry) -> None:
        """Record that nothing else is left of the job."""
        if not self._deletes_clean:
            self._put(entry, _CLEAN)
        remove_file(self._uri(entry.result.job_id, _DIRTY))

    def recover(self) -> JobResults:
        """Return all entries. RecordNotTrustedError where one cannot be read: its job might run twice."""
        found = JobResults({}, {})
        for file in files_below(self._folder, is_recursive=False):
            name = file.relative_path
            is_dirty = name.endswith(_DIRTY)
            if name.startswith(".") or not name.endswith(_CLEAN):
                continue
            entries = found.dirty if is_dirty else found.clean
            entry = self._read(file.uri, name.removesuffix(_DIRTY if is_dirty else _CLEAN))
            entries[entry.result.job_id] = entry
        for job_id in found.clean:
            found.dirty.pop(job_id, None)
        return found

    def _put(self, entry: JobResultEntry, ending: str) -> None:
        job_id = entry.result.job_id
        content = seal(msgspec.json.encode(entry), _subject(job_id), self._key)
        make_folder(self._folder, is_shared=self._is_shared)
        put_if_absent(self._uri(job_id, ending), content, self._random.randbytes(8).hex())

    def _read(self, uri: str, name: str) -> JobResultEntry:
        content = bytes(read_all(uri))
        try:
            job_id = JobId.from_hex(name)
            sealed = unseal(content, _subject(job_id), self._key, uri)
            return msgspec.json.decode(sealed, type=JobResultEntry)
        except DECODE_ERRORS as error:
            reason = f"another version of Headrace wrote it, or somebody else ({error})"
            raise RecordNotTrustedError(uri, reason) from error

    def _uri(self, job_id: JobId, ending: str) -> str:
        return child_uri(self._folder, f"{job_id.hex()}{ending}")


def _subject(job_id: JobId) -> str:
    return f"result of job {job_id}"
