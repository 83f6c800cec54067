"""HostServices: parts of a cluster that whoever hosts it brings along."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.cluster.dispatcher.job_leader import BatchJobMasters
from headrace.cluster.job_master.job_status_listener import OnAttempt
from headrace.gateways.ended_job import OnJobEnded


@dataclass(frozen=True, kw_only=True)
class HostServices:
    """Each may be missing. The functions are called on the control thread."""

    log_folder: Path | None = None
    """Folder to which the processes of this host write their logs."""
    on_job_ended: OnJobEnded | None = None
    """Told all about each job that has ended."""
    on_attempt: OnAttempt | None = None
    """Told of each start of a job."""
    batch_job_masters: BatchJobMasters | None = None
    """Makes the JobMasters of jobs in BATCH mode, where there is a Spark for them."""


NO_HOST_SERVICES: Final = HostServices()
