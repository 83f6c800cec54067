"""Quota of slots that one job of a cluster may use, so that other jobs find room."""

from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.graph.execution_graph import slots_by_group
from headrace.graph.job_graph import JobGraph

SLOTS_PER_JOB_MAX: Final = ConfigOption(
    "headrace.session.slots-per-job-max",
    int,
    0,
    "Most slots that a job may need; a job that needs more is refused at submission. 0: no limit but the slots that "
    "exist. The cluster's own setting counts, not the job's.",
    least=0,
)


class SlotQuotaExceededError(HeadraceError):
    """A job needs more slots than this cluster allows one job."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, job_name: str, needed: int, allowed: int) -> None:
        super().__init__(
            f"job '{job_name}' needs {needed} slots, but a job of this cluster may use only {allowed} "
            f"({SLOTS_PER_JOB_MAX.key}): lower its parallelism"
        )
        self.needed, self.allowed = needed, allowed


def refuse_above_quota(graph: JobGraph, settings: Settings) -> None:
    """Raise SlotQuotaExceededError if a job needs more slots than these cluster settings allow."""
    allowed = settings.get_option(SLOTS_PER_JOB_MAX)
    needed = sum(slots_by_group(graph).values())
    if allowed and needed > allowed:
        raise SlotQuotaExceededError(graph.name, needed, allowed)
