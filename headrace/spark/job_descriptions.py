"""Descriptions of Headrace's Spark jobs, shown on Spark's page, in its status API and its event log."""

from typing import Final

from headrace.core.ids import ResourceId
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_plan import JobPlan

_PART_MAX: Final = 300


def job_text(graph: JobGraph) -> str:
    """Return the name of a job and the names of its vertices."""
    return f"'{graph.name}' ({', '.join(vertex.name for vertex in graph.vertices)})"


def attempt_text(graph: JobGraph, number: int) -> str:
    """Return the same text with the number of an attempt in front."""
    return f"attempt {number} of job {job_text(graph)}"


def worker_description(worker_id: ResourceId, cluster: str, attempt: str, dashboard: str) -> str:
    """Return the description of a TaskManager's Spark job, in one short line; unknown parts are empty.

    `attempt`: the latest attempt when the TaskManager was started, as `attempt_text` returns it.
    """
    return _line(
        f"TaskManager {worker_id}" + (f" of cluster '{cluster}'" if cluster else ""),
        f"started after {attempt}" if attempt else "",
        f"dashboard {dashboard}" if dashboard else "",
    )


def batch_description(graph: JobGraph, dashboard: str) -> str:
    """Return the description of a job in BATCH mode, whose vertices are Spark's stages."""
    page = f"dashboard {dashboard}/#/job/{graph.job_id}" if dashboard else ""
    return _line(f"BATCH job {job_text(graph)}", page)


def plan_description(plan: JobPlan) -> str:
    """Return the description of the records of a job that has ended, in either mode."""
    names = ", ".join(node.name for node in plan.nodes)
    return _line(f"records of {plan.job_type} job '{plan.name}' ({names})")


def clipped(text: str, length: int) -> str:
    """Return `text`, shortened to `length` characters if it is longer."""
    return text if len(text) <= length else f"{text[:length]}…"


def _line(*parts: str) -> str:
    return "; ".join(clipped(part, _PART_MAX) for part in parts if part)
