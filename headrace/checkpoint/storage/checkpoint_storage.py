"""CheckpointStorage: the coordinator's storage of a job's snapshots, which creates, publishes and finds them.

    <dir>/<job id>/chk-7/_metadata      checkpoint 7 is complete if and only if this file exists
    <dir>/<job id>/chk-7/…              files of this checkpoint alone
    <dir>/<job id>/shared/…             files to which later checkpoints may refer too
    <dir>/<job id>/taskowned/…          files that tasks manage and delete themselves
    <dir>/<job id>/newest               the last published id, for storage whose listings lag behind
    <target>/savepoint-1a2b3c-4d5e6f…/  a savepoint, with all its files

All calls block. Source: Flink FsCheckpointStorageAccess, AbstractFsCheckpointStorageAccess.
"""

import contextlib
import logging
import re
from itertools import islice
from typing import Final, Protocol

import msgspec

from headrace.checkpoint.errors import (
    CheckpointExistsError,
    CheckpointStorageError,
    MetadataMissingError,
    PublicationUnknownError,
)
from headrace.checkpoint.metadata import CheckpointMetadata, CompletedCheckpoint
from headrace.checkpoint.options import (
    CHECKPOINT_DIRECTORY,
    CREATE_SUBDIR,
    SAVEPOINT_DIRECTORY,
    SHARED_FILES,
    CheckpointStorageKind,
    storage_kind,
)
from headrace.checkpoint.storage.file_systems import (
    absolute_uri,
    child_uri,
    file_name_of,
    folders_in,
    is_there,
    make_folder,
    makes_names_at_once,
    parent_uri,
    put_if_absent,
    read_all,
    replace_file,
)
from headrace.checkpoint.storage.lineages import Lineage
from headrace.checkpoint.storage.metadata_format import (
    METADATA_NAME,
    abandonment,
    decode_metadata,
    encode_metadata,
    is_abandonment,
)
from headrace.checkpoint.storage.metadata_key import MetadataKey, metadata_key
from headrace.core.barriers import CheckpointOptions
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.ids import JobId
from headrace.core.process.failpoints import Failpoint, reach
from headrace.core.randomness import SeededRandom, system_random

_LOG: Final = logging.getLogger(__name__)
_NEWEST: Final = "newest"
_CHECKPOINT_FOLDER: Final = re.compile(r"chk-(\d+)")


class CheckpointStorage(Protocol):
    """Storage that a checkpoint coordinator requires. All calls block and may raise CheckpointStorageError."""

    @property
    def checkpoint_folder(self) -> str:
        """Return the folder of the job's checkpoints; empty: in memory."""
        ...

    def prepare(self) -> None:
        """Make the job's folders, and check that they are writable."""
        ...

    def locate(
        self, checkpoint_id: int, options: CheckpointOptions, target: str = ""
    ) -> CheckpointOptions:
        """Create the location of a snapshot and return `options` with its URIs.

        `target`: the folder for a savepoint.
        """
        ...

    def publish(
        self, metadata: CheckpointMetadata, options: CheckpointOptions
    ) -> CompletedCheckpoint:
        """Make a snapshot complete, once and for all.

        CheckpointFencedError or CheckpointExistsError: another driver owns it. PublicationUnknownError: it may be
        complete or not, so keep its files. Any other CheckpointStorageError: it is not complete and never will be.
        """
        ...


class CheckpointsInMemory:
    """Keeps checkpoints in the memory of the driver that publishes them; savepoints are nevertheless files."""

    def __init__(self, savepoints: "SavepointPlaces") -> None:
        self.checkpoint_folder: Final = ""
        self._savepoints = savepoints

    def prepare(self) -> None:
        pass

    def locate(
        self, checkpoint_id: int, options: CheckpointOptions, target: str = ""
    ) -> CheckpointOptions:
        if options.kind.is_savepoint:
            return self._savepoints.locate(options, target)
        return _placed(options, "", "")

    def publish(
        self, metadata: CheckpointMetadata, options: CheckpointOptions
    ) -> CompletedCheckpoint:
        if metadata.kind.is_savepoint:
            return self._savepoints.publish(metadata, options)
        return CompletedCheckpoint(metadata, "")


class CheckpointsInFiles:
    """Stores checkpoints in the folder of `execution.checkpointing.dir`."""

    def __init__(
        self,
        directory: str,
        lineage: Lineage,
        key: MetadataKey,
        savepoints: "SavepointPlaces",
        *,
        is_shared: bool = False,
    ) -> None:
        self.checkpoint_folder: Final = directory
        self._lineage = lineage
        self._key = key
        self._savepoints = savepoints
        self._is_shared = is_shared

    @property
    def shared_folder(self) -> str:
        """Return the folder of files to which several checkpoints may refer."""
        return child_uri(self.checkpoint_folder, "shared")

    def prepare(self) -> None:
        for name in ("shared", "taskowned"):
            make_folder(child_uri(self.checkpoint_folder, name), is_shared=self._is_shared)

    def locate(
        self, checkpoint_id: int, options: CheckpointOptions, target: str = ""
    ) -> CheckpointOptions:
        if options.kind.is_savepoint:
            located = self._savepoints.locate(options, target)
            # A later driver of the job can then shut it out, as it does with checkpoints.
            self._lineage.placed(checkpoint_id, located.exclusive_uri)
            return located
        folder = child_uri(self.checkpoint_folder, f"chk-{checkpoint_id}")
        make_folder(folder, is_shared=self._is_shared)
        return _placed(options, folder, self.shared_folder)

    def publish(
        self, metadata: CheckpointMetadata, options: CheckpointOptions
    ) -> CompletedCheckpoint:
        self._lineage.validate_epoch()
        if metadata.kind.is_savepoint:
            return self._savepoints.publish(metadata, options)
        reach(Failpoint.PUBLISHING)
        published = publish_metadata(metadata, options.exclusive_uri, self._key)
        reach(Failpoint.METADATA_WRITTEN)
        self._tell_newest(metadata.checkpoint_id)
        return published

    def _tell_newest(self, checkpoint_id: int) -> None:
        """Write the newest id for readers of a listing that lags behind; the checkpoint is complete without it."""
        uri = child_uri(self.checkpoint_folder, _NEWEST)
        try:
            token = f"{checkpoint_id}-{self._lineage.epoch}"
            replace_file(uri, b"%d\n" % checkpoint_id, token, is_hint=True)
        except CheckpointStorageError as error:
            _LOG.warning(
                "the newest checkpoint is complete, but the file that points to it was not written: %s",
                error,
            )


class SavepointPlaces:
    """Folders of savepoints: `savepoint-<first 6 digits of the job id>-<random>` below a target."""

    def __init__(self, settings: Settings, job_id: JobId, random: SeededRandom) -> None:
        self._settings = settings
        self._job_id = job_id
        self._random = random

    def locate(self, options: CheckpointOptions, target: str) -> CheckpointOptions:
        """Make a new folder. ConfigurationError if neither the target nor the option is set."""
        wanted = target or self._settings.get_option(SAVEPOINT_DIRECTORY)
        if not wanted:
            raise ConfigurationError(
                SAVEPOINT_DIRECTORY.key, "", "name a folder for the savepoint, or set this option"
            )
        name = f"savepoint-{self._job_id.hex()[:6]}-{self._random.randbytes(6).hex()}"
        folder = child_uri(absolute_uri(wanted), name)
        make_folder(folder, is_shared=self._settings.get_option(SHARED_FILES))
        return _placed(options, folder, "")

    def publish(
        self, metadata: CheckpointMetadata, options: CheckpointOptions
    ) -> CompletedCheckpoint:
        """Make the savepoint complete."""
        # The key is read here, so that a job without savepoints needs none.
        return publish_metadata(metadata, options.exclusive_uri, metadata_key(self._settings))


def open_checkpoint_storage(
    settings: Settings, job_id: JobId, lineage: Lineage, random: SeededRandom | None = None
) -> CheckpointStorage:
    """Return the storage that the settings name. ConfigurationError."""
    savepoints = SavepointPlaces(settings, job_id, system_random() if random is None else random)
    if storage_kind(settings) is CheckpointStorageKind.JOBMANAGER:
        return CheckpointsInMemory(savepoints)
    folder = job_folder(settings, job_id)
    return CheckpointsInFiles(
        folder,
        lineage,
        metadata_key(settings),
        savepoints,
        is_shared=settings.get_option(SHARED_FILES),
    )


def job_folder(settings: Settings, job_id: JobId) -> str:
    """Return the URI of the folder of a job's checkpoints."""
    directory = absolute_uri(settings.get_option(CHECKPOINT_DIRECTORY))
    return child_uri(directory, job_id.hex()) if settings.get_option(CREATE_SUBDIR) else directory


def publish_metadata(
    metadata: CheckpointMetadata, folder: str, key: MetadataKey
) -> CompletedCheckpoint:
    """Put the metadata into its folder, which makes the snapshot complete.

    Raises the errors of CheckpointStorage.publish.
    """
    uri = child_uri(folder, METADATA_NAME)
    content = encode_metadata(metadata, key, folder)
    token = key.mac_of(content)[:16]
    try:
        if not put_if_absent(uri, content, token) and bytes(read_all(uri)) != content:
            raise CheckpointExistsError(uri)
    except CheckpointStorageError as error:
        if not _was_published_after_all(uri, content, metadata.epoch, token):
            raise error
    return CompletedCheckpoint(metadata, folder, len(content))


def _was_published_after_all(uri: str, content: bytes, epoch: int, token: str) -> bool:
    """Check, after an error, whether the metadata exists; if not, prevent it from ever being published."""
    try:
        if is_there(uri):
            return bytes(read_all(uri)) == content
        # Where a name is made at once or never, a failure is the end of it; elsewhere it may yet appear.
        if not makes_names_at_once(uri):
            put_if_absent(uri, abandonment(epoch), f"{token}-no")
            return bytes(read_all(uri)) == content
        return False
    except CheckpointStorageError as error:
        raise PublicationUnknownError(uri, str(error)) from error


def completed_in(folder: str, key: MetadataKey) -> list[CompletedCheckpoint]:
    """Return the complete checkpoints in a job's folder, oldest first. MetadataError, CheckpointStorageError."""
    numbers = sorted({*ids_in(folder), *_recorded_newest(folder)})
    found = [load_completed(child_uri(folder, f"chk-{number}"), key) for number in numbers]
    return [checkpoint for checkpoint in found if checkpoint is not None]


def _recorded_newest(folder: str) -> list[int]:
    """Read the newest id, which a listing may not show yet."""
    uri = child_uri(folder, _NEWEST)
    if not is_there(uri):
        return []
    text = bytes(read_all(uri)).strip()
    return [int(text)] if text.isdigit() else []


def ids_in(folder: str) -> list[int]:
    """Return the ids of the checkpoints in a job's folder, complete or not, in order."""
    matches = (_CHECKPOINT_FOLDER.fullmatch(name) for name in folders_in(folder))
    return sorted(int(match.group(1)) for match in matches if match)


def load_completed(folder: str, key: MetadataKey) -> CompletedCheckpoint | None:
    """Return the snapshot in a folder; None if it is not complete. MetadataError, CheckpointStorageError."""
    uri = child_uri(folder, METADATA_NAME)
    if not is_there(uri):
        return None
    try:
        content = read_all(uri)
    except CheckpointStorageError:
        if is_there(uri):
            raise
        # Deleted in between, by a driver that cleans up behind itself.
        return None
    if is_abandonment(content):
        return None
    return CompletedCheckpoint(decode_metadata(content, key, uri), folder, len(content))


def load_snapshot(path: str, settings: Settings) -> CompletedCheckpoint:
    """Return the checkpoint or savepoint that a user named by its folder or its `_metadata`. MetadataError."""
    folder = snapshot_folder(path)
    found = load_completed(folder, metadata_key(settings))
    if found is None:
        raise MetadataMissingError(folder, nearby_snapshots(folder))
    return found


def snapshot_folder(path: str) -> str:
    """Return the folder of a snapshot from the path of the folder or of its metadata file."""
    uri = absolute_uri(path)
    return parent_uri(uri) if file_name_of(uri) == METADATA_NAME else uri


def is_published(folder: str) -> bool:
    """Return whether a folder has metadata, readable or not, that was not given up. CheckpointStorageError."""
    uri = child_uri(folder, METADATA_NAME)
    return is_there(uri) and not is_abandonment(read_all(uri))


def nearby_snapshots(folder: str) -> tuple[str, ...]:
    """Return up to five complete snapshots in a folder or, if it has none, next to it, checkpoints newest first."""
    with contextlib.suppress(CheckpointStorageError):
        for place in (folder, parent_uri(folder)):
            names = [name for name in folders_in(place) if name.startswith(("chk-", "savepoint-"))]
            whole = (child_uri(place, name) for name in sorted(names, key=_newest_first))
            found = tuple(islice(filter(is_published, whole), 5))
            if found:
                return found
    return ()


def _newest_first(name: str) -> tuple[int, str]:
    """Return a sort key for names of checkpoints: the largest id first, then others."""
    kind, _, number = name.rpartition("-")
    return (-int(number), "") if kind == "chk" and number.isdecimal() else (1, name)


def published_ids_beside(folder: str) -> list[int]:
    """Return the ids of the complete checkpoints next to a checkpoint's folder, in order."""
    job = parent_uri(folder)
    return [one for one in ids_in(job) if is_published(child_uri(job, f"chk-{one}"))]


def _placed(options: CheckpointOptions, exclusive_uri: str, shared_uri: str) -> CheckpointOptions:
    return msgspec.structs.replace(options, exclusive_uri=exclusive_uri, shared_uri=shared_uri)
