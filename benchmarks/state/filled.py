"""Keyed state of a given size: a value per key, on either backend, with files in a folder of its own."""

import shutil
import tempfile
from types import TracebackType
from typing import Any, Self

from headrace.checkpoint.handles import OperatorSubtaskState, StateChunk
from headrace.checkpoint.storage.subtask_storage import StateReader, SubtaskStorage
from headrace.core.barriers import CheckpointOptions
from headrace.core.config import Settings
from headrace.core.operator_spec import OperatorTypes
from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import Types
from headrace.functions.state import ValueStateDescriptor
from headrace.state.backend import FrozenState
from headrace.state.operator_state_handler import OperatorStateHandler

VALUE_BYTES = 100
"""Of a value, up to a million keys; beyond that values are larger instead."""
KEYS_MAX = 1_000_000
NOISE_BYTES = 64 << 20
"""Values are cut from so much of it, which no compression makes smaller."""
MAX_PARALLELISM = 128
BACKENDS = {
    "heap": {"state.backend.type": "hashmap"},
    "rocksdb": {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"},
    "rocksdb_full": {"state.backend.type": "rocksdb"},
}


def keys_and_value_bytes(megabytes: int) -> tuple[int, int]:
    """How many keys make up a size, and how large their values are then."""
    value_bytes = max(VALUE_BYTES, megabytes * 1_000_000 // KEYS_MAX)
    return megabytes * 1_000_000 // value_bytes, value_bytes


class FilledState:
    """A state under keys 0..key_count-1. A context manager: at its end everything is deleted."""

    def __init__(
        self,
        backend: str,
        restored: OperatorSubtaskState | None = None,
        key_groups: range = range(MAX_PARALLELISM),
        value_bytes: int = VALUE_BYTES,
    ) -> None:
        self._value_bytes = value_bytes
        self.directory = tempfile.mkdtemp(prefix="headrace-bench-")
        self.settings = Settings(BACKENDS[backend])
        pickled = Types.PICKLED_BYTE_ARRAY()
        self.states = OperatorStateHandler(
            key_groups=key_groups,
            max_parallelism=MAX_PARALLELISM,
            types=OperatorTypes((BatchType(pickled, Types.LONG()),), BatchType(pickled)),
            settings=self.settings,
            restored=restored,
            restored_checkpoint_id=None if restored is None else 1,
            reader=StateReader(),
            scratch=self.directory,
        )
        self.backend = self.states.create_keyed_backend()
        self._noise = SeededRandom(7).randbytes(NOISE_BYTES)
        descriptor = ValueStateDescriptor("value", Types.PRIMITIVE_ARRAY(Types.BYTE()))
        self.state: Any = self.backend.get_state(descriptor, self.backend.key_scope)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.states.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def put(self, begin: int, count: int) -> None:
        """Write the values of some keys."""
        scope, update, size = self.backend.key_scope, self.state.update, self._value_bytes
        noise, end = self._noise, NOISE_BYTES - size
        for key in range(begin, begin + count):
            scope.entry = key
            first = key * size % end
            update(noise[first : first + size])

    def fill(self, key_count: int) -> None:
        """Write the values of all keys."""
        for begin in range(0, key_count, 100_000):
            self.put(begin, min(100_000, key_count - begin))

    def storage(self, checkpoint_id: int) -> tuple[CheckpointOptions, SubtaskStorage]:
        """Return where a checkpoint's files go."""
        uri = f"file://{self.directory}"
        options = CheckpointOptions(
            exclusive_uri=f"{uri}/chk-{checkpoint_id}", shared_uri=f"{uri}/shared"
        )
        return options, SubtaskStorage(options, "bench", self.settings)

    def freeze(self, checkpoint_id: int) -> tuple[list[FrozenState], SubtaskStorage]:
        """The synchronous part of a checkpoint."""
        options, storage = self.storage(checkpoint_id)
        return self.states.freeze(checkpoint_id, options), storage


def write(frozen: list[FrozenState], storage: SubtaskStorage) -> OperatorSubtaskState:
    """The asynchronous part of a checkpoint."""
    chunks: list[StateChunk] = []
    for part in frozen:
        chunks += part.write(storage)
        part.discard()
    return OperatorSubtaskState(tuple(chunks))
