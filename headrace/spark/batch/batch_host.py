"""BatchHost: the resources of a driver's Spark application that its BATCH jobs use."""

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
    """Spark session of jobs in BATCH mode, the pipe for printed lines, and the folder for report pipes.

    Both paths are empty if workers run on other hosts. `blob`: fetches a blob of a job, on any thread but the
    Dispatcher's. `artifact_parent`: folder for files of jobs on each host; if empty, the system's temporary one.
    `memory`: settings that limit the memory of a Python worker; `resources`: resources that Spark reserves for each
    subtask. `dashboard`: returns the dashboard's address, empty if there is none. `secrets`: used by workers on other
    hosts to reach the driver.
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
