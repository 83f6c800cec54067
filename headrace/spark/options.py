"""Options of the Spark host. Keys that begin with `spark.` are Spark's own and reach the session that we create."""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption

WORKERS_VARIABLE: Final = "HEADRACE_STAGE_WORKERS"
"""Environment variable with the name of Python workers that only run stages of jobs with equal files."""
MASTER: Final = ConfigOption(
    "headrace.spark.master",
    str,
    default="",
    doc="Spark master of a session that Headrace creates; empty: spark-submit's, else `local[n]` on this machine.",
)
SLOT_COUNT: Final = ConfigOption(
    "headrace.spark.slots",
    int,
    default=0,
    doc="TaskManagers that an embedded `local[n]` has room for; 0: the default parallelism, else one per processor.",
)
SPARE_SLOT_COUNT: Final = ConfigOption(
    "headrace.spark.spare-slots",
    int,
    default=4,
    doc="Slots of an embedded `local[n]` in addition to those of its jobs, for Spark's own work such as pushing "
    "DataFrames; if a job needs more than planned, TaskManagers may take all but one.",
)
STOP_GRACE: Final = ConfigOption(
    "headrace.spark.stop-grace",
    timedelta,
    default=timedelta(seconds=5),
    doc="How long a TaskManager may take to return after its stop before its Spark job is cancelled (a hard kill).",
)
EXECUTOR_TIMEOUT: Final = ConfigOption(
    "headrace.spark.executor-timeout",
    timedelta,
    default=timedelta(seconds=60),
    doc="How long to wait for the first Spark executors at start.",
)
MASTER_TIMEOUT: Final = ConfigOption(
    "headrace.spark.master-timeout",
    timedelta,
    default=timedelta(seconds=10),
    doc="How long a standalone master (spark://host:port) may take to accept a connection before Spark is started.",
)
APPLICATION_NAME: Final = ConfigOption(
    "headrace.spark.application-name",
    str,
    default="headrace",
    doc="Name of the Spark application that Headrace creates.",
)
AGGREGATES_IN_SPARK: Final = ConfigOption(
    "headrace.batch.aggregates-in-spark",
    bool,
    default=True,
    doc="Whether Spark computes the first phase of aggregates of DataFrames in BATCH mode if results are the same. "
    "Set it to false if nearly every row has a key of its own.",
)
