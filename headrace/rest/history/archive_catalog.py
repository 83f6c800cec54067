"""ArchiveCatalog: lists the archives in some folders, and returns answers from them.

Of each archive only the job's line in lists is kept; everything else is read on request. A file that cannot be read is
not listed, is reported once, and is never deleted. While a folder cannot be reached, its archives stay listed as
they were seen last.
Source: Flink HistoryServerArchiveFetcher.
"""

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.core.clock import Clock
from headrace.core.errors import DECODE_ERRORS
from headrace.rest.client_errors import ConnectionFileError
from headrace.rest.handler_errors import NotFoundError, UnavailableError
from headrace.rest.history.archive_file import (
    ArchiveIndex,
    DamagedArchiveError,
    read_answer,
    read_index,
)
from headrace.rest.history.archive_storage import (
    StoredArchive,
    delete_archive,
    list_archives,
    open_archive,
)
from headrace.rest.history.listed_job import ListedJob, application_list, checked_overview
from headrace.rest.home.home_folder import (
    read_private_file,
    write_private_file,
)

_LOG: Final = logging.getLogger(__name__)
ARCHIVES_MAX: Final = 200_000
"""Maximum number of listed archives; the newest are listed."""
_READERS: Final = 8
_READ_AT_ONCE: Final = 256
_INDEXES_MAX: Final = 32
_KEPT_BLOCKS_MAX: Final = 10_000
"""Maximum number of blocks of an index that is kept for the next answer; a larger one is read again."""
_CACHE_INTERVAL_MS: Final = 60_000.0

_StorageError = (OSError, CheckpointStorageError)
_VERSION: Final = 1
_FILE_BYTES_MAX: Final = 1 << 29


class CachedOverview(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One archive: its folder, name, size and time, and the job as lists show it, as JSON."""

    folder: str
    job: str
    size_bytes: int
    modified_ms: int
    overview: bytes


class _Content(msgspec.Struct, frozen=True):
    version: int
    overviews: list[CachedOverview]


class OverviewCache:
    """File on this machine, only for its owner, with which a history server need not read all archives again.

    Calls block.

    `folders`: the folders of the archives. An entry is valid only if the archive still has the same size and time,
    and a damaged file is created anew.
    """

    def __init__(self, directory: Path, folders: Iterable[str]) -> None:
        name = hashlib.sha256("\n".join(folders).encode()).hexdigest()[:16]
        self._directory: Final = directory
        self.file: Final = directory / f"overview-{name}.msgpack"

    def read(self) -> list[CachedOverview]:
        """Return the stored overviews; empty if the file does not exist or has another format."""
        try:
            content = read_private_file(self.file, _FILE_BYTES_MAX)
        except FileNotFoundError:
            return []
        except ConnectionFileError as error:
            _LOG.warning("%s is not used: %s", self.file, error.reason)
            return []
        try:
            found = msgspec.msgpack.decode(content, type=_Content)
        except DECODE_ERRORS as error:
            _LOG.warning("%s is damaged, and is created anew: %s", self.file, error)
            return []
        return found.overviews if found.version == _VERSION else []

    def write(self, overviews: Iterable[CachedOverview]) -> None:
        """Replace the stored overviews; a failure is logged."""
        content = msgspec.msgpack.encode(_Content(_VERSION, list(overviews)))
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(self.file, content)
        except OSError as error:
            _LOG.warning(
                "%s cannot be written, so that the next start reads all archives: %s",
                self.file,
                error,
            )


@dataclass(frozen=True)
class RetentionRules:
    """Number and maximum age of the archives that stay in each folder; negative and None: all stay."""

    count_max: int = -1
    age_max_ms: float | None = None
    forgets_gone: bool = False
    """True if a job whose archive is gone leaves the list."""

    @property
    def keeps_all(self) -> bool:
        """Return whether nothing is ever deleted."""
        return self.count_max < 0 and self.age_max_ms is None

    def expired(self, archives: Sequence[StoredArchive], now_ms: int) -> list[StoredArchive]:
        """Return the archives of a folder to delete, the oldest first. `archives`: all of them, the newest first."""
        count = len(archives) if self.count_max < 0 else self.count_max
        is_kept = [
            number < count
            and (self.age_max_ms is None or now_ms - archive.modified_ms <= self.age_max_ms)
            for number, archive in enumerate(archives)
        ]
        return [each for each, kept in zip(archives, is_kept, strict=True) if not kept][::-1]


@dataclass(frozen=True, slots=True)
class _Seen:
    """An archive as it was read. `overview`: JSON."""

    archive: StoredArchive
    overview: bytes
    state: str
    is_there: bool = True


class ArchiveCatalog:
    """Archives in some folders. One thread calls `refresh`, any number of threads the rest. `folders` are absolute.

    Calls block, except `overviews`, `statuses` and `has`.
    """

    def __init__(
        self, folders: Sequence[str], rules: RetentionRules, cache: OverviewCache, clock: Clock
    ) -> None:
        self._folders: Final = tuple(folders)
        self._rules: Final = rules
        self._cache: Final = cache
        self._clock: Final = clock
        self._seen: dict[str, _Seen] = {}
        """Seen archives by job; `refresh` replaces the dict as a whole."""
        self._listed: tuple[dict[str, _Seen], bytes] = ({}, b"")
        """The JSON of all jobs, and the archives from which it was made."""
        self._listed_applications: tuple[dict[str, _Seen], bytes] = ({}, b"")
        self._damaged: Final[OrderedDict[StoredArchive, None]] = OrderedDict()
        self._unreachable: Final[set[str]] = set()
        # Guards the indexes, which all who answer share.
        self._lock: Final = threading.Lock()
        self._indexes: Final[OrderedDict[StoredArchive, ArchiveIndex]] = OrderedDict()
        self._is_changed = False
        self._kept_ms = clock.monotonic_ms()
        self._remembered: Final = {
            (each.folder, each.job, each.size_bytes, each.modified_ms): each.overview
            for each in cache.read()
            if each.folder in self._folders
        }

    def overviews(self) -> bytes:
        """Return the JSON of all jobs, the newest first."""
        seen, (listed, text) = self._seen, self._listed
        if listed is not seen:
            text = b'{"jobs":[' + b",".join(each.overview for each in _newest_first(seen)) + b"]}"
            self._listed = (seen, text)
        return text

    def applications(self) -> bytes:
        """Return the JSON of all jobs as applications, the newest first."""
        seen, (listed, text) = self._seen, self._listed_applications
        if listed is not seen:
            text = application_list(_line_of(each) for each in _newest_first(seen))
            self._listed_applications = (seen, text)
        return text

    def line(self, job: str) -> ListedJob:
        """Return a job's line in lists. NotFoundError if the job is not listed."""
        seen = self._seen.get(job)
        if seen is None:
            raise NotFoundError(f"Job {job} not found")
        return _line_of(seen)

    def statuses(self) -> list[tuple[str, str]]:
        """Return ids and statuses of all jobs."""
        return [(job, seen.state) for job, seen in self._seen.items()]

    def has(self, job: str) -> bool:
        """Return whether a job is listed."""
        return job in self._seen

    def answer(self, job: str, path: str) -> bytes:
        """Return the JSON of a path.

        NotFoundError if there is none; UnavailableError if the archive cannot be read now.
        """
        seen = self._seen.get(job)
        if seen is None:
            raise NotFoundError(f"Job {job} not found")
        archive = seen.archive
        try:
            with open_archive(archive) as file:
                index = self._index_of(archive)
                if index is None:
                    index = read_index(archive.uri, file)
                    self._keep_index(archive, index)
                found = read_answer(archive.uri, file, index, path)
        except FileNotFoundError as error:
            raise NotFoundError(f"The archive of job {job} is gone: {archive.uri}") from error
        except DamagedArchiveError as error:
            raise NotFoundError(str(error)) from error
        except _StorageError as error:
            raise UnavailableError(f"The archive of job {job} cannot be read: {error}") from error
        if found is None:
            raise NotFoundError(f"The archive of job {job} has no {path}")
        return found

    def refresh(self) -> None:
        """Read all folders: list new archives, forget deleted ones, delete those that the rules do not keep."""
        for folder in self._folders:
            try:
                found = list_archives(folder)
            except _StorageError as error:
                if folder not in self._unreachable:
                    self._unreachable.add(folder)
                    _LOG.warning(
                        "%s cannot be listed, its archives stay as they were: %s", folder, error
                    )
                continue
            if folder in self._unreachable:
                self._unreachable.discard(folder)
                _LOG.info("%s can be listed again", folder)
            self._take(folder, found[:ARCHIVES_MAX])
            self._retain(folder, found)
        if not self._unreachable:
            self._remembered.clear()
        if self._clock.monotonic_ms() - self._kept_ms >= _CACHE_INTERVAL_MS:
            self.keep()

    def keep(self) -> None:
        """Write the seen archives to the cache, if they changed."""
        self._kept_ms = self._clock.monotonic_ms()
        if not self._is_changed:
            return
        self._is_changed = False
        self._cache.write(
            CachedOverview(
                seen.archive.folder,
                seen.archive.job,
                seen.archive.size_bytes,
                seen.archive.modified_ms,
                seen.overview,
            )
            for seen in self._seen.values()
        )

    def _take(self, folder: str, found: list[StoredArchive]) -> None:
        """List the new archives of a folder as they are read.

        Of two archives of one job, that of the first folder counts.
        """
        new = [each for each in found if self._is_new(each)]
        damaged: list[DamagedArchiveError] = []
        with ThreadPoolExecutor(_READERS, "headrace-archive-read") as readers:
            begin = 0
            while begin < len(new):
                # A round takes as many as are listed already, which it copies: so the total effort stays linear.
                some = new[begin : begin + max(_READ_AT_ONCE, len(self._seen))]
                begin += len(some)
                read = list(readers.map(self._read, some))
                listed = {seen.archive.job: seen for seen in read if isinstance(seen, _Seen)}
                self._replace({**self._seen, **listed})
                damaged += [each for each in read if isinstance(each, DamagedArchiveError)]
        if len(damaged) == 1:
            _LOG.warning("%s", damaged[0])
        elif damaged:
            _LOG.warning(
                "%d files in %s are left out, the first of them: %s",
                len(damaged),
                folder,
                damaged[0],
            )
        there = {each.job for each in found}
        gone = [
            seen
            for job, seen in self._seen.items()
            if seen.archive.folder == folder and seen.is_there and job not in there
        ]
        if gone:
            self._forget(gone)

    def _is_new(self, archive: StoredArchive) -> bool:
        known = self._seen.get(archive.job)
        if known is None:
            return archive not in self._damaged
        if known.archive.folder != archive.folder:
            return not known.is_there
        return known.archive != archive or not known.is_there

    def _read(self, archive: StoredArchive) -> "_Seen | DamagedArchiveError | None":
        key = (archive.folder, archive.job, archive.size_bytes, archive.modified_ms)
        overview = self._remembered.get(key)
        try:
            if overview is None:
                with open_archive(archive) as file:
                    overview = bytes(read_index(archive.uri, file).overview)
            shown = checked_overview(archive, overview)
        except DamagedArchiveError as error:
            self._remember_damaged(archive)
            return error
        except _StorageError as error:
            # Deleted meanwhile, or not available now: the next round tries again.
            _LOG.debug("%s could not be read: %s", archive.uri, error)
            return None
        return _Seen(archive, msgspec.json.encode(shown), shown.state)

    def _remember_damaged(self, archive: StoredArchive) -> None:
        with self._lock:
            self._damaged[archive] = None
            while len(self._damaged) > ARCHIVES_MAX:
                self._damaged.popitem(last=False)

    def _retain(self, folder: str, found: Sequence[StoredArchive]) -> None:
        """Delete known archives of a folder that the rules do not keep."""
        if self._rules.keeps_all:
            return
        known = {seen.archive for seen in self._seen.values()}
        archives = [each for each in found if each in known]
        deleted: list[_Seen] = []
        for archive in self._rules.expired(archives, self._clock.now_ms()):
            try:
                delete_archive(archive)
            except _StorageError as error:
                _LOG.warning("%s cannot be deleted: %s", archive.uri, error)
                break
            deleted.append(self._seen[archive.job])
        if deleted:
            _LOG.info("deleted %d old archive(s) in %s", len(deleted), folder)
            self._forget(deleted, is_final=True)

    def _forget(self, gone: Iterable[_Seen], *, is_final: bool = False) -> None:
        changed = dict(self._seen)
        for seen in gone:
            job = seen.archive.job
            if is_final or self._rules.forgets_gone:
                del changed[job]
            else:
                changed[job] = _Seen(seen.archive, seen.overview, seen.state, is_there=False)
        self._replace(changed)

    def _replace(self, seen: dict[str, _Seen]) -> None:
        if len(seen) > ARCHIVES_MAX:
            newest = sorted(seen.values(), key=lambda each: -each.archive.modified_ms)
            seen = {each.archive.job: each for each in newest[:ARCHIVES_MAX]}
        self._seen = seen
        self._is_changed = True

    def _index_of(self, archive: StoredArchive) -> ArchiveIndex | None:
        with self._lock:
            index = self._indexes.get(archive)
            if index is not None:
                self._indexes.move_to_end(archive)
            return index

    def _keep_index(self, archive: StoredArchive, index: ArchiveIndex) -> None:
        if len(index.blocks) > _KEPT_BLOCKS_MAX:
            return
        with self._lock:
            self._indexes[archive] = index
            while len(self._indexes) > _INDEXES_MAX:
                self._indexes.popitem(last=False)


def _newest_first(seen: Mapping[str, _Seen]) -> list[_Seen]:
    return sorted(seen.values(), key=lambda each: (-each.archive.modified_ms, each.archive.job))


def _line_of(seen: _Seen) -> ListedJob:
    return msgspec.json.decode(seen.overview, type=ListedJob)
