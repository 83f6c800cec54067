"""Savepoints in a folder, written by the states of an operator as a job's subtasks write them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.checkpoint.handles import OperatorSubtaskState, StateChunk
from headrace.checkpoint.metadata import CheckpointMetadata, CompletedCheckpoint, OperatorSnapshot
from headrace.checkpoint.options import DATA_INLINE_THRESHOLD, KEY_FILE
from headrace.checkpoint.storage.checkpoint_storage import publish_metadata
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.checkpoint.storage.subtask_storage import StateReader, SubtaskStorage
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.key_groups import key_group_range
from headrace.core.operator_spec import OperatorTypes
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.process import TimeDomain
from headrace.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from headrace.graph.operator_ids import uid_hash_of
from headrace.operators.runtime.internal_timer_service import InternalTimerService
from headrace.state.operator_state_handler import OperatorStateHandler
from headrace.testing.operator_harness import ManualTimers

UID = "counter"
MAX_PARALLELISM = 16
USER = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
DESCRIPTORS: Mapping[str, StateDescriptor] = {
    "count": ValueStateDescriptor("count", Types.LONG()),
    "user": ValueStateDescriptor("user", USER),
    "events": ListStateDescriptor("events", Types.STRING()),
    "words": MapStateDescriptor("words", Types.STRING(), Types.INT()),
}
FILES: Mapping[str, str] = {DATA_INLINE_THRESHOLD.key: "0"}


class Subtask:
    """One subtask of an operator with four keyed states and timers, fresh or from a savepoint."""

    def __init__(
        self,
        settings: Settings,
        index: int = 0,
        parallelism: int = 1,
        key_type: TypeInformation | None = None,
        restored: OperatorSubtaskState | None = None,
        scratch: str = "",
    ) -> None:
        key_type = key_type or Types.LONG()
        self.states = OperatorStateHandler(
            key_groups=key_group_range(index, parallelism, MAX_PARALLELISM),
            max_parallelism=MAX_PARALLELISM,
            types=OperatorTypes((BatchType(Types.LONG(), key_type),), BatchType(Types.LONG())),
            settings=settings,
            clock=ManualClock(),
            restored=restored,
            restored_checkpoint_id=None if restored is None else 7,
            reader=StateReader(),
            scratch=scratch,
        )
        self.backend = self.states.create_keyed_backend()
        self.handles: dict[str, Any] = {
            name: self.backend.get_state(one, self.backend.key_scope)
            for name, one in DESCRIPTORS.items()
        }
        self.timers = InternalTimerService(
            self.backend, ManualTimers(ManualClock()), _no_timer, _no_timer
        )
        self.timers.keep_in(self.states, "timers")

    def snapshot(self, writer: SubtaskStorage) -> OperatorSubtaskState:
        """Write everything."""
        chunks: list[StateChunk] = []
        for frozen in self.states.freeze(7, CheckpointOptions(kind=SnapshotKind.SAVEPOINT)):
            chunks += frozen.write(writer)
            frozen.discard()
        return OperatorSubtaskState(tuple(chunks))


def _no_timer(time_ms: int, key: Any, namespace: Any) -> None:
    raise AssertionError("no time passes")


def settings_in(folder: Path, **more: str) -> Settings:
    """State lies within the metadata, as files cost time; `FILES` are settings for those that want them."""
    return Settings({KEY_FILE.key: str(folder / "key"), **more})


def fill(subtask: Subtask, keys: Sequence[Any]) -> None:
    """Give each key a count, two events, two words and an event-time timer."""
    for number, key in enumerate(keys):
        subtask.backend.set_current_key(key)
        subtask.handles["count"].update(10 * number)
        subtask.handles["events"].add_all([f"a{number}", f"b{number}"])
        subtask.handles["words"].put_all({"x": number, "y": -number})
        subtask.timers.register(TimeDomain.EVENT_TIME, 1_000 + number)


def saved(
    folder: Path,
    settings: Settings,
    subtasks: Sequence[OperatorSubtaskState],
    kind: SnapshotKind = SnapshotKind.SAVEPOINT,
    max_parallelism: int = MAX_PARALLELISM,
) -> CompletedCheckpoint:
    """Publish the savepoint of one operator."""
    operator = OperatorSnapshot(
        uid_hash_of(UID),
        "count words",
        len(subtasks),
        max_parallelism,
        UID,
        dict(enumerate(subtasks)),
    )
    metadata = CheckpointMetadata(
        7, kind, 1_000, JobId(b"j" * 16), "job", "1a" * 16, 1, (operator,)
    )
    return publish_metadata(metadata, str(folder), metadata_key(settings))


def storage_of(folder: Path, settings: Settings) -> SubtaskStorage:
    folder.mkdir(parents=True, exist_ok=True)
    options = CheckpointOptions(kind=SnapshotKind.SAVEPOINT, exclusive_uri=str(folder))
    return SubtaskStorage(options, "task", settings)


def savepoint(
    folder: Path,
    settings: Settings,
    keys: Sequence[Any] = range(6),
    key_type: TypeInformation | None = None,
) -> CompletedCheckpoint:
    """The savepoint of two subtasks that have these keys between them."""
    writer = storage_of(folder, settings)
    states: list[OperatorSubtaskState] = []
    for index in range(2):
        one = Subtask(settings, index, 2, key_type, scratch=str(folder))
        space = one.states.key_space
        own = [key for key in keys if group_of(key, space.key_type) in space.key_groups]
        fill(one, own)
        states.append(one.snapshot(writer))
    return saved(folder, settings, states)


def group_of(key: Any, key_type: TypeInformation) -> int:
    from headrace.state.columns import key_groups

    return int(key_groups([key], key_type, MAX_PARALLELISM)[0])


def restored(
    snapshot: CompletedCheckpoint, settings: Settings, key_type: TypeInformation | None = None
) -> Subtask:
    """One subtask that goes on from all of a savepoint."""
    (operator,) = snapshot.metadata.operators
    chunks = [chunk for state in operator.subtasks.values() for chunk in state.chunks]
    return Subtask(
        settings,
        key_type=key_type,
        restored=OperatorSubtaskState(tuple(chunks)),
        scratch=snapshot.uri,
    )
