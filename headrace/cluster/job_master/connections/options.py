"""Options of a JobMaster, with Flink's keys and defaults if the meaning is the same."""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption

SLOT_REQUEST_TIMEOUT: Final = ConfigOption(
    "slot.request.timeout",
    timedelta,
    timedelta(minutes=5),
    "Time for which a job waits for its slots before it fails.",
)
SLOT_IDLE_TIMEOUT: Final = ConfigOption(
    "slot.idle.timeout",
    timedelta,
    timedelta(seconds=50),
    "Time after which a job returns a slot that it does not need.",
)
SUBMIT_TIMEOUT: Final = ConfigOption(
    "headrace.task.submit-timeout",
    timedelta,
    timedelta(minutes=1),
    "Time for a TaskManager to confirm that it has accepted a task.",
)
METRICS_UPDATE_INTERVAL: Final = ConfigOption(
    "metrics.fetcher.update-interval",
    timedelta,
    timedelta(milliseconds=500),
    "Minimum time between two requests for the metrics of a job's tasks.",
)
PARTITION_REGISTER_TIMEOUT: Final = ConfigOption(
    "headrace.shuffle.partition-register-timeout", timedelta, timedelta(seconds=30),
    "Time for the shuffle plug-in to return the location of a result, before its producer is deployed.",
)  # fmt: skip
