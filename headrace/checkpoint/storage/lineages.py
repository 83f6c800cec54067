"""Lineage: fences off old drivers of a job and gives out checkpoint ids, from an append-only record in the storage.

A lineage is one logical job over restarts and savepoints, for as long as state is carried forward. Each start of a
driver takes the next *epoch*, which fences off every earlier driver; ids increase strictly over all of them and are
never reused, because sinks identify committed output by them.

    <dir>/<job id>/lineage                         the lineage to which a job belongs
    <dir>/lineages/<lineage>/epoch-00000002        made by the driver that took epoch 2
    <dir>/lineages/<lineage>/id-000000000007       made by the driver that took id 7; has the place of snapshot 7

All files are created only if absent, so that two drivers never take the same epoch or id. Their content is sealed with
the user's key, because it decides where the next driver makes files.

The folder of a savepoint is its user's choice, known only once the savepoint has its id. A driver writes it into its
record and looks for a later epoch *afterwards*; a later driver takes its epoch and reads the records *afterwards*. So
one of the two sees the other: no former driver publishes a savepoint unknown to its successor.
Source: Flink CheckpointIDCounter.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

import msgspec

from headrace.checkpoint.errors import CheckpointFencedError, CheckpointStorageError
from headrace.checkpoint.storage.file_systems import (
    child_uri,
    files_below,
    is_there,
    make_folder,
    put_if_absent,
    read_all,
    remove_file,
    remove_folder,
    replace_file,
)
from headrace.checkpoint.storage.metadata_format import METADATA_NAME, abandonment
from headrace.checkpoint.storage.metadata_key import MetadataKey, seal, unseal
from headrace.core.clock import Clock
from headrace.core.ids import JobId
from headrace.core.randomness import SeededRandom

_ATTEMPTS_MAX: Final = 64
_JOB_RECORD: Final = "lineage"
_KEPT_MAX: Final = 64
"""Maximum number of undecided ids that are kept: older ones are dropped, because they time out long before."""


class Lineage(Protocol):
    """The right of one driver to take checkpoints. Calls may block; except `decided`, one thread at a time."""

    @property
    def lineage_id(self) -> str:
        """Hexadecimal digits that stay the same over restarts."""
        ...

    @property
    def folder_uri(self) -> str:
        """Return the folder of its record; empty if it is only in memory."""
        ...

    @property
    def epoch(self) -> int:
        """Return the number of this start of a driver, from 1."""
        ...

    def take_id(self, folder_uri: str = "") -> int:
        """Return the next id, which is never given out again. CheckpointFencedError, CheckpointStorageError.

        `folder_uri`: the folder of this job's checkpoints, which later drivers must know.
        """
        ...

    def placed(self, checkpoint_id: int, savepoint_uri: str) -> None:
        """Record the folder of a savepoint before it is published. CheckpointFencedError, CheckpointStorageError."""
        ...

    def decided(self, checkpoint_id: int) -> None:
        """Record that a checkpoint was published or given up, so that later drivers need not fence it off."""
        ...

    @property
    def earlier_savepoints(self) -> tuple[str, ...]:
        """Return folders of savepoints of earlier drivers, by id: each is complete or never will be."""
        ...

    def validate_epoch(self) -> None:
        """Raise CheckpointFencedError if a later driver has taken over."""
        ...

    def leave(self) -> None:
        """Record that this driver publishes nothing any more, so that later drivers need not fence it off."""
        ...

    def end(self) -> None:
        """Delete the record, which fences off all drivers: no snapshot is left from which the job could continue."""
        ...


class LineageInMemory:
    """The lineage of a job whose checkpoints do not outlive its driver."""

    def __init__(self, lineage_id: str, floor_id: int = 0) -> None:
        self.lineage_id: Final = lineage_id
        self.folder_uri: Final = ""
        self.epoch: Final = 1
        self.earlier_savepoints: Final = ()
        self._last_id = floor_id

    def take_id(self, folder_uri: str = "") -> int:
        self._last_id += 1
        return self._last_id

    def placed(self, checkpoint_id: int, savepoint_uri: str) -> None:
        pass

    def decided(self, checkpoint_id: int) -> None:
        pass

    def validate_epoch(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def end(self) -> None:
        pass


class _TakenId(msgspec.Struct):
    epoch: int
    folder_uri: str
    savepoint_uri: str = ""

    def place(self, number: int) -> str:
        """Return the folder in which the snapshot is published; empty if there is none."""
        if self.savepoint_uri:
            return self.savepoint_uri
        return child_uri(self.folder_uri, f"chk-{number}") if self.folder_uri else ""


class StoredLineage:
    """A lineage whose record is in the checkpoint storage; `take_over` makes one."""

    def __init__(
        self,
        folder_uri: str,
        lineage_id: str,
        epoch: int,
        last_id: int,
        random: SeededRandom,
        key: MetadataKey,
        earlier_savepoints: tuple[str, ...] = (),
    ) -> None:
        self.lineage_id: Final = lineage_id
        self.epoch: Final = epoch
        self.earlier_savepoints: Final = earlier_savepoints
        self.folder_uri: Final = folder_uri
        self._last_id = last_id
        self._random = random
        self._key = key
        self._undecided: set[int] = set()

    @classmethod
    def take_over(
        cls,
        directory: str,
        lineage_id: str,
        floor_id: int,
        clock: Clock,
        random: SeededRandom,
        key: MetadataKey,
        *,
        is_new: bool = False,
        is_shared: bool = False,
    ) -> "StoredLineage":
        """Take the next epoch, and fence off the drivers of earlier ones.

        CheckpointStorageError, RecordNotTrustedError. `floor_id`: the restored checkpoint's id, or 0. An existing
        lineage without a record here continues with ids from the current time in milliseconds, because the ids that it
        has used elsewhere since are not known. `is_shared`: see file_systems.make_folder.
        """
        folder = child_uri(directory, "lineages", lineage_id)
        make_folder(folder, is_shared=is_shared)
        taken = _taken_in(folder)
        last_id = max(floor_id, *taken.ids, 0)
        if floor_id and not is_new and not taken.epochs:
            last_id = max(floor_id, clock.now_ms())
        epoch = _take_epoch(folder, random)
        savepoints = _shut_out_earlier(folder, lineage_id, epoch, random, key)
        return cls(folder, lineage_id, epoch, last_id, random, key, savepoints)

    def take_id(self, folder_uri: str = "") -> int:
        record = _TakenId(self.epoch, folder_uri)
        for _ in range(_ATTEMPTS_MAX):
            taken = _taken_in(self.folder_uri)
            self._validate_epoch(taken.epochs)
            number = self._last_id = max(self._last_id, *taken.ids, 0) + 1
            content = self._sealed(number, record)
            if put_if_absent(_id_uri(self.folder_uri, number), content, self._token()):
                self._forget_decided(taken.ids)
                self._undecided.add(self._last_id)
                return self._last_id
        raise CheckpointStorageError(
            "take an id in",
            self.folder_uri,
            "other drivers take them all",
            "check which programs write there",
        )

    def placed(self, checkpoint_id: int, savepoint_uri: str) -> None:
        content = self._sealed(checkpoint_id, _TakenId(self.epoch, "", savepoint_uri))
        replace_file(_id_uri(self.folder_uri, checkpoint_id), content, self._token())
        # Only afterwards, as the module says.
        self.validate_epoch()

    def decided(self, checkpoint_id: int) -> None:
        self._undecided.discard(checkpoint_id)

    def validate_epoch(self) -> None:
        self._validate_epoch(_taken_in(self.folder_uri).epochs)

    def _validate_epoch(self, epochs: list[int]) -> None:
        if epochs and epochs[-1] > self.epoch:
            raise CheckpointFencedError(self.lineage_id, self.epoch, epochs[-1])
        if self.epoch not in epochs and not is_there(_epoch_uri(self.folder_uri, self.epoch)):
            raise CheckpointFencedError(self.lineage_id, self.epoch, 0)

    def leave(self) -> None:
        taken = _taken_in(self.folder_uri).ids
        self._forget_decided(number for number in taken if number != self._last_id)
        for number in taken:
            if number == self._last_id and number not in self._undecided:
                content = self._sealed(number, _TakenId(self.epoch, ""))
                replace_file(_id_uri(self.folder_uri, number), content, self._token())

    def end(self) -> None:
        remove_folder(self.folder_uri)

    def _forget_decided(self, earlier: Iterable[int]) -> None:
        """Delete records of earlier ids. The newest one is always kept, because it is the counter."""
        for number in earlier:
            if number not in self._undecided:
                remove_file(_id_uri(self.folder_uri, number))
        for number in sorted(self._undecided)[:-_KEPT_MAX]:
            self._undecided.discard(number)

    def _sealed(self, number: int, record: "_TakenId") -> bytes:
        return seal(msgspec.json.encode(record), _subject(self.lineage_id, number), self._key)

    def _token(self) -> str:
        return self._random.randbytes(8).hex()


def lineage_of_job(
    job_folder: str, job_id: JobId, proposed: str, token: str, key: MetadataKey
) -> str:
    """Return the lineage of the job whose checkpoints are in a folder; the first driver's proposal decides.

    So a driver that restarts before any checkpoint is complete also fences off its predecessor. Raises
    RecordNotTrustedError.
    """
    uri = child_uri(job_folder, _JOB_RECORD)
    subject = f"the lineage of job {job_id}"
    if put_if_absent(uri, seal(proposed.encode(), subject, key), token):
        return proposed
    return unseal(bytes(read_all(uri)), subject, key, uri).decode()


def _take_epoch(folder: str, random: SeededRandom) -> int:
    epoch = 0
    for _ in range(_ATTEMPTS_MAX):
        taken = _taken_in(folder).epochs
        # Upwards in any case: the listing may lag behind.
        epoch = max(epoch, *taken, 0) + 1
        if put_if_absent(_epoch_uri(folder, epoch), b"{}\n", random.randbytes(8).hex()):
            for older in taken[:-1]:
                remove_file(_epoch_uri(folder, older))
            return epoch
    raise CheckpointStorageError(
        "take an epoch in",
        folder,
        "other drivers take them all",
        "check which programs write there",
    )


def _shut_out_earlier(
    folder: str, lineage_id: str, epoch: int, random: SeededRandom, key: MetadataKey
) -> tuple[str, ...]:
    """Publish an abandonment wherever an earlier driver may be about to publish metadata.

    Return the folders of their savepoints.
    """
    savepoints: list[str] = []
    for number in _taken_in(folder).ids:
        uri = _id_uri(folder, number)
        record = bytes(read_all(uri))
        if not record.endswith(b"\n"):
            continue  # half a file: its driver never got the id
        content = unseal(record, _subject(lineage_id, number), key, uri)
        taken = msgspec.json.decode(content, type=_TakenId)
        place = taken.place(number)
        if place and taken.epoch < epoch:
            uri = child_uri(place, METADATA_NAME)
            put_if_absent(uri, abandonment(epoch), random.randbytes(8).hex())
            if taken.savepoint_uri:
                savepoints.append(place)
    return tuple(savepoints)


class _Taken(NamedTuple):
    """Epochs and ids taken so far in a lineage, each in order."""

    epochs: list[int]
    ids: list[int]


def _taken_in(folder: str) -> _Taken:
    found: dict[str, list[int]] = {"epoch": [], "id": []}
    for entry in files_below(folder, is_recursive=False):
        kind, _, digits = entry.relative_path.partition("-")
        if kind in found and digits.isdecimal():
            found[kind].append(int(digits))
    return _Taken(sorted(found["epoch"]), sorted(found["id"]))


def _subject(lineage_id: str, number: int) -> str:
    return f"id {number} of lineage {lineage_id}"


def _id_uri(folder: str, number: int) -> str:
    return child_uri(folder, f"id-{number:012d}")


def _epoch_uri(folder: str, number: int) -> str:
    return child_uri(folder, f"epoch-{number:08d}")
