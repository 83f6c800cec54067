"""HostServices: the parts of a cluster that its host provides."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.cluster.dispatcher.job_leader import BatchJobMasters
from headrace.cluster.job_master.job_status_listener import OnAttempt
from headrace.gateways.ended_job import OnJobEnded


@dataclass(frozen=True, kw_only=True)
class HostServices:
    """Parts that a host provides, any of which may be None. The functions are called on the control thread."""

    log_folder: Path | None = None
    """Folder to which the processes of this host write their logs."""
    on_job_ended: OnJobEnded | None = None
    """Called with each job that has ended."""
    on_attempt: OnAttempt | None = None
    """Called with each start of a job."""
    batch_job_masters: BatchJobMasters | None = None
    """Creates the JobMasters of jobs in BATCH mode; None without Spark."""


NO_HOST_SERVICES: Final = HostServices()
