"""Snapshots of RocksDB: written as its own files or as rows, and restored from its files.

A snapshot refers to a file that an older checkpoint uploaded if the file is in the last checkpoint known to be
complete; native savepoints have files of their own. Canonical savepoints, and checkpoints without
`execution.checkpointing.incremental`, are rows in Parquet, which any backend restores. `restore_databases` opens the
files of a snapshot as one database: unchanged, cut to fewer key groups, or combined from several.
Source: Flink RocksIncrementalSnapshotStrategy, RocksNativeFullSnapshotStrategy, RocksFullSnapshotStrategy,
RocksDBIncrementalRestoreOperation.
"""

import base64
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from headrace.checkpoint.handles import StateChunk, StateFile, StateTable
from headrace.checkpoint.storage.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.core.types.pickles import pickle_value, unpickle_value
from headrace.state.keyed_chunks import ChunkFiles, KeyedRows, KeyedStateForm, rows_to_table
from headrace.state.restored_keyed_state import KeySpace
from headrace.state.rocksdb.database import Database, files_of, is_table_file
from headrace.state.rocksdb.keys import (
    CompositeKeys,
    from_bytes,
    restamped,
    stored_stamp,
    stored_value,
)
from headrace.state.ttl import NO_STAMP

NATIVE_NAME: Final = "rocksdb"
DATABASE: Final = "database"
FILE: Final = "file"
FORMS: Final = "forms"
POSITIONS: Final = "positions"
STAMPS: Final = "stamps"
"""Attribute with the version of the stored last accesses, STAMPS_VERSION."""
_PIECE_ROWS: Final = 16_384
Uploaded = Mapping[str, StateFile]
"""Files of one database by their names in it."""


class FrozenFiles:
    """Frozen hard links to a database's files; files that `base` contains are not written again."""

    def __init__(
        self,
        directory: Path,
        base: Uploaded,
        attributes: dict[str, str],
        key_groups: range,
        on_uploaded: Callable[[Uploaded], None],
    ) -> None:
        self._directory = directory
        self._base = base
        self._attributes = attributes
        self._key_groups = key_groups
        self._on_uploaded = on_uploaded

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        tables: dict[str, StateFile] = {}
        chunks: list[StateChunk] = []
        for path in files_of(self._directory):
            known = self._base.get(path.name)
            is_table = is_table_file(path.name)
            if known is None or not is_table:
                known = writer.write_file(f"rocksdb-{path.name}", str(path), is_shared=is_table)
            if is_table:
                tables[path.name] = known
            attributes = {**self._attributes, FILE: path.name}
            key_groups = (self._key_groups.start, self._key_groups.stop - 1)
            chunks.append(
                StateChunk(StateTable.NATIVE, NATIVE_NAME, 0, known, key_groups, attributes)
            )
        self._on_uploaded(tables)
        return chunks

    def discard(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


@dataclass
class FrozenColumnFamily:
    """One state: its form, and an iterator over its column family.

    An iterator sees the rows of the moment when it was made. RocksDB's snapshots are not used, as the library iterates
    over a snapshot as if it were the live table.
    """

    form: KeyedStateForm
    stored: Iterator[tuple[bytes, bytes]]
    expired_until_ms: int | None = None
    """Latest last access of expired rows (epoch ms), as in ChunkFiles."""


class FrozenRows:
    """Frozen rows of all states of a database, written as Parquet."""

    def __init__(self, tables: Sequence[FrozenColumnFamily], keys: CompositeKeys) -> None:
        self._tables = tables
        self._keys = keys

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        chunks: list[StateChunk] = []
        for table in self._tables:
            form = table.form
            files = ChunkFiles(
                StateTable.KEYED,
                form.name,
                form.attributes(),
                writer,
                expired_until_ms=table.expired_until_ms,
            )
            for rows, groups in pieces_of_rows(form, table.stored, self._keys):
                files.add(rows_to_table(form, rows, np.array(groups, dtype=np.int32)))
            chunks += files.finish()
        return chunks

    def discard(self) -> None:
        """Release the iterators, for which RocksDB keeps old versions of rows."""
        for table in self._tables:
            table.stored = iter(())


def pieces_of_rows(
    form: KeyedStateForm,
    stored: Iterator[tuple[bytes, bytes]],
    keys: CompositeKeys,
    piece_size: Callable[[], int] = lambda: _PIECE_ROWS,
) -> Iterator[tuple[KeyedRows, list[int]]]:
    """Yield stored rows, which are ordered by key group, in pieces, with their key groups. List positions begin at 0.

    `piece_size`: called before each piece; returns its number of rows.
    """
    is_window = form.scope == "window"
    last_entry: Any = None
    position = 0
    while piece := list(islice(stored, piece_size())):
        rows, groups = KeyedRows.for_form(form), list[int]()
        for composite, value in piece:
            group, entry, rest = keys.split(composite, has_namespace=is_window)
            groups.append(group)
            if rows.namespaces is None:
                rows.keys.append(entry)
            else:
                rows.keys.append(entry[0])
                rows.namespaces.append(entry[1])
            if rows.map_keys is not None:
                rows.map_keys.append(from_bytes(rest))
            if rows.list_positions is not None:
                position = position + 1 if entry == last_entry else 0
                last_entry = entry
                rows.list_positions.append(position)
            rows.values.append(stored_value(value))
            if rows.last_accesses is not None:
                stamp_ms = stored_stamp(value)
                rows.last_accesses.append(None if stamp_ms == NO_STAMP else stamp_ms)
        yield rows, groups


def forms_text(forms: Sequence[KeyedStateForm]) -> str:
    """Return the forms of a database's states as text; read again only inside the task."""
    return base64.b64encode(pickle_value(list(forms))).decode()


def forms_of_text(text: str) -> list[KeyedStateForm]:
    """Return the forms from the text of `forms_text`."""
    return unpickle_value(base64.b64decode(text))


@dataclass(frozen=True)
class RestoredDatabase:
    """Description of a database opened for a restore. `base`: files that the next checkpoint may refer to."""

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
    """Open `database` with the own key groups of NATIVE chunks; it is empty if there are none."""
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
            # Files of a savepoint go when it is deleted, whoever else refers to them.
            if is_table_file(chunk.attributes[FILE]) and _may_be_shared(chunk.file)
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


def _may_be_shared(file: StateFile) -> bool:
    """Return whether a later checkpoint may refer to a file: it lies in the shared folder, or inside its handle."""
    return file.is_shared or not file.uri


def _renew_stamps(database: Database, files: Sequence[StateChunk]) -> None:
    """Rewrite values without a last access in the present version, if `files` are of the first version.

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
    """Return the first bytes of the key group after the own ones, or bytes above all keys if there is none."""
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
