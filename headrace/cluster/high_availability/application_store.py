"""ApplicationStore: stores the runs of an application for its next driver. All calls block.

    <folder>/run-<n>         run n has begun, with the id from which the ids of its jobs are made
    <folder>/run-<n>-ended   its main has ended with this exit code, under the leader of this epoch

A run lasts from the first call of main to the end of a call that returns or raises under a leader; meanwhile any number
of drivers may call it. Both files are created once, and only if absent, so that an end is never taken back. They are
sealed with the user's key. Source: Flink FLIP-549 and FLIP-560 (applications, and a store of their results).
"""

import re
from typing import Final, TypeVar

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

_NAME: Final = re.compile(r"run-(?P<number>[0-9]+)(?P<ended>-ended)?")
_RUN_ID_BYTES: Final = 8
T = TypeVar("T")


class ApplicationEnd(msgspec.Struct, frozen=True):
    """The end of a run: the exit code of main, and the epoch of the leader that called it."""

    exit_code: int
    epoch: int


class ApplicationRun(msgspec.Struct, frozen=True):
    """Run `number` of an application; `run_id` is 16 hex digits. `end` is None while the run has not ended."""

    number: int
    run_id: str
    end: ApplicationEnd | None = None

    def job_id(self, execution_number: int, epoch: int = 0) -> JobId:
        """Return the id of the job of an execution; executions count from 1.

        It is the same under each leader, so that the next one finds the job; with an `epoch`, it belongs to that leader
        only. The last sixteen digits are the number and the epoch. Source: Flink's fixed id of an application's job.
        """
        numbers = execution_number.to_bytes(4, "big") + epoch.to_bytes(4, "big")
        return JobId(bytes.fromhex(self.run_id) + numbers)

    def owns(self, job_id: JobId) -> bool:
        """Return whether a job belongs to this run."""
        return job_id.hex().startswith(self.run_id)

    @staticmethod
    def epoch_of(job_id: JobId) -> int:
        """Return the epoch of the only leader that a job belongs to; 0 if it continues under the next one."""
        return int.from_bytes(job_id.value[-4:], "big")


class ApplicationStore:
    """Runs of one cluster's application.

    CheckpointStorageError if the storage fails; RecordNotTrustedError for a bad seal or another
    version.
    """

    def __init__(
        self, folder_uri: str, key: MetadataKey, random: SeededRandom, *, is_shared: bool = False
    ) -> None:
        """Set the folder and its key; for `is_shared` see file_systems.make_folder."""
        self._folder: Final = folder_uri
        self._key: Final = key
        self._random: Final = random
        self._is_shared: Final = is_shared

    def newest(self) -> ApplicationRun | None:
        """Return the newest run, or None if there is none."""
        names = self._names()
        number = max((number for number, is_ended in names if not is_ended), default=0)
        if not number:
            return None
        run = self._read(_name(number), ApplicationRun)
        if (number, True) not in names:
            return run
        return msgspec.structs.replace(run, end=self._read(_name(number, True), ApplicationEnd))

    def begin(self, number: int) -> ApplicationRun:
        """Begin run `number`, or return it if another leader has begun it; earlier runs are deleted."""
        run = ApplicationRun(number, self._random.randbytes(_RUN_ID_BYTES).hex())
        if not self._put(_name(number), run):
            run = self._read(_name(number), ApplicationRun)
        for earlier, is_ended in self._names():
            if earlier < number:
                remove_file(child_uri(self._folder, _name(earlier, is_ended)))
        return run

    def end(self, run: ApplicationRun, end: ApplicationEnd) -> ApplicationEnd:
        """Record the end of a run and return it; the first recorded end counts. It is durable when this returns."""
        name = _name(run.number, True)
        return end if self._put(name, end) else self._read(name, ApplicationEnd)

    def _names(self) -> list[tuple[int, bool]]:
        found = [
            _NAME.fullmatch(file.relative_path)
            for file in files_below(self._folder, is_recursive=False)
        ]
        return [(int(one["number"]), one["ended"] is not None) for one in found if one is not None]

    def _put(self, name: str, record: msgspec.Struct) -> bool:
        make_folder(self._folder, is_shared=self._is_shared)
        content = seal(msgspec.json.encode(record), _subject(name), self._key)
        uri = child_uri(self._folder, name)
        return put_if_absent(uri, content, self._random.randbytes(8).hex())

    def _read(self, name: str, record_type: type[T]) -> T:
        uri = child_uri(self._folder, name)
        content = bytes(read_all(uri))
        try:
            return msgspec.json.decode(
                unseal(content, _subject(name), self._key, uri), type=record_type
            )
        except DECODE_ERRORS as error:
            reason = (
                f"another version of Headrace wrote it ({error}): start that version, or delete the folder if all of "
                "the application may run again"
            )
            raise RecordNotTrustedError(uri, reason) from error


def _name(number: int, is_ended: bool = False) -> str:
    return f"run-{number}{'-ended' if is_ended else ''}"


def _subject(name: str) -> str:
    return f"application {name}"
