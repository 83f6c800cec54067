"""Options of high availability, with Flink's keys if it has them."""

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
    "Whether jobs outlive their driver: drivers with one cluster id elect a leader, and the next one continues all "
    "jobs. `file`: they elect it through files in high-availability.storageDir; `zookeeper` and `kubernetes`: through "
    "that service, which also stores pointers to the jobs in the storage. NONE: jobs end with their driver. If it is "
    "not set but high-availability.storageDir is, it is `file`.",
    deprecated_keys=("high-availability",),
    choices=(NONE, FILES, ZOOKEEPER, KUBERNETES),
)  # fmt: skip
STORAGE_DIR: Final = ConfigOption(
    _P + "storageDir", str, "",
    "Folder that all drivers and workers see under this path, for job graphs, job results and leader records. Also one "
    "in an S3 store that supports conditional writes (s3://…), with the extra `s3`.",
)  # fmt: skip
CLUSTER_ID: Final = ConfigOption(
    _P + "cluster-id", str, "default",
    "Name of the cluster in the storage folder: drivers with the same name are leader and standbys of one cluster.",
)  # fmt: skip
LEASE_DURATION: Final = ConfigOption(
    _P + "file.leader-election.lease-duration", timedelta, timedelta(seconds=6),
    "Time without a renewal, by a standby's own clock, after which it takes over the leadership.",
)  # fmt: skip
RENEW_DEADLINE: Final = ConfigOption(
    _P + "file.leader-election.renew-deadline", timedelta, timedelta(seconds=4),
    "Time after its last renewal at which a leader gives up; shorter than the lease duration.",
)  # fmt: skip
RETRY_PERIOD: Final = ConfigOption(
    _P + "file.leader-election.retry-period", timedelta, timedelta(seconds=1),
    "Time between two renewals of a leader, and between two checks of a standby; at most half of the renew deadline.",
    least=timedelta(milliseconds=10),
)  # fmt: skip
DELETE_ON_COMMIT: Final = ConfigOption(
    "job-result-store.delete-on-commit", bool, True,
    "Whether the stored result of a job is deleted once all its other files are. false: it stays, and the next "
    "leader still refuses the same job; such files must be deleted manually.",
)  # fmt: skip


def high_availability_type(settings: Settings) -> str:
    """Return the kind of the service that elects the leader, or NONE. ConfigurationError if the option is invalid."""
    if not settings.is_set(HIGH_AVAILABILITY_TYPE) and settings.get_option(STORAGE_DIR):
        return FILES
    return settings.get_option(HIGH_AVAILABILITY_TYPE)


def is_highly_available(settings: Settings) -> bool:
    """Return whether the settings ask for high availability. ConfigurationError if the option is invalid."""
    return high_availability_type(settings) != NONE


def cluster_id(settings: Settings) -> str:
    """Return the name of the cluster, which is also a folder name. ConfigurationError if it is invalid."""
    name = settings.get_option(CLUSTER_ID).strip("/")
    if not name or name.startswith(".") or "/" in name:
        raise ConfigurationError(
            CLUSTER_ID.key, name, "it must be the name of one folder: letters, digits, '-' and '_'"
        )
    return name
