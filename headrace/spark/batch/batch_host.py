"""BatchHost: what the Spark application of a driver offers to its jobs in BATCH mode."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.core.ids import BlobKey, JobId
from headrace.gateways.blob_server import BlobServerGateway
from headrace.spark.batch.stage_files import EntriesInUse
from headrace.spark.batch.stage_resources import StageResources
from headrace.spark.session.authentication import TaskSecrets


@dataclass(frozen=True)
class BatchHost:
    """Spark session of jobs in BATCH mode, the pipe for printed lines, and the folder for pipes of reports.

    Both paths are empty where workers are on other hosts. `blob`: fetches one of a job, on any thread but the
    Dispatcher's. `artifact_parent`: folder for files of jobs on each host, or the system's temporary one.
    `memory`: settings of what a Python worker may hold; `resources`: what Spark keeps for each subtask. `dashboard`:
    returns its address, empty where there is none. `secrets`: with which workers on other hosts reach the driver.
    """

    spark: SparkSession
    output_pipe: str
    pipe_folder: str
    blob_server: BlobServerGateway
    blob: Callable[[JobId, BlobKey], bytes]
    resources: StageResources
    artifact_parent: Path | None = None
    memory: Mapping[str, str] = field(default_factory=dict[str, str])
    entries_in_use: EntriesInUse = field(default_factory=EntriesInUse)
    dashboard: Callable[[], str] = str
    secrets: TaskSecrets | None = None
