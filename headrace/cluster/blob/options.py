"""Options of the blob service. Keys and defaults are Flink's where the meaning is the same."""

from datetime import timedelta
from pathlib import Path
from typing import Final

from headrace.core.config import ConfigOption, Settings, SizeBytes
from headrace.rpc.options import FRAME_SIZE

OFFLOAD_MINSIZE: Final = ConfigOption(
    "blob.offload.minsize",
    SizeBytes,
    SizeBytes(1 << 20),
    "Size of a job's functions and collections together above which they travel as blobs, the largest first, instead "
    "of inside messages.",
)
FETCH_NUM_CONCURRENT: Final = ConfigOption(
    "blob.fetch.num-concurrent",
    int,
    50,
    "Chunks of blobs that the JobManager reads or writes at the same time; more wait for their turn.",
)
FETCH_RETRIES: Final = ConfigOption(
    "blob.fetch.retries",
    int,
    5,
    "Retries of the transfer of a blob after a failure.",
)
CLEANUP_INTERVAL: Final = ConfigOption(
    "blob.service.cleanup.interval",
    timedelta,
    timedelta(hours=1),
    "Time for which a TaskManager keeps the blobs of a job that it no longer works for, and the JobManager those of a "
    "job that was never submitted.",
)
STORAGE_DIRECTORY: Final = ConfigOption(
    "blob.storage.directory",
    str,
    "",
    "Directory below which processes keep blobs; by default the scratch directory of Spark, or the system's.",
)
STORAGE_SIZE_MAX: Final = ConfigOption(
    "headrace.blob.storage-size-max",
    SizeBytes,
    SizeBytes(64 << 30),
    "Bytes of blobs that the JobManager keeps at most, for all jobs together.",
)

_CHUNK_SIZE_MAX: Final = 1 << 20


def chunk_size(settings: Settings) -> int:
    """Bytes of a blob that go into one message: a chunk must leave room for others on the same connection."""
    return max(1, min(_CHUNK_SIZE_MAX, int(settings.get_option(FRAME_SIZE)) // 2))


def inline_size_max(settings: Settings) -> int:
    """Bytes of payloads that may stay in a job's messages, however large the option says."""
    return min(int(settings.get_option(OFFLOAD_MINSIZE)), int(settings.get_option(FRAME_SIZE)) // 2)


def storage_parent(settings: Settings, scratch: Path | None) -> Path | None:
    """Return the parent of the directory for this process's blobs; None for the system's temporary directory."""
    named = settings.get_option(STORAGE_DIRECTORY)
    return Path(named) if named else scratch
