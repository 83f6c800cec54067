"""Options of high availability. Keys are Flink's where it has them."""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError

_P: Final = "high-availability."
NONE: Final = "NONE"
FILES: Final = "file"
ZOOKEEPER: Final = "zookeeper"
KUBERNETES: Final = "kubernetes"

HIGH_AVAILABILITY_TYPE: Final = ConfigOption(
    _P + "type", str, NONE,
    "Whether jobs outlive their driver: drivers with one cluster id elect a leader, and the next one goes on with all "
    "jobs. `file`: they elect it through files in high-availability.storageDir; `zookeeper` and `kubernetes`: through "
    "that service, which holds pointers to the jobs in the storage, too. NONE: jobs end with their driver. Where it is "
    "not set, and high-availability.storageDir is, it is `file`.",
    deprecated_keys=("high-availability",),
    choices=(NONE, FILES, ZOOKEEPER, KUBERNETES),
)  # fmt: skip
STORAGE_DIR: Final = ConfigOption(
    _P + "storageDir", str, "",
    "Folder that all drivers and workers see under this path, for job graphs, results of jobs, and who leads. Also one "
    "of an S3 store that obeys conditional writes (s3://…), with the extra `s3`.",
)  # fmt: skip
CLUSTER_ID: Final = ConfigOption(
    _P + "cluster-id", str, "default",
    "Name of the cluster in the storage folder: drivers with the same one are leader and standbys of one cluster.",
)  # fmt: skip
LEASE_DURATION: Final = ConfigOption(
    _P + "file.leader-election.lease-duration", timedelta, timedelta(seconds=6),
    "Time for which a standby must have seen no renewal, by its own clock, before it takes the leadership over.",
)  # fmt: skip
RENEW_DEADLINE: Final = ConfigOption(
    _P + "file.leader-election.renew-deadline", timedelta, timedelta(seconds=4),
    "Time after its last renewal at which a leader gives up; shorter than the lease duration.",
)  # fmt: skip
RETRY_PERIOD: Final = ConfigOption(
    _P + "file.leader-election.retry-period", timedelta, timedelta(seconds=1),
    "Time between two renewals of a leader, and between two looks of a standby; at most half of the renew deadline.",
    least=timedelta(milliseconds=10),
)  # fmt: skip
DELETE_ON_COMMIT: Final = ConfigOption(
    "job-result-store.delete-on-commit", bool, True,
    "Whether the stored result of a job is deleted once nothing else is left of the job. false: it stays, and the next "
    "leader still refuses the same job; somebody has to delete such files.",
)  # fmt: skip


def high_availability_type(settings: Settings) -> str:
    """Return which services drivers elect their leader by, or NONE. ConfigurationError."""
    if not settings.is_set(HIGH_AVAILABILITY_TYPE) and settings.get_option(STORAGE_DIR):
        return FILES
    return settings.get_option(HIGH_AVAILABILITY_TYPE)


def is_highly_available(settings: Settings) -> bool:
    """Return whether the settings ask for high availability. ConfigurationError."""
    return high_availability_type(settings) != NONE


def cluster_id(settings: Settings) -> str:
    """Return the name of the cluster, which is also one of a folder. ConfigurationError."""
    name = settings.get_option(CLUSTER_ID).strip("/")
    if not name or name.startswith(".") or "/" in name:
        raise ConfigurationError(
            CLUSTER_ID.key, name, "it names one folder: letters, digits, '-' and '_'"
        )
    return name
