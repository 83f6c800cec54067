"""Options of the ResourceManager. Keys and defaults are Flink's where the meaning is the same."""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption

FIXED_POOL_SIZE: Final = ConfigOption(
    "headrace.taskmanager.fixed-pool.size",
    int,
    0,
    "Start so many TaskManagers at once and keep them; 0 starts and stops them as jobs need them.",
)
TASK_MANAGER_TIMEOUT: Final = ConfigOption(
    "resourcemanager.taskmanager-timeout",
    timedelta,
    timedelta(seconds=30),
    "A TaskManager without any job is given up after this time, unless the pool is fixed.",
)
TASK_MANAGER_REGISTRATION_TIMEOUT: Final = ConfigOption(
    "resourcemanager.taskmanager-registration.timeout",
    timedelta,
    timedelta(minutes=5),
    "A worker that has its place and does not register for so long is replaced.",
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
JOB_TIMEOUT: Final = ConfigOption(
    "resourcemanager.job.timeout",
    timedelta,
    timedelta(minutes=5),
    "What a job needs is forgotten when it has no JobMaster for so long; so is what it left to the cluster incomplete.",
)
