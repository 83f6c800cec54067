"""JobGraphStore: stores the accepted jobs of a cluster that have not ended, for its next leader. All calls block.

    <folder>/<job id>-<epoch>/graph           the job graph, sealed: the job is accepted once it exists
    <folder>/<job id>-<epoch>/blob-<SHA-256>  a large payload that the graph names by its hash, written before it
    <folder>/recovered-<epoch>                the folders of jobs that the leader of that epoch has found, sealed

Only the leader of an epoch writes in folders of that epoch, and later leaders delete them. A leader creates its list
before it continues or accepts any job. From then on, folders of earlier leaders that are not in the list hold no job,
whoever still writes there: a leader that was frozen between its check of the lease and its write stores nothing. Of two
lists the later one counts.

If a service stores pointers to the graphs, it refuses those of earlier leaders, and there are no lists: a job is
accepted once its sealed pointer, the epoch of its folder, exists; the pointer is written after the graph, and deleted
before it.

A folder without a graph was left by a leader that died meanwhile. Both files contain pickled functions, which are not
unpickled before the seal, or the hash in a sealed graph, was checked.
Source: Flink DefaultJobGraphStore, FileSystemBlobStore.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from headrace.checkpoint.errors import CheckpointStorageError, RecordNotTrustedError
from headrace.checkpoint.storage.file_systems import (
    child_uri,
    files_below,
    folders_in,
    is_there,
    make_folder,
    put_if_absent,
    read_all,
    read_parts,
    remove_file,
    remove_folder,
    replace_file,
    size_of,
    write_new,
)
from headrace.checkpoint.storage.metadata_key import MetadataKey, seal, unseal
from headrace.core.errors import DECODE_ERRORS
from headrace.core.ids import BlobKey, JobId
from headrace.core.randomness import SeededRandom
from headrace.graph.job_graph import JobGraph

_LOG: Final = logging.getLogger(__name__)
_GRAPH: Final = "graph"
_LIST: Final = re.compile(r"recovered-(?P<epoch>[0-9]+)")
_FOLDER: Final = re.compile(r"(?P<job>[0-9a-f]{32})-(?P<epoch>[0-9]+)")
_OTHER_VERSION: Final = (
    "another version of Headrace wrote it ({}): start that version, or delete it"
)


class JobGraphPointers(Protocol):
    """Stores one opaque pointer per job. All calls block; `epoch` is the caller's term as the leader.

    CheckpointStorageError if the service fails; LeadershipLostError if a later leader may have read them already.
    """

    def put(self, epoch: int, job_id: JobId, pointer: bytes) -> None:
        """Store or replace the pointer of a job. It is durable when this returns."""
        ...

    def read_all(self, epoch: int) -> dict[str, bytes]:
        """Return all pointers by the hex digits of their jobs, as they are written there."""
        ...

    def remove(self, epoch: int, job_id: JobId) -> None:
        """Delete the pointer of a job, if it exists."""
        ...


class StoredJobGraph(msgspec.Struct, frozen=True):
    """An accepted job, with its submission time (wall clock) and the epoch of the leadership that stored it."""

    graph: JobGraph
    submitted_ms: int
    epoch: int

    @property
    def job_id(self) -> JobId:
        """Id of the job."""
        return self.graph.job_id

    def first_attempt_number(self, epoch: int) -> int:
        """Return the number of a task's first attempt under a leader, larger than any under earlier leaders.

        Attempt numbers distinguish prepared output, even if a zombie of an old leader still writes.
        A leader may make a million attempts, and 2047 leaders may follow on each other, which is half of 32 bits.
        """
        return (epoch - self.epoch) << 20


@dataclass(frozen=True)
class UnreadableJobGraph:
    """A job that was accepted in an epoch, and whose graph cannot be trusted or read. Its files stay."""

    job_id: JobId
    epoch: int
    error: RecordNotTrustedError


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(StoredJobGraph)


class JobGraphStore:
    """Jobs of one cluster. CheckpointStorageError if the storage fails; one call at a time for each job.

    `epoch` is the caller's term as the leader, and `stored_epoch` the one in which the job was stored.
    """

    def __init__(
        self,
        folder_uri: str,
        key: MetadataKey,
        random: SeededRandom,
        *,
        is_shared: bool = False,
        pointers: JobGraphPointers | None = None,
    ) -> None:
        """Set the folder and key. `is_shared`: see file_systems.make_folder.

        `pointers`: None if the files list the jobs.
        """
        self._pointers: Final = pointers
        self._folder: Final = folder_uri
        self._key: Final = key
        self._random: Final = random
        self._is_shared: Final = is_shared

    def put_blob(
        self, job_id: JobId, stored_epoch: int, key: BlobKey, parts: Iterable[bytes]
    ) -> None:
        """Store a payload, unless it already exists in its full length."""
        folder = self._job_folder(job_id, stored_epoch)
        uri = _blob_uri(folder, key)
        if size_of(uri) == key.size_bytes:
            return
        make_folder(folder, is_shared=self._is_shared)
        # A partial file of a failed write.
        remove_file(uri)
        write_new(uri, parts)

    def blob(self, job_id: JobId, stored_epoch: int, key: BlobKey) -> Iterator[bytes]:
        """Yield a stored payload in pieces; the caller must verify it against the key before use."""
        return read_parts(_blob_uri(self._job_folder(job_id, stored_epoch), key))

    def put(self, stored: StoredJobGraph) -> None:
        """Store a job, after its payloads. It is durable when this returns."""
        job_id = stored.graph.job_id
        folder = self._job_folder(job_id, stored.epoch)
        make_folder(folder, is_shared=self._is_shared)
        content = seal(_ENCODER.encode(stored), _subject(job_id, stored.epoch), self._key)
        uri = child_uri(folder, _GRAPH)
        if not put_if_absent(uri, content, self._token()):
            # Left by a submission whose answer was lost.
            replace_file(uri, content, self._token())
        if self._pointers is not None:
            pointer = seal(str(stored.epoch).encode(), _pointer_subject(job_id.hex()), self._key)
            self._pointers.put(stored.epoch, job_id, pointer)

    def recover(
        self, epoch: int, confirm: Callable[[], object]
    ) -> list[StoredJobGraph | UnreadableJobGraph]:
        """Return all jobs, the oldest first, and delete the remains of incomplete submissions.

        Unreadable jobs come last: no leader may go on as if such a job had never existed. `confirm` raises if a later
        leader may have read the jobs already, which does not know this leader's list. RecordNotTrustedError if the jobs
        cannot be determined, or another version must continue one.
        """
        epochs = {name: self._parsed(name)[1] for name in folders_in(self._folder)}
        if self._pointers is None:
            taken = self._listed(epoch, epochs, confirm)
        else:
            taken = self._pointed_to(self._pointers, epoch)
        # The next leader knows the accepted jobs now: folders deleted from here on hold no job for any leader.
        confirm()
        for name in epochs.keys() - taken.keys():
            if epochs[name] < epoch:
                self._sweep(name)
        self._forget_lists_before(epoch)
        found = [one for one in taken.values() if isinstance(one, StoredJobGraph)]
        found.sort(key=lambda stored: (stored.submitted_ms, stored.graph.job_id))
        return [*found, *(one for one in taken.values() if isinstance(one, UnreadableJobGraph))]

    def remove(self, job_id: JobId, stored_epoch: int, epoch: int) -> None:
        """Delete a job with its payloads, if it exists."""
        folder = self._job_folder(job_id, stored_epoch)
        # Delete the graph first, so that no leader takes a half-deleted folder for a job.
        if self._pointers is None:
            remove_file(child_uri(folder, _GRAPH))
        else:
            self._pointers.remove(epoch, job_id)
        remove_folder(folder)

    def _listed(
        self, epoch: int, epochs: dict[str, int], confirm: Callable[[], object]
    ) -> dict[str, StoredJobGraph | UnreadableJobGraph]:
        """Return the jobs of the newest list by their folders; create this leader's list from it."""
        newest, found = self._by_list(epochs)
        uri = child_uri(self._folder, _list_name(epoch))
        if newest < epoch:
            content = seal(msgspec.json.encode(sorted(found)), _list_subject(epoch), self._key)
            make_folder(self._folder, is_shared=self._is_shared)
            if put_if_absent(uri, content, self._token()):
                return found
            # An earlier attempt of this leader that seemed to fail has created it, perhaps with other contents.
            newest, found = self._by_list(epochs)
        if newest < epoch:
            raise CheckpointStorageError("read", uri, "it was created, but cannot be found")
        if newest > epoch:
            confirm()
            place = child_uri(self._folder, _list_name(newest))
            reason = (
                f"its leader is newer than this one, of epoch {epoch}, but has no leader record: restore "
                "the leader records, or delete this file"
            )
            raise RecordNotTrustedError(place, reason)
        return found

    def _by_list(
        self, epochs: dict[str, int]
    ) -> tuple[int, dict[str, StoredJobGraph | UnreadableJobGraph]]:
        """Return the epoch of the newest list, 0 if there is none, and its jobs by their folders."""
        newest, listed = self._newest_list()
        names = [name for name in epochs if epochs[name] >= newest or name in listed]
        return newest, {name: self._read(name) for name in names if self._has_graph(name)}

    def _newest_list(self) -> tuple[int, set[str]]:
        """Return the epoch and the folders of the newest list; epoch 0 if there is none.

        RecordNotTrustedError for a bad seal or another version.
        """
        epoch = max(self._list_epochs(), default=0)
        if not epoch:
            return 0, set()
        uri = child_uri(self._folder, _list_name(epoch))
        try:
            content = unseal(bytes(read_all(uri)), _list_subject(epoch), self._key, uri)
            return epoch, set(msgspec.json.decode(content, type=list[str]))
        except DECODE_ERRORS as error:
            raise RecordNotTrustedError(uri, _OTHER_VERSION.format(error)) from error

    def _list_epochs(self) -> list[int]:
        files = files_below(self._folder, is_recursive=False)
        found = [_LIST.fullmatch(file.relative_path) for file in files]
        return [int(one["epoch"]) for one in found if one is not None]

    def _forget_lists_before(self, epoch: int) -> None:
        if self._pointers is None:
            for earlier in self._list_epochs():
                if earlier < epoch:
                    remove_file(child_uri(self._folder, _list_name(earlier)))

    def _sweep(self, name: str) -> None:
        """Delete the folder of an earlier leader that holds no job."""
        stored = None
        if self._pointers is None and self._has_graph(name):
            with contextlib.suppress(RecordNotTrustedError):
                stored = self._read(name)
        if isinstance(stored, StoredJobGraph):
            _LOG.warning(
                "deleting job '%s' (%s), which the leader of epoch %d stored after it had lost the leadership: its "
                "client has submitted it to a later leader, or was told that it was not accepted",
                stored.graph.name, stored.graph.job_id, stored.epoch,
            )  # fmt: skip
        remove_folder(child_uri(self._folder, name))

    def _pointed_to(
        self, pointers: JobGraphPointers, epoch: int
    ) -> dict[str, StoredJobGraph | UnreadableJobGraph]:
        """Return the jobs that the pointers name, by their folders."""
        found: dict[str, StoredJobGraph | UnreadableJobGraph] = {}
        for job, pointer in pointers.read_all(epoch).items():
            place = f"pointer to job {job}"
            content = unseal(pointer, _pointer_subject(job), self._key, place).decode()
            name = f"{job}-{content}"
            if _FOLDER.fullmatch(name) is None:
                reason = _OTHER_VERSION.format(f"'{content}' is not an epoch")
                raise RecordNotTrustedError(place, reason)
            if not self._has_graph(name):
                uri = child_uri(self._folder, name, _GRAPH)
                reason = (
                    "it is missing, but a pointer refers to it: restore it, or delete the pointer, which has "
                    f"the name {job}"
                )
                raise RecordNotTrustedError(uri, reason)
            found[name] = self._read(name)
        return found

    def _has_graph(self, name: str) -> bool:
        return is_there(child_uri(self._folder, name, _GRAPH))

    def _read(self, name: str) -> StoredJobGraph | UnreadableJobGraph:
        job_id, epoch = self._parsed(name)
        uri = child_uri(self._folder, name, _GRAPH)
        content = bytes(read_all(uri))
        try:
            return _DECODER.decode(unseal(content, _subject(job_id, epoch), self._key, uri))
        except RecordNotTrustedError as error:
            reason = f"{error.reason}; start the program again from its newest checkpoint"
            return UnreadableJobGraph(job_id, epoch, RecordNotTrustedError(uri, reason))
        except DECODE_ERRORS as error:
            # The version that wrote it can continue the job.
            raise RecordNotTrustedError(uri, _OTHER_VERSION.format(error)) from error

    def _parsed(self, name: str) -> tuple[JobId, int]:
        found = _FOLDER.fullmatch(name)
        if found is None:
            reason = _OTHER_VERSION.format("its name is not <job id>-<epoch>")
            raise RecordNotTrustedError(child_uri(self._folder, name), reason)
        return JobId.from_hex(found["job"]), int(found["epoch"])

    def _job_folder(self, job_id: JobId, stored_epoch: int) -> str:
        return child_uri(self._folder, f"{job_id.hex()}-{stored_epoch}")

    def _token(self) -> str:
        return self._random.randbytes(8).hex()


def _blob_uri(folder: str, key: BlobKey) -> str:
    return child_uri(folder, f"blob-{key.digest.hex()}")


def _subject(job_id: JobId, stored_epoch: int) -> str:
    return f"graph of job {job_id} under leader {stored_epoch}"


def _pointer_subject(job: str) -> str:
    return f"pointer to the graph of job {job}"


def _list_name(epoch: int) -> str:
    return f"recovered-{epoch}"


def _list_subject(epoch: int) -> str:
    return f"jobs that leader {epoch} has found"
