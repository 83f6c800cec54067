"""A database from the files of a checkpoint: as it was, cut to fewer key groups, or put together from several.

Source: Flink RocksDBIncrementalRestoreOperation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.checkpoint.handles import StateChunk, StateFile
from headrace.checkpoint.storage.snapshot_files import SnapshotReader
from headrace.state.keyed_chunks import KeyedStateForm
from headrace.state.restored import KeySpace
from headrace.state.rocksdb.database import Database, is_table_file
from headrace.state.rocksdb.keys import CompositeKeys, restamped
from headrace.state.rocksdb.snapshots import (
    DATABASE,
    FILE,
    FORMS,
    POSITIONS,
    STAMPS,
    Uploaded,
    forms_of_text,
)


@dataclass(frozen=True)
class RestoredDatabase:
    """What is known of a database that was opened. `base`: files that the next checkpoint may refer to."""

    forms: Sequence[KeyedStateForm] = ()
    base: Uploaded | None = None
    following_position: int = 0


def restore_databases(
    database: Database,
    chunks: Sequence[StateChunk],
    reader: SnapshotReader,
    key_space: KeySpace,
    keys: CompositeKeys,
) -> RestoredDatabase:
    """Open `database` with what NATIVE chunks hold of the own key groups; empty where there are none."""
    by_database: dict[str, list[StateChunk]] = {}
    for chunk in chunks:
        by_database.setdefault(chunk.attributes[DATABASE], []).append(chunk)
    own = key_space.key_groups
    begin, end = keys.group_bytes(own.start), _end_of(own, keys)
    if len(by_database) == 1:
        (files,) = by_database.values()
        _fetch(files, reader, database.path)
        database.open()
        if files[0].key_groups != (own.start, own.stop - 1):
            database.keep_range(begin, end)
        _renew_stamps(database, files)
        base: dict[str, StateFile] = {
            chunk.attributes[FILE]: chunk.file
            for chunk in files
            if is_table_file(chunk.attributes[FILE])
        }
        return RestoredDatabase(_forms(files), base, _positions(files))
    database.open()
    forms: dict[str, KeyedStateForm] = {}
    following = 0
    for files in by_database.values():
        forms |= {form.name: form for form in _forms(files)}
        following = max(following, _positions(files))
        part = Database(str(database.directory), database.memory_bytes)
        try:
            _fetch(files, reader, part.path)
            part.open()
            _renew_stamps(part, files)
            _copy_range(part, database, begin, end)
        finally:
            part.close()
    return RestoredDatabase(list(forms.values()), None, following)


def _renew_stamps(database: Database, files: Sequence[StateChunk]) -> None:
    """Bring values without a last access into the form of now, where `files` are of the first version of stamps.

    Once, as the snapshot is restored: left as they are, they would not be told from accesses at -1 that come later.
    """
    if STAMPS in files[0].attributes:
        return
    for form in _forms(files):
        table = database.table(form.name)
        for composite, value in table.items():
            renewed = restamped(value)
            if renewed is not None:
                table.put(composite, renewed)


def _copy_range(source: Database, target: Database, begin: bytes, end: bytes) -> None:
    for name in source.families:
        table = target.family(name)
        for composite, value in source.family(name).items(from_key=begin):
            if composite >= end:
                break
            table.put(composite, value)


def _end_of(own: range, keys: CompositeKeys) -> bytes:
    """The first bytes of the key group after the own ones; behind everything where there is none."""
    if own.stop >= 1 << 8 * keys.group_size:
        return b"\xff" * 8
    return keys.group_bytes(own.stop)


def _fetch(files: Sequence[StateChunk], reader: SnapshotReader, path: Path) -> None:
    path.mkdir()
    for chunk in files:
        reader.fetch(chunk.file, str(path / chunk.attributes[FILE]))


def _forms(files: Sequence[StateChunk]) -> list[KeyedStateForm]:
    return forms_of_text(files[0].attributes[FORMS])


def _positions(files: Sequence[StateChunk]) -> int:
    return int(files[0].attributes[POSITIONS])
