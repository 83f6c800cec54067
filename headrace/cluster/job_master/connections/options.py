"""Options of a JobMaster. Keys and defaults are Flink's where the meaning is the same."""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption

SLOT_REQUEST_TIMEOUT: Final = ConfigOption(
    "slot.request.timeout",
    timedelta,
    timedelta(minutes=5),
    "How long a job waits for its slots before it fails.",
)
SLOT_IDLE_TIMEOUT: Final = ConfigOption(
    "slot.idle.timeout",
    timedelta,
    timedelta(seconds=50),
    "Time after which a job gives back a slot that it does not need.",
)
SUBMIT_TIMEOUT: Final = ConfigOption(
    "headrace.task.submit-timeout",
    timedelta,
    timedelta(minutes=1),
    "How long a TaskManager may take to answer that it has taken a task.",
)
METRICS_UPDATE_INTERVAL: Final = ConfigOption(
    "metrics.fetcher.update-interval",
    timedelta,
    timedelta(milliseconds=500),
    "The metrics of a job's tasks are asked for at most this often.",
)
PARTITION_REGISTER_TIMEOUT: Final = ConfigOption(
    "headrace.shuffle.partition-register-timeout", timedelta, timedelta(seconds=30),
    "How long the shuffle service may take to say where a result may lie, before its producer is deployed.",
)  # fmt: skip
