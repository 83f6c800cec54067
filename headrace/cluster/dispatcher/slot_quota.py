"""The quota of slots that one job of a cluster may ask for, so that others find room."""

from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.graph.execution_graph import slots_by_group
from headrace.graph.job_graph import JobGraph

SLOTS_PER_JOB_MAX: Final = ConfigOption(
    "headrace.session.slots-per-job-max",
    int,
    0,
    "Most slots that a job may need, which is refused where it needs more when it is submitted; 0: as many as there "
    "are. The cluster's own setting counts, and not that of the job.",
    least=0,
)


class SlotQuotaExceededError(HeadraceError):
    """A job needs more slots than any job of this cluster may have."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, job_name: str, needed: int, allowed: int) -> None:
        super().__init__(
            f"job '{job_name}' needs {needed} slots, and a job of this cluster may have {allowed} "
            f"({SLOTS_PER_JOB_MAX.key}): lower its parallelism"
        )
        self.needed, self.allowed = needed, allowed


def refuse_above_quota(graph: JobGraph, settings: Settings) -> None:
    """Raise SlotQuotaExceededError for a job that is too wide for a cluster with these settings."""
    allowed = settings.get_option(SLOTS_PER_JOB_MAX)
    needed = sum(slots_by_group(graph).values())
    if allowed and needed > allowed:
        raise SlotQuotaExceededError(graph.name, needed, allowed)
