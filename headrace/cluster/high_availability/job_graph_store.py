"""JobGraphStore: the jobs that a cluster has taken and that have not ended, for its next leader. All calls block.

    <folder>/<job id>/graph            the job graph, sealed with the user's key: a job is taken once this is there
    <folder>/<job id>/blob-<SHA-256>   a big payload that the graph names by its content, written before the graph

Where a service holds pointers to the graphs, the file is called `graph-<SHA-256>`, and the job is taken once its sealed
pointer, which is that digest, is there: written after the file, and deleted before it.

A folder without a graph was left by a leader that died meanwhile. Pickled functions lie in both files: nobody unpickles
them before the seal, or the hash that stands in a sealed graph, was checked.
Source: Flink DefaultJobGraphStore, FileSystemBlobStore.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from headrace.checkpoint.errors import RecordNotTrustedError
from headrace.checkpoint.storage.file_systems import (
    child_uri,
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
from headrace.cluster.high_availability.job_graph_pointers import JobGraphPointers
from headrace.core.errors import DECODE_ERRORS
from headrace.core.ids import BlobKey, JobId
from headrace.core.randomness import SeededRandom
from headrace.graph.job_graph import JobGraph

_GRAPH: Final = "graph"


class StoredJobGraph(msgspec.Struct, frozen=True):
    """A job that was taken, when (wall clock), and in which epoch of the leadership."""

    graph: JobGraph
    submitted_ms: int
    epoch: int

    def first_attempt_number(self, epoch: int) -> int:
        """Return the number of a task's first attempt under a leader, larger than any under the leaders before.

        Output that attempts prepare is told apart by their numbers, also where a zombie of an old leader still writes.
        A leader may make a million attempts, and 2047 leaders may follow on each other, which is half of 32 bits.
        """
        return (epoch - self.epoch) << 20


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(StoredJobGraph)


class JobGraphStore:
    """Jobs of one cluster. CheckpointStorageError; one call at a time for each job.

    `epoch` is the caller's term as the leader, with which a service refuses what a leader of the past changes.
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
        """`is_shared`: see file_systems.make_folder. `pointers`: None where the files say which jobs there are."""
        self._pointers: Final = pointers
        self._folder: Final = folder_uri
        self._key: Final = key
        self._random: Final = random
        self._is_shared: Final = is_shared

    def put_blob(self, job_id: JobId, key: BlobKey, parts: Iterable[bytes]) -> None:
        """Store a payload, unless it is there in its full length."""
        folder = self._job_folder(job_id)
        uri = _blob_uri(folder, key)
        if size_of(uri) == key.size_bytes:
            return
        make_folder(folder, is_shared=self._is_shared)
        # A part of it, of a leader that died while it wrote.
        remove_file(uri)
        write_new(uri, parts)

    def blob(self, job_id: JobId, key: BlobKey) -> Iterator[bytes]:
        """Yield a stored payload in pieces, which the caller compares with the key before it uses any."""
        return read_parts(_blob_uri(self._job_folder(job_id), key))

    def put(self, stored: StoredJobGraph) -> None:
        """Store a job, after its payloads. It is durable when this returns."""
        job_id = stored.graph.job_id
        folder = self._job_folder(job_id)
        make_folder(folder, is_shared=self._is_shared)
        content = seal(_ENCODER.encode(stored), _subject(job_id), self._key)
        digest = "" if self._pointers is None else hashlib.sha256(content).hexdigest()
        uri = child_uri(folder, _graph_name(digest))
        if not put_if_absent(uri, content, self._token()):
            # Of a submission whose answer never came.
            replace_file(uri, content, self._token())
        if self._pointers is not None:
            pointer = seal(digest.encode(), _pointer_subject(job_id.hex()), self._key)
            self._pointers.put(stored.epoch, job_id, pointer)

    def recover(self, epoch: int) -> list[StoredJobGraph]:
        """Return all jobs, the oldest first, and delete what was left of submissions that never came to their end.

        RecordNotTrustedError where one cannot be read: no leader may go on as if that job had never been.
        """
        digests = {} if self._pointers is None else self._digests(self._pointers, epoch)
        found: list[StoredJobGraph] = []
        for name in folders_in(self._folder):
            folder = child_uri(self._folder, name)
            uri = child_uri(folder, _graph_name(digests.get(name, "")))
            if is_there(uri) and (self._pointers is None or name in digests):
                found.append(self._read(uri, name))
                digests.pop(name, None)
            elif name not in digests:
                remove_folder(folder)
        for name, digest in digests.items():
            uri = child_uri(self._folder, name, _graph_name(digest))
            raise RecordNotTrustedError(uri, "it is gone, and a pointer says that it is there")
        return sorted(found, key=lambda stored: (stored.submitted_ms, stored.graph.job_id))

    def remove(self, job_id: JobId, epoch: int) -> None:
        """Forget a job with its payloads, if it is there."""
        folder = self._job_folder(job_id)
        # First, so that no leader takes what is half deleted for a job.
        if self._pointers is None:
            remove_file(child_uri(folder, _GRAPH))
        else:
            self._pointers.remove(epoch, job_id)
        remove_folder(folder)

    def _digests(self, pointers: JobGraphPointers, epoch: int) -> dict[str, str]:
        """Return the digests in pointers, by the names of the folders of their jobs."""
        found: dict[str, str] = {}
        for name, pointer in pointers.read_all(epoch).items():
            place = f"pointer to job {name}"
            found[name] = unseal(pointer, _pointer_subject(name), self._key, place).decode()
        return found

    def _read(self, uri: str, name: str) -> StoredJobGraph:
        content = bytes(read_all(uri))
        try:
            job_id = JobId.from_hex(name)
            return _DECODER.decode(unseal(content, _subject(job_id), self._key, uri))
        except DECODE_ERRORS as error:
            reason = f"another version of Headrace wrote it ({error}): start that one, or delete the folder"
            raise RecordNotTrustedError(uri, reason) from error

    def _job_folder(self, job_id: JobId) -> str:
        return child_uri(self._folder, job_id.hex())

    def _token(self) -> str:
        return self._random.randbytes(8).hex()


def _graph_name(digest: str) -> str:
    """Return the name of a graph's file; `digest`: what its pointer holds, empty where there are none."""
    return f"{_GRAPH}-{digest}" if digest else _GRAPH


def _blob_uri(folder: str, key: BlobKey) -> str:
    return child_uri(folder, f"blob-{key.digest.hex()}")


def _subject(job_id: JobId) -> str:
    return f"graph of job {job_id}"


def _pointer_subject(job: str) -> str:
    return f"pointer to the graph of job {job}"
