"""Options of checkpoints, savepoints and recovery, and the enums of their values.

Keys and defaults are Flink's where the meaning is the same.
Source: Flink CheckpointingOptions, StateRecoveryOptions, StateBackendOptions.
"""

import enum
from datetime import timedelta
from typing import Final, TypeVar

from headrace.core.config import ConfigOption, Settings, SizeBytes, withdraw_options
from headrace.core.errors import ConfigurationError

E = TypeVar("E", bound=enum.Enum)


class CheckpointingMode(enum.Enum):
    """Guarantees of a checkpoint for in-flight records."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1


class ExternalizedCheckpointRetention(enum.Enum):
    """Policies for the last checkpoint of a cancelled job."""

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2


class CheckpointStorageKind(enum.Enum):
    """Kinds of places in which checkpoints are stored."""

    JOBMANAGER = 0
    """The memory of the driver: checkpoints are lost when it ends."""
    FILESYSTEM = 1


class ClaimMode(enum.Enum):
    """Owners of a snapshot from which a job was started. Source: Flink RecoveryClaimMode."""

    NO_CLAIM = 0
    """The user: the job never deletes the snapshot, and does not need it after its own first full checkpoint."""
    CLAIM = 1
    """The job: it deletes the snapshot like its own checkpoints."""


class StateBackendType(enum.Enum):
    """Types of state backends, which store keyed state while a job runs."""

    HASHMAP = 0
    ROCKSDB = 1


class TimerServiceFactory(enum.Enum):
    """Places in which the RocksDB backend stores timers."""

    HEAP = 0
    ROCKSDB = 1


_P: Final = "execution.checkpointing."
_R: Final = "execution.state-recovery."
LEAST_INTERVAL: Final = timedelta(milliseconds=10)
"""Minimum interval and timeout of checkpoints, as in Flink."""

INTERVAL: Final = ConfigOption(
    _P + "interval", timedelta, timedelta(milliseconds=-1),
    "Time between checkpoints, at least 10 ms; 0 or unset: none.",
    least=LEAST_INTERVAL, off=(timedelta(0),),
)  # fmt: skip
MODE: Final = ConfigOption(
    _P + "mode", str, "EXACTLY_ONCE", "EXACTLY_ONCE or AT_LEAST_ONCE.",
    choices=tuple(CheckpointingMode.__members__),
)  # fmt: skip
TIMEOUT: Final = ConfigOption(
    _P + "timeout", timedelta, timedelta(minutes=10),
    "Time after which a checkpoint that is not complete is aborted, at least 10 ms.", least=LEAST_INTERVAL,
)  # fmt: skip
MIN_PAUSE: Final = ConfigOption(
    _P + "min-pause", timedelta, timedelta(0), "Minimum time from the end of a checkpoint to the start of the next.",
)  # fmt: skip
MAX_CONCURRENT: Final = ConfigOption(
    _P + "max-concurrent-checkpoints", int, 1, "Maximum number of checkpoints that are in progress at the same time.",
)  # fmt: skip
TOLERABLE_FAILURES: Final = ConfigOption(
    _P + "tolerable-failed-checkpoints", int, 0,
    "Number of failed checkpoints in a row that a job tolerates; one more fails it.",
)  # fmt: skip
RETENTION: Final = ConfigOption(
    _P + "externalized-checkpoint-retention", str, "NO_EXTERNALIZED_CHECKPOINTS",
    "Which checkpoints are kept when a job ends: RETAIN_ON_CANCELLATION keeps those of a cancelled job, "
    "the other two delete them. Those of a job that FAILED, or whose driver ended, are always kept, those of one that "
    "FINISHED never.",
    choices=tuple(ExternalizedCheckpointRetention.__members__),
)  # fmt: skip
UNALIGNED: Final = ConfigOption(
    _P + "unaligned.enabled", bool, False,
    "Whether checkpoints may be unaligned: barriers overtake in-flight records, which become part of the checkpoint.",
    deprecated_keys=(_P + "unaligned",),
)  # fmt: skip
FORCE_UNALIGNED: Final = ConfigOption(
    _P + "unaligned.forced", bool, False,
    "Whether barriers overtake records also on exchanges that cannot be rescaled.",
    refused="on forward, rescale, broadcast and custom exchanges barriers never overtake records; use "
    f"{UNALIGNED.key}, which covers all others",
)  # fmt: skip
ALIGNED_TIMEOUT: Final = ConfigOption(
    _P + "aligned-checkpoint-timeout", timedelta, timedelta(0),
    "Time for which an unaligned checkpoint waits as an aligned one before its barriers overtake records; 0: none.",
    deprecated_keys=(_P + "alignment-timeout",),
)  # fmt: skip
INTERRUPTIBLE_TIMERS: Final = ConfigOption(
    _P + "unaligned.interruptible-timers.enabled", bool, False,
    "Whether an overtaking barrier may be handled between the timers of one watermark.",
)  # fmt: skip
AFTER_TASKS_FINISH: Final = ConfigOption(
    _P + "checkpoints-after-tasks-finish", bool, True,
    "Whether checkpoints continue after some tasks have finished. If not, tasks finish without a final checkpoint, and "
    "output that sinks prepared since the last one is not committed.",
    deprecated_keys=(_P + "checkpoints-after-tasks-finish.enabled",),
)  # fmt: skip
INTERVAL_DURING_BACKLOG: Final = ConfigOption(
    _P + "interval-during-backlog", timedelta, timedelta(milliseconds=-1),
    "Time between checkpoints while a source reads a backlog; 0: no checkpoints then; unset: the usual interval.",
)  # fmt: skip
INCREMENTAL: Final = ConfigOption(
    _P + "incremental", bool, False,
    "Whether a checkpoint reuses files of earlier ones, if the state backend supports it.",
    deprecated_keys=("state.backend.incremental",),
)  # fmt: skip

STORAGE: Final = ConfigOption(
    _P + "storage", str, "",
    "JOBMANAGER keeps checkpoints in the driver's memory, FILESYSTEM below `execution.checkpointing.dir`. Unset: "
    "FILESYSTEM if that is set.",
    deprecated_keys=("state.checkpoint-storage",),
    choices=tuple(CheckpointStorageKind.__members__),
)  # fmt: skip
CHECKPOINT_DIRECTORY: Final = ConfigOption(
    _P + "dir", str, "",
    "Folder of checkpoints, or a URI of a file system that pyarrow knows.",
    deprecated_keys=("state.checkpoints.dir",),
)  # fmt: skip
SAVEPOINT_DIRECTORY: Final = ConfigOption(
    _P + "savepoint-dir", str, "", "Folder of savepoints that are requested without a path.",
    deprecated_keys=("state.savepoints.dir",),
)  # fmt: skip
CREATE_SUBDIR: Final = ConfigOption(
    _P + "create-subdir", bool, True,
    "Whether each job has a folder of its own below `execution.checkpointing.dir`.",
    deprecated_keys=("state.checkpoints.create-subdir",),
)  # fmt: skip
NUM_RETAINED: Final = ConfigOption(
    _P + "num-retained", int, 1, "Number of completed checkpoints that are kept, at least 1.",
    deprecated_keys=("state.checkpoints.num-retained",), least=1,
)  # fmt: skip
DATA_INLINE_THRESHOLD: Final = ConfigOption(
    _P + "data-inline-threshold", SizeBytes, SizeBytes(20 << 10),
    "State smaller than this is stored within the metadata instead of in a file of its own; at most 1mb.",
    deprecated_keys=("state.storage.fs.memory-threshold",), most=SizeBytes(1 << 20),
)  # fmt: skip
PARALLEL_CLEANER: Final = ConfigOption(
    _P + "cleaner.parallel-mode", bool, True,
    "Whether files of several checkpoints are deleted at the same time.",
)  # fmt: skip

RECOVERY_PATH: Final = ConfigOption(
    _R + "path", str, "", "The savepoint or checkpoint that the job starts from.",
    deprecated_keys=("execution.savepoint.path",),
)  # fmt: skip
LOCAL_BACKUP: Final = ConfigOption(
    _P + "local-backup.enabled", bool, False,
    "Whether TaskManagers keep copies of written state on their own disks.",
    deprecated_keys=("state.backend.local-recovery",),
)  # fmt: skip
LOCAL_BACKUP_SIZE: Final = ConfigOption(
    "headrace.checkpoint.local-backup-size", SizeBytes, SizeBytes(4 << 30),
    "Maximum total size of these copies on a TaskManager.",
)  # fmt: skip
RECOVERY_FROM_LOCAL: Final = ConfigOption(
    _R + "from-local", bool, False,
    "Whether a restore reads these local copies, if they exist, instead of the checkpoint storage.",
)  # fmt: skip
RECOVERY_CLAIM_MODE: Final = ConfigOption(
    _R + "claim-mode", str, "NO_CLAIM",
    "CLAIM: the job owns the snapshot from which it starts, and deletes it when it is no longer needed; NO_CLAIM: "
    "the snapshot stays the user's.",
    deprecated_keys=("execution.savepoint-restore-mode",),
    choices=tuple(ClaimMode.__members__),
)  # fmt: skip
IGNORE_UNCLAIMED_STATE: Final = ConfigOption(
    _R + "ignore-unclaimed-state", bool, False,
    "Whether a job starts although the snapshot has state of operators that the job lacks: that state is ignored.",
    deprecated_keys=("execution.savepoint.ignore-unclaimed-state",),
)  # fmt: skip
WITHOUT_CHANNEL_STATE: Final = ConfigOption(
    _R + "without-channel-state.checkpoint-id", int, -1,
    "The id of an unaligned checkpoint whose in-flight records are dropped when it is restored. A last resort if "
    "they cannot be read or processed.",
)  # fmt: skip
FORK: Final = ConfigOption(
    "headrace.state-recovery.fork", bool, False,
    "Whether the job that made the snapshot keeps running: this job is then a copy with the same state, and does not "
    "commit the prepared output, which belongs to the other job.",
)  # fmt: skip
SHARED_FILES: Final = ConfigOption(
    "headrace.security.shared-files", bool, False,
    "Whether folders of checkpoints and savepoints, and those in which output waits for its commit, have the "
    "permissions given by the umask of their process. false: on local file systems only their owner may access them, "
    "so driver and TaskManagers must run as the same user.",
)  # fmt: skip
REPEAT_OUTPUT: Final = ConfigOption(
    "headrace.state-recovery.repeat-output", bool, False,
    "Whether a job may start from a snapshot that is older than output which its sinks have committed: newer records "
    "are then written a second time. false: such a start is refused.",
)  # fmt: skip
RESTORE_WATERMARKS: Final = ConfigOption(
    "headrace.checkpoint.restore-watermarks", bool, True,
    "Whether event time continues from the snapshot, so that late records stay late; false: it begins anew, as in "
    "Flink.",
)  # fmt: skip
KEY_FILE: Final = ConfigOption(
    "headrace.checkpoint.key-file", str, "",
    "File with the key that authenticates the metadata of checkpoints: 64 hexadecimal digits, readable by its owner "
    "alone; created if it does not exist. Unset: `.headrace/checkpoint-key` in the user's own folder.",
)  # fmt: skip

STATE_BACKEND_TYPE: Final = ConfigOption(
    "state.backend.type", str, "hashmap",
    "Storage of keyed state while a job runs: `hashmap` in memory, `rocksdb` on the workers' disks.",
    deprecated_keys=("state.backend",),
    choices=("hashmap", "rocksdb"),
)  # fmt: skip
ROCKSDB_MEMORY: Final = ConfigOption(
    "state.backend.rocksdb.memory.fixed-per-slot", SizeBytes, SizeBytes(128 << 20),
    "Memory of all RocksDB databases of a TaskManager together: block cache, with indexes and filters, and write "
    "buffers; at least 8mb. Flushing and compacting take some more. Unset: the managed memory, if "
    "`taskmanager.memory.process.size`, `.flink.size` or `.managed.size` is set.",
    least=SizeBytes(8 << 20),
)  # fmt: skip
ROCKSDB_LOCAL_DIRECTORY: Final = ConfigOption(
    "state.backend.rocksdb.localdir", str, "",
    "Folder in which a worker keeps the files of RocksDB while a job runs. Unset: in the TaskManager's scratch "
    "directory.",
)  # fmt: skip
ROCKSDB_TIMERS: Final = ConfigOption(
    "state.backend.rocksdb.timer-service.factory", str, "ROCKSDB",
    "Storage of timers with `rocksdb`: ROCKSDB on the disk, which holds more, or HEAP in memory, which is faster.",
    choices=tuple(TimerServiceFactory.__members__),
)  # fmt: skip
ROCKSDB_TIMERS_CACHED: Final = ConfigOption(
    "state.backend.rocksdb.timer-service.cache-size", int, 128,
    "Number of timers of each key group that are also kept in memory, if timers are in RocksDB.",
    least=1,
)  # fmt: skip

FILE_MERGING: Final = ConfigOption(
    _P + "file-merging.enabled", bool, False,
    "Whether subtasks of a TaskManager write their state into a few large files.",
    refused="files are not merged; to have fewer, raise "
    f"{DATA_INLINE_THRESHOLD.key}: smaller state is stored within the metadata",
)  # fmt: skip
DURING_RECOVERY: Final = ConfigOption(
    _P + "unaligned.during-recovery.enabled", bool, False,
    "Whether checkpoints are taken while in-flight records are being restored.",
    refused="checkpoints begin once all tasks have restored their state; remove the option",
)  # fmt: skip
REGIONAL: Final = ConfigOption(
    _P + "region.enabled", bool, False,
    "Whether a checkpoint may hold older state of regions that failed to take part.",
    refused="a checkpoint always covers the whole job; to continue after a failed one, raise "
    f"{TOLERABLE_FAILURES.key}",
)  # fmt: skip
CHANGELOG: Final = ConfigOption(
    "state.changelog.enabled", bool, False, "Whether changes of state are logged as they happen.",
    refused="changes of state are not logged; for short checkpoints of large state use "
    f"{STATE_BACKEND_TYPE.key} rocksdb with {INCREMENTAL.key}",
    deprecated_keys=("state.backend.changelog.enabled",),
)  # fmt: skip


def member_of(enum_class: type[E], settings: Settings, option: ConfigOption[str]) -> E:
    """Return the enum member that an option names, in any case; ConfigurationError lists the members."""
    return parse_member(enum_class, option, settings.get_option(option))


def parse_member(enum_class: type[E], option: ConfigOption[str], text: str) -> E:
    """Return the enum member called `text`, in any case, with `-` for `_`; ConfigurationError lists the members."""
    try:
        return enum_class[text.upper().replace("-", "_")]
    except KeyError:
        names = ", ".join(member.name for member in enum_class)
        raise ConfigurationError(option.key, text, f"it must be one of {names}") from None


def storage_kind(settings: Settings) -> CheckpointStorageKind:
    """Return the configured kind of storage. ConfigurationError, also for a file system without a folder."""
    directory = settings.get_option(CHECKPOINT_DIRECTORY)
    if not settings.get_option(STORAGE):
        is_given = bool(directory)
        return CheckpointStorageKind.FILESYSTEM if is_given else CheckpointStorageKind.JOBMANAGER
    kind = member_of(CheckpointStorageKind, settings, STORAGE)
    if kind is CheckpointStorageKind.FILESYSTEM and not directory:
        raise ConfigurationError(
            STORAGE.key, kind.name, f"it needs a folder: set {CHECKPOINT_DIRECTORY.key}"
        )
    return kind


withdraw_options(
    {
        _P
        + "snapshot-compression": "remove it: state is always written compressed, as Parquet files",
        _P
        + "write-buffer-size": "remove it: state is written as whole Parquet files, without a buffer of this kind",
        _P + "unaligned.max-subtasks-per-channel-state-file": (
            "remove it: each subtask writes its in-flight data to files of its own"
        ),
        _P + "unaligned.recover-output-on-downstream.enabled": (
            "remove it: in-flight data is always recovered by the task that had sent or received it"
        ),
    }
)
