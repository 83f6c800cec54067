"""Elements of a checkpoint in a stream: the barrier, its options, and its cancellation.

Source: Flink CheckpointBarrier, CancelCheckpointMarker, CheckpointOptions, SnapshotType.
"""

import enum
from typing import Final

import msgspec

NEVER_UNALIGNED: Final = -1
"""Value of `aligned_timeout_ms` for a barrier that always stays aligned."""


class SavepointFormatType(enum.Enum):
    """Formats of savepoints. Source: Flink SavepointFormatType."""

    CANONICAL = "CANONICAL"
    """Rows in Parquet, which any state backend restores, and which are read and edited as tables."""
    NATIVE = "NATIVE"
    """The state backend's own files: RocksDB's, which only RocksDB restores, but faster; for the heap, rows in Parquet
    as well.
    """


class SnapshotKind(enum.Enum):
    """Kinds of snapshots, by the files they may refer to, their format and the job's next step.

    Source: Flink CheckpointType, SavepointType.
    """

    CHECKPOINT = 0
    """A checkpoint that may refer to files of earlier ones, and later ones to its files."""
    FULL_CHECKPOINT = 1
    """A checkpoint that refers to no earlier files; later checkpoints may refer to its files."""
    SAVEPOINT = 2
    """A snapshot that stands alone, in the canonical format; the job goes on."""
    SAVEPOINT_SUSPEND = 3
    """A savepoint after which the job stops, to be resumed."""
    SAVEPOINT_TERMINATE = 4
    """A savepoint after which the job ends for good: event time ends before it (drain)."""
    NATIVE_SAVEPOINT = 5
    """A savepoint in the format of the state backend; the job goes on."""
    NATIVE_SAVEPOINT_SUSPEND = 6
    NATIVE_SAVEPOINT_TERMINATE = 7

    @property
    def is_savepoint(self) -> bool:
        """Return whether a user requested the snapshot and owns it."""
        return self.value >= SnapshotKind.SAVEPOINT.value

    @property
    def is_synchronous(self) -> bool:
        """Return whether tasks wait for the snapshot's completion and then stop."""
        return self.canonical in (SnapshotKind.SAVEPOINT_SUSPEND, SnapshotKind.SAVEPOINT_TERMINATE)

    @property
    def is_drained(self) -> bool:
        """Return whether event time ends before the snapshot, so that no job can continue from it."""
        return self.canonical is SnapshotKind.SAVEPOINT_TERMINATE

    @property
    def is_native(self) -> bool:
        """Return whether the snapshot is a savepoint in the format of the state backend."""
        return self.canonical is not self

    @property
    def savepoint_format(self) -> str:
        """Return the name of a savepoint's format; empty for checkpoints."""
        if not self.is_savepoint:
            return ""
        return (
            SavepointFormatType.NATIVE if self.is_native else SavepointFormatType.CANONICAL
        ).name

    @property
    def canonical(self) -> "SnapshotKind":
        """Return the same kind of savepoint in the canonical format; checkpoints are returned unchanged."""
        return _CANONICAL.get(self, self)

    def in_format(self, format_type: SavepointFormatType) -> "SnapshotKind":
        """Return the same kind of savepoint in a format."""
        assert self.is_savepoint, "the format of a checkpoint cannot be chosen"
        if format_type is SavepointFormatType.CANONICAL:
            return self.canonical
        return next(
            native for native, canonical in _CANONICAL.items() if self in (native, canonical)
        )


_CANONICAL: Final = {
    SnapshotKind.NATIVE_SAVEPOINT: SnapshotKind.SAVEPOINT,
    SnapshotKind.NATIVE_SAVEPOINT_SUSPEND: SnapshotKind.SAVEPOINT_SUSPEND,
    SnapshotKind.NATIVE_SAVEPOINT_TERMINATE: SnapshotKind.SAVEPOINT_TERMINATE,
}
"""Kinds of savepoints that differ only in the format: native → canonical."""


class AlignmentMode(enum.Enum):
    """Ways in which barriers pass the rows ahead of them. Source: Flink CheckpointOptions.AlignmentType."""

    AT_LEAST_ONCE = 0
    ALIGNED = 1
    UNALIGNED = 2
    FORCED_ALIGNED = 3
    """Aligned on an edge where barriers cannot overtake, although unaligned was requested; unaligned again after it."""


class CheckpointOptions(msgspec.Struct, frozen=True, array_like=True):
    """Options that every barrier of a checkpoint carries. URIs are directories of the checkpoint storage.

    `exclusive_uri` is the directory for files of this snapshot alone (empty: everything is sent inline to the
    JobMaster), `shared_uri` that for files to which later checkpoints may refer. `aligned_timeout_ms` is the time from
    the trigger until an aligned barrier turns into an unaligned one.
    """

    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    alignment: AlignmentMode = AlignmentMode.ALIGNED
    exclusive_uri: str = ""
    shared_uri: str = ""
    aligned_timeout_ms: int = NEVER_UNALIGNED

    @property
    def is_exactly_once(self) -> bool:
        """Return whether channels are blocked, or in-flight data is stored."""
        return self.alignment is not AlignmentMode.AT_LEAST_ONCE

    @property
    def is_unaligned(self) -> bool:
        """Return whether barriers overtake."""
        return self.alignment is AlignmentMode.UNALIGNED

    @property
    def is_timeoutable(self) -> bool:
        """Return whether an aligned barrier may become unaligned."""
        return (
            self.alignment is AlignmentMode.ALIGNED and self.aligned_timeout_ms != NEVER_UNALIGNED
        )

    def with_unaligned(self) -> "CheckpointOptions":
        """Return the options of the same checkpoint once its barriers overtake."""
        return msgspec.structs.replace(self, alignment=AlignmentMode.UNALIGNED)

    def with_forced_alignment(self) -> "CheckpointOptions":
        """Return the options of the same checkpoint on an edge where barriers cannot overtake."""
        if not self.is_unaligned and not self.is_timeoutable:
            return self
        return msgspec.structs.replace(self, alignment=AlignmentMode.FORCED_ALIGNED)

    def with_unaligned_supported(self) -> "CheckpointOptions":
        """Return the options of the same checkpoint after an edge that forced alignment: the original mode."""
        if self.alignment is not AlignmentMode.FORCED_ALIGNED:
            return self
        may_time_out = self.aligned_timeout_ms != NEVER_UNALIGNED
        mode = AlignmentMode.ALIGNED if may_time_out else AlignmentMode.UNALIGNED
        return msgspec.structs.replace(self, alignment=mode)


class CheckpointBarrier(msgspec.Struct, frozen=True, array_like=True, tag="b"):
    """Separates the elements of a channel that belong to checkpoint `checkpoint_id` from those that come after it.

    `timestamp_ms` is the trigger's wall clock; `elapsed_ms` is the time from the trigger until the sender emitted the
    barrier, summed over the machines that it passed, so that timeouts need not compare clocks of two machines.
    """

    checkpoint_id: int
    timestamp_ms: int
    options: CheckpointOptions = CheckpointOptions()
    elapsed_ms: int = 0

    def timed_out(self) -> "CheckpointBarrier":
        """Return the barrier as it is after its alignment timeout."""
        elapsed_ms = max(self.elapsed_ms, self.options.aligned_timeout_ms)
        return msgspec.structs.replace(
            self, options=self.options.with_unaligned(), elapsed_ms=elapsed_ms
        )


class CancelCheckpointMarker(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Announces that no barrier `checkpoint_id` will come on this channel any more."""

    checkpoint_id: int
