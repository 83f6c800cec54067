"""RocksDBKeyedStateBackend: state on disk, with bounded memory and incremental checkpoints.

User code reads copies, unlike with the heap backend: a change that is not written back is lost. `TablePieces` reads
live rows with an iterator, which sees the rows of the moment when it was made. Source: Flink RocksDBKeyedStateBackend.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from headrace.checkpoint.handles import StateChunk
from headrace.checkpoint.options import (
    INCREMENTAL,
    ROCKSDB_LOCAL_DIRECTORY,
    ROCKSDB_MEMORY,
    ROCKSDB_TIMERS,
    ROCKSDB_TIMERS_CACHED,
    TimerServiceFactory,
    member_of,
)
from headrace.checkpoint.storage.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.process.memory_parts import is_memory_set, own_memory_parts
from headrace.functions.state import MapStateDescriptor, StateDescriptor
from headrace.state.backend import (
    EntryScope,
    FrozenState,
    TimerQueue,
)
from headrace.state.heap.timers import HeapTimerQueue
from headrace.state.keyed_chunks import KeyedRows, KeyedStateForm, no_rows, rows_to_table
from headrace.state.queryable.live_rows import (
    LivePiece,
    LiveRows,
    LiveSource,
    keyed_source,
    own_keys,
    waiting_sources,
)
from headrace.state.restored_keyed_state import (
    FrozenUnclaimed,
    KeySpace,
    RestoredKeyedState,
    check_form,
    evolved_rows,
)
from headrace.state.rocksdb.database import Database
from headrace.state.rocksdb.handles import (
    ROCKS_HANDLES,
    Positions,
    RocksState,
    StateHome,
)
from headrace.state.rocksdb.keys import (
    STAMPS_VERSION,
    CompositeKeys,
    form_of_keys,
    position_bytes,
    stored_form,
)
from headrace.state.rocksdb.snapshots import (
    DATABASE,
    FORMS,
    POSITIONS,
    STAMPS,
    FrozenColumnFamily,
    FrozenFiles,
    FrozenRows,
    Uploaded,
    forms_text,
    pieces_of_rows,
    restore_databases,
)
from headrace.state.rocksdb.timers import RocksTimerQueue, TimerRows
from headrace.state.ttl import NO_STAMP
from headrace.state.typed_state import TypedStateBackend

_MEMORY_MIN_BYTES: Final = 8 << 20

Stored = tuple[bytes, bytes]


class RocksDBKeyedStateBackend(TypedStateBackend[RocksState]):
    """Keyed state in RocksDB."""

    handle_classes = ROCKS_HANDLES

    def __init__(
        self,
        key_space: KeySpace,
        restored: RestoredKeyedState,
        native_chunks: Sequence[StateChunk],
        reader: SnapshotReader,
        clock: Clock,
        settings: Settings,
        scratch: str,
    ) -> None:
        super().__init__(key_space, clock)
        self._restored = restored
        self._keys = CompositeKeys(key_space)
        self._is_incremental = settings.get_option(INCREMENTAL)
        self._timers_in = member_of(TimerServiceFactory, settings, ROCKSDB_TIMERS)
        self._timers_cached = settings.get_option(ROCKSDB_TIMERS_CACHED)
        database = Database(
            settings.get_option(ROCKSDB_LOCAL_DIRECTORY) or scratch,
            _memory_bytes(settings),
        )
        self._database = database
        try:
            found = restore_databases(database, native_chunks, reader, key_space, self._keys)
        except BaseException:
            database.close()
            raise
        self._forms: dict[str, KeyedStateForm] = {form.name: form for form in found.forms}
        """Forms of all column families, including those that were not requested yet."""
        # A directory's name is made up anew for each database of a machine; with the key groups and the time it is
        # one of a kind, as it must be where databases of several subtasks are restored together.
        self._identity = f"{database.directory.name}-{key_space.key_groups.start}-{clock.now_ms()}"
        self._base: Uploaded = found.base or {}
        self._uploads: dict[int, Uploaded] = {}
        """Files that each pending checkpoint refers to; while it is being written, only those certainly shared."""
        self._home = StateHome(self._keys, self._clocks, Positions(found.following_position))

    def has_unclaimed(self, name: str) -> bool:
        is_in_database = name in self._forms and name not in self._handles
        return is_in_database or self._restored.holds(name)

    def create_timer_queue(self, name: str) -> TimerQueue:
        if self._timers_in is TimerServiceFactory.ROCKSDB:
            return RocksTimerQueue(
                self._database, name, self._keys, self._timers_cached, self._are_rows_written
            )
        queue = HeapTimerQueue()
        stored = self._database.find_timers(name)
        if stored is not None:
            rows = TimerRows(self._keys)
            for row_key, value in stored.items():
                queue.register(*rows.timer_of(row_key, value))
            stored.delete_range(b"", b"\xff" * 8)
        return queue

    def forget_keys(self) -> NoReturn:
        raise AssertionError(
            "BATCH mode keeps the state of a few keys at a time in memory, not in RocksDB"
        )

    def keys_of(self, descriptor: StateDescriptor) -> list[Any]:
        self._handle_of(descriptor, self.key_scope)
        return self._entries(descriptor.get_name())

    def key_count(self, name: str) -> int:
        return len(self._entries(name)) if name in self._handles else 0

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "FrozenRocksDB":
        """Return the present state: its files after a flush, or iterators over its rows."""
        forms = list(self._forms.values())
        if self._are_rows_written(options):
            tables = [self._frozen_table(form) for form in forms]
            return FrozenRocksDB(FrozenRows(tables, self._keys), self._restored)
        attributes = {
            DATABASE: self._identity,
            FORMS: forms_text(forms),
            POSITIONS: str(self._home.positions.following),
            STAMPS: STAMPS_VERSION,
        }
        if options.kind is SnapshotKind.FULL_CHECKPOINT:
            # Nor may the next one refer to what this one was not to: it belongs to others from now on.
            self._base = {}
        # A savepoint is its user's: it refers to no file of a checkpoint, and no checkpoint to a file of it.
        is_checkpoint = not options.kind.is_savepoint
        base = self._base if is_checkpoint else {}

        def uploaded(tables: Uploaded) -> None:
            # On the writing thread; the mailbox reads a copy. What was aborted meanwhile is not wanted any more.
            if checkpoint_id in self._uploads:
                self._uploads[checkpoint_id] = tables

        if is_checkpoint:
            self._uploads[checkpoint_id] = base
        files = FrozenFiles(
            self._database.hard_links(), base, attributes, self._key_space.key_groups, uploaded
        )
        return FrozenRocksDB(files, self._restored)

    def _are_rows_written(self, options: CheckpointOptions) -> bool:
        if options.kind.is_savepoint:
            return not options.kind.is_native
        return not self._is_incremental

    def _frozen_table(self, form: KeyedStateForm) -> FrozenColumnFamily:
        """Return a state's present rows, without expired ones if full snapshots leave them out."""
        stored: Iterator[tuple[bytes, bytes]] = self._database.table(form.name).items()
        handle = self._handles.get(form.name)
        lifetime = None if handle is None else handle.lifetime
        if lifetime is None:
            return FrozenColumnFamily(form, stored)
        # Of this moment: the clock goes on while the rows are read.
        now_ms = lifetime.clock.now_ms()
        if lifetime.rules.filters_snapshots:
            stored = (row for row in stored if not lifetime.is_over(row[1], now_ms))
        return FrozenColumnFamily(form, stored, lifetime.rules.expired_until_ms(now_ms))

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Let later checkpoints refer to the files that a published one uploaded, but not to those of a savepoint.

        A later checkpoint that was frozen before this call may have uploaded a file once more. Once it completes, the
        copy of this one may be deleted, so that only files of both are referred to again.
        """
        uploaded = self._uploads.pop(checkpoint_id, None)
        for older in [one for one in list(self._uploads) if one < checkpoint_id]:
            del self._uploads[older]
        if uploaded is not None:
            later = list(self._uploads.values())
            self._base = {
                name: file
                for name, file in uploaded.items()
                if all(name in one and one[name].uri == file.uri for one in later)
            }

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._uploads.pop(checkpoint_id, None)

    def live_sources(self) -> list[LiveSource]:
        """Return a source of live rows for each state, including those of a restored database."""
        own = [keyed_source(form, partial(self._live_rows, form)) for form in self._forms.values()]
        return [*own, *waiting_sources(self._restored)]

    def _live_rows(self, form: KeyedStateForm, keys: pa.Array | None) -> LiveRows:
        wanted = own_keys(form.name, keys, self._key_space)
        pieces = TablePieces(form, self._database.table(form.name), self._keys, wanted)
        handle = self._handles.get(form.name)
        lifetime = None if handle is None else handle.lifetime
        expired_until_ms = (
            None if lifetime is None else lifetime.rules.expired_until_ms(lifetime.clock.now_ms())
        )
        return LiveRows(pieces, partial(no_rows, form), pieces.release, expired_until_ms)

    def close(self) -> None:
        """Delete the database from this machine; idempotent."""
        for handle in self._handles.values():
            handle.table = None
        self._handles.clear()
        self._database.close()

    def _entries(self, name: str) -> list[Any]:
        handle = self._handles[name]
        found: dict[Any, None] = {}
        for composite in handle.table.keys():
            _, entry, _ = self._keys.split(composite, has_namespace=handle.is_window)
            found[entry] = None
        return list(found)

    def _new_handle(
        self, handle_class: type[RocksState], descriptor: StateDescriptor, scope: EntryScope
    ) -> RocksState:
        name = descriptor.get_name()
        is_window = scope is self.window_scope
        known = self._forms.get(name)
        handle = handle_class(descriptor, scope, is_window, self._database.table(name), self._home)
        form = self._form(handle)
        if known is not None:
            self._follow(known, form, handle)
        for rows in self._restored.claim(form, descriptor.field_changes):
            self._load(handle, rows)
        self._handles[name], self._forms[name] = handle, form
        return handle

    def _follow(self, known: KeyedStateForm, form: KeyedStateForm, handle: RocksState) -> None:
        """Convert rows of a restored database to the requested form. StateIncompatibleError."""
        changes = handle.descriptor.field_changes
        check_form(form, known.attributes(), changes)
        if known.schema() == form.schema():
            return
        stored = list(pieces_of_rows(known, iter(handle.table.items()), self._keys))
        handle.table.delete_range(b"", b"\xff" * 8)
        old = replace(known, has_ttl=form.has_ttl)
        for rows, groups in stored:
            self._load(handle, evolved_rows(old, form, rows, groups, changes))

    def _load(self, handle: RocksState, rows: KeyedRows) -> None:
        entries = rows.keys
        if rows.namespaces is not None:
            entries = list(zip(rows.keys, rows.namespaces, strict=True))
        stamps = rows.last_accesses or [None] * len(rows.values)
        descriptor = handle.descriptor
        is_map = isinstance(descriptor, MapStateDescriptor)
        form_of_key = form_of_keys(descriptor.key_type if is_map else descriptor.type_info)
        for index, (entry, value, stamp) in enumerate(
            zip(entries, rows.values, stamps, strict=True)
        ):
            composite = handle.prefix_of(entry)
            if rows.map_keys is not None:
                composite += form_of_key(rows.map_keys[index])
            elif rows.list_positions is not None:
                composite += position_bytes(self._home.positions.take())
            handle.table.put(composite, stored_form(value, NO_STAMP if stamp is None else stamp))


class FrozenRocksDB:
    """Frozen state of the RocksDB backend: the database, and restored rows of states that were never requested."""

    def __init__(self, database: FrozenState, restored: RestoredKeyedState) -> None:
        self._database = database
        self._unclaimed = FrozenUnclaimed(restored)

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        return [*self._database.write(writer), *self._unclaimed.write(writer)]

    def discard(self) -> None:
        self._database.discard()


class TablePieces:
    """Reads the rows of a state's table in pieces, for the given keys or for all (None). Read once."""

    def __init__(
        self,
        form: KeyedStateForm,
        table: Any,
        composites: CompositeKeys,
        keys: Sequence[Any] | None,
    ) -> None:
        self._form = form
        self._composites = composites
        self._keys = keys
        # Made here, and one for all keys: it sees the table as it is now, wherever it is moved to later. (A snapshot of
        # rocksdict would not do: iterators that are made of it see what was written since.)
        self._stored: Any = table.iter()

    def __call__(self, count: Callable[[], int]) -> Iterator[LivePiece]:
        looks = self._all() if self._keys is None else self._of_keys(self._keys)
        found = deque[Stored]()
        pieces = pieces_of_rows(
            self._form, _taken(found), self._composites, piece_size=lambda: len(found)
        )
        while looked_at := _look(looks, found, count()):
            if not found:
                yield LivePiece(None, looked_at)
                continue
            rows, groups = next(pieces)
            table = rows_to_table(self._form, rows, np.array(groups, dtype=np.int32))
            yield LivePiece(table, looked_at)

    def release(self) -> None:
        """Release the iterator, for which RocksDB keeps old versions of rows."""
        self._stored = None

    def _all(self) -> Iterator[Stored]:
        return self._from(b"")

    def _of_keys(self, keys: Sequence[Any]) -> Iterator[Stored | None]:
        """Yield the rows of each key, or None for a key without rows, which counts as examined too."""
        for key in keys:
            is_there = False
            for row in self._from(self._composites.of_key(key)):
                is_there = True
                yield row
            if not is_there:
                yield None

    def _from(self, prefix: bytes) -> Iterator[Stored]:
        """Yield rows that begin with a prefix, until they are released."""
        if self._stored is not None:
            self._stored.seek(prefix)
        while self._stored is not None and self._stored.valid():
            composite = self._stored.key()
            if not composite.startswith(prefix):
                return
            yield composite, self._stored.value()
            if self._stored is not None:
                self._stored.next()


def _look(looks: Iterator[Stored | None], found: deque[Stored], count: int) -> int:
    """Examine `count` rows and add the found ones to `found`. Return the number of examined rows."""
    looked_at = 0
    for one in looks:
        looked_at += 1
        if one is not None:
            found.append(one)
        if looked_at == count:
            break
    return looked_at


def _taken(found: deque[Stored]) -> Iterator[Stored]:
    while True:
        yield found.popleft()


def _memory_bytes(settings: Settings) -> int:
    """Return the memory that all databases of the process share: managed memory if the settings give its size."""
    if settings.is_set(ROCKSDB_MEMORY) or not is_memory_set(settings):
        return settings.get_option(ROCKSDB_MEMORY)
    return max(_MEMORY_MIN_BYTES, own_memory_parts(settings).managed)
