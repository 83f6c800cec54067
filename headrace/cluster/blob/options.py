"""Options of the blob service, with Flink's keys and defaults if the meaning is the same."""

from datetime import timedelta
from pathlib import Path
from typing import Final

from headrace.core.config import ConfigOption, Settings, SizeBytes
from headrace.rpc.options import FRAME_SIZE

OFFLOAD_MINSIZE: Final = ConfigOption(
    "blob.offload.minsize",
    SizeBytes,
    SizeBytes(1 << 20),
    "Total size of a job's functions and collections above which they are sent as blobs, the largest first, instead "
    "of inside messages.",
)
FETCH_NUM_CONCURRENT: Final = ConfigOption(
    "blob.fetch.num-concurrent",
    int,
    50,
    "Number of chunks of blobs that the JobManager reads or writes at the same time; further ones wait.",
)
FETCH_RETRIES: Final = ConfigOption(
    "blob.fetch.retries",
    int,
    5,
    "Number of retries of the transfer of a blob after a failure.",
)
CLEANUP_INTERVAL: Final = ConfigOption(
    "blob.service.cleanup.interval",
    timedelta,
    timedelta(hours=1),
    "Time for which a TaskManager keeps the blobs of a job that has left it, and the JobManager those of a "
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
    "Largest total size of the blobs that the JobManager keeps, for all jobs.",
)

_CHUNK_SIZE_MAX: Final = 1 << 20


def chunk_size(settings: Settings) -> int:
    """Return the bytes of a blob in one message; a chunk must leave room for others on the same connection."""
    return max(1, min(_CHUNK_SIZE_MAX, int(settings.get_option(FRAME_SIZE)) // 2))


def inline_size_max(settings: Settings) -> int:
    """Return the bytes of payloads that may stay in a job's messages, at most half a frame whatever the option says."""
    return min(int(settings.get_option(OFFLOAD_MINSIZE)), int(settings.get_option(FRAME_SIZE)) // 2)


def storage_parent(settings: Settings, scratch: Path | None) -> Path | None:
    """Return the parent of the directory for this process's blobs; None for the system's temporary directory."""
    named = settings.get_option(STORAGE_DIRECTORY)
    return Path(named) if named else scratch
