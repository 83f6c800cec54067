"""Options of the ResourceManager. Keys and defaults are Flink's where the meaning is the same."""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption

FIXED_POOL_SIZE: Final = ConfigOption(
    "headrace.taskmanager.fixed-pool.size",
    int,
    0,
    "Number of TaskManagers that are started at once and kept; 0 starts and stops them as jobs need them.",
)
TASK_MANAGER_TIMEOUT: Final = ConfigOption(
    "resourcemanager.taskmanager-timeout",
    timedelta,
    timedelta(seconds=30),
    "Time after which a TaskManager without a job is stopped, unless their number is fixed.",
)
TASK_MANAGER_REGISTRATION_TIMEOUT: Final = ConfigOption(
    "resourcemanager.taskmanager-registration.timeout",
    timedelta,
    timedelta(minutes=5),
    "Time after which a worker that was started and has not registered is replaced.",
)
START_WORKER_MAX_FAILURE_RATE: Final = ConfigOption(
    "resourcemanager.start-worker.max-failure-rate",
    float,
    10.0,
    "Workers that may fail to start per minute before requests pause.",
)
START_WORKER_RETRY_INTERVAL: Final = ConfigOption(
    "resourcemanager.start-worker.retry-interval",
    timedelta,
    timedelta(seconds=3),
    "How long requests pause after too many workers failed to start.",
)
ENDED_TASK_MANAGERS_MAX: Final = ConfigOption(
    "headrace.resourcemanager.ended-task-managers",
    int,
    100,
    "TaskManagers that have ended whose facts and log files are kept; files of those that ended before are deleted.",
)
JOB_TIMEOUT: Final = ConfigOption(
    "resourcemanager.job.timeout",
    timedelta,
    timedelta(minutes=5),
    "Time after which the slots and incomplete cached results of a job without a JobMaster are released.",
)
EXCLUSIVE_TASK_MANAGERS: Final = ConfigOption(
    "headrace.resourcemanager.exclusive-task-managers",
    bool,
    False,
    "Whether each TaskManager serves the slots of one job alone and ends with it, so that no job meets the modules, "
    "the memory or the end of another job's process. 'headrace cluster start' sets it; in Flink they are shared.",
)
