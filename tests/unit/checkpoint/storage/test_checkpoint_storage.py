import os
import random
import shutil
import stat
from pathlib import Path

import pytest

from headrace.checkpoint.errors import (
    CheckpointExistsError,
    CheckpointFencedError,
    CheckpointStorageError,
    MetadataError,
    MetadataMissingError,
)
from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.options import (
    CHECKPOINT_DIRECTORY,
    KEY_FILE,
    SAVEPOINT_DIRECTORY,
    SHARED_FILES,
)
from headrace.checkpoint.retention.cleaner import dispose_savepoint
from headrace.checkpoint.storage import checkpoint_storage
from headrace.checkpoint.storage.checkpoint_storage import (
    CheckpointStorage,
    completed_in,
    load_snapshot,
    open_checkpoint_storage,
)
from headrace.checkpoint.storage.file_systems import (
    child_uri,
    files_below,
    is_there,
    make_folder,
    read_all,
    remove_file,
    write_new,
)
from headrace.checkpoint.storage.lineages import StoredLineage
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.checkpoint.storage.subtask_storage import StateReader, SubtaskStorage
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from tests.unit.checkpoint.snapshots import JOB, KEY, LINEAGE, metadata_of

CHECKPOINT = CheckpointOptions()
SAVEPOINT = CheckpointOptions(kind=SnapshotKind.SAVEPOINT)
BIG = bytes(30_000)
NOT_MADE = r"a folder of this path cannot be made: set execution\.checkpointing\.dir"


@pytest.fixture
def settings(folder: str, tmp_path: Path) -> Settings:
    return Settings({CHECKPOINT_DIRECTORY.key: folder, KEY_FILE.key: str(tmp_path / "key")})


def open_storage(settings: Settings, seed: int = 1) -> tuple[CheckpointStorage, StoredLineage]:
    drawn = random.Random(seed)
    directory = settings.get_option(CHECKPOINT_DIRECTORY)
    lineage = StoredLineage.take_over(directory, LINEAGE, 0, ManualClock(), drawn, KEY)
    return open_checkpoint_storage(settings, JOB, lineage, drawn), lineage


def take(storage: CheckpointStorage, settings: Settings, checkpoint_id: int, **more: object):
    options = storage.locate(checkpoint_id, CHECKPOINT)
    file = SubtaskStorage(options, "map-0", settings).write("counts", BIG)
    return storage.publish(metadata_of(checkpoint_id, file), options)


def completed(storage: CheckpointStorage, settings: Settings) -> list[CompletedCheckpoint]:
    return completed_in(storage.checkpoint_folder, metadata_key(settings))


def test_a_published_checkpoint_is_found_with_its_state(folder: str, settings: Settings) -> None:
    storage, _ = open_storage(settings)
    storage.prepare()
    published = take(storage, settings, 1)
    assert published.uri == child_uri(folder, JOB.hex(), "chk-1")
    found = load_snapshot(published.uri, settings)
    assert found == published
    assert load_snapshot(f"{published.uri}/_metadata", settings) == published
    (file,) = found.metadata.files()
    assert StateReader().read(file) == BIG
    assert completed(storage, settings) == [published]


def test_checkpoints_are_found_in_the_order_of_their_ids(settings: Settings) -> None:
    storage, _ = open_storage(settings)
    for number in (2, 10, 9):
        take(storage, settings, number)
    assert [one.checkpoint_id for one in completed(storage, settings)] == [2, 9, 10]


def test_one_that_is_deleted_between_look_and_read_is_none(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, _ = open_storage(settings)
    older, newer = take(storage, settings, 1), take(storage, settings, 2)

    def seen_and_deleted(uri: str) -> bool:
        is_seen = is_there(uri)
        if uri == child_uri(older.uri, "_metadata") and is_seen:
            remove_file(uri)
        return is_seen

    monkeypatch.setattr(checkpoint_storage, "is_there", seen_and_deleted)
    assert completed(storage, settings) == [newer]


def test_without_its_metadata_a_checkpoint_is_none(settings: Settings) -> None:
    storage, _ = open_storage(settings)
    options = storage.locate(1, CHECKPOINT)
    SubtaskStorage(options, "map-0", settings).write("counts", BIG)
    assert completed(storage, settings) == []
    with pytest.raises(MetadataMissingError, match="no completed checkpoint or savepoint"):
        load_snapshot(options.exclusive_uri, settings)


def test_who_names_the_wrong_folder_is_told_of_the_right_ones(
    folder: str, settings: Settings
) -> None:
    storage, _ = open_storage(settings)
    published = take(storage, settings, 3)
    for path in (child_uri(folder, JOB.hex()), child_uri(folder, JOB.hex(), "chk-4")):
        with pytest.raises(MetadataMissingError, match=f"there are {published.uri}"):
            load_snapshot(path, settings)


def test_publishing_again_what_is_published_is_no_error(settings: Settings) -> None:
    storage, _ = open_storage(settings)
    options = storage.locate(1, CHECKPOINT)
    assert storage.publish(metadata_of(1), options) == storage.publish(metadata_of(1), options)


def test_a_second_publisher_fails(settings: Settings) -> None:
    storage, _ = open_storage(settings)
    options = storage.locate(1, CHECKPOINT)
    storage.publish(metadata_of(1), options)
    with pytest.raises(CheckpointExistsError):
        storage.publish(metadata_of(1, StateFile("", b"other", 5, b"")), options)


def test_a_zombie_driver_publishes_nothing(settings: Settings) -> None:
    storage, _ = open_storage(settings)
    options = storage.locate(1, CHECKPOINT)
    open_storage(settings, seed=2)
    with pytest.raises(CheckpointFencedError):
        storage.publish(metadata_of(1), options)


def test_a_zombie_driver_that_has_just_looked_publishes_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, lineage = open_storage(settings)
    number = lineage.take_id(storage.checkpoint_folder)
    options = storage.locate(number, CHECKPOINT)
    monkeypatch.setattr(lineage, "validate_epoch", lambda: open_storage(settings, seed=2))
    with pytest.raises(CheckpointExistsError):
        storage.publish(metadata_of(number), options)
    assert completed(storage, settings) == []


@pytest.mark.parametrize("is_shared", [False, True])
def test_who_else_may_read_a_checkpoint_is_said_by_an_option_and_the_umask(
    tmp_path: Path, is_shared: bool
) -> None:
    settings = Settings(
        {
            CHECKPOINT_DIRECTORY.key: str(tmp_path / "checkpoints"),
            SAVEPOINT_DIRECTORY.key: str(tmp_path / "kept"),
            SHARED_FILES.key: str(is_shared),
            KEY_FILE.key: str(tmp_path / "key"),
        }
    )
    before = os.umask(0o022)
    try:
        lineage = StoredLineage.take_over(
            str(tmp_path / "checkpoints"), LINEAGE, 0, ManualClock(), random.Random(1), KEY,
            is_shared=is_shared,
        )  # fmt: skip
        storage = open_checkpoint_storage(settings, JOB, lineage)
        storage.prepare()
        for snapshot in (CHECKPOINT, SAVEPOINT):
            checkpoint_id = lineage.take_id(storage.checkpoint_folder)
            options = storage.locate(checkpoint_id, snapshot)
            file = SubtaskStorage(options, "map-0", settings).write("counts", BIG, is_shared=True)
            storage.publish(metadata_of(checkpoint_id, file), options)
    finally:
        os.umask(before)
    below = [path for path in tmp_path.rglob("*") if path.name != "key"]
    folders = {stat.S_IMODE(path.stat().st_mode) for path in below if path.is_dir()}
    files = {stat.S_IMODE(path.stat().st_mode) for path in below if path.is_file()}
    assert (folders, files) == (({0o755}, {0o644}) if is_shared else ({0o700}, {0o600}))


def test_a_savepoint_stands_alone_and_may_be_moved(tmp_path: Path) -> None:
    settings = Settings(
        {SAVEPOINT_DIRECTORY.key: str(tmp_path / "kept"), KEY_FILE.key: str(tmp_path / "key")}
    )
    storage = open_checkpoint_storage(
        settings, JOB, StoredLineage("", LINEAGE, 1, 0, random.Random(), KEY)
    )
    options = storage.locate(4, SAVEPOINT)
    assert options.shared_uri == ""
    folder = Path(options.exclusive_uri)
    assert folder.parent == tmp_path / "kept"
    assert folder.name.startswith(f"savepoint-{JOB.hex()[:6]}-")
    file = SubtaskStorage(options, "map-0", settings).write("counts", BIG, is_shared=True)
    storage.publish(metadata_of(4, file, kind=SnapshotKind.SAVEPOINT), options)
    shutil.move(folder, tmp_path / "moved")
    (moved,) = load_snapshot(str(tmp_path / "moved"), settings).metadata.files()
    assert StateReader().read(moved) == BIG


def test_a_savepoint_without_a_place_is_refused(settings: Settings, folder: str) -> None:
    storage, _ = open_storage(settings)
    with pytest.raises(ConfigurationError, match="name a folder"):
        storage.locate(1, SAVEPOINT)
    assert storage.locate(1, SAVEPOINT, folder).exclusive_uri.startswith(f"{folder}/savepoint-")


def test_a_savepoint_is_disposed_of_and_a_checkpoint_is_not(
    folder: str, settings: Settings
) -> None:
    storage, _ = open_storage(settings)
    options = storage.locate(2, SAVEPOINT, folder)
    file = SubtaskStorage(options, "map-0", settings).write("counts", BIG)
    saved = storage.publish(metadata_of(2, file, kind=SnapshotKind.SAVEPOINT), options)
    dispose_savepoint(saved.uri, settings)
    assert not is_there(saved.uri)
    with pytest.raises(MetadataError, match="only savepoints"):
        dispose_savepoint(take(storage, settings, 3).uri, settings)


def test_in_memory_a_checkpoint_has_no_place_and_no_file(tmp_path: Path) -> None:
    storage = open_checkpoint_storage(
        Settings(), JOB, StoredLineage("", LINEAGE, 1, 0, random.Random(), KEY)
    )
    storage.prepare()
    options = storage.locate(1, CHECKPOINT)
    assert (options.exclusive_uri, options.shared_uri) == ("", "")
    assert storage.publish(metadata_of(1), options).uri == ""


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    settings = Settings(
        {CHECKPOINT_DIRECTORY.key: str(tmp_path / "file"), KEY_FILE.key: str(tmp_path / "key")}
    )
    storage = open_checkpoint_storage(
        settings, JOB, StoredLineage("", LINEAGE, 1, 0, random.Random(), KEY)
    )
    with pytest.raises(CheckpointStorageError, match=f"cannot make the folder {tmp_path}/file"):
        storage.prepare()


def test_a_full_disk_leaves_no_half_checkpoint(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, _ = open_storage(settings)
    options = storage.locate(1, CHECKPOINT)
    write_new(child_uri(options.exclusive_uri, "state"), [b"x"])

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headrace.checkpoint.storage.local_files.write_local", full)
    monkeypatch.setattr("headrace.checkpoint.storage.file_systems._write_remote", full)
    with pytest.raises(CheckpointStorageError, match="No space left"):
        storage.publish(metadata_of(1), options)
    monkeypatch.undo()
    assert completed(storage, settings) == []
    assert [file.relative_path for file in files_below(options.exclusive_uri)] == ["state"]


def test_an_error_after_the_name_was_made_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = Settings(
        {CHECKPOINT_DIRECTORY.key: str(tmp_path), KEY_FILE.key: str(tmp_path / "key")}
    )
    storage, _ = open_storage(settings)
    options = storage.locate(1, CHECKPOINT)

    def fail(folder: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("headrace.checkpoint.storage.local_files.sync_path", fail)
    published = storage.publish(metadata_of(1), options)
    assert completed(storage, settings) == [published]


def test_folders_without_links_publish_by_a_claim(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(1, "Operation not permitted")

    storage, _ = open_storage(settings)
    monkeypatch.setattr("os.link", refuse)
    options = storage.locate(1, CHECKPOINT)
    published = storage.publish(metadata_of(1), options)
    assert completed(storage, settings) == [published]
    with pytest.raises(CheckpointExistsError):
        storage.publish(metadata_of(1, StateFile("", b"other", 5, b"")), options)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a place where nothing is made")
def test_a_folder_that_cannot_be_made_names_the_option(tmp_path: Path) -> None:
    folder = "file:///proc/headrace"
    with pytest.raises(CheckpointStorageError, match=NOT_MADE) as not_begun:
        StoredLineage.take_over(folder, LINEAGE, 0, ManualClock(), random.Random(1), KEY)
    assert "deleted or moved" not in str(not_begun.value)
    with pytest.raises(CheckpointStorageError, match=NOT_MADE):
        make_folder(folder)
    with pytest.raises(CheckpointStorageError, match="check whether it was deleted or moved"):
        read_all(f"{folder}/state")
