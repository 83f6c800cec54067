"""OperatorStateHandler: all state of one operator on one subtask, as part of checkpoints.

Operators get a keyed backend and operator state from it, and register other state; the task freezes all of it at a
checkpoint's barrier and writes it on another thread. Source: Flink StreamOperatorStateHandler,
StreamTaskStateInitializer.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

from headrace.checkpoint.handles import (
    OperatorSubtaskState,
    StateChunk,
    StateFile,
    StateTable,
)
from headrace.checkpoint.options import STATE_BACKEND_TYPE, StateBackendType, member_of
from headrace.checkpoint.storage.snapshot_files import SnapshotReader
from headrace.core.barriers import CheckpointOptions
from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings
from headrace.core.operator_spec import OperatorTypes
from headrace.core.process.state_memory import StateMemory, row_buffer_bytes
from headrace.core.types.type_info import PickledBytesTypeInfo, TypeInformation, Types
from headrace.state.backend import FrozenPart, FrozenState, Snapshotable
from headrace.state.evolution import StateIncompatibleError
from headrace.state.heap.backend import HeapKeyedStateBackend
from headrace.state.keyed_chunks import OPAQUE
from headrace.state.operator_state_backend import (
    OperatorStateBackend,
    OperatorStateSnapshots,
    live_operator_states,
    restore_operator_state,
)
from headrace.state.queryable.live_rows import LiveReadable, LiveSource, waiting_sources
from headrace.state.restored_keyed_state import KeySpace, RestoredKeyedState, UnclaimedStates
from headrace.state.typed_state import TypedStateBackend

_LOG: Final = logging.getLogger(__name__)
_OF_BACKENDS: Final = frozenset({StateTable.KEYED, StateTable.NATIVE, StateTable.OPERATOR})


class NothingToRead:
    """SnapshotReader of an operator that starts without restored state."""

    def read(self, file: StateFile) -> memoryview:
        raise AssertionError("nothing was restored, so there is nothing to read")

    def fetch(self, file: StateFile, path: str) -> None:
        raise AssertionError("nothing was restored, so there is nothing to fetch")


def _key_type_of(types: OperatorTypes) -> TypeInformation:
    """Return the type of the keys; a stream without keys has one integer key for all its records."""
    key_types = {one.key_type for one in types.inputs if one.key_type is not None}
    if not key_types:
        return Types.LONG()
    return key_types.pop() if len(key_types) == 1 else PickledBytesTypeInfo()


class OperatorStateHandler:
    """The states of one operator on one subtask. Mailbox thread only.

    `key_groups`: the subtask's own; `restored`: the state that it starts from, or None for a fresh start. `scratch`:
    a directory where backends may keep files while the operator lives; empty if there is none.
    """

    def __init__(
        self,
        *,
        key_groups: range,
        max_parallelism: int,
        types: OperatorTypes,
        settings: Settings,
        operator_name: str = "operator",
        restored: OperatorSubtaskState | None = None,
        restored_checkpoint_id: int | None = None,
        reader: SnapshotReader | None = None,
        clock: Clock | None = None,
        scratch: str = "",
    ) -> None:
        self.key_space = KeySpace(_key_type_of(types), key_groups, max_parallelism)
        self.restored_checkpoint_id = restored_checkpoint_id
        self.reader: SnapshotReader = reader or NothingToRead()
        self._settings = settings
        self._operator_name = operator_name
        self._chunks: Sequence[StateChunk] = () if restored is None else restored.chunks
        self._clock = clock or SystemClock()
        self.scratch = scratch
        self._snapshotables: dict[str, Snapshotable] = {}
        self._accounts: list[StateMemory] = []
        self._restored_keyed = RestoredKeyedState(self._chunks, self.reader, key_groups)
        self._keyed_backend: TypedStateBackend[Any] | None = None
        self._has_warned = False
        self._operator_state: OperatorStateBackend | None = None

    def create_keyed_backend(self) -> TypedStateBackend[Any]:
        """Return the operator's keyed state backend, of the type `state.backend.type`; called once, in `open`."""
        assert self._keyed_backend is None, (
            "the keyed backend of an operator can be created only once"
        )
        self._keyed_backend = self._new_backend()
        return self._keyed_backend

    def _new_backend(self) -> TypedStateBackend[Any]:
        native = [chunk for chunk in self._chunks if chunk.table is StateTable.NATIVE]
        kind = member_of(StateBackendType, self._settings, STATE_BACKEND_TYPE)
        if kind is StateBackendType.ROCKSDB:
            # Imported late: the library is an extra that only those who choose it have.
            from headrace.state.rocksdb.backend import RocksDBKeyedStateBackend

            return RocksDBKeyedStateBackend(
                self.key_space,
                self._restored_keyed,
                native,
                self.reader,
                self._clock,
                self._settings,
                self.scratch,
            )
        if native:
            raise StateIncompatibleError(
                f"the state of operator '{self._operator_name}' is in RocksDB's own files, which 'state.backend.type: "
                "hashmap' cannot read: continue with 'rocksdb', or restore a canonical savepoint taken with it"
            )
        return HeapKeyedStateBackend(self.key_space, self._restored_keyed, self._clock)

    @property
    def operator_state(self) -> OperatorStateBackend:
        """Operator state of the subtask, which belongs to no key."""
        if self._operator_state is None:
            self._operator_state = OperatorStateBackend()
            restore_operator_state(self._operator_state, self._chunks, self.reader)
        return self._operator_state

    def register(self, name: str, snapshotable: Snapshotable) -> Sequence[StateChunk]:
        """Let `snapshotable` take part in snapshots; return the chunks that were restored under `name`.

        `name` is also that of the chunks that it writes. Restored chunks may hold key groups of other subtasks: use
        only those in `key_space.key_groups`.
        """
        assert name not in self._snapshotables, f"'{name}' is registered already"
        self._snapshotables[name] = snapshotable
        return [
            chunk
            for chunk in self._chunks
            if chunk.name == name and chunk.table not in _OF_BACKENDS
        ]

    def account_of(self, state_name: str) -> StateMemory:
        """Return the account of a columnar state's size; it ends with `close`."""
        account = StateMemory(self._operator_name, state_name, self._settings)
        self._accounts.append(account)
        return account

    @property
    def row_buffer_bytes(self) -> int:
        """Size in bytes of the rows that the operator collects before it writes them out."""
        return row_buffer_bytes(self._settings)

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> list[FrozenState]:
        """Return all present state in a frozen form, to be written on another thread."""
        self._warn_of_pickles()
        return [
            FrozenPart(part.freeze(checkpoint_id, options), self._operator_name)
            for part in self._parts()
        ]

    def live_sources(self) -> list[LiveSource]:
        """Return the sources of live rows of all states, except the splits and items of connectors."""
        if self._keyed_backend is None:
            sources = waiting_sources(self._restored_keyed)
        else:
            sources = self._keyed_backend.live_sources()
        if self._has_operator_state:
            sources += live_operator_states(self.operator_state)
        others = self._snapshotables.values()
        return sources + [one.live_source() for one in others if isinstance(one, LiveReadable)]

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Note that a checkpoint is published."""
        for part in self._parts():
            part.checkpoint_completed(checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Note that a checkpoint failed."""
        for part in self._parts():
            part.checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        """Release all resources; idempotent."""
        for account in self._accounts:
            account.close()
        if self._keyed_backend is not None:
            self._keyed_backend.close()

    def _warn_of_pickles(self) -> None:
        """Warn once per operator, on the subtask that has the first key group."""
        if self._has_warned or self._keyed_backend is None or self.key_space.key_groups.start:
            return
        self._has_warned = True
        names = [one.name for one in self._keyed_backend.forms() if OPAQUE in one.attributes()]
        if names:
            _LOG.warning(
                "operator '%s' keeps values or keys of undeclared types in %s: they are stored as pickles, which only "
                "this program can read, and their type cannot change",
                self._operator_name,
                ", ".join(sorted(names)),
            )

    @property
    def _has_operator_state(self) -> bool:
        was_restored = any(chunk.table is StateTable.OPERATOR for chunk in self._chunks)
        return self._operator_state is not None or was_restored

    def _parts(self) -> list[Snapshotable]:
        parts: list[Snapshotable] = []
        if self._keyed_backend is not None:
            parts.append(self._keyed_backend)
        elif self._restored_keyed.unclaimed():
            parts.append(UnclaimedStates(self._restored_keyed))
        if self._has_operator_state:
            parts.append(OperatorStateSnapshots(self.operator_state))
        return [*parts, *self._snapshotables.values()]
